"""Parameters as a language model sees them (JSON Schema), and the arguments that it sends back, validated."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath
from typing import Any, Final, NoReturn, TypeAlias, cast

import msgspec

from beforehand.model.canonical.forms import Limits, argument_error, is_model
from beforehand.model.errors import ArgumentError, ContractError
from beforehand.model.secret import Secret
from beforehand.model.values import from_plain_strictly

_KNOWN: Final = "the tool was not called."
_REF: Final = "#/$defs/{name}"


def parameters_schema(
    types: Mapping[str, object], required: Collection[str], descriptions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters; `types` holds their resolved annotations.

    Optional parameters of type Secret are left out: a model must not choose which secret is sent where. Raises
    ArgumentError for a required one, and for a type that has no schema.
    """
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for name, annotation in offered(types, required).items():
        schema, needed = _schema_of(name, annotation)
        _add(definitions, needed, name)
        note = (descriptions or {}).get(name)
        properties[name] = schema if note is None else {**schema, "description": note}
    whole: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name in required],
        "additionalProperties": False,
    }
    return {**whole, "$defs": definitions} if definitions else whole


def parse_arguments(
    sent: str | bytes | Mapping[str, object],
    types: Mapping[str, object],
    required: Collection[str],
    *,
    limit: Limits = Limits(),  # noqa: B008 - frozen
) -> dict[str, object]:
    """Parse what a model sent into typed arguments; raises ArgumentError, whose text can be sent back to it.

    Strict: "5" is not 5 (an integer may stand for a float). Unknown and missing parameters, duplicate keys, NaN and
    bad UTF-8 are refused.
    """
    values = dict(sent) if isinstance(sent, Mapping) else read_object(sent, limit)
    known = offered(types, required)
    for name in values:
        if name not in known:
            _refuse(name, "there is no such parameter", f"The parameters are: {', '.join(known) or 'none'}.")
    for name in known:
        if name in required and name not in values:
            _refuse(name, "it is required and was not given", "Send it.")
    return {name: _convert(name, value, known[name]) for name, value in values.items()}


def offered(types: Mapping[str, object], required: Collection[str]) -> dict[str, object]:
    """The parameters that a model may fill in: all but secrets."""
    for name in types:
        if name in required and _is_secret(types[name]):
            _refuse(
                name,
                "a secret cannot be chosen by a model, and the parameter has no default",
                "Give it a default, or offer a tool without it.",
            )
    return {name: annotation for name, annotation in types.items() if not _is_secret(annotation)}


def check_offered(name: str, redact: Collection[str]) -> None:
    """Raise `ContractError` for a tool that redacts: a model's answers are recorded with the arguments of its calls."""
    if redact:
        raise ContractError(
            f"tool {name} redacts {', '.join(sorted(redact))}, which would be recorded in each answer of a model that "
            "calls it",
            known="the tool was not offered, and nothing was sent",
            next_step='let the tool read the value by its name, Secret("..."), or by an id, and drop redact=; if only '
            "your code calls it, offer the model the other tools by name",
        )


def _is_secret(annotation: object) -> bool:
    return annotation is Secret or any(_is_secret(part) for part in typing.get_args(annotation))


def _refuse(parameter: str, problem: str, todo: str) -> NoReturn:
    raise argument_error(parameter, problem, todo, _KNOWN)


# --- schema ---------------------------------------------------------------------------------------------------------


def _schema_of(name: str, annotation: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of one parameter, and the definitions that it refers to."""
    nested: dict[str, Any] = {}

    def hook(kind: type[Any]) -> dict[str, Any]:
        if kind is object:
            return {"description": "any JSON value"}
        if issubclass(kind, PurePath):
            return {"type": "string", "format": "path"}
        if not is_model(kind):
            raise TypeError(f"{kind.__qualname__} is not a type that msgspec or pydantic knows")
        schema: dict[str, Any] = kind.model_json_schema(ref_template="#/$defs/{model}")
        nested.update(schema.pop("$defs", {}))
        return schema

    try:
        (schema,), needed = msgspec.json.schema_components([_typed(annotation)], schema_hook=hook, ref_template=_REF)
    except TypeError as why:
        raise argument_error(
            name, f"its type has no JSON Schema ({why})", "Annotate it with plain types, a dataclass, or a model.",
            "the tool was not offered.",
        ) from why  # fmt: skip
    return schema, {**needed, **nested}


def _add(definitions: dict[str, Any], needed: dict[str, Any], parameter: str) -> None:
    for name, definition in needed.items():
        if definitions.setdefault(name, definition) != definition:
            problem = f"two different types are named {name}"
            raise argument_error(parameter, problem, "Rename one.", "the tool was not offered.")


def _typed(annotation: Any) -> Any:
    return Any if annotation in (inspect.Parameter.empty, object) else annotation


# --- what was sent --------------------------------------------------------------------------------------------------


def read_object(sent: str | bytes, limit: Limits = Limits()) -> dict[str, object]:  # noqa: B008 - frozen
    """One JSON object from a model, without duplicate keys. Raises `ArgumentError`."""
    import json  # noqa: PLC0415 - only arguments that a model sent as text need it

    if len(sent) > limit.size:
        _refuse("(arguments)", f"they are larger than {limit.size} bytes", "Send less.")
    try:
        text = sent.decode() if isinstance(sent, bytes) else sent
        values = json.loads(text or "{}", object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except RecursionError:
        _refuse("(arguments)", "they are nested too deeply", "Send a flatter object.")
    except ValueError as why:
        if isinstance(why, ArgumentError):
            raise
        _refuse("(arguments)", f"this is not JSON ({why})", "Send one JSON object.")
    if not isinstance(values, dict):
        _refuse("(arguments)", f"a JSON object is expected, not {type(values).__qualname__}", "Send one JSON object.")
    return cast("dict[str, object]", values)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        _refuse(twice, "it is given twice in one object", "Send it once.")
    return values


def _no_constant(text: str) -> NoReturn:
    _refuse("(arguments)", f"{text} is not JSON", "Send null, or leave it out.")


def _convert(name: str, value: object, annotation: object) -> object:
    target = _typed(annotation)
    if target is Any:
        return value
    try:
        return msgspec.convert(value, target, str_keys=True, dec_hook=from_plain_strictly)
    except msgspec.ValidationError as why:
        path, problem = _place(name, str(why))
    except (TypeError, ValueError, RecursionError) as why:
        path, problem = name, str(why)
    _refuse(path, problem, "Send the value that the schema asks for.")


_AT: Final = re.compile(r"(?P<problem>.*) - at `(?P<path>\$?[^`]*)`", re.DOTALL)


def _place(name: str, text: str) -> tuple[str, str]:
    """Msgspec's `problem - at `$.path``, with the parameter's name in front of the path."""
    if (found := _AT.fullmatch(text)) is None:
        return name, text
    return name + found["path"].removeprefix("$"), found["problem"]


# --- JSON Schema for strict structured output -----------------------------------------------------------------------
# Closed objects, every property required, no open values. The rules are OpenAI's, the narrowest in use: a schema that
# keeps to them is accepted everywhere. A type that they cannot express (a mapping with free keys, a tuple) has no
# strict form; of "any value", the plain ones remain.


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

    `prefix` comes before the names of its definitions.
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
