"""The JSON Schema of a plan, for models that give structured output: every call with the parameters of its tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.agent.tool import Tool
from holdfast.model.plan import REFERENCE
from holdfast.model.values_parameters import parameters_schema

_RESULT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "a part of an earlier step's result, as step.field",
    "properties": {REFERENCE: {"type": "string"}},
    "required": [REFERENCE],
    "additionalProperties": False,
}


def plan_schema(tools: Iterable[Tool[..., Any]]) -> dict[str, Any]:
    """The schema of a plan made of these tools. Closed everywhere, as strict structured output asks for."""
    calls: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for tool in tools:
        if tool.serves:
            continue
        parameters = parameters_schema(tool.shape.types, tool.shape.required)
        definitions |= parameters.pop("$defs", {})
        parameters["properties"] = {
            name: {"anyOf": [schema, {"$ref": "#/$defs/result"}]} for name, schema in parameters["properties"].items()
        }
        calls.append(_closed({"tool": {"const": tool.name}, "arguments": parameters}, ("tool", "arguments")))
    definitions |= {"call": {"anyOf": calls}, "result": _RESULT, "step": _step()}
    return {
        **_closed(
            {
                "goal": {"type": "string"},
                "name": {"type": "string"},
                "together": {"type": "boolean", "description": "whether an abort compensates all steps"},
                "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}},
            },
            ("goal", "steps"),
        ),
        "$defs": definitions,
    }


def _step() -> dict[str, Any]:
    text = {"type": "string"}
    call, texts = {"$ref": "#/$defs/call"}, {"type": "array", "items": text}
    condition = {"type": "string", "description": "a CEL condition over results and input: results.flight.price < 500"}
    return _closed(
        {
            "id": text,
            "primary": call,
            "fallbacks": {"type": "array", "items": call},
            "after": texts,
            "when": condition,
            "abort_if": {"type": "array", "items": condition},
            "ask_if": condition,
            "timeout_s": {"type": ["number", "null"]},
            "attempts": {"type": ["integer", "null"]},
            "hold": {"type": "boolean"},
        },
        ("id", "primary"),
    )


def _closed(properties: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
