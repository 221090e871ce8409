"""Plans of the simulated agents: what a model proposes as a value, and how the agent executes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from beforehand.agent.run import Run
from beforehand.agent.tool import Tool, tool
from beforehand.errors import PlanError, TransactionAborted
from beforehand.model.plan import Call, Plan, PlanStep
from beforehand.planning.executor import PlanResult
from simulator.agents.tools import ANSWERS, write
from simulator.plan import Act, Step

HELD: Final = frozenset({"post", "send"})


def proposal_tools() -> Iterable[Tool[Any, Any]]:
    """A plain write whose caller wants to learn at once that its outcome is not known."""

    @tool(on_unknown="raise", **ANSWERS)
    async def dare(thing: str) -> str:
        return await write("dare", thing=thing)

    return (dare,)


def proposed(step: Step) -> Plan:
    """What the model proposes."""
    steps = tuple(_step(number, act, step.thing) for number, act in enumerate(step.acts))
    return Plan(goal=f"all of {step.thing}", name=name_of(step), steps=steps, together=step.together)


def name_of(step: Step) -> str:
    """The name of the plan."""
    return f"plan-{step.thing}"


def _step(number: int, act: Act, thing: str) -> PlanStep:
    before = f"s{act.after}"
    argument: object = {"$result": before} if act.refers else f"{thing}s{number}"
    calls = [Call(one, {"thing": argument}) for one in act.tools]
    return PlanStep(
        id=f"s{number}",
        primary=calls[0],
        fallbacks=tuple(calls[1:]),
        after=() if act.after < 0 else (before,),
        when=f"results.{before}.endsWith('1')" if act.perhaps else "",
        abort_if=(f"results.s{number}.endsWith('2')",) if act.aborts else (),
        hold=act.tools[0] in HELD,
    )


async def carry_out(run: Run, step: Step) -> tuple[str, PlanResult | None, TransactionAborted | None]:
    """Execute the plan of one step. What came of it: in words, its result, and the error that called it off."""
    plan = proposed(step)
    try:
        done = await run.execute(plan)
    except TransactionAborted as gone:
        text = f"{plan.name} called off: {sorted(gone.undone)}, standing {sorted(gone.still_standing)}"
        return text, None, gone
    except PlanError as error:
        return f"{plan.name} ended: {type(error).__name__} {error.step}", None, None
    chosen = [f"{one.step} {one.chosen}" for one in done.chosen]
    return f"{plan.name} done: {chosen} {dict(done.results)}", done, None
