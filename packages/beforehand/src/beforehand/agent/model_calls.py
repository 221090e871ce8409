"""Calls that a model chose: schemas of the offered tools, calls by name and JSON, and outcomes as text."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.sealing import sealing
from beforehand.engine.steps import NO_METADATA, CallMetadata, value_at
from beforehand.errors import ArgumentError, MustHold, UsageError
from beforehand.model.ids import can_name
from beforehand.model.outcome import Outcome
from beforehand.model.parameters import check_offered, parameters_schema

if TYPE_CHECKING:
    from beforehand.agent.tool import Tool


Style = Literal["openai", "anthropic", "json"]


AnyTool = Any  # an app's tools are `Tool[Any, Any]`; this module only passes them on


class ToolBox:
    """The tools that a run offers to a model, in the form that the model receives."""

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self._tools = tools

    def schemas(self, style: Style = "json", names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """One description per tool, for OpenAI's API, Anthropic's API, or as plain JSON Schema.

        `names` are the tools to offer; None means all. Raises `ContractError` for a tool with `redact=`.
        """
        chosen = [*self._tools] if names is None else [*names]
        if missing := [name for name in chosen if name not in self._tools]:
            raise UsageError(
                f"the model is offered tools that the agent does not have: {', '.join(missing)}",
                known="no model was asked",
                next_step="declare them: @agent(tools=[...])",
            )
        return [_schema(self._tools[name], style) for name in chosen]


def _schema(tool: Tool[Any, Any], style: Style) -> dict[str, Any]:
    check_offered(tool.name, tool.spec.redact)
    parameters = tool.spec.schema or parameters_schema(tool.spec.types, tool.spec.required)
    about = inspect.getdoc(tool) or tool.name
    match style:
        case "openai":
            return {"type": "function", "function": {"name": tool.name, "description": about, "parameters": parameters}}
        case "anthropic":
            return {"name": tool.name, "description": about, "input_schema": parameters}
        case "json":
            return {"name": tool.name, "description": about, "parameters": parameters}


@sealing
async def call_by_model(
    scope: Scope,
    name: str,
    arguments: str | bytes | Mapping[str, Any],
    about: CallMetadata = NO_METADATA,
    named: str | None = None,
) -> Outcome[Any]:
    """Validate and perform a call. An error of the model is returned as a failed outcome, never raised.

    A refusal is journaled: replay returns the same one, whatever the tools accept by then. `named` is the explicit name
    of the step.
    """
    label = name if can_name(name) else "?"
    step = scope.step(f"call:{label}") if named is None else scope.step("", f"call:{named}")
    if step in scope.active.history.steps.answers:
        return await _refused(scope, name, step, _Refusal("", ""))
    before = dict(scope.counts)
    outcome = await _performed(scope, name, arguments, about, named)
    if not isinstance(outcome, _Refusal):
        return outcome
    taken = [base for base, count in scope.counts.items() if count != before.get(base, 0)]
    return await _refused(scope, name, step, msgspec.structs.replace(outcome, taken=taken))


class _Refusal(msgspec.Struct, frozen=True):
    """The reason for refusing a call. `taken` are the steps that had been named for it, without their numbers."""

    reason: str
    code: str
    taken: list[str] = []


async def _performed(
    scope: Scope, name: str, arguments: str | bytes | Mapping[str, Any], about: CallMetadata, named: str | None
) -> Outcome[Any] | _Refusal:
    from beforehand.agent.call import outcome_of  # noqa: PLC0415 - tool imports run, which imports this module

    tools = {offered: tool for offered, tool in offered_tools(scope).items() if not tool.spec.redact}
    if name not in tools:
        known = ", ".join(sorted(tools)) or "none"
        return _Refusal(f"there is no tool {name!r}; the tools are: {known}", "unknown_tool")
    tool: Tool[Any, Any] = tools[name]
    try:
        return await outcome_of(tool, tool.spec.parsed(arguments), named, model=True, about=about)
    except (ArgumentError, TypeError, ValueError) as error:
        return _Refusal(str(error), "bad_arguments")
    except MustHold as error:
        return _Refusal(error.message, "must_hold")


async def _refused(scope: Scope, name: str, step: str, refusal: _Refusal) -> Outcome[Any]:
    """The recorded refusal, or this one if none is recorded. Steps are numbered as they were then."""
    live = step not in scope.active.history.steps.answers
    fresh: dict[str, Any] = msgspec.to_builtins(refusal)
    stored = msgspec.convert(await value_at(scope, step, "refused", lambda: fresh), _Refusal)
    if not live:
        for base in stored.taken:
            scope.counts[base] = scope.counts.get(base, 0) + 1
    named = f"{scope.active.run}/{scope.path}{name}"
    return Outcome("failed", named, name, reason=stored.reason, code=stored.code)


# --- tools that a model may choose from -------------------------------------------------------------------------------


def offered_tools(scope: Scope) -> Mapping[str, AnyTool]:
    """The tools by name, without those that only the runtime calls: compensations, confirmations, its own tools."""
    tools = _of_the_run(scope.active)
    if scope.authority is None:
        return tools
    return {name: tool for name, tool in tools.items() if name in scope.authority.tools}


def tools_for(active: ActiveRun, agent: object) -> frozenset[str]:
    """The names of the tools that a run of that agent would offer, even if the app does not know the agent."""
    foreign = {name for other in active.process.agents.values() for name in _names(other)} - _names(agent)
    return frozenset(_all(active)) - foreign


def _of_the_run(active: ActiveRun) -> Mapping[str, AnyTool]:
    engine, started = active.process, active.history.lifecycle.started
    tools = _all(active)
    others = [agent for name, agent in engine.agents.items() if started is None or name != started.agent]
    own = engine.agents.get(started.agent) if started is not None else None
    if not others or own is None:
        return tools
    foreign = {name for agent in others for name in _names(agent)} - _names(own)
    return {name: tool for name, tool in tools.items() if name not in foreign}


def _all(active: ActiveRun) -> Mapping[str, AnyTool]:
    tools = cast("Mapping[str, AnyTool]", active.process.tools)
    return {name: tool for name, tool in tools.items() if not tool.serves}


def _names(agent: object) -> set[str]:
    """The names of its tools; the runtime's own agents have none."""
    return {tool.name for tool in getattr(agent, "tools", ())}
