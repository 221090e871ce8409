"""One instance of a run from its claim to its end: load, replay, drive, and let go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from holdfast.engine.active_run.run import ActiveRun
from holdfast.engine.background_verification import first_reading_due
from holdfast.engine.commands import take_commands
from holdfast.engine.exceptions.agent_error import recorded_error
from holdfast.engine.exceptions.call_end import storable
from holdfast.engine.late_reports import file_known_ends
from holdfast.engine.leases import release_post
from holdfast.engine.loading import load
from holdfast.engine.run_start import (
    Input,
    admitted,
    agent_of,
    check_input,
    first_records,
    go_on_after_stop,
    number_of_claim,
    record_claim,
    release,
)
from holdfast.engine.saga import call_off, resume_reopened, start_closing
from holdfast.engine.scopes import branch_task
from holdfast.engine.sealing import abandon
from holdfast.engine.steps import recover
from holdfast.engine.suspension import Ending, Pause, asks_until, encode_waits, stop_unreadable, stopped_change
from holdfast.errors import (
    AmbiguousStep,
    ChainBroken,
    ClaimUnproven,
    HoldfastError,
    JournalError,
    LeaseLost,
    LedgerTaken,
    ReplayDiverged,
    ResultLost,
    RunBusy,
    Sealed,
    TransactionAborted,
    UnknownRun,
    Unreadable,
)
from holdfast.journal.port import Busy, LeaseGranted, RunChange, RunStatus
from holdfast.journal.record_codec import encode
from holdfast.journal.run_log import RunLog, beginning, genesis
from holdfast.model import records as r
from holdfast.model.questions import TAKE_OVER, why_ended
from holdfast.model.receipts import receipts_in, unproven
from holdfast.model.run_history import RunHistory, open_boundaries
from holdfast.model.transaction import WHOLE_RUN, encloses

if TYPE_CHECKING:
    from holdfast.engine.engine import AgentCode, Engine

LOG: Final = logging.getLogger("holdfast")


class Conclusion(msgspec.Struct, frozen=True):
    """How one drive of a run ended. `error` is what agent code raised, for the caller's traceback."""

    run: str
    status: Literal["completed", "suspended", "stopped"]
    reason: str = ""
    detail: str = ""
    result: bytes = b"null"
    due: int | None = None
    waits: tuple[Pause, ...] = ()
    error: BaseException | None = None


async def drive_run(
    engine: Engine, run: str, agent: AgentCode | None = None, given: Input | None = None, *, reopener: str = ""
) -> Conclusion:
    """Claim the run and drive it until it ends or nothing can go on.

    With `agent` and `given` a missing run is begun; with `reopener`, who says so, one that has stopped goes on under
    the same id.
    Raises `UnknownRun`, `RunBusy` while another process drives it, and `ParameterMismatch` where the input differs from
    the recorded one.
    """
    engine.environment.crash.reached("before_claim")
    begun: tuple[r.Record, ...] = ()
    new = None
    if agent is not None and given is not None:
        # In the commit of the claim: wherever this process dies, the run can be driven, resumed and cancelled.
        begun = first_records(engine, agent, given)
        bodies = [encode(record) for record in begun]
        new = beginning(engine.identity.namespace, run, agent.name, bodies, program=agent.program)
    claimed = await engine.leases.claim(run, new)
    engine.environment.crash.reached("after_claim")
    if claimed is None:
        raise UnknownRun(f"there is no run {run} in this journal", next_step="holdfast ps lists the runs")
    if isinstance(claimed, Busy):
        raise RunBusy(
            f"run {run} is driven by another process (pid {claimed.owner.pid})",
            run=run,
            known="it goes on there; starting it again is safe and joins it",
            next_step=f"wait for it, or look at it with: holdfast show {run}",
        )
    try:
        history = await _history(engine, claimed, begun)
        return await _drive_claimed(engine, claimed, history, agent, given, reopener)
    except LeaseLost as error:
        raise RunBusy(f"run {run} was taken over by another process", run=run, known=str(error)) from error
    except (ChainBroken, Unreadable) as error:
        await stop_unreadable(engine, claimed, error)
        raise
    except JournalError:
        engine.leases.give_back(claimed.row)
        raise
    finally:
        engine.company.exit(run)
        engine.leases.let_go(run)


