"""Stored values for a page: whole and exact, an argument at a time, and what is different from the version before."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from beforehand.inspect.comparison import Change
from beforehand.inspect.text import LONGEST, cut
from beforehand.model.records import NOTHING, Raw

_TOGETHER: Final = 30_000
"""How many characters of all arguments together are shown on a page, where each is long."""
_LEAST: Final = 300
_MOST: Final = 200
_NOT_ASCII: Final = re.compile("[^\x00-\x7f]")
_COMPARED: Final = 400
"""Lines up to which two texts are compared line by line; longer ones are shown in full, one after the other."""


class ComparedLine(msgspec.Struct, frozen=True):
    """One line of a comparison: kept, gone or new."""

    sign: str
    text: str


class ShownArgument(msgspec.Struct, frozen=True):
    """One argument. `text`: it is a text of several lines, shown as such; else it is JSON.

    Of one that is not `whole` the beginning is shown, and how much is left out.

    `lines` compares it with the version before where that was another; `gone`: only that one had it.
    """

    name: str
    value: str
    text: bool = False
    lines: tuple[ComparedLine, ...] = ()
    gone: bool = False
    whole: bool = True


def arguments(raw: Raw, changes: Sequence[Change] = ()) -> list[ShownArgument]:
    """The arguments by name, each in full, and after them those that only the version before had."""
    if bytes(raw) == bytes(NOTHING):
        return []
    changed = {change.name: change for change in changes}
    now = msgspec.json.decode(raw, type=dict[str, Raw])
    limit = min(LONGEST, max(_LEAST, _TOGETHER // max(1, len(now) + len(changes))))
    found = [_shown(name, value, changed.get(name), limit) for name, value in list(now.items())[:_MOST]]
    if len(now) > _MOST:
        found.append(ShownArgument(f"… {len(now) - _MOST:,} more arguments", "", whole=False))
    return [*found, *(_gone(change, limit) for change in changes[:_MOST] if change.now is msgspec.UNSET)]


def whole(raw: Raw) -> bytes:
    """All arguments as JSON, in plain ASCII: nothing in it is hidden, and no length is too long for a file."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], pretty(raw)).encode("ascii")


def pretty(raw: Raw | bytes) -> str:
    """JSON over several lines; its texts and numbers stay as they are stored."""
    return msgspec.json.format(bytes(raw), indent=2).decode("utf-8", "replace")


def written(value: object) -> str:
    """A plain value, such as that of a fact, as the JSON that it is."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode("utf-8", "replace")


def _shown(name: str, value: Raw, change: Change | None, limit: int) -> ShownArgument:
    whole_text, several = _readable(value)
    text = cut(whole_text, limit)
    is_whole = len(whole_text) <= limit
    if change is None:
        return ShownArgument(name, text, several, whole=is_whole)
    before = "" if change.before is msgspec.UNSET else cut(_readable(change.before)[0], limit)
    return ShownArgument(name, text, several, _compared(before, text), whole=is_whole)


def _gone(change: Change, limit: int) -> ShownArgument:
    assert change.before is not msgspec.UNSET, change
    text, several = _readable(change.before)
    return ShownArgument(change.name, cut(text, limit), several, _compared(cut(text, limit), ""), gone=True)


def _readable(value: Raw) -> tuple[str, bool]:
    """A text of several lines as such, everything else as JSON: so that 9000 and "9000" look different."""
    plain: object = msgspec.json.decode(value)
    if isinstance(plain, str) and "\n" in plain:
        return plain, True
    return pretty(value), False


def _compared(before: str, now: str) -> tuple[ComparedLine, ...]:
    old, new = before.split("\n") if before else [], now.split("\n") if now else []
    if len(old) + len(new) > _COMPARED:
        return (*(ComparedLine("-", line) for line in old), *(ComparedLine("+", line) for line in new))
    lines: list[ComparedLine] = []
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if kind == "equal":
            lines.extend(ComparedLine(" ", line) for line in old[start:end])
            continue
        lines.extend(ComparedLine("-", line) for line in old[start:end])
        lines.extend(ComparedLine("+", line) for line in new[new_start:new_end])
    return tuple(lines)
