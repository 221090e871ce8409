"""The door for calls that a model chose: schemas out, names and JSON in, outcomes as text."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from holdfast.engine.scopes import Scope
from holdfast.engine.tooling import ToolCode
from holdfast.errors import ArgumentError, MustHold, ParameterMismatch
from holdfast.model.outcome import Outcome
from holdfast.model.values_parameters import parameters_schema, parse_arguments

if TYPE_CHECKING:
    from holdfast.agent.tool import Tool

Style = Literal["openai", "anthropic", "json"]


class ToolBox:
    """The tools of an app as a model is shown them."""

    def __init__(self, tools: Mapping[str, ToolCode]) -> None:
        self._tools = tools

    def schemas(self, style: Style = "json") -> list[dict[str, Any]]:
        """One description per tool: for OpenAI's or Anthropic's API, or plain JSON Schema."""
        return [_schema(tool, style) for tool in self._tools.values() if not cast("Tool[Any, Any]", tool).serves]


def _schema(tool: ToolCode, style: Style) -> dict[str, Any]:
    known = cast("Tool[Any, Any]", tool)  # an app's tools are these
    shape = known.shape
    parameters = parameters_schema(shape.types, shape.required)
    about = inspect.getdoc(known.__wrapped__) or tool.name
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
    tools = dict(scope.instance.engine.tools)  # as they are listed: what the system keeps behind them is not for models
    found = tools.get(name)
    if found is None or cast("Tool[Any, Any]", found).serves:
        known = ", ".join(sorted(one for one in tools if not cast("Tool[Any, Any]", tools[one]).serves)) or "none"
        return _refused(scope, name, f"there is no tool {name!r}; the tools are: {known}", "unknown_tool")
    tool = cast("Tool[Any, Any]", found)
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
