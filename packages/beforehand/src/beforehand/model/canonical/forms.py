"""The form of each type of argument: how a Python value becomes plain JSON with tags, or is refused by name.

A tag is an object whose only key begins with `$`. A user's own object of that form gets one more `$`, so no two
different values share a form. Every form exists twice: *identity* (equal values have equal forms) and *exact*
(nothing that a tool could notice is lost, so that recovery can call it with the very same values).
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from functools import lru_cache
from pathlib import PurePath, PureWindowsPath
from types import NoneType
from typing import Any, Final, NoReturn, TypeAlias, cast, final
from uuid import UUID

import msgspec
import rfc8785

from beforehand.model.errors import ArgumentError
from beforehand.model.secret import Secret


def is_model(kind: type[Any]) -> bool:
    """True if `kind` is a pydantic model; detected by its attributes, so that pydantic is never imported for it."""
    return hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_construct")


def record_fields(kind: type[Any]) -> tuple[str, ...] | None:
    """The names of the fields of a dataclass, msgspec struct, pydantic model or named tuple, else None."""
    if is_model(kind):
        return tuple(kind.__pydantic_fields__)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    fields: Any = getattr(kind, "_fields", None)
    return tuple(fields) if fields is not None and issubclass(kind, tuple) else None


# --- limits ---------------------------------------------------------------------------------------------------------


NOTHING_DONE: Final = "nothing was recorded and nothing was sent."


@dataclass(frozen=True, slots=True)
class Limits:
    """How deep the arguments may nest, and how many bytes their canonical form may have."""

    depth: int = 32
    size: int = 1_048_576


def argument_error(parameter: str, problem: str, todo: str, known: str = NOTHING_DONE) -> ArgumentError:
    """The error for one argument; `parameter` is the path to the fault, such as `order.lines[3].price`."""
    error = ArgumentError(f"{parameter}: {problem}", parameter=parameter, next_step=todo)
    error.known = known
    return error


# --- the form of each type ------------------------------------------------------------------------------------------


SAFE_INTEGER: Final = 2**53 - 1  # RFC 8785 section 3.2.2.3: beyond it a JSON number loses digits
_PLAIN_ZEROS: Final = 28  # a Decimal such as 1E+2 is written 100 up to this many digits

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
Form: TypeAlias = "Callable[[Walk, Any], Plain]"


@final
class Redacted:
    """Represents a value that is left out of the stored form."""


REDACTED: Final = Redacted()


class Walk:
    """One walk over one call's arguments; it knows where it is, so that a refusal can name the place."""

    __slots__ = ("_above", "_left", "_path", "exact", "executable", "limits", "special")

    def __init__(self, limits: Limits, *, exact: bool) -> None:
        self.limits = limits
        self.exact = exact
        self.executable = True
        self.special = False  # floats or non-ASCII keys: only the RFC 8785 writer gets these right
        self._left = limits.size
        self._path: list[str] = []
        self._above: list[object] = []

    def arguments(self, arguments: Mapping[str, object]) -> Plain:
        """The plain form of all arguments of one call."""
        return _escaped(_object(self, arguments))

    def at(self, step: str, value: object) -> Plain:
        """The plain form of what is found one step further down the path."""
        self._path.append(step)
        plain = self.lower(value)
        self._path.pop()
        return plain

    def lower(self, value: object) -> Plain:
        """The plain form of `value`; raises ArgumentError where it has none."""
        kind = cast("type[Any]", type(value))
        form = _EXACT_FORMS.get(kind) or _form_of(kind)  # type: ignore[arg-type]  # mypy doubts that classes hash
        if form is None:
            name = kind.__qualname__
            self.refuse(f"{name} has no canonical form", "Pass plain data, a dataclass, or a model instead.")
        return form(self, value)

    def inside(self, container: object, items: Callable[[], Plain]) -> Plain:
        """The result of `items` on a container's content, one level deeper; refuses cycles and too many levels."""
        if any(outer is container for outer in self._above):
            self.refuse("the value contains itself", "Pass a tree without cycles.")
        if len(self._above) == self.limits.depth:
            self.refuse(f"nested deeper than {self.limits.depth} levels", "Pass a flatter value, or its address.")
        self._above.append(container)
        plain = items()
        self._above.pop()
        return plain

    def grow(self, size: int) -> None:
        """Count `size` more bytes at least; stops a huge value before it is copied."""
        self._left -= size
        if self._left < 0:
            self.refuse(f"the arguments are larger than {self.limits.size} bytes", "Store it, and pass its address.")

    def refuse(self, problem: str, todo: str) -> NoReturn:
        """Raise ArgumentError for the present place of the walk."""
        raise argument_error("".join(self._path).removeprefix(".") or "(arguments)", problem, todo)


