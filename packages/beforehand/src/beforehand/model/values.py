"""Results: how a tool's return value becomes bytes, and what the agent receives instead.

The agent always receives the decoded form, the first time as on replay, so both see the same types. A value that
does not survive the trip is refused before it is recorded as a result.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePath
from types import NoneType
from typing import Any, Final, cast, get_args, get_origin

import msgspec

from beforehand.model.canonical.forms import is_model


class ResultError(ValueError):
    """A result cannot be stored and read back as its annotation says. The effect itself is not in doubt."""


class ResultCodec:
    """Encodes, and decodes by one return annotation. Get one from `codec_for`, which keeps them."""

    __slots__ = ("_decode", "_is_any", "annotation")

    def __init__(self, annotation: object = Any) -> None:
        self.annotation: Final = NoneType if annotation is None else annotation
        self._is_any: Final = annotation in _UNTYPED
        target = Any if self._is_any else _with_any(self.annotation)
        try:
            self._decode: Final = msgspec.json.Decoder(cast("Any", target), dec_hook=from_plain).decode
        except TypeError as why:
            raise ResultError(
                f"results of type {annotation!r} cannot be read back: {why}. Nothing was sent. "
                "Annotate the function with a dataclass, a model, or plain types."
            ) from why

    def encode(self, value: object) -> bytes:
        """The stored form of `value`; raises ResultError where it has none. A function `-> None` returns None."""
        if self.annotation is NoneType:
            return b"null"
        try:
            return _encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as why:
            raise self._lost(value, why) from why

    def decode(self, data: bytes) -> object:
        """The value that a stored form stands for; raises ResultError where the annotation no longer fits it."""
        try:
            return self._decode(data)
        except (TypeError, ValueError, RecursionError) as why:
            raise ResultError(
                f"the stored result cannot be read as {_name_of(self.annotation)}: {why}. The result is on record. "
                "Give the function its former return annotation."
            ) from why

    def misfit(self, data: bytes) -> str:
        """Why a stored form cannot be read by this annotation, and what is expected; empty where it can."""
        try:
            self._decode(data)
        except (TypeError, ValueError, RecursionError) as why:
            return f"expected {_name_of(self.annotation)}: {why}"
        return ""

    def round_trip(self, value: object) -> tuple[bytes, Any]:
        """The stored form and what it decodes to; raises ResultError unless one is as good as the other."""
        if self.annotation is NoneType:
            return b"null", None
        data = self.encode(value)
        kind: object = type(value)
        if kind in _IMMUTABLE and (self._is_any or self.annotation is kind):
            return data, value
        try:
            decoded = self._decode(data)
            if not _same(decoded, value):
                self._compare(decoded, value)
        except (TypeError, ValueError, RecursionError) as why:
            raise self._lost(value, why) from why
        return data, decoded

    def _compare(self, decoded: object, value: object) -> None:
        """Judge a difference that `==` sees: classes without an equality, tuples become lists, or a loss."""
        if self._is_any:
            _refuse_typed(value, "the result")
            return
        plain = _builtins(value)
        _refuse_infinite(plain)
        if _builtins(decoded) != plain:
            raise ValueError("it comes back changed")

    def _lost(self, value: object, why: Exception) -> ResultError:
        return ResultError(
            f"the result, of type {type(value).__qualname__}, cannot be stored and read back as "
            f"{_name_of(self.annotation)}: {why}. The call itself returned. "
            "Return what the annotation says, or annotate the function with the type it returns."
        )


def codec_for(annotation: object = Any) -> ResultCodec:
    """The codec of a return annotation (resolved, not text); one per annotation."""
    try:
        return _codec(annotation)
    except TypeError:  # metadata that cannot be hashed
        return ResultCodec(annotation)


@lru_cache(maxsize=1024)
def _codec(annotation: object) -> ResultCodec:
    return ResultCodec(annotation)


def _with_any(annotation: Any) -> Any:
    """`object` inside an annotation says no more than Any, and msgspec reads Any without asking back."""
    if annotation is object:
        return Any
    parts = get_args(annotation)
    if object not in parts or get_origin(annotation) not in {dict, list, tuple, set, frozenset}:
        return annotation
    return get_origin(annotation)[tuple(_with_any(part) for part in parts)]


_UNTYPED: Final[tuple[object, ...]] = (Any, object, inspect.Signature.empty)
_IMMUTABLE: Final[frozenset[type[Any]]] = frozenset({str, int, bool, NoneType})
_JSON_SCALARS: Final = (str, int, bool, NoneType)


def _same(decoded: object, value: object) -> bool:
    try:
        return bool(decoded == value)
    except Exception:  # noqa: BLE001 - arrays and the like refuse to be compared; the careful way decides
        return False


def _refuse_typed(value: object, where: str) -> None:
    """Raise unless an unannotated result is plain JSON; tuples are, and come back as lists."""
    if isinstance(value, _JSON_SCALARS):
        return
    if isinstance(value, float):
        _refuse_infinite(value)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[object]", value)):
            _refuse_typed(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has a key that is not text ({type(key).__qualname__})")
            _refuse_typed(item, f"{where}[{key!r}]")
    else:
        raise TypeError(f"{where} is of type {type(value).__qualname__}, which needs a return annotation")


def _refuse_infinite(plain: object) -> None:
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ValueError(f"{plain} is not a number that JSON can hold")
    if isinstance(plain, dict):
        for item in cast("dict[object, object]", plain).values():
            _refuse_infinite(item)
    elif isinstance(plain, list | tuple):
        for item in cast("list[object]", plain):
            _refuse_infinite(item)


def _name_of(annotation: object) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _builtins(value: object) -> object:
    return msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=to_plain)


# --- types that msgspec does not know: pydantic models (never imported) and paths -----------------------------------


def to_plain(value: Any) -> object:
    """The form that msgspec writes for a value that it does not know; raises TypeError where there is none."""
    kind = cast("Any", type(value))
    if is_model(kind):
        # By alias and without computed fields: that is what validation takes back.
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"the type {kind.__qualname__} has no stored form")


def from_plain(kind: type, plain: object) -> object:
    """The value of a type that msgspec does not know, from what `to_plain` made of it."""
    return _read(kind, plain, strict=None)


def from_plain_strictly(kind: type, plain: object) -> object:
    """As `from_plain`, but a model takes no text for a number: input from a language model is never guessed at."""
    return _read(kind, plain, strict=True)


def _read(kind: type, plain: object, *, strict: bool | None) -> object:
    if kind is object or isinstance(plain, kind):
        return plain
    if is_model(kind):
        return _read_model(kind, plain, strict=strict)
    if issubclass(kind, PurePath) and isinstance(plain, str):
        return kind(plain)
    raise TypeError(f"the type {kind.__qualname__} cannot be read from {type(plain).__qualname__}")


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


_encode: Final[Callable[[object], bytes]] = msgspec.json.Encoder(enc_hook=to_plain).encode


def json_form(value: object) -> object:
    """An object without a JSON form, as its client library would write it; else its text."""
    for name in ("model_dump", "to_dict", "dict"):
        if callable(method := getattr(value, name, None)):
            return method()
    return str(value)
