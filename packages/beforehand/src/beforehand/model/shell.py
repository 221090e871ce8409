"""Commands that people are told to type: one function writes each of them.

Names of steps and keys come from models, services and people, and a printed command is pasted into a shell. So each
word is quoted where a shell would read anything else from it, and nothing follows a command on its line.
"""

from __future__ import annotations

import re
from typing import Final

NAME: Final = "NAME"
PLACEHOLDERS: Final = frozenset(
    {NAME, "VALUE", "JSON", "TEXT", "NUMBER", "DIGEST", "ROLE", "RUN", "FILE.py:AGENT", "FILE.py:NAME"}
)
"""Words that a person replaces. The command line refuses each of them, so that a pasted command does nothing."""
_UNTYPABLE: Final = "A-NAME-THAT-CANNOT-BE-TYPED"
_BARE: Final = re.compile(r"[A-Za-z0-9@%+:,./_-]([A-Za-z0-9@%+=,./_#-]|[A-Za-z0-9]~|:(?!~))*")


def to_type(*words: str) -> str:
    """`beforehand` with these words, as one line that a POSIX shell reads as exactly them.

    A word with a line end or a sign that is not shown is replaced by one that names nothing: it could not be read back.
    """
    return " ".join(("beforehand", *map(_quoted, words)))


def is_placeholder(word: str) -> bool:
    """True if a person has to put something of their own there, as in `--by NAME` and `--raise LIMIT=AMOUNT`."""
    return word in PLACEHOLDERS or word.startswith("LIMIT=") or "=AMOUNT" in word


def _quoted(word: str) -> str:
    if not word.isprintable():
        return _UNTYPABLE
    return word if _BARE.fullmatch(word) else "'" + word.replace("'", "'\\''") + "'"


def named(*words: str) -> tuple[str, ...]:
    """Words of a command that are names, last on its line: none of them is read as an option."""
    return ("--", *words) if any(word.startswith("-") for word in words) else words


def lines(*commands: str) -> str:
    """Several commands to choose from, each on a line of its own."""
    return "".join(f"\n  {command}" for command in commands)
