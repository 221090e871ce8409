"""The runs that processes submit to queues, and the limits and commands that operators give meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from beforehand.app import Beforehand
from beforehand.control.queues import Submitted
from beforehand.control.service import ControlService
from beforehand.errors import BeforehandError, JournalUnavailable, ParameterMismatch, QueueFull
from beforehand.queues.limits import DeclaredLimits
from beforehand.queues.schedules import QueuesAndSchedules
from beforehand.testing.clock import EPOCH_MS
from simulator.agents.budgets import amounts
from simulator.agents.queued import agent_named, job_of
from simulator.plan import Declaration, QueueOrder, Submission
from simulator.processes.operators import set_out
from simulator.processes.scheduling import schedules_now

if TYPE_CHECKING:
    from simulator.processes.worker import Life
    from simulator.world import World

FULL_S: Final = 10
AGAIN_S: Final = 5


def declared_by(life: Life) -> DeclaredLimits | QueuesAndSchedules | None:
    """The limits and schedules in the file of this process: the newest that were declared until it started."""
    world = life.world
    names = [worker.name for worker in world.plan.workers]
    if not world.plan.declarations or names.index(life.plan.name) in world.plan.undeclared:
        return None
    limits = [one.limits for one in world.plan.declarations if one.at_ms <= world.now_ms()][-1]
    return QueuesAndSchedules(limits, schedules_now(world)) if world.plan.timetables else limits


def submitting(life: Life, app: Beforehand) -> list[Coroutine[Any, Any, None]]:
    """The submissions of this process: all that its worker has to submit, again after each restart."""
    plan = life.world.plan
    number = [worker.name for worker in plan.workers].index(life.plan.name)
    return [_submit(life, app, one) for one in plan.submissions for worker in one.workers if worker == number]


async def _submit(life: Life, app: Beforehand, submission: Submission) -> None:
    """Submit as often as it takes: the same run is stored once."""
    world, checker = life.world, life.world.checker.queues
    script = world.plan.scripts[submission.script]
    agent, job = agent_named(submission.agent, newer=life.newer), job_of(script, submission)
    await asyncio.sleep(max(0, submission.at_ms - world.now_ms()) / 1000)
    while True:
        checker.submits(script.id)
        try:
            found = await _submitted(life, app, submission, job.about)
        except QueueFull as full:
            world.tell(life.actor, f"may not submit {script.id}: {full.message}")
            checker.refused(life.actor, script.id)
            await asyncio.sleep(FULL_S)
        except JournalUnavailable as error:
            checker.failed(script.id)
            world.tell(life.actor, f"cannot submit {script.id}: {error.message}")
            life.leaving.set()
            return
        except BeforehandError as error:
            checker.failed(script.id)
            world.tell(life.actor, f"cannot submit {script.id}: {type(error).__name__}: {error.message}")
            await asyncio.sleep(AGAIN_S)
        else:
            break
    world.tell(life.actor, f"submitted {script.id}" + ("" if found.new else ", which was submitted before"))
    checker.acknowledged(script.id, new=found.new)
    if submission.differs:
        await _submit_another_input(life, app, submission)
    if submission.joins:
        await life.ask(app, agent, job, script)


async def _submitted(life: Life, app: Beforehand, one: Submission, about: str) -> Submitted:
    script = life.world.plan.scripts[one.script]
    at = None
    if one.delay_ms:
        wall_ms = EPOCH_MS + one.at_ms + life.world.plan.skew_ms + one.delay_ms
        at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    agent, job = agent_named(one.agent, newer=life.newer), job_of(script, replace(one, about=about))
    return await app.submit(
        agent, job, queue=one.queue, priority=one.priority, at=at, tenant=one.tenant, budget=one.budget
    )


async def _submit_another_input(life: Life, app: Beforehand, submission: Submission) -> None:
    script, checker = life.world.plan.scripts[submission.script], life.world.checker.queues
    with contextlib.suppress(BeforehandError):
        try:
            await _submitted(life, app, submission, f"not {submission.about}")
        except ParameterMismatch:
            checker.refused_another_input()
        else:
            checker.took_another_input(script.id)


# --- from outside -----------------------------------------------------------------------------------------------------


def begin_queues(world: World) -> None:
    """Start the operators who declare limits and give commands."""
    for declaration in world.plan.declarations[1:]:
        set_out(world, "declares limits", functools.partial(_declare, declaration), declaration.at_ms)
    for run in dict.fromkeys(order.run for order in world.plan.orders):
        _order(world, [order for order in world.plan.orders if order.run == run], set())


def _order(world: World, orders: list[QueueOrder], given: set[str]) -> None:
    """Give these commands to one run, one after the other."""
    if not orders:
        return
    first, *others = orders

    def then() -> None:
        given.add(first.word)
        _order(world, others, given)

    wait_ms = max(0, first.at_ms - world.now_ms())
    set_out(world, f"says {first.word} to {first.run}", functools.partial(_give, world, first, given), wait_ms, then)


async def _declare(declaration: Declaration, service: ControlService) -> None:
    await service.engine.queues.declare(service.engine.journal, declaration.limits)


async def _give(world: World, order: QueueOrder, given: set[str], service: ControlService) -> None:
    """Give the command, if the run is stored by then. `given`: the commands to this run that were taken before."""
    if not await service.engine.journal.runs(run=order.run):
        return
    match order.word:
        case "cancel":
            await service.cancel(order.run, by="ann")
        case "pause":
            await service.pause(order.run, by="ann")
            if "unpause" in given:  # by a process that was stopped meanwhile: she sees it, and lets the run go on
                await service.unpause(order.run, by="ann")
        case "unpause":
            await service.unpause(order.run, by="ann")
        case "raise":
            await service.raise_budget(order.run, amounts(world.plan.budgets[order.run], order.more), by="ann")
