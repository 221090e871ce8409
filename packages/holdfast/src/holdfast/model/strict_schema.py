"""JSON Schema as strict structured output takes it: closed objects, every property required, no open values.

The rules are OpenAI's for structured outputs, the narrowest in use: a schema that keeps to them is taken everywhere.
A type that cannot be said under them (a mapping with free keys, a tuple) has no strict form; of "any value", the plain
ones are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_KEPT: Final[tuple[str, ...]] = (
    "type", "description", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minItems", "maxItems",
)  # fmt: skip
_TYPES: Final[dict[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_DEFINITION: Final = "#/$defs/"


class _Open(Exception):
    """Some part of a schema has no strict form."""


def strict(
    schema: Schema, definitions: Mapping[str, Schema], prefix: str = ""
) -> tuple[Schema, dict[str, Schema]] | None:
    """The schema in strict form, with the definitions that it needs; None where it has none.

    `prefix` comes before the names under which its definitions will stand.
    """
    needed: dict[str, Schema] = {}

    def named(reference: str) -> Schema:
        name = reference.removeprefix(_DEFINITION)
        if name not in needed:
            needed[name] = {}  # it may refer to itself
            needed[name] = _tightened(definitions[name], named)
        return {"$ref": f"{_DEFINITION}{prefix}{name}"}

    try:
        whole = _tightened(schema, named)
    except _Open:
        return None
    return whole, {prefix + name: definition for name, definition in needed.items()}


def closed(properties: Mapping[str, Schema], **more: Any) -> Schema:
    """An object of exactly these properties."""
    return {
        "type": "object", "properties": dict(properties), "required": list(properties), "additionalProperties": False,
    } | more  # fmt: skip


def one_of(*schemas: Schema) -> Schema:
    """A value that fits one of these; alternatives inside them become its own."""
    flat: list[Schema] = []
    for schema in schemas:
        parts: list[Schema] = schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
        flat += [part for part in parts if part not in flat]
    return {"anyOf": flat} if len(flat) > 1 else flat[0]


def _tightened(schema: Schema, named: Callable[[str], Schema]) -> Schema:
    if "$ref" in schema:
        return named(schema["$ref"])
    for word in ("anyOf", "oneOf", "allOf"):
        parts: list[Schema] = schema.get(word, [])
        if parts and (word != "allOf" or len(parts) == 1):
            return one_of(*(_tightened(part, named) for part in parts))
    if "enum" in schema:
        kinds: dict[str, list[Any]] = {}
        for value in schema["enum"]:
            kinds.setdefault(_TYPES[type(value)], []).append(value)
        return one_of(*({"type": kind, "enum": values} for kind, values in kinds.items()))
    if "const" in schema:
        return {"type": _TYPES[type(schema["const"])], "const": schema["const"]}
    return _plain(schema, named)


def _plain(schema: Schema, named: Callable[[str], Schema]) -> Schema:
    match schema.get("type"):
        case "object":
            return _object(schema, named)
        case "array" if schema.get("items") and "prefixItems" not in schema:
            return {**_kept(schema), "items": _tightened(schema["items"], named)}
        case "string" | "integer" | "number" | "boolean" | "null":
            return _kept(schema)
        case None if not schema.keys() - {"description", "title", "default"}:
            return {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean", "null")]}
        case _:
            raise _Open


def _object(schema: Schema, named: Callable[[str], Schema]) -> Schema:
    if "properties" not in schema or schema.get("additionalProperties"):
        raise _Open
    properties = {name: _tightened(part, named) for name, part in schema["properties"].items()}
    return closed(properties, **({"description": schema["description"]} if "description" in schema else {}))


def _kept(schema: Schema) -> Schema:
    """The keywords that are allowed. Others would refuse the whole schema, and are checked when a value comes back."""
    found = {name: schema[name] for name in _KEPT if name in schema}
    return {**found, "format": schema["format"]} if schema.get("format") in _FORMATS else found