async def _history(engine: Engine, claimed: LeaseGranted, begun: Iterable[r.Record]) -> RunHistory:
    """The history of a claimed run; that of a new one is known."""
    run = claimed.lease.run
    if not claimed.fresh:
        history = await load(engine, run)
        return await load(engine, run, whole=True) if undoing(history) else history
    history = RunHistory(run)
    for record in begun:
        history.add(record)
    return history


async def _drive_claimed(
    engine: Engine,
    claimed: LeaseGranted,
    history: RunHistory,
    agent: AgentCode | None,
    given: Input | None,
    reopener: str,
) -> Conclusion:
    run = claimed.lease.run
    log = RunLog(engine.journal, claimed.lease, claimed.last, genesis(engine.identity.namespace, run))
    try:
        agent = agent_of(engine, history, agent)
        if given is not None:
            check_input(history, given.stored, given.digest)
        if reopener and history.status == "stopped":
            await go_on_after_stop(engine, history, log, reopener)
        instance = ActiveRun(engine, history, log)
        if history.status in {"completed", "stopped", "undone"} and not undoing(history):
            return await _let_go(instance, history)
        number = 1 if claimed.fresh else await number_of_claim(instance)
        if not await admitted(instance, number):
            await release(engine, history, log, claimed)
            return Conclusion(run, "suspended", "the process shuts down")
        if not claimed.fresh:
            await record_claim(instance, claimed, number)
        await take_commands(instance)
    except HoldfastError:
        await release(engine, history, log, claimed)
        raise
    engine.instances[run] = instance
    instance.raised = resume_reopened
    try:
        return await _drive_instance(instance, agent)
    except JournalError:
        await file_known_ends(instance)
        raise
    finally:
        engine.instances.pop(run, None)


async def _drive_instance(instance: ActiveRun, agent: AgentCode) -> Conclusion:
    history = instance.history
    assert history.started is not None, instance.run
    allowed = instance.engine.settings.claims_allowed
    if history.claims_without_progress > allowed:
        instance.end(Ending("quarantined", f"{history.claims_without_progress - 1} processes took it and got nowhere"))
    if history.paused is not None:
        instance.end(Ending("suspended", f"paused by {history.paused.by}: holdfast unpause {instance.run}"))
    if history.cancelled is not None:
        instance.end(Ending("cancelled", why_ended(history.cancelled)))
    if undoing(history):
        return await _undo(instance)
    if instance.ending.done():
        if history.cancelled is not None:
            recover(instance)  # what was never sent is cancelled with the run
        return await _tear_down(instance, None)
    task = branch_task(instance.root, agent.begin(instance.root, bytes(history.started.input)))
    recover(instance)
    instance.consider_rest()
    await asyncio.wait({task, instance.ending}, return_when=asyncio.FIRST_COMPLETED)
    if not instance.ending.done():
        await _branches_end(instance)
        await _drivers_end(instance)
    if instance.ending.done() and not _finished(task):
        return await _tear_down(instance, task)
    return await _conclude(instance, agent, task)


def _finished(task: asyncio.Task[object]) -> bool:
    """Whether the agent came to an end by itself."""
    return task.done() and not task.cancelled() and not isinstance(task.exception(), Sealed)


async def _branches_end(instance: ActiveRun) -> None:
    """The agent is done: branches that nobody awaited are cancelled, as `asyncio.run` does with tasks."""
    cancelled: set[asyncio.Task[object]] = set()
    while (tasks := instance.root.tasks()) and not instance.ending.done():
        for task in tasks:
            if task not in cancelled:
                task.cancel()
        cancelled.update(tasks)
        instance.consider_rest()
        await asyncio.wait({*tasks, instance.ending}, return_when=asyncio.FIRST_COMPLETED)
    retrieve_exceptions(cancelled)


