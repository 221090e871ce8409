"""Arguments as strict structured output gives them: null for what is left out, JSON text for what it cannot say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from holdfast.errors import ArgumentError
from holdfast.model.strict_schema import strict
from holdfast.model.values_parameters import offered, parameters_schema, parse_arguments


def parse_planned(
    sent: Mapping[str, object], types: Mapping[str, object], required: Collection[str]
) -> dict[str, object]:
    """The arguments of a planned call, typed. Raises `ArgumentError`.

    As `parse_arguments`, but null for a parameter that may be left out and knows no null is as if it were left out,
    and text for one whose type has no strict schema is read as JSON where it is no value itself.
    """
    known, plain = offered(types, required), dict(sent)
    for name, value in sent.items():
        if name not in known or not (value is None or isinstance(value, str)) or _fits(value, known[name]):
            continue
        if value is None and name not in required:
            del plain[name]
        elif isinstance(value, str) and _said_as_text(known[name]):
            plain[name] = _from_text(value)
    return parse_arguments(plain, types, required)


def _fits(value: object, annotation: object) -> bool:
    try:
        parse_arguments({"value": value}, {"value": annotation}, ())
    except ArgumentError:
        return False
    return True


def _said_as_text(annotation: object) -> bool:
    """Whether the schema of a plan asks for the JSON text of such a value."""
    schema = parameters_schema({"value": annotation}, ())
    return strict(schema["properties"]["value"], schema.get("$defs", {})) is None


def _from_text(text: str) -> Any:
    """The value that this JSON text says; the text itself where it says none, so that the error is about that."""
    try:
        return parse_arguments(f'{{"value": {text}}}', {"value": Any}, {"value"})["value"]
    except ArgumentError:
        return text
