"""Which tools a model may choose from in a run: those of the run's own agent, and those that belong to the whole app.

What agent code calls is deliberate, and not limited by this. What a model names (`run.call`, the steps of a plan) is;
and so is everything in an agent that the run was handed over to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.engine.active_run.run import ActiveRun
from holdfast.engine.scopes import Scope

AnyTool = Any  # an app's tools are `Tool[Any, Any]`; this module only passes them on


def offered_tools(scope: Scope) -> Mapping[str, AnyTool]:
    """The tools by name. What only the runtime calls is not among them: amends, confirmations, its own tools."""
    tools = _of_the_run(scope.instance)
    if scope.authority is None:
        return tools
    return {name: tool for name, tool in tools.items() if name in scope.authority.tools}


def tools_for(instance: ActiveRun, agent: object) -> frozenset[str]:
    """What would be offered in a run of that agent, whether the app knows it or not."""
    foreign = {name for other in instance.engine.agents.values() for name in _names(other)} - _names(agent)
    return frozenset(_all(instance)) - foreign


def _of_the_run(instance: ActiveRun) -> Mapping[str, AnyTool]:
    engine, started = instance.engine, instance.history.started
    tools = _all(instance)
    others = [agent for name, agent in engine.agents.items() if started is None or name != started.agent]
    own = engine.agents.get(started.agent) if started is not None else None
    if not others or own is None:
        return tools
    foreign = {name for agent in others for name in _names(agent)} - _names(own)
    return {name: tool for name, tool in tools.items() if name not in foreign}


def _all(instance: ActiveRun) -> Mapping[str, AnyTool]:
    tools = cast("Mapping[str, AnyTool]", instance.engine.tools)
    return {name: tool for name, tool in tools.items() if not tool.serves}


def _names(agent: object) -> set[str]:
    """The names of its tools; the runtime's own agents have none."""
    return {tool.name for tool in getattr(agent, "tools", ())}