async def _drivers_end(instance: ActiveRun) -> None:
    """The agent is done: what its callers left in flight is settled, or rests, before the run ends."""
    while instance.drivers and not instance.ending.done():
        instance.consider_rest()
        waits: set[asyncio.Future[Any]] = {*instance.drivers.values(), instance.ending}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


async def _conclude(instance: ActiveRun, agent: AgentCode, task: asyncio.Task[object]) -> Conclusion:
    """The agent returned or raised."""
    error = asyncio.CancelledError("its code cancelled itself") if task.cancelled() else task.exception()
    if error is None and instance.expected:
        error = instance.divergence("the agent returned, and recorded operations did not come back")
    if error is None and instance.ending.done():
        return await _tear_down(instance, task)
    if error is None:
        error = await unproven_claims(instance, agent.requires, task.result())
    if error is not None:
        return await _stopped(instance, error)
    try:
        stored = instance.masks.result(agent.codec, agent.codec.round_trip(task.result())[0])
    except ValueError as problem:
        return await _stopped(instance, ResultLost(f"the result of run {instance.run} could not be stored: {problem}"))
    instance.engine.environment.crash.reached("before_end")
    instance.seal("it is complete")
    completed = r.RunCompleted(result=r.Raw(stored), **instance.stamp())
    posts = instance.engine.outbox.posts(instance, "run.completed")
    await instance.append(completed, change=RunChange("completed", release=True), posts=posts)
    warn_of_undelivered(instance)
    instance.engine.environment.crash.reached("after_end")
    return Conclusion(instance.run, "completed", result=stored)


async def _stopped(instance: ActiveRun, error: BaseException) -> Conclusion:
    """Agent code raised: the run stops, its open operations are listed, and it may be reopened."""
    await _stop_drivers(instance)
    diverged = isinstance(error, (ReplayDiverged, AmbiguousStep))
    reason: Literal["diverged", "error"] = "diverged" if diverged else "error"
    said, detail = (
        instance.masks.record(recorded_error(error)),
        instance.masks.text(storable(getattr(error, "difference", ""))),
    )
    instance.seal(f"it stopped: {reason}")
    stamp = instance.stamp()
    record = r.RunStopped(
        reason=reason, error=said.error, detail=detail, frames=said.frames, open=_open(instance),
        renews=called_off_by(error), until=asks_until(reason, stamp["at"], instance.engine.settings), **stamp,
    )  # fmt: skip
    await _stop(instance, record)
    return Conclusion(instance.run, "stopped", reason, said.error, error=error)


async def _stop(instance: ActiveRun, record: r.RunStopped) -> None:
    posts = instance.engine.outbox.posts(instance, "run.stopped", f"{record.reason}: {record.error}")
    await instance.append(
        record, change=stopped_change(record, _agent_of(instance), first_reading_due(instance)), posts=posts
    )
    warn_of_undelivered(instance)


def _agent_of(instance: ActiveRun) -> str:
    started = instance.history.started
    return "" if started is None else started.agent


def _open(instance: ActiveRun) -> tuple[str, ...]:
    return tuple(operation.step for operation in instance.history.open_operations())


async def _tear_down(instance: ActiveRun, task: asyncio.Task[object] | None) -> Conclusion:
    """Seal first, so that unwinding code can do nothing; then let calls in flight end; then let go."""
    ending = instance.ending.result()
    if ending.kind == "cancelled" and open_boundaries(instance.history):
        ending = await abort_transactions(instance, ending.reason) or ending
    return await _end_early(instance, ending, task)


async def _end_early(instance: ActiveRun, ending: Ending, task: asyncio.Task[object] | None = None) -> Conclusion:
    """Let go of the run, and record how it ends."""
    instance.seal(ending.reason or ending.kind)
    await unwind(instance)
    if ending.kind == "lost":
        raise LeaseLost(ending.reason)
    await _stop_drivers(instance)
    if instance.failure is not None:
        raise instance.failure
    match ending.kind:
        case "diverged":
            recorded_error = task.exception() if task is not None and task.done() and not task.cancelled() else None
            found = ending.error or (recorded_error if isinstance(recorded_error, ReplayDiverged) else None)
            return await _stopped(instance, found or instance.divergence(ending.reason))
        case "failed":
            return await _stopped(instance, ending.error or HoldfastError(ending.reason))
        case "cancelled" | "quarantined":
            return await _stopped_by_order(instance, ending)
        case _:
            return await _suspended(instance, ending)


