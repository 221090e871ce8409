"""The classes that a parameter's annotation leads to: the only ones that a stored argument may become."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.model.canonical_records import is_model, record_fields

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
    """What is found one step further from a part of an annotation."""
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
    """What the names in a class's annotations stand for; one that only the type checker knows leads nowhere."""

    def __init__(self, kind: object) -> None:
        super().__init__()
        self._module = vars(inspect.getmodule(kind) or builtins)

    def __missing__(self, name: str) -> object:
        return self._module.get(name, getattr(builtins, name, Any))
