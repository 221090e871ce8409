"""The door for calls that a model chose: schemas out, names and JSON in, outcomes as text."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from holdfast.agent.offering import offered_tools
from holdfast.engine.scopes import Scope
from holdfast.errors import ArgumentError, MustHold, ParameterMismatch
from holdfast.model.outcome import Outcome
from holdfast.model.values_parameters import parameters_schema, parse_arguments

if TYPE_CHECKING:
    from holdfast.agent.tool import Tool

Style = Literal["openai", "anthropic", "json"]


class ToolBox:
    """The tools that a run offers to a model, as it is shown them."""

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self._tools = tools

    def schemas(self, style: Style = "json") -> list[dict[str, Any]]:
        """One description per tool: for OpenAI's or Anthropic's API, or plain JSON Schema."""
        return [_schema(tool, style) for tool in self._tools.values()]


def _schema(tool: Tool[Any, Any], style: Style) -> dict[str, Any]:
    shape = tool.shape
    parameters = parameters_schema(shape.types, shape.required)
    about = inspect.getdoc(tool.__wrapped__) or tool.name
    match style:
        case "openai":
            return {"type": "function", "function": {"name": tool.name, "description": about, "parameters": parameters}}
        case "anthropic":
            return {"name": tool.name, "description": about, "input_schema": parameters}
        case "json":
            return {"name": tool.name, "description": about, "parameters": parameters}


async def call_by_model(scope: Scope, name: str, arguments: str | bytes | Mapping[str, Any]) -> Outcome[Any]:
    """Validate and perform. What the model got wrong comes back as a failed outcome, never as an exception."""
    from holdfast.agent.calling import outcome_of  # noqa: PLC0415 - tool imports run, which imports this module

    scope.instance.check()
    tools = offered_tools(scope.instance)
    if name not in tools:
        known = ", ".join(sorted(tools)) or "none"
        return _refused(scope, name, f"there is no tool {name!r}; the tools are: {known}", "unknown_tool")
    tool: Tool[Any, Any] = tools[name]
    try:
        parsed = parse_arguments(arguments, tool.shape.types, tool.shape.required)
        bound = tool.shape.bind((), parsed)
        return await outcome_of(tool, bound, None, model=True)
    except (ArgumentError, TypeError, ValueError) as error:
        return _refused(scope, name, str(error), "bad_arguments")
    except MustHold as error:
        return _refused(scope, name, error.message, "must_hold")
    except ParameterMismatch as error:
        return _refused(scope, name, f"{error.message}; {error.known}", "mismatch")


def _refused(scope: Scope, name: str, reason: str, code: str) -> Outcome[Any]:
    return Outcome("failed", f"{scope.instance.run}/{scope.path}{name}", name, reason=reason, code=code)
