"""The step of agents that starts child runs, and joins some of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from beforehand.agent.agent import Agent
from beforehand.agent.children import ChildRun, WhenParentEnds
from beforehand.agent.run import Run
from beforehand.errors import ChildStopped
from simulator.plan import Script, Step

FAMILY: Final = "family"
"""The kind of step."""
DEADLINE: Final = timedelta(minutes=5)
"""The time of a child run, and the most that those below it have."""


async def start_and_join(run: Run, step: Step, helper: Agent[Script, list[str]]) -> str:
    """Start the children, and join those that are to be joined. The others are left."""
    started: list[ChildRun[list[str]]] = []
    for name, child in zip(names_of(step), step.children, strict=True):
        when: WhenParentEnds = "continue" if child.outlives else "cancel"
        script = Script(name, child.steps)
        started.append(await run.start(helper, script, when_parent_ends=when, step=name, budget=child.budget))
    told = [
        f"{name} {await _joined(run, child)}" if plan.joined else f"{name} was started"
        for name, child, plan in zip(names_of(step), started, step.children, strict=True)
    ]
    return f"family {step.thing}: {'; '.join(told)}"


def names_of(step: Step) -> list[str]:
    """The names of the steps that start the children."""
    return [f"{step.thing}-c{number}" for number in range(len(step.children))]


async def _joined(run: Run, child: ChildRun[list[str]]) -> str:
    try:
        result: list[str] = await run.join(child)
    except ChildStopped as stopped:
        return f"stopped ({stopped.reason})"
    return f"gave {result}"
