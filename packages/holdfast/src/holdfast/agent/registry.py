"""Which tools and agents an app holds. Names clash per app, and are judged when the app is built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.agent.agent import Agent, AnyTool
from holdfast.agent.tool import Tool
from holdfast.errors import ContractError, NameClash
from holdfast.model.system import is_system

AnyAgent = Agent[Any, Any]


def gather_agents(agents: Iterable[AnyAgent]) -> dict[str, AnyAgent]:
    """Agents by name. Raises `NameClash` naming both places, `ContractError` for a name that is the runtime's own."""
    found: dict[str, AnyAgent] = {}
    for one in agents:
        if not isinstance(one, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            raise ContractError(f"{one!r} is no agent", next_step="declare it with @agent(...) on an async function")
        if is_system(one.name):
            raise ContractError(f"the agent {one.name!r} is named like the runtime's own", next_step="rename it")
        other = found.setdefault(one.name, one)
        if not _same(other, one):
            raise _clash("agents", one.name, other.where, one.where)
    return found


def gather_tools(agents: Iterable[AnyAgent], extra: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """The tools of these agents, and `extra`. The same function declared again replaces its older self."""
    found: dict[str, AnyTool] = {}
    given = [*(tool for agent in agents for tool in agent.tools), *extra]
    for one in (*given, *(other for tool in given if isinstance(tool, Tool) for other in tool.companions.values())):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        if not isinstance(one, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            raise ContractError(f"{one!r} is no tool", next_step="declare it with @tool")
        other = found.get(one.name)
        if other is not None and not _same(other, one):
            raise _clash("tools", one.name, other.where, one.where)
        if one.contract.expects and not one.contract.verifies:
            raise ContractError(
                f"tool {one.name} declares expected evidence and no verifier to look for it",
                next_step=f"register @{one.name}.verify(...), or drop @{one.name}.expect",
            )
        found[one.name] = one
    return found


def _same(one: AnyAgent | AnyTool, other: AnyAgent | AnyTool) -> bool:
    """The same module and qualified name: a cell run again, or a reload."""
    ours, theirs = one.__wrapped__, other.__wrapped__
    return (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)


def _clash(what: str, name: str, first: str, second: str) -> NameClash:
    return NameClash(
        f"two {what} of this app are named {name!r}",
        known=f"one at {first}, one at {second}",
        next_step="give one of them another name with name=",
    )
