"""The JSON Schema of a plan, for models that give structured output: every call with the parameters of its tool.

It is strict, so that a model must follow it: every property is required; an optional one is null or empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from beforehand.agent.tool import Tool
from beforehand.errors import UsageError
from beforehand.model.parameters import Schema, check_offered, closed, one_of, parameters_schema, strict
from beforehand.model.plan import FACT, REFERENCE

_TEXT: Final[Schema] = {"type": "string"}
_NULL: Final[Schema] = {"type": "null"}
_AS_TEXT: Final[Schema] = {"type": "string", "description": "the value as JSON text"}
_RESULT, _FACT, _CALL, _STEP = "result", "fact", "call", "step"


def plan_schema(tools: Iterable[Tool[..., Any]]) -> dict[str, Any]:
    """The schema of a plan made of these tools, in the form that strict structured output accepts.

    In that form an omitted optional parameter is null. A parameter whose type strict output cannot express (a mapping
    with free keys, a tuple) is the JSON text of its value. A conforming answer is read as a `Plan` and checked like
    every other plan. Raises `UsageError` without tools, and `ContractError` for one with `redact=`.
    """
    definitions: dict[str, Schema] = {
        _RESULT: _reference(REFERENCE, "a part of an earlier step's result: step.field"),
        _FACT: _reference(FACT, "what is known under this name, as it was given"),
        _STEP: _step(),
    }
    calls = [_call(tool, definitions) for tool in tools if not tool.serves]
    if not calls:
        raise UsageError("a plan needs at least one tool", next_step="declare @agent(tools=[...])")
    definitions[_CALL] = one_of(*calls)
    return closed(
        {
            "goal": _TEXT,
            "name": {"type": "string", "description": "a short name, of letters and digits"},
            "together": {"type": "boolean", "description": "whether an abort compensates all steps"},
            "steps": {"type": "array", "items": _to(_STEP)},
        },
        **{"$defs": definitions},
    )


def _call(tool: Tool[..., Any], definitions: dict[str, Schema]) -> Schema:
    """One call of this tool. Definitions of its types are stored under the tool's name, so that names cannot clash."""
    check_offered(tool.name, tool.spec.redact)
    parameters = parameters_schema(tool.spec.types, tool.spec.required)
    arguments: dict[str, Schema] = {}
    for name, schema in parameters["properties"].items():
        value, needed = strict(schema, parameters.get("$defs", {}), f"{tool.name}.") or (_AS_TEXT, {})
        definitions |= needed
        left_out = () if name in tool.spec.required else (_NULL,)
        arguments[name] = one_of(value, _to(_RESULT), _to(_FACT), *left_out)
    within = {**_TEXT, "description": "limits each result, such as cents <= 50000 && city in ['Rome']; empty for none"}
    return closed({"tool": {**_TEXT, "const": tool.name}, "arguments": closed(arguments), "within": within})


_JUDGED: Final = "judged before the step is sent, or after it where it reads the step's own result"


def _step() -> Schema:
    texts = {"type": "array", "items": _TEXT}
    condition = "a CEL condition over results and input, such as results.flight.price < 500"
    maybe = {"type": "string", "description": f"{condition}; empty for none"}
    return closed(
        {
            "id": _TEXT,
            "primary": _to(_CALL),
            "fallbacks": {"type": "array", "items": _to(_CALL)},
            "after": texts,
            "when": maybe,
            "abort_if": {"type": "array", "items": {"type": "string", "description": f"{condition}; {_JUDGED}"}},
            "ask_if": maybe,
            "timeout_s": one_of({"type": "number"}, _NULL),
            "attempts": one_of({"type": "integer"}, _NULL),
            "hold": {"type": "boolean", "description": "whether it is sent only when everything else has succeeded"},
            "relies_on": {**texts, "description": "facts that it relies on besides those in its arguments"},
        }
    )


def _reference(word: str, about: str) -> Schema:
    return closed({word: _TEXT}, description=about)


def _to(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}
