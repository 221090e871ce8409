"""From the stored form of a call's arguments back to the values that the tool was called with.

The tags say which type each value had. Classes are never imported by name: a record or enum is built only from a
class that the parameter's annotation leads to, so a journal cannot choose what code runs.
"""

from __future__ import annotations

import base64
import builtins
import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec

from beforehand.model.canonical.forms import SAFE_INTEGER, argument_error, is_model, record_fields
from beforehand.model.secret import Secret

_KNOWN: Final = "it is on record as it was; the tool was not called."


def restore(stored: bytes, types: Mapping[str, object]) -> dict[str, object]:
    """The arguments whose stored form this is; `types` holds the parameters' resolved annotations.

    Raises ArgumentError, naming the parameter, where the values cannot be had again: redacted, a secret that was
    held in memory only, a class that has gone from the annotation, or a stored form that is damaged.
    """
    plain = _unescaped(msgspec.json.decode(stored, type=dict[str, Any]))
    return {name: _restored(name, value, types.get(name, Any)) for name, value in plain.items()}


def _restored(name: str, value: Any, annotation: object) -> object:
    try:
        return _value(value, classes_of(annotation) if isinstance(value, dict | list) else {})
    except _RestoreError as why:
        raise argument_error(name, str(why), why.todo, _KNOWN) from None
    except (ValueError, TypeError, ArithmeticError, AttributeError) as damaged:
        todo = "Resolve the operation by hand, and look for damage: beforehand verify"
        raise argument_error(name, f"its stored form cannot be read ({damaged})", todo, _KNOWN) from damaged


class _RestoreError(Exception):
    def __init__(self, problem: str, todo: str = "Resolve the operation by hand.") -> None:
        super().__init__(problem)
        self.todo: Final = todo


def _value(plain: Any, classes: Classes) -> object:
    match plain:
        case dict():
            return _from_object(cast("dict[str, object]", plain), classes)
        case list():
            return [_value(item, classes) for item in cast("list[object]", plain)]
        case bool():
            return plain
        case int() if not -SAFE_INTEGER <= plain <= SAFE_INTEGER:
            return float(plain)  # integers of this size are tagged, so RFC 8785 has written a float
        case _:
            return plain


def _from_object(plain: dict[str, object], classes: Classes) -> object:
    if len(plain) == 1:
        ((key, content),) = plain.items()
        if key.startswith("$") and not key.startswith("$$"):
            return _from_tag(key, content, classes)
    return {key: _value(item, classes) for key, item in _unescaped(plain).items()}


def _unescaped(plain: dict[str, object]) -> dict[str, object]:
    if len(plain) == 1:
        ((key, content),) = plain.items()
        if key.startswith("$$"):
            return {key[1:]: content}
    return plain


def _from_tag(tag: str, content: Any, classes: Classes) -> object:
    if (scalar := _SCALARS.get(tag)) is not None:
        return scalar(content)
    match tag:
        case "$map":
            return {cast("Any", _value(key, classes)): _value(item, classes) for key, item in content}
        case "$tuple" | "$set" | "$frozenset":
            return _COLLECTIONS[tag](_value(item, classes) for item in content)
        case "$object":
            return _record(classes, *content)
        case "$enum":
            return _member(classes, *content)
        case "$held-secret":
            raise _RestoreError(f"the secret {content!r} was held in memory and is gone")
        case "$redacted":
            raise _RestoreError("the value was redacted and is not stored")
        case _:
            raise _RestoreError(f"the form {tag} is not known", "Use the version of beforehand that wrote it.")


def _timedelta(text: str) -> timedelta:
    return timedelta(microseconds=int(Decimal(text) * 1_000_000))


_SCALARS: Final[dict[str, Callable[[str], object]]] = {
    "$int": int,
    "$decimal": Decimal,
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": _timedelta,
    "$uuid": UUID,
    "$bytes": base64.b64decode,
    "$path": Path,
    "$winpath": PureWindowsPath,
    "$secret": Secret,
}
_COLLECTIONS: Final[dict[str, Callable[[Any], object]]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}


# --- classes that the annotation leads to ---------------------------------------------------------------------------


def _class(classes: Classes, name: str) -> type[Any]:
    kind = classes.get(name)
    if kind is None:
        reason = "does not lead to one class" if name in classes else "no longer leads to a class"
        raise _RestoreError(f"its annotation {reason} named {name}", f"Annotate the parameter with {name}.")
    return kind