async def _undo(instance: ActiveRun) -> Conclusion:
    """Undo a finished run: its own boundary is called off, and closed from its records."""
    history = instance.history
    instance.evict("it is being undone")
    recover(instance)
    rests = await close_boundaries(instance)
    if rests is not None:
        return await _end_early(instance, rests)
    instance.seal("it was undone")
    await _stop_drivers(instance)
    whole = history.transactions[WHOLE_RUN]
    record = r.RunUndone(by=whole.by, undone=whole.undone, still_standing=whole.still_standing, **instance.stamp())
    reason = f"undone by {whole.by}"
    posts = instance.engine.outbox.posts(instance, "run.undone", reason)
    await instance.append(record, change=RunChange("undone", reason=reason, release=True), posts=posts)
    return Conclusion(instance.run, "stopped", "undone", f"undone by {whole.by}")


async def _stopped_by_order(instance: ActiveRun, ending: Ending) -> Conclusion:
    order = instance.history.cancelled
    taken = order is not None and order.command == TAKE_OVER
    reason: Literal["cancelled", "quarantined", "handed_over"] = (
        "quarantined" if ending.kind == "quarantined" else "handed_over" if taken else "cancelled"
    )
    stamp = instance.stamp()
    until = asks_until(reason, stamp["at"], instance.engine.settings)
    record = r.RunStopped(reason=reason, error=ending.reason, open=_open(instance), until=until, **stamp)
    await _stop(instance, record)
    return Conclusion(instance.run, "stopped", reason, ending.reason)


async def _suspended(instance: ActiveRun, ending: Ending) -> Conclusion:
    running = ending.kind == "shutdown"
    change = RunChange(
        "running" if running else "suspended",
        reason=ending.reason[:500],
        due_ms=ending.due,
        waits=encode_waits(ending.waits),
        release=True,
    )
    record = r.RunSuspended(reason=ending.reason or ending.kind, **instance.stamp())
    notices = instance.engine.outbox.posts(instance, "run.waits_for_person", ending.reason, ending.waits)
    try:
        await instance.append(record, change=change, posts=(release_post(instance.run, instance.lease.token), *notices))
    except LedgerTaken:  # somebody brought something meanwhile: whoever is next looks at it at once
        due = msgspec.structs.replace(change, due_ms=instance.engine.environment.clock.wall_ms())
        await instance.append(record, change=due)
    return Conclusion(instance.run, "suspended", ending.reason, due=ending.due, waits=ending.waits)


async def _stop_drivers(instance: ActiveRun) -> None:
    """Let attempts that are in flight end and be recorded, for the grace time; then abandon them."""
    instance.draining = True
    instance.wake()
    drivers = list(instance.drivers.values())
    if drivers:
        _, late = await asyncio.wait(drivers, timeout=instance.engine.settings.grace_ms / 1000)
        for flight in list(instance.flights.values()):
            for number, call in flight.calls.items():
                instance.engine.watch_late(flight, number, call)
        for driver in drivers:
            if driver in late:
                driver.cancel()
        if late:
            LOG.warning("run %s: %d calls were abandoned; their outcome is not known", instance.run, len(late))
            await asyncio.wait(late)


async def _let_go(instance: ActiveRun, history: RunHistory) -> Conclusion:
    """The run has ended already: give back the lease and say how it ended."""
    status: RunStatus = "running" if history.status == "new" else history.status
    change = RunChange(status, reason=history.reason[:500], release=True)
    if status == "stopped" and history.stopped is not None:
        change = stopped_change(history.stopped, _agent_of(instance), first_reading_due(instance))
    await instance.log.append((), change)
    if history.status == "undone":
        return Conclusion(history.run, "stopped", "undone", history.reason)
    if history.completed is not None:
        return Conclusion(history.run, "completed", result=bytes(history.completed.result))
    stopped = history.stopped  # an order that came since may be the last word on record, and is not why
    reason, detail = (history.reason, "") if stopped is None else (stopped.reason, stopped.error)
    return Conclusion(history.run, "stopped", reason, detail)


