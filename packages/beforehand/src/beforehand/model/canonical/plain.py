"""Stored arguments as conditions see them: plain JSON values, the same live and in a recorded past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

_NUMBERS: Final = {"$int": int, "$decimal": float}
_TEXTS: Final = {"$datetime", "$date", "$time", "$timedelta", "$uuid", "$path", "$winpath"}
_UNSEEN: Final = {"$redacted", "$held-secret", "$secret", "$bytes"}


def plain_arguments(stored: bytes) -> dict[str, Any]:
    """The arguments of a stored intent (see `canonical`) without their types. What is not stored is left out."""
    given = _object(msgspec.json.decode(stored, type=dict[str, Any]))
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


class _Unseen:
    """A marker for values that are hidden from conditions."""


_NOT_SHOWN: Final = _Unseen()


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return _object(cast("dict[str, Any]", value))
        case list():
            return _each(value)
        case _:
            return value


def hides(stored: bytes) -> bool:
    """True if the plain form may lack a value: something in these arguments is redacted, secret or binary."""
    return any(f'"{tag}"'.encode() in stored for tag in _UNSEEN)


def _each(values: Any) -> list[Any]:
    return [one for one in map(_plain, values) if one is not _NOT_SHOWN]


def _object(given: Mapping[str, Any]) -> Any:
    if len(given) == 1:
        ((key, content),) = given.items()
        if key.startswith("$$"):
            given = {key[1:]: content}
        elif key.startswith("$"):
            return _tagged(key, content)
    shown = {name: _plain(one) for name, one in given.items()}
    return {name: one for name, one in shown.items() if one is not _NOT_SHOWN}


def _tagged(tag: str, content: Any) -> Any:
    if tag in _UNSEEN:
        return _NOT_SHOWN
    if tag in _TEXTS:
        return content
    if (number := _NUMBERS.get(tag)) is not None:
        return number(content)
    match tag:
        case "$map":
            return {str(_plain(key)): _plain(one) for key, one in content}
        case "$object":
            return _object(content[1])
        case "$enum":
            return content[1]
        case "$tuple" | "$set" | "$frozenset":
            return _each(content)
        case _:
            return _NOT_SHOWN