def _member(classes: Classes, name: str, member: str | int) -> object:
    kind = cast("type[Enum]", _class(classes, name))
    try:
        return kind[member] if isinstance(member, str) else kind(member)
    except (KeyError, ValueError):
        raise _RestoreError(f"{name} has no member {member!r} any more", "Give it back.") from None


def _record(classes: Classes, name: str, plain: dict[str, object], given: list[str] | None = None) -> object:
    kind = _class(classes, name)
    content = {field: _value(item, classes) for field, item in plain.items()}
    try:
        if is_model(kind):
            return _model(kind, content, given)
        if dataclasses.is_dataclass(kind):
            return _dataclass(kind, content)
        return kind(**content)
    except TypeError as changed:
        raise _RestoreError(f"the fields of {name} have changed since ({changed})", "Give it back.") from None


def _model(kind: Any, content: dict[str, object], given: list[str] | None) -> object:
    fields = kind.__pydantic_fields__
    # model_construct looks for a field by its alias first.
    named = {(fields[name].alias or name) if name in fields else name: item for name, item in content.items()}
    if missing := [name for name, field in fields.items() if field.is_required() and name not in content]:
        raise TypeError(f"no value for {', '.join(missing)}")
    return kind.model_construct(_fields_set=set(content if given is None else given), **named)


def _dataclass(kind: type[Any], content: dict[str, object]) -> object:
    """The instance as it was, made as copy does: its __init__ may take other arguments, or do things again."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := content.keys() - fields.keys():
        raise TypeError(f"it has no field {', '.join(sorted(unknown))}")
    instance: object = object.__new__(kind)
    for name, field in fields.items():
        if name in content:
            value = content[name]
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            raise TypeError(f"no value for {name}")
        object.__setattr__(instance, name, value)
    return instance


# --- classes in reach of an annotation: the only ones that a stored argument may become -----------------------------


# Qualified name -> class; None where two classes of that name are in reach.
Classes: TypeAlias = Mapping[str, "type | None"]


def classes_of(annotation: object) -> Classes:
    """All records and enums in reach of `annotation`: its parts, their fields, and subclasses of them.

    The whole is not kept: a subclass may still be defined while a program runs.
    """
    classes: dict[str, type | None] = {}
    seen: set[int] = set()
    waiting: list[Any] = [annotation]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, type) and _has_name_in_forms(part):
            name = part.__qualname__
            classes[name] = None if name in classes else part
        waiting.extend(_parts(part))
    return classes


def _has_name_in_forms(kind: type[Any]) -> bool:
    return issubclass(kind, Enum) or record_fields(kind) is not None


def _parts(part: Any) -> Iterator[object]:
    """The types one step below a part of an annotation."""
    yield from typing.get_args(part)
    for attribute in ("__origin__", "__value__", "__supertype__", "__bound__"):
        if (inner := getattr(part, attribute, None)) is not None:
            yield inner
    if isinstance(part, typing.TypeVar):
        yield from part.__constraints__
    if isinstance(part, type) and part.__module__ not in ("builtins", "typing"):
        yield from cast("list[object]", type.__subclasses__(part))
        yield from _annotations_of_fields(part)


def _annotations_of_fields(kind: Any) -> list[object]:
    if is_model(kind):
        return [field.annotation for field in kind.__pydantic_fields__.values()]
    if not (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields")):
        return []
    try:
        return _resolved(kind)
    except (NameError, TypeError):
        return _resolved_in_part(kind)


@lru_cache(maxsize=1024)
def _resolved(kind: Any) -> list[object]:
    """Kept once every name leads somewhere, as evaluating them is slow. Raises `NameError` where one does not (yet)."""
    return list(typing.get_type_hints(kind).values())


def _resolved_in_part(kind: Any) -> list[object]:
    try:
        return list(typing.get_type_hints(kind, localns=_Names(kind)).values())
    except TypeError:  # an annotation that means something to a type checker only
        return []


class _Names(dict[str, object]):
    """The meaning of the names in a class's annotations; one that only the type checker knows leads nowhere."""

    def __init__(self, kind: object) -> None:
        super().__init__()
        self._module = vars(inspect.getmodule(kind) or builtins)

    def __missing__(self, name: str) -> object:
        return self._module.get(name, getattr(builtins, name, Any))