# --- plain JSON ---------------------------------------------------------------------------------------------------


def _as_is(walk: Walk, value: Any) -> Plain:
    walk.grow(4)
    return cast("bool | None", value)


def _text(walk: Walk, value: str) -> str:
    walk.grow(len(value) + 2)
    if "\0" in value:
        walk.refuse("the text contains a NUL character", "Remove it, or pass bytes.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            walk.refuse("the text contains a lone surrogate, which is not a character", "Decode the text again.")
    return str.__str__(value)  # a subclass of str counts as its text


def _integer(walk: Walk, value: int) -> Plain:
    walk.grow(max(1, value.bit_length() // 4))
    if -SAFE_INTEGER <= value <= SAFE_INTEGER:
        return int.__int__(value)
    try:
        return {"$int": int.__repr__(value)}
    except ValueError:  # Python's own limit on digits
        walk.refuse("the integer has too many digits", "Pass it as bytes or as text.")


def _number(walk: Walk, value: float) -> Plain:
    walk.grow(1)
    if not math.isfinite(value):
        walk.refuse(f"{float.__repr__(value)} is not a number that JSON can hold", "Pass None, or leave it out.")
    walk.special = True
    return float.__float__(value)


def _list(walk: Walk, value: list[object]) -> Plain:
    return walk.inside(value, lambda: _items(walk, value))


def _items(walk: Walk, values: Iterable[object]) -> list[Plain]:
    walk.grow(2)
    return [walk.at(f"[{index}]", item) for index, item in enumerate(values)]


def _dict(walk: Walk, value: dict[object, object]) -> Plain:
    if all(isinstance(key, str) and not isinstance(key, Enum) for key in value):
        return walk.inside(value, lambda: _escaped(_object(walk, cast("dict[str, object]", value))))
    return walk.inside(value, lambda: {"$map": _pairs(walk, value)})


def _object(walk: Walk, value: Mapping[str, object]) -> dict[str, Plain]:
    walk.grow(2)
    plain: dict[str, Plain] = {}
    for key, item in value.items():
        step = f".{key}" if key.isidentifier() else f"[{key!a}]"
        plain[cast("str", walk.at(step, key))] = walk.at(step, item)
        walk.special = walk.special or not key.isascii()
    return plain


def _pairs(walk: Walk, value: dict[object, object]) -> Plain:
    pairs = [[walk.at("[key]", key), walk.at(f"[{_label(key)}]", item)] for key, item in value.items()]
    return cast("list[Plain]", sorted(pairs, key=lambda pair: _bytes_of(pair[0])))


def _label(key: object) -> str:
    return str(key) if isinstance(key, int) and abs(key) <= SAFE_INTEGER else type(key).__qualname__


def _escaped(plain: dict[str, Plain]) -> dict[str, Plain]:
    if len(plain) == 1:
        (key,) = plain
        if key.startswith("$"):
            return {f"${key}": plain[key]}
    return plain


def _bytes_of(plain: Any) -> bytes:
    return rfc8785.dumps(plain)


# --- tagged forms -------------------------------------------------------------------------------------------------


def _tuple(walk: Walk, value: tuple[object, ...]) -> Plain:
    return walk.inside(value, lambda: {"$tuple": _items(walk, value)})


def _set(walk: Walk, value: set[object]) -> Plain:
    return walk.inside(value, lambda: {"$set": _members(walk, value)})


def _frozenset(walk: Walk, value: frozenset[object]) -> Plain:
    return walk.inside(value, lambda: {"$frozenset": _members(walk, value)})


def _members(walk: Walk, values: Iterable[object]) -> Plain:
    walk.grow(2)
    return sorted((walk.at("[member]", value) for value in values), key=_bytes_of)


def _decimal(walk: Walk, value: Decimal) -> Plain:
    if not value.is_finite():
        walk.refuse(f"Decimal {value} is not a number", "Pass None, or leave it out.")
    text = str(value if walk.exact else _without_trailing_zeros(value))
    return {"$decimal": _text(walk, text)}


def _without_trailing_zeros(value: Decimal) -> Decimal:
    """The one spelling of a decimal number; not Decimal.normalize(), which rounds to the context's precision."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    kept = "".join(map(str, digits)).rstrip("0")
    if not kept.strip("0"):
        return Decimal(0)
    exponent += len(digits) - len(kept)
    if exponent > 0 and len(kept) + exponent <= _PLAIN_ZEROS:
        kept, exponent = kept + "0" * exponent, 0
    return Decimal((sign, tuple(map(int, kept)), exponent))


def _datetime(walk: Walk, value: datetime) -> Plain:
    if value.utcoffset() is None:
        return {"$datetime": _text(walk, datetime.isoformat(value.replace(tzinfo=None)))}
    try:
        moment = value if walk.exact else value.astimezone(UTC)
    except OverflowError:
        walk.refuse("the moment is outside the years 1 to 9999 in UTC", "Pass a moment inside them.")
    return {"$datetime": _text(walk, datetime.isoformat(moment))}


def _date(walk: Walk, value: date) -> Plain:
    return {"$date": _text(walk, date.isoformat(value))}


def _time(walk: Walk, value: time) -> Plain:
    return {"$time": _text(walk, time.isoformat(value))}


def _timedelta(walk: Walk, value: timedelta) -> Plain:
    micros = value // timedelta(microseconds=1)
    seconds, rest = divmod(abs(micros), 1_000_000)
    fraction = f".{rest:06d}".rstrip("0") if rest else ""
    return {"$timedelta": _text(walk, f"{'-' if micros < 0 else ''}{seconds}{fraction}")}


def _uuid(walk: Walk, value: UUID) -> Plain:
    return {"$uuid": _text(walk, UUID.__str__(value))}


def _bytes(walk: Walk, value: bytes) -> Plain:
    walk.grow(len(value) * 4 // 3)
    return {"$bytes": base64.b64encode(value).decode()}


def _path(walk: Walk, value: PurePath) -> Plain:
    tag = "$winpath" if isinstance(value, PureWindowsPath) else "$path"
    return {tag: _text(walk, str(value))}


def _enum(walk: Walk, value: Enum) -> Plain:
    # A member is its name; a combination of flags may have none, and is its bits.
    member = value.value if isinstance(value, Flag) else value.name
    return {"$enum": [type(value).__qualname__, walk.lower(member)]}


def _secret(walk: Walk, value: Secret) -> Plain:
    walk.executable = walk.executable and value.resolvable
    return {"$secret" if value.resolvable else "$held-secret": _text(walk, value.name)}


def _redacted(walk: Walk, _: Redacted) -> Plain:
    walk.executable = False
    return {"$redacted": True}


# --- records: dataclasses, structs, models, named tuples -----------------------------------------------------------


def _record(walk: Walk, value: object, fields: Callable[[Any], Mapping[str, object]]) -> Plain:
    try:
        content = fields(value)
    except AttributeError as gone:
        walk.refuse(f"{type(value).__qualname__} has no value for its field {gone.name}", "Set every field.")
    return {"$object": [type(value).__qualname__, _object(walk, content)]}


def _model(walk: Walk, value: Any) -> Plain:
    kind: Any = cast("Any", type(value))
    names = cast("list[str]", list(kind.__pydantic_fields__))
    content: dict[str, object] = {name: getattr(value, name) for name in names}
    content.update(value.__pydantic_extra__ or {})
    plain: list[Plain] = [kind.__qualname__, _object(walk, content)]
    if walk.exact and len(value.model_fields_set) < len(content):
        # A tool that dumps with exclude_unset can tell a default from the same value given.
        plain.append(sorted(value.model_fields_set))
    return {"$object": plain}


_EXACT_FORMS: Final[dict[type, Form]] = {
    str: _text, int: _integer, bool: _as_is, NoneType: _as_is, float: _number, list: _list, dict: _dict,
    tuple: _tuple, set: _set, frozenset: _frozenset, Decimal: _decimal, datetime: _datetime, date: _date,
    time: _time, timedelta: _timedelta, UUID: _uuid, bytes: _bytes, Secret: _secret, Redacted: _redacted,
}  # fmt: skip

# A subclass counts as the first of these that it is; order matters (a datetime is a date, an IntEnum an int).
_BASES: Final[tuple[type, ...]] = (
    str, int, float, list, dict, tuple, set, frozenset, Decimal, datetime, date, time, timedelta, UUID, bytes,
)  # fmt: skip


@lru_cache(maxsize=1024)
def _form_of(kind: type[Any]) -> Form | None:
    if issubclass(kind, Enum):
        return _enum
    if issubclass(kind, PurePath):
        return _path
    if is_model(kind):
        return lambda walk, value: walk.inside(value, lambda: _model(walk, value))
    if (names := record_fields(kind)) is not None:
        return _record_form(names)
    return next((_EXACT_FORMS[base] for base in _BASES if issubclass(kind, base)), None)


def _record_form(names: tuple[str, ...]) -> Form:
    def fields(value: object) -> dict[str, object]:
        return {name: getattr(value, name) for name in names}

    return lambda walk, value: walk.inside(value, lambda: _record(walk, value, fields))
