"""Tools and steps about time and processes: slow systems, failing models, processes that are stopped or die."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from beforehand.agent.run import Run
from beforehand.agent.tool import Tool, tool
from beforehand.model.contract import Key, Natural
from beforehand.model.outcome import Outcome, Verdict
from beforehand.model.view import Operation
from beforehand.policies import Retry
from beforehand.testing.loop import Died
from simulator.agents.tools import ANSWERS, BUSY, NETWORK, REFUSED, TIMEOUT, verdict, write
from simulator.plan import Step
from simulator.services.service import CATALOGUE

LANDS: Final = timedelta(milliseconds=CATALOGUE["label"].late_ms)
PATIENCE: Final = timedelta(minutes=4)
LIMIT: Final = timedelta(minutes=2)
SPARSE: Final = Retry(attempts=5, elapsed=LIMIT, base=timedelta(seconds=15), cap=timedelta(seconds=20))
"""Five attempts with long pauses, which fit into the limit only where nothing but calls and pauses counts."""


def timing_tools() -> Iterable[Tool[Any, Any]]:
    """A natural write whose requests land late, a system that works on a key for minutes, and a short time limit."""

    @tool(idempotency=Natural(within=timedelta(minutes=5), settle_window=LANDS), **ANSWERS)
    async def label(thing: str, value: str) -> str:
        return await write("label", thing=thing, value=value)

    @tool(idempotency=Key.forever(in_progress_patience=PATIENCE), **ANSWERS)
    async def build(thing: str) -> str:
        return await write("build", keyed=True, thing=thing)

    @tool(idempotency=Key.forever(), rejections=REFUSED, not_sent=BUSY, timeout=TIMEOUT, retry=SPARSE)
    async def dispatch(thing: str) -> str:
        return await write("dispatch", keyed=True, thing=thing)

    return label, build, dispatch


async def relabel(tools: Any, step: Step) -> list[Outcome[Any]]:
    """Write two values to one thing, one after the other."""
    return [await tools["label"].outcome(step.thing, value) for value in ("first", "second")]


async def consult(run: Run, step: Step) -> str:
    """Ask a model with the retries that hold where code sets none."""
    return await run.options(step=f"consult {step.thing}").decide(ask_model, run.id, step.thing)


async def ask_model(run: str, thing: str) -> str:
    """A model that may be down for minutes."""
    from simulator.agents.scripted import LIFE  # noqa: PLC0415 - it performs the steps that stand here

    life = LIFE.get()
    world = life.world
    world.point(life.actor, "ask the model", f"{run} {thing}")
    fault = world.nemesis.of_call(MODEL)
    if fault is not None or world.outage(MODEL):
        raise ConnectionRefusedError("the model is down")
    await world.travel("model", run, thing)
    return f"{run} about {thing}: {world.draws.of('answer', run, thing).getrandbits(32):x}"


MODEL: Final = "model"


# --- processes that are stopped or die --------------------------------------------------------------------------------


POISON: Final = ("risk", "crash", "creep")
"""Steps at which each process dies: during a call, between calls, and after it has recorded something new."""


def process_tools() -> Iterable[Tool[Any, Any]]:
    """A tool that can be read back, whose process is stopped in it; and one that kills its process."""

    @tool(**ANSWERS)
    async def haul(thing: str) -> str:
        return await write("haul", marked=True, thing=thing)

    @haul.verify(settle_window=timedelta(seconds=30), every=timedelta(seconds=15))
    async def hauled(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("haul", marker=operation.marker))

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def risk(thing: str) -> str:
        await die()
        return thing

    del hauled
    return haul, risk


async def creep(run: Run, step: Step) -> None:
    """Record one answer more than the process before, and let this one die."""
    new = list[int]()

    async def page(thing: str, number: int) -> str:
        new.append(number)
        return f"page {number} of {thing}"

    for number in itertools.count():
        await run.decide(page, step.thing, number)
        if new:
            await die()


async def die() -> None:
    """The process ends here, whichever it is."""
    from simulator.agents.scripted import LIFE  # noqa: PLC0415 - it performs the steps that stand here

    life = LIFE.get()
    await life.world.travel("death", life.actor.name)
    if life.actor.alive:
        life.world.tell(life.actor, "dies of the run that it drives")
        life.world.checker.processes.died()
        life.kill()
    raise Died
