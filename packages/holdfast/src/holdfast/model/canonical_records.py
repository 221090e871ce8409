"""Classes with named fields: dataclasses, msgspec structs, pydantic models and named tuples."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


def is_model(kind: type[Any]) -> bool:
    """Whether `kind` is a pydantic model; told by its face, so that pydantic is never imported for it."""
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