# Ending what a run has begun without its code: its tasks, and its transactions.


def undoing(history: RunHistory) -> bool:
    """Whether the whole run is being undone."""
    whole = history.transactions.get(WHOLE_RUN)
    return whole is not None and history.status != "undone"


async def abort_transactions(instance: ActiveRun, why: str) -> Ending | None:
    """The run was cancelled: call off its open transactions and finish every begun one, without agent code.

    How the run has to rest, if that takes long; None when it is done.
    """
    instance.evict(why)
    await unwind(instance)
    for boundary in open_boundaries(instance.history):
        if boundary.phase == "open":
            call_off(instance, boundary.name, f"the run was cancelled: {why}")
    return await close_boundaries(instance)


async def close_boundaries(instance: ActiveRun) -> Ending | None:
    """Finish every boundary from the records, without agent code; how the run has to rest, if that takes long."""
    for boundary in open_boundaries(instance.history):
        start_closing(instance, boundary.name)
    instance.wake()
    while instance.closing:
        if instance.ending.done():
            if instance.ending.result().kind != "cancelled":
                return instance.ending.result()
            instance.evict("it was cancelled")  # an order that changes nothing about what is being finished
        instance.consider_rest()
        waits: set[asyncio.Future[Any]] = {*(instance.drivers[key] for key in instance.closing), instance.ending}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    return _unclosed(instance)


def _unclosed(instance: ActiveRun) -> Ending | None:
    """How the run ends where the task of a boundary ended and the boundary did not.

    Otherwise the run would be recorded as undone or cancelled while effects stand that nothing compensates any more.
    """
    if instance.ending.done() and instance.ending.result().kind != "cancelled":
        return instance.ending.result()
    unclosed = open_boundaries(instance.history)
    return Ending("failed", f"the transaction {unclosed[0].name} could not be closed") if unclosed else None


async def unwind(instance: ActiveRun) -> None:
    """End the tasks of agent code; whatever their cleanup tries is refused. One that does not end is abandoned."""
    tasks = instance.root.tasks()
    for branch in tasks:
        branch.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=instance.engine.settings.grace_ms / 1000)
    retrieve_exceptions(tasks)
    for branch in tasks:
        if not branch.done():
            abandon(instance, branch)


def retrieve_exceptions(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Fetch what ended these tasks: nobody else will, and asyncio would report it as forgotten."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


def warn_of_undelivered(instance: ActiveRun) -> None:
    """Say of a run that has ended which messages its code was never told; they stay on record."""
    messages = instance.history.messages
    for message in () if messages is None else messages.unheard:
        LOG.warning("run %s ended, and its code has not heard what %s said: %s", instance.run, message.by, message.text)


def called_off_by(error: BaseException) -> tuple[str, ...]:
    """The transactions whose calling off is what stopped the run: after a fix they begin anew."""
    names: list[str] = []
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, TransactionAborted) and at.transaction:
            names.append(at.transaction)
        at = at.__cause__ or at.__context__
    return tuple(name for name in names if not any(encloses(other, name) for other in names if other != name))


async def unproven_claims(instance: ActiveRun, requires: tuple[str, ...], result: object) -> ClaimUnproven | None:
    """What the run claims to have done and its records do not prove; they are read again, as memory let go of them."""
    if not requires and next(receipts_in(result), None) is None:
        return None
    await instance.settle_writes()
    missing = unproven(await load(instance.engine, instance.run), requires, result)
    if not missing:
        return None
    text = f"run {instance.run} claims what is not proven: {'; '.join(missing)}"
    return ClaimUnproven(text, run=instance.run, missing=tuple(missing))
