"""The step of agents that costs: a question to a model that states what it used, or fails to."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from beforehand.agent.run import Run
from beforehand.errors import BudgetExceeded, DecisionFailed
from beforehand.policies import RunBudget
from simulator.agents import models
from simulator.plan import Step

QUERY: Final = "query"
"""The kind of step, and the name by which faults of its calls are counted."""
QUERY_FAULTS: Final = ("refused", "lost", "silent", "slow")
"""What may become of a call: the service refuses it and nothing is used, the answer is lost and what it used is never
known, the answer does not state its usage, or it takes half a minute.
"""


class Refused(ConnectionRefusedError):
    """The model's service is not reached: nothing is used."""


async def query(run: Run, step: Step) -> str:
    """Ask, and go on without an answer where a limit does not permit the call."""
    name = f"query {step.thing}"
    try:
        if not step.route:
            answer = await run.options(step=name).decide(ask, run.id, step.thing, step.cents)
            return f"{name}: {answer['answer']}"
        options = run.options(step=name, timeout=models.TIMEOUT, model=models.asked_of(step.route))
        given = await options.decide(models.ask_route, run.id, step.thing, step.cents, step.route)
    except BudgetExceeded:
        return f"{name}: not asked"
    except DecisionFailed:
        return f"{name}: failed"
    return f"{name}: {given.by} says {given.text}"


async def ask(run: str, thing: str, tokens: int) -> dict[str, Any]:
    """A model that uses so many tokens for this question, each time."""
    from simulator.agents.scripted import LIFE  # noqa: PLC0415 - it performs the steps that stand here

    life = LIFE.get()
    world = life.world
    world.point(life.actor, "ask the model", f"{run} {thing}")
    world.checker.budgets.begins(life.actor, run, f"query {thing}")
    await world.travel("model", run, thing)
    fault = world.nemesis.of_call(QUERY)
    kind = fault.kind if fault is not None else ""
    if kind == "refused":
        world.checker.budgets.refused(run, f"query {thing}")
        raise Refused("the model's service does not answer")
    if kind == "slow":
        await asyncio.sleep(30)
    if kind == "lost":
        raise TimeoutError("no answer came")
    usage = {} if kind == "silent" else {"input_tokens": tokens - tokens // 3, "output_tokens": tokens // 3}
    return {"answer": f"{thing} of {run}", "usage": usage}


def amounts(budget: RunBudget, generous: int) -> dict[str, int]:
    """What a person adds to each limit of a budget."""
    more = {"tokens": 400, "model_calls": 2, "effects": 1}
    return {name: amount * generous for name, amount in more.items() if getattr(budget, name) is not None}
