"""Texts for a page. What models, tools and strangers wrote is data: every sign in it that could hide something shows.

A reviewer approves what they see. So what a screen would obey or not draw at all (controls, bidirectional and
zero-width signs, blanks that are no blanks) is spelled out, and a letter of another alphabet inside a word is marked.
"""

from __future__ import annotations

import json
import unicodedata
from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

from holdfast.inspect.text import collapsed, cut
from holdfast.model import names

# Not drawn, or not what they look like: other, separators but the plain blank, and letters without ink.
_OTHER: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_INKLESS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
_MARKS_IN_A_ROW: Final = 2


def visible(text: str, *, lines: bool = True) -> Markup:
    """The text as HTML, with nothing hidden in it. With `lines`, line ends and tabs stay what they are.

    Of a very long text the beginning is shown, with a remark on how much is left out.
    """
    text = collapsed(cut(text))
    if text.isascii() and text.isprintable():
        return escape(text)
    foreign = names.foreign(text)
    parts: list[str] = []
    marks = 0
    for place, sign in enumerate(text):
        marks = marks + 1 if unicodedata.combining(sign) else 0
        if lines and sign in "\n\t":
            parts.append(sign)
        elif is_hidden(sign) or marks > _MARKS_IN_A_ROW:
            parts.append(_marked("hidden", spelled(sign), sign))
        elif place in foreign:
            parts.append(_marked("foreign", sign, sign, f"{foreign[place]}: "))
        else:
            parts.append(str(escape(sign)))
    return Markup("".join(parts))  # noqa: S704 - every part is escaped above


def visible_json(text: str) -> str:
    """The same JSON, with everything that would be hidden or marked as an escape: for a field in which it is edited."""
    if text.isascii():
        return text
    foreign = names.foreign(text)
    return "".join(
        json.dumps(sign)[1:-1] if place in foreign or (sign != "\n" and is_hidden(sign)) else sign
        for place, sign in enumerate(text)
    )


@lru_cache(maxsize=4096)
def is_hidden(sign: str) -> bool:
    """Whether a reader would not see this sign, or take it for another."""
    return sign in _INKLESS or (sign != " " and unicodedata.category(sign) in _OTHER)


def spelled(sign: str) -> str:
    """A sign in letters, as JSON and Python spell it."""
    code = ord(sign)
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(sign)
    return known or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


def _marked(kind: str, shown: str, sign: str, why: str = "") -> str:
    name = unicodedata.name(sign, "no name")
    return f'<mark class="{kind}" title="{escape(why)}U+{ord(sign):04X} {escape(name)}">{escape(shown)}</mark>'
