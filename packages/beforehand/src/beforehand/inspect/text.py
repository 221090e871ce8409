"""Text from others, made safe to show: cut where it is long, collapsed where it is piled up, escaped for a terminal.

Every surface limits what it shows of one text, so that no argument makes a page or a terminal unusable. What is left
out is counted in its place. Numbers and times are made readable here, too.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

LONGEST: Final = 10_000
"""Largest number of characters of one text that an interface shows."""
_IN_A_ROW: Final = 4
_SHOWN: Final = 2
_NO_LETTERS: Final = re.compile(r"[^\w\s!-~]{5,}")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_REPORT: Final = 500
"""The length at which records and the listing cut the reason of a run."""
_WITH_COMMANDS: Final = (
    "ClaimUnproven",
    "DecisionFailed",
    "LoopStopped",
    "OperationFailed",
    "OutcomePending",
    "OutcomeUnknown",
    "ParameterMismatch",
    "ReplayDiverged",
)  # fmt: skip - one to a line would hide that they are one list
"""The errors in runs whose next step is a command that the runtime wrote."""
_OWN_COMMANDS: Final = re.compile(
    rf"([a-z]+: )?(\w*Group: .*; the first of them: )?({'|'.join(_WITH_COMMANDS)}): .* Next: "
    r"|paused by .*: (?=beforehand unpause \S+$)",
    re.DOTALL,
)

_LIKE_OURS: Final = re.compile(r"\W*(?:beforehand\b(?!: )|(?:next|known):)", re.IGNORECASE)
"""The beginning of a command or of a next step that a command prints on a line of its own."""


def split_report(text: str) -> tuple[str, str]:
    """Split a recorded reason of a run from the commands that the runtime wrote behind it; empty without commands.

    These are the next step at the end of the runtime's errors, and the command behind a pause. A text of a user is
    never split, nor is one that was cut: its last sentence may be of either.
    """
    found = _OWN_COMMANDS.match(text) if len(text) < _REPORT else None
    return (text[: found.end()], text[found.end() :]) if found else (text, "")


def without_commands(text: str) -> str:
    """A recorded reason of a run for pages and notices, which have answers of their own in place of its commands."""
    facts, commands = split_report(text)
    return facts.removesuffix("Next: ").rstrip(": ") if commands else text


def cut(text: str, limit: int = LONGEST, where: str = "") -> str:
    """The beginning of a text, with a remark on how much is left out; `where` says how to see it."""
    rest = len(text) - limit
    return text if rest <= 0 else f"{text[:limit]}… ({rest:,} more characters{where})"


def collapsed(text: str) -> str:
    """The text without long rows of combining marks or hidden signs: two of a row stay, the others are counted."""
    return text if text.isascii() else _NO_LETTERS.sub(_fewer, text)


def _fewer(row: re.Match[str]) -> str:
    return "".join(_group(kind, "".join(signs)) for kind, signs in groupby(row[0], _kind))


def _group(kind: str, signs: str) -> str:
    if not kind or len(signs) <= _IN_A_ROW:
        return signs
    return f"{signs[:_SHOWN]}[{len(signs) - _SHOWN:,} more {kind}]"


def _kind(sign: str) -> str:
    category = unicodedata.category(sign)
    if category in {"Mn", "Me"}:
        return "combining marks"
    return "hidden signs" if category in _HIDDEN else ""


def moment(ms: int) -> str:
    """A wall clock in milliseconds, in UTC, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# Control characters, bidirectional and invisible signs, lone surrogates: what could move the cursor,
# reorder a line or hide a part of it. A tool's answer must not be able to draw on an operator's screen.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_TIMES: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def safe(text: str, *, lines: bool = False) -> str:
    """`text` with every sign that a terminal would obey spelled out. With `lines` line ends and tabs stay."""
    return _UNSAFE.sub(lambda found: found[0] if lines and found[0] in "\n\t" else _spelled(found[0]), collapsed(text))


def marked(text: str) -> str:
    """A text of others over one or several lines: none begins as ours do, and a shell does nothing with one."""
    return ("| " if _LIKE_OURS.match(text) else "") + text.replace("\n", "\n  | ")


def safe_json(text: str) -> str:
    """The same JSON value, with every such sign as an escape."""
    import json  # noqa: PLC0415 - a text for a person does not need it

    return _UNSAFE.sub(lambda found: found[0] if found[0] == "\n" else json.dumps(found[0])[1:-1], text)


def short(text: str, limit: int) -> str:
    """The beginning of `text`, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def duration(ms: float) -> str:
    """A length of time in the largest unit that says it in few digits."""
    for unit, name in _TIMES:
        if ms >= unit:
            number = ms / unit
            return f"{number:.0f} {name}" if number >= 10 or number == int(number) else f"{number:.1f} {name}"
    return f"{ms:.0f} ms"


def ago(ms: int, now_ms: int) -> str:
    """The distance of a moment from now, past or future."""
    gap = now_ms - ms
    if abs(gap) < 1000:
        return "now"
    return f"{duration(gap)} ago" if gap > 0 else f"in {duration(-gap)}"


def sentence(text: str) -> str:
    """A remark on a line of its own."""
    return f"{text[0].upper()}{text[1:]}."


def count(number: int, one: str, many: str = "") -> str:
    """`3 runs`, `1 run`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _spelled(sign: str) -> str:
    code = ord(sign)
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(sign) or (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    )
