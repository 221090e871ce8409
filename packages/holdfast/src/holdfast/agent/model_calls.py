"""The door for calls that a model chose: schemas out, names and JSON in, outcomes as text."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.agent.offering import offered_tools
from holdfast.engine.scopes import Scope
from holdfast.engine.sealing import refuse, sealing
from holdfast.engine.steps import NO_METADATA, CallMetadata, value_at
from holdfast.errors import ArgumentError, MustHold
from holdfast.model.ids import can_name
from holdfast.model.outcome import Outcome
from holdfast.model.parameters import parameters_schema, parse_arguments

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


@sealing
async def call_by_model(
    scope: Scope, name: str, arguments: str | bytes | Mapping[str, Any], about: CallMetadata = NO_METADATA
) -> Outcome[Any]:
    """Validate and perform. What the model got wrong comes back as a failed outcome, never as an exception.

    A refusal is journaled: on replay the model was told the same, whatever the tools take by then.
    """
    if scope.instance.closed:
        await refuse(scope)
    label = name if can_name(name) else "?"
    step = scope.step(f"call:{label}")
    if step in scope.instance.history.answers:
        return await _told(scope, name, step, _Refusal("", ""))
    before = dict(scope.counts)
    outcome = await _performed(scope, name, arguments, about)
    if not isinstance(outcome, _Refusal):
        return outcome
    taken = [base for base, count in scope.counts.items() if count != before.get(base, 0)]
    return await _told(scope, name, step, msgspec.structs.replace(outcome, taken=taken))


class _Refusal(msgspec.Struct, frozen=True):
    """Why a call was refused. `taken` are the steps that had been named for it, without their numbers."""

    reason: str
    code: str
    taken: list[str] = []


async def _performed(
    scope: Scope, name: str, arguments: str | bytes | Mapping[str, Any], about: CallMetadata
) -> Outcome[Any] | _Refusal:
    from holdfast.agent.calling import outcome_of  # noqa: PLC0415 - tool imports run, which imports this module

    tools = offered_tools(scope)
    if name not in tools:
        known = ", ".join(sorted(tools)) or "none"
        return _Refusal(f"there is no tool {name!r}; the tools are: {known}", "unknown_tool")
    tool: Tool[Any, Any] = tools[name]
    try:
        parsed = parse_arguments(arguments, tool.shape.types, tool.shape.required)
        bound = tool.shape.bind((), parsed)
        return await outcome_of(tool, bound, None, model=True, about=about)
    except (ArgumentError, TypeError, ValueError) as error:
        return _Refusal(str(error), "bad_arguments")
    except MustHold as error:
        return _Refusal(error.message, "must_hold")


async def _told(scope: Scope, name: str, step: str, refusal: _Refusal) -> Outcome[Any]:
    """The refusal on record, which this one is unless there is one already; steps are named on as they were then."""
    live = step not in scope.instance.history.answers
    fresh: dict[str, Any] = msgspec.to_builtins(refusal)
    stored = msgspec.convert(await value_at(scope, step, "refused", lambda: fresh), _Refusal)
    if not live:
        for base in stored.taken:
            scope.counts[base] = scope.counts.get(base, 0) + 1
    named = f"{scope.instance.run}/{scope.path}{name}"
    return Outcome("failed", named, name, reason=stored.reason, code=stored.code)
