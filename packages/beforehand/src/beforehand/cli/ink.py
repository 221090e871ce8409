"""Styled lines without a library: what lays out tables takes longer to import than a list takes to read.

Styles are switched on by the same variables as in `rich`, so that a command looks the same everywhere: TTY_COMPATIBLE,
FORCE_COLOR and a terminal say whether there are any, TERM=dumb that there are none, NO_COLOR that there are no colours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, TextIO

_ATTRIBUTES: Final = {"bold": "1", "dim": "2"}
_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}  # ECMA-48, as every terminal knows them
_NONE: Final = dict.fromkeys((*_ATTRIBUTES, *_COLOURS), "")


class Ink:
    """Writes lines to one stream. It keeps the stream that it was given, even if that one is replaced later."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: Final = stream
        plain = not _takes_styles(stream) or os.environ.get("TERM", "").lower() in {"dumb", "unknown"}
        coloured = {} if os.environ.get("NO_COLOR") else _COLOURS
        self._codes: Final = _NONE if plain else _NONE | _ATTRIBUTES | coloured

    def line(self, parts: Iterable[tuple[str, str]]) -> None:
        """One line of (text, style) pairs, out at once. A style is words: `bold red`; none of them: plain."""
        self._stream.write("".join(self._inked(text, style) for text, style in parts) + "\n")
        self._stream.flush()

    def _inked(self, text: str, style: str) -> str:
        codes = ";".join(code for word in style.split() if (code := self._codes[word]))
        return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _takes_styles(stream: TextIO) -> bool:
    compatible, forced = os.environ.get("TTY_COMPATIBLE"), os.environ.get("FORCE_COLOR")
    if compatible in {"0", "1"}:
        return compatible == "1"
    return stream.isatty() if forced is None else forced != ""
