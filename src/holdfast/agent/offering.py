"""Which tools a model may choose from in a run: those of the run's own agent, and those that belong to the whole app.

What agent code calls is deliberate, and not limited by this. What a model names (`run.call`, the steps of a plan) is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.engine.instance import Instance

AnyTool = Any  # an app's tools are `Tool[Any, Any]`; this module only passes them on


def offered_tools(instance: Instance) -> Mapping[str, AnyTool]:
    """The tools by name. What only the runtime calls is not among them: amends, confirmations, its own tools."""
    engine, started = instance.engine, instance.history.started
    tools = {name: tool for name, tool in cast("Mapping[str, AnyTool]", engine.tools).items() if not tool.serves}
    others = [agent for name, agent in engine.agents.items() if started is None or name != started.agent]
    own = engine.agents.get(started.agent) if started is not None else None
    if not others or own is None:
        return tools
    foreign = {name for agent in others for name in _names(agent)} - _names(own)
    return {name: tool for name, tool in tools.items() if name not in foreign}


def _names(agent: object) -> set[str]:
    """The names of its tools; the runtime's own agents have none."""
    return {tool.name for tool in getattr(agent, "tools", ())}
