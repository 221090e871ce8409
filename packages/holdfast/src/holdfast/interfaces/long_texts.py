"""Texts that are too long, or too piled up, to be shown whole: cut with a remark, and collapsed.

What a face shows of one text has a limit, so that no argument makes a page or a terminal unusable. What is left out is
counted where it is left out, and each face says where all of it is.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby
from typing import Final

LONGEST: Final = 10_000
"""How many characters of one text a face shows."""
_IN_A_ROW: Final = 4
_SHOWN: Final = 2
_NO_LETTERS: Final = re.compile(r"[^\w\s!-~]{5,}")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


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
