"""The types that msgspec leaves to us: pydantic models, told by their face and never imported, and paths."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, cast

import msgspec

from holdfast.model.canonical_records import is_model


def to_plain(value: Any) -> object:
    """What msgspec writes for a value that it does not know; raises TypeError where there is no stored form."""
    kind = cast("Any", type(value))
    if is_model(kind):
        # By alias and without computed fields: that is what validation takes back.
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"a {kind.__qualname__} has no stored form")


def from_plain(kind: type, plain: object) -> object:
    """The value of a type that msgspec does not know, from what `to_plain` made of it."""
    return _read(kind, plain, strict=None)


def from_plain_strictly(kind: type, plain: object) -> object:
    """As `from_plain`, but a model takes no text for a number: what a language model sent is never guessed at."""
    return _read(kind, plain, strict=True)


def _read(kind: type, plain: object, *, strict: bool | None) -> object:
    if kind is object or isinstance(plain, kind):
        return plain
    if is_model(kind):
        return _read_model(kind, plain, strict=strict)
    if issubclass(kind, PurePath) and isinstance(plain, str):
        return kind(plain)
    raise TypeError(f"a {kind.__qualname__} cannot be read from {type(plain).__qualname__}")


def _read_model(kind: Any, plain: object, *, strict: bool | None) -> object:
    try:
        return kind.model_validate_json(msgspec.json.encode(plain), strict=strict)
    except ValueError as invalid:
        errors = cast("Any", getattr(invalid, "errors", None))
        if errors is None:
            raise
        # pydantic's own text repeats the input, and that may be what must not be shown.
        problems = [_problem(found["loc"], found["msg"]) for found in errors(include_input=False, include_url=False)]
        raise ValueError("; ".join(problems)) from None


def _problem(place: tuple[str | int, ...], message: str) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return f"{path.removeprefix('.')}: {message}" if path else message
