"""One drive of a run, from its claim to its release: load, replay, drive, and record how it ends.

The file is long because each way in which a drive ends releases the run in the commit that records it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from beforehand.engine.active_run.log import load
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import branch_task
from beforehand.engine.calls import close_forgotten
from beforehand.engine.children import undone_below
from beforehand.engine.claims import check_claims
from beforehand.engine.commands import apply_commands, pending_commands, take_commands
from beforehand.engine.exceptions.call_end import RecordedError, recorded_error, storable
from beforehand.engine.late_reports import file_known_ends, watch_late
from beforehand.engine.operation_driver import driver_of
from beforehand.engine.process import Process
from beforehand.engine.queueing import ENDED, needs_slot, queued
from beforehand.engine.recovery import first_reading_due
from beforehand.engine.relatives import cancel_posts, end_posts, receivers
from beforehand.engine.run_start import (
    admitted,
    agent_of,
    check_agent,
    check_input,
    first_records,
    go_on_after_stop,
    number_of_claim,
    record_claim,
    release,
    traced,
)
from beforehand.engine.sealing import abandon
from beforehand.engine.steps import drive_open_operations
from beforehand.engine.suspension import (
    Ending,
    Pause,
    asks_until,
    encode_waits,
    ended_by,
    release_post,
    stopped_change,
    unreadable_change,
)
from beforehand.engine.tool_protocol import Input
from beforehand.engine.transactions import call_off, resume_reopened, start_closing
from beforehand.errors import (
    AmbiguousStep,
    BeforehandError,
    BudgetExceeded,
    ChainBroken,
    ClaimUnproven,
    JournalError,
    LeaseLost,
    LedgerTaken,
    LimitsChanged,
    ReplayDiverged,
    ResultLost,
    RunBusy,
    Sealed,
    TransactionAborted,
    UnknownRun,
    Unreadable,
)
from beforehand.journal.port import Busy, LeaseGranted, Post, RunChange, RunStatus, Write
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import RunLog, beginning, genesis
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory, open_boundaries, standing_inside
from beforehand.model.shell import to_type
from beforehand.model.stop_reasons import STOP_REASONS, StopReason
from beforehand.model.transaction import WHOLE_RUN, encloses

if TYPE_CHECKING:
    from beforehand.engine.engine import Engine
    from beforehand.engine.tool_protocol import AgentCode

LOG: Final = logging.getLogger("beforehand")


class Conclusion(msgspec.Struct, frozen=True):
    """How one drive of a run ended. `error` is what agent code raised, for the caller's traceback.

    `commanded`: a command came while the run stopped, and is applied once its lease is released.
    """

    run: str
    status: Literal["completed", "suspended", "stopped"]
    reason: str = ""
    detail: str = ""
    result: bytes = b"null"
    due: int | None = None
    waits: tuple[Pause, ...] = ()
    error: BaseException | None = None
    commanded: bool = False


async def drive_run(
    engine: Engine, run: str, agent: AgentCode | None = None, given: Input | None = None, *, reopener: str = ""
) -> Conclusion:
    """Claim the run and drive it until it ends or nothing can go on.

    With `agent` and `given` a missing run is begun; with `reopener`, the name of a person, a stopped one goes on
    under the same id.
    Raises `UnknownRun`, `RunBusy` while another process drives it, and `ParameterMismatch` where the input differs from
    the recorded one.
    """
    engine.environment.crash.reached("before_claim")
    begun: tuple[r.Record, ...] = ()
    new = None
    if agent is not None and given is not None:
        # In the commit of the claim: if this process dies at any point, the run can be driven, resumed and cancelled.
        started, claim = first_records(engine, agent, given)
        begun = started, traced(engine, run, started, claim)
        bodies = [encode(record) for record in begun]
        new = beginning(engine.identity.namespace, run, agent.name, bodies, program=agent.program)
    if slot := engine.queues.slots.pop(run, None):
        engine.leases.hold(run)  # a drive that ended since the slot was given has let it go
    claimed = slot or await engine.leases.claim(run, new)
    engine.environment.crash.reached("after_claim")
    if claimed is None:
        raise UnknownRun(f"run {run} is not in this journal", next_step="see the runs: beforehand ps")
    if isinstance(claimed, Busy):
        if agent is not None:
            check_agent(run, agent, claimed.row.agent, claimed.row.program)
        raise RunBusy(
            f"run {run} is driven by another process (pid {claimed.owner.pid})",
            run=run,
            known="it goes on there; starting it again is safe and joins it",
            next_step=f"wait for it, or inspect it: {to_type('show', run)}",
        )
    try:
        history = await _history(engine, claimed, begun)
        conclusion = await _drive_claimed(engine, claimed, history, agent, given, reopener)
    except LeaseLost as error:
        raise RunBusy(f"run {run} was taken over by another process", run=run, known=str(error)) from error
    except (ChainBroken, Unreadable) as error:
        await _stop_unreadable(engine, claimed, error)
        raise
    except Exception as error:
        _give_back_after(engine, claimed, error)
        raise
    finally:
        engine.isolation.exit_run(run)
        engine.leases.let_go(run)
    if conclusion.commanded:
        await apply_commands(engine, engine.active_runs, run)
    return conclusion


def _give_back_after(engine: Engine, claimed: LeaseGranted, error: Exception) -> None:
    """Give back the lease after an error that left it: of the journal, or one that is a defect.

    Otherwise no process would take the run for as long as this one lives.
    """
    if isinstance(error, JournalError) or not isinstance(error, BeforehandError):
        engine.leases.give_back(claimed.row)


async def _stop_unreadable(process: Process, claimed: LeaseGranted, error: JournalError) -> None:
    """List the run as stopped: a person is asked, and recovery does not take it again and again."""
    change = unreadable_change(error, process.wall_ms())
    try:
        await process.journal.commit(Write(claimed.lease, (), change))
    except JournalError:
        process.leases.give_back(claimed.row)


async def _history(engine: Engine, claimed: LeaseGranted, begun: Iterable[r.Record]) -> RunHistory:
    """The history of a claimed run; that of a new one is known."""
    run = claimed.lease.run
    if not claimed.fresh:
        history = await load(engine, run)
        if any(operation.deferral.thing for operation in history.open_operations()):
            # The entry that names what is pending may be newer than the last look at the ledger: without it, a further
            # call about the same thing would be sent.
            await engine.pending_index.refresh(engine.journal)
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
        if reopener and history.lifecycle.status == "stopped" and history.undo_state not in {"ordered", "over"}:
            await go_on_after_stop(engine, history, log, reopener)
        if needs_slot(claimed, history):
            raise queued(engine, claimed.row)
        active = ActiveRun(engine, history, log)
        if claimed.row.waits != b"[]":
            active.waiters.listing.begin(claimed.row.waits)
        if history.lifecycle.status in {"completed", "stopped", "undone"} and not undoing(history):
            return await _let_go(active, history)
        number = 1 if claimed.fresh else await number_of_claim(active)
        if not await admitted(active, number):
            await release(engine, history, log, claimed)
            return Conclusion(run, "suspended", "the process shuts down")
        if not claimed.fresh:
            await record_claim(active, claimed, number)
            await take_commands(active)  # nothing can have commanded a run that was not stored before its claim
    except BeforehandError:
        await release(engine, history, log, claimed)
        raise
    engine.active_runs[run] = active
    active.log.on_raised = partial(resume_reopened, active)
    try:
        return await _drive_instance(active, agent)
    except JournalError:
        await file_known_ends(active)
        raise
    finally:
        engine.active_runs.pop(run, None)


async def _drive_instance(active: ActiveRun, agent: AgentCode) -> Conclusion:
    history = active.history
    assert history.lifecycle.started is not None, active.run
    allowed = active.process.settings.claims_allowed
    if (number := history.ownership.number_of_claim) > allowed:
        active.end(Ending("quarantined", f"{number - 1} processes that drove it died or hang"))
    if history.lifecycle.paused is not None:
        active.end(Ending("suspended", f"paused by {history.lifecycle.paused.by}: {to_type('unpause', active.run)}"))
    if history.lifecycle.cancelled is not None:
        active.end(ended_by(history.lifecycle.cancelled))
    if undoing(history):
        return await _undo(active)
    if active.ending.done():
        if history.lifecycle.cancelled is not None:
            drive_open_operations(active)  # what was never sent is cancelled with the run
        return await _tear_down(active, None)
    task = branch_task(active.root, agent.begin(active.root, bytes(history.lifecycle.started.input)))
    drive_open_operations(active)
    active.waiters.consider_rest()
    await active.until_over()
    if not active.ending.done():
        await _branches_come_back(active)
        await _branches_end(active)
        await _drivers_end(active)
    if active.ending.done() and not _finished(task):
        return await _tear_down(active, task)
    return await _conclude(active, agent, task)


def _finished(task: asyncio.Task[object]) -> bool:
    """True if the agent returned or raised by itself."""
    return task.done() and not task.cancelled() and not isinstance(task.exception(), Sealed)


async def _branches_come_back(active: ActiveRun) -> None:
    """Let the branches that the finished agent did not await come to the recorded writes that they began before.

    A replay of the agent itself takes no time, so it may return first, and the run would end as diverged.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + active.process.settings.patience_ms / 1000
    while active.replay.expected and (tasks := active.root.tasks()) and loop.time() < until:
        back = active.replay.caught_up()
        if back.done() or active.ending.done():
            break
        await asyncio.wait(
            {*tasks, active.ending, back}, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED
        )


async def _branches_end(active: ActiveRun) -> None:
    """Cancel the branches that the finished agent did not await, as `asyncio.run` does with tasks.

    A task of a host that does not end is named in the log and abandoned, because it would keep the run open for ever.
    """
    cancelled: set[asyncio.Task[object]] = set()
    loop, patience_s = asyncio.get_running_loop(), active.process.settings.patience_ms / 1000
    since = loop.time()
    while (tasks := active.root.tasks()) and not active.ending.done():
        for task in tasks:
            if task not in cancelled:
                task.cancel()
                since = loop.time()
        cancelled.update(tasks)
        active.waiters.consider_rest()
        left_s = since + patience_s - loop.time()
        if active.host_calls and left_s <= 0 and not active.root.in_step():
            for task in tasks:
                abandon(active, task)
            break
        wait_s = max(left_s, patience_s / 10) if active.host_calls else None
        await asyncio.wait({*tasks, active.ending}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    retrieve_exceptions(cancelled)


async def _drivers_end(active: ActiveRun) -> None:
    """Wait until operations that are still in flight when the agent is done are settled or suspended."""
    while active.drivers.tasks and not active.ending.done():
        active.waiters.consider_rest()
        waits: set[asyncio.Future[Any]] = {*active.drivers.tasks.values(), active.ending}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


async def _conclude(active: ActiveRun, agent: AgentCode, task: asyncio.Task[object]) -> Conclusion:
    """Record the end of an agent that returned or raised."""
    error = asyncio.CancelledError("its code cancelled itself") if task.cancelled() else task.exception()
    may_come_back = active.ending.done() and bool(active.root.tasks())  # branches that it did not await
    if error is None and active.replay.expected and not may_come_back:
        error = active.replay.divergence("the agent returned without reaching recorded operations")
    if error is None and active.ending.done():
        return await _tear_down(active, task)
    if error is None and active.calls:
        error = close_forgotten(active.calls)
    if error is None:
        try:
            await check_claims(active, agent.requires, task.result())
        except ClaimUnproven as unproven:
            error = unproven
    if error is not None:
        return await _raised(active, error)
    try:
        stored = active.masks.result(agent.codec, agent.codec.round_trip(task.result())[0])
    except ValueError as problem:
        return await _raised(active, ResultLost(f"the result of run {active.run} could not be stored: {problem}"))
    active.process.environment.crash.reached("before_end")
    active.seal("it is complete")
    completed = r.RunCompleted(r.Raw(stored), active.history.lifecycle.voices, **active.log.stamp())
    notices = (*await _posts_to_left_children(active), *end_posts(active.history))
    posts = (*active.process.outbox.posts(active.history, "run.completed"), *notices)
    change = RunChange("completed", release=True)
    if active.history.lifecycle.undo is not None:
        change = _unless_undone(active, change)
    await active.log.append(completed, change=change, posts=posts)
    warn_of_undelivered(active)
    await _bring(active, notices)
    active.process.environment.crash.reached("after_end")
    return Conclusion(active.run, "completed", result=stored)


async def _posts_to_left_children(active: ActiveRun) -> tuple[Post, ...]:
    """The commands that cancel the children that a run which completes has not joined, unless they may outlive it."""
    children = active.history.children
    if children is None:
        return ()
    left = [child for child in children.to_cancel() if not child.outlives]
    rows = [row for child in left for row in await active.process.journal.runs(run=child.run)]
    ended = {row.run for row in rows if row.status in ENDED}
    return cancel_posts(active.history, [one for one in left if one.run not in ended], "", "has ended")


async def _bring(active: ActiveRun, notices: Sequence[Post]) -> None:
    """Let the relatives of a run that has ended apply its notices: a worker that looks next finds them due."""
    if notices and (tasks := active.process.bring(receivers(notices))):
        await asyncio.wait(tasks)


async def _raised(active: ActiveRun, error: BaseException) -> Conclusion:
    """Stop the run because agent code raised, or went another way than its record."""
    await _stop_drivers(active)
    reason: StopReason = "error"
    if isinstance(error, (ReplayDiverged, AmbiguousStep)):
        reason = "diverged"
    elif isinstance(error, BudgetExceeded):
        reason = "budget"
    return await _stopped(active, reason, error=error)


async def _stopped(
    active: ActiveRun, reason: StopReason, why: str = "", *, error: BaseException | None = None
) -> Conclusion:
    """Stop the run: its open operations are listed, and it may be reopened."""
    raised = RecordedError(why) if error is None else active.masks.record(recorded_error(error))
    detail = active.masks.text(storable(getattr(error, "difference", "")))
    active.seal(f"it stopped: {reason}")
    stamp = active.log.stamp()
    record = r.RunStoppedRecord(
        reason=reason, error=raised.error, detail=detail, frames=raised.frames, open=_open(active),
        renews=called_off_by(error), until=asks_until(reason, stamp["at"], active.process.settings),
        voices=active.history.lifecycle.voices, **stamp,
    )  # fmt: skip
    children = active.history.children
    told = () if children is None or not STOP_REASONS[reason].command else children.to_cancel()
    notices = (*cancel_posts(active.history, told, "", "has ended"), *end_posts(active.history))
    posts = (*active.process.outbox.posts(active.history, "run.stopped", f"{reason}: {record.error}"), *notices)
    change = _unless_undone(active, stopped_change(record, _agent_of(active), first_reading_due(active)))
    commanded = await _release_stopped(active, change, record, posts)
    warn_of_undelivered(active)
    await _bring(active, notices)
    return Conclusion(active.run, "stopped", reason, record.error, error=error, commanded=commanded)


async def _release_stopped(
    active: ActiveRun, change: RunChange, record: r.RunStoppedRecord | None = None, posts: tuple[Post, ...] = ()
) -> bool:
    """Commit that the run is stopped, and release it. True if a command came meanwhile that is not applied."""
    records = () if record is None else (record,)
    try:
        await active.log.append(*records, change=change, posts=(release_post(active.run, active.lease.token), *posts))
    except LedgerTaken:  # a command came in this drive, and its sender relies on this process
        if pending := bool(await pending_commands(active)):  # if the process dies now, a worker finds the run due
            change = msgspec.structs.replace(change, due_ms=active.process.wall_ms())
        await active.log.append(*records, change=change, posts=posts)
        return pending or bool(await pending_commands(active))  # later senders find the run released
    return False


def _agent_of(active: ActiveRun) -> str:
    started = active.history.lifecycle.started
    return "" if started is None else started.agent


def _open(active: ActiveRun) -> tuple[str, ...]:
    return tuple(operation.step for operation in active.history.open_operations())


async def _tear_down(active: ActiveRun, task: asyncio.Task[object] | None) -> Conclusion:
    """Seal the run first, so that unwinding code can do nothing; then let calls in flight end; then release it."""
    ending = active.ending.result()
    if ending.commanded and open_boundaries(active.history):
        ending = await abort_transactions(active, ending.reason) or ending
    return await _end_early(active, ending, task)


async def _end_early(active: ActiveRun, ending: Ending, task: asyncio.Task[object] | None = None) -> Conclusion:
    """Release the run, and record how it ends."""
    active.seal(ending.reason or ending.kind)
    await unwind(active)
    if ending.kind == "lost":
        raise LeaseLost(ending.reason)
    await _stop_drivers(active)
    if active.failure is not None:
        raise active.failure
    match ending.kind:
        case "suspended" | "shutdown" | "unavailable":
            return await _suspended(active, ending)
        case "diverged":
            raised = task.exception() if task is not None and task.done() and not task.cancelled() else None
            found = ending.error or (raised if isinstance(raised, ReplayDiverged) else None)
            return await _raised(active, found or active.replay.divergence(ending.reason))
        case "error" if ending.error is not None:
            return await _raised(active, ending.error)
        case reason:
            return await _stopped(active, reason, ending.reason)


async def _undo(active: ActiveRun) -> Conclusion:
    """Undo a finished run: abort the boundary around the whole run, and close it from its records."""
    history = active.history
    active.evict("it is being undone")
    if (order := history.lifecycle.undo) is not None and history.undo_state == "ordered":
        call_off(active, WHOLE_RUN, order.note or f"undone by {order.by}", order.by)
    drive_open_operations(active)
    own = await close_boundaries(active)
    rests, below = (own, ()) if own is not None else await undone_below(active)
    if rests is not None:
        return await _end_early(active, rests)
    active.seal("it was undone")
    await _stop_drivers(active)
    whole = history.boundaries.by_name[WHOLE_RUN]
    inside = (step for step in standing_inside(history) if step not in {*whole.undone, *whole.still_standing})
    standing = (*whole.still_standing, *inside)
    record = r.RunUndone(whole.by, whole.undone, standing, below, **active.log.stamp())
    change = RunChange(history.lifecycle.after_undo(record), reason=record.summary, release=True)
    notices = end_posts(history)  # the run above waits for it
    posts = (*active.process.outbox.posts(history, "run.undone", record.summary), *notices)
    await active.log.append(record, change=change, posts=posts)
    await _bring(active, notices)
    return Conclusion(active.run, "stopped", "undone", record.summary)


async def _suspended(active: ActiveRun, ending: Ending) -> Conclusion:
    running = ending.kind == "shutdown"
    change = RunChange(
        "running" if running else "suspended",
        reason=ending.reason[:500],
        due_ms=ending.due,
        waits=encode_waits(ending.waits),
        release=True,
    )
    why = ending.reason or ending.kind
    record = r.RunSuspendedRecord(reason=why, last_chance=ending.last_chance, **active.log.stamp())
    new = active.waiters.listing.new(ending.waits) if ending.waits else ()
    notices = active.process.outbox.posts(active.history, "run.waits_for_person", ending.reason, new)
    posts = release_post(active.run, active.lease.token), *notices
    declared = min((wait.declared for wait in ending.waits if wait.declared is not None), default=None)
    try:
        await active.log.append(record, change=change, posts=posts, declared=declared)
    except (LedgerTaken, LimitsChanged):  # something came meanwhile: the next owner takes it into account at once
        due = msgspec.structs.replace(change, due_ms=active.process.wall_ms())
        await active.log.append(record, change=due)
    pauses = active.process.pauses
    if any(wait.kind == "paused" and pauses.get(wait.tool) == "" for wait in ending.waits):
        await active.process.leases.make_due(active.run)  # it ended before those who wake could see that this waits
    return Conclusion(active.run, "suspended", ending.reason, due=ending.due, waits=ending.waits)


async def _stop_drivers(active: ActiveRun) -> None:
    """Let attempts in flight end and be recorded within the grace time; then abandon them."""
    active.draining = True
    active.waiters.wake()
    drivers = list(active.drivers.tasks.values())
    if drivers:
        _, late = await asyncio.wait(drivers, timeout=active.process.settings.grace_ms / 1000)
        for driver in [driver_of(active, step) for step in active.drivers.operations]:
            for number in driver.calls:
                watch_late(driver, number)
        for task in late:
            task.cancel()
        if late:
            LOG.warning("run %s: %d calls were abandoned; their outcome is not known", active.run, len(late))
            await asyncio.wait(late)


async def _let_go(active: ActiveRun, history: RunHistory) -> Conclusion:
    """Give back the lease of a run that has ended already, and return how it ended."""
    status: RunStatus = "running" if history.lifecycle.status == "new" else history.lifecycle.status
    change = RunChange(status, reason=history.lifecycle.reason[:500], release=True)
    # An earlier owner may have been told of a command, and be gone.
    if status == "stopped" and history.lifecycle.stopped is not None:
        commanded = bool(await pending_commands(active))
        due = active.log.now().wall if commanded else first_reading_due(active)
        change = stopped_change(history.lifecycle.stopped, _agent_of(active), due)
        commanded = await _release_stopped(active, change) or commanded
    else:
        await active.log.journal_log.append((), change)
        commanded = bool(await pending_commands(active))  # who commands later finds the run released
    if history.undo_state == "over":
        return Conclusion(history.run, "stopped", "undone", history.lifecycle.reason, commanded=commanded)
    if history.lifecycle.completed is not None:
        result = bytes(history.lifecycle.completed.result)
        return Conclusion(history.run, "completed", result=result, commanded=commanded)
    # A later command may be the last reason on record, but it is not why the run stopped.
    stopped = history.lifecycle.stopped
    reason, detail = (history.lifecycle.reason, "") if stopped is None else (stopped.reason, stopped.error)
    return Conclusion(history.run, "stopped", reason, detail, commanded=commanded)


def undoing(history: RunHistory) -> bool:
    """True if the whole run is being undone, or has ended and is to be."""
    if history.lifecycle.undo is None and WHOLE_RUN not in history.boundaries.by_name:
        return False  # mostly
    return history.undo_state == "begun" or (history.undo_state == "ordered" and history.lifecycle.status in ENDED)


def _unless_undone(active: ActiveRun, change: RunChange) -> RunChange:
    """The listing of a run that ends now: one that is to be undone is due at once."""
    if active.history.undo_state != "ordered":
        return change
    now = active.process.wall_ms()
    return RunChange("suspended", "it has ended, and is to be undone", now, release=True, leaves_queue=True)


async def abort_transactions(active: ActiveRun, why: str) -> Ending | None:
    """Abort the open transactions of a cancelled run and finish every begun one, without agent code.

    Return the suspension of the run if that takes long; None when it is done.
    """
    active.evict(why)
    await unwind(active)
    order = active.history.lifecycle.cancelled
    for boundary in open_boundaries(active.history):
        if boundary.phase == "open":
            call_off(active, boundary.name, f"the run was cancelled: {why}", "" if order is None else order.by)
    return await close_boundaries(active)


async def close_boundaries(active: ActiveRun) -> Ending | None:
    """Finish every boundary from the records, without agent code; return the suspension if that takes long."""
    for boundary in open_boundaries(active.history):
        start_closing(active, boundary.name)
    active.waiters.wake()
    while active.drivers.closing:
        if active.ending.done():
            if not active.ending.result().commanded:
                return active.ending.result()
            active.evict("it was cancelled")  # the command does not affect what is being finished
        active.waiters.consider_rest()
        waits: set[asyncio.Future[Any]] = {
            *(active.drivers.tasks[key] for key in active.drivers.closing),
            active.ending,
        }
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    return _unclosed(active)


def _unclosed(active: ActiveRun) -> Ending | None:
    """How the run ends if the task of a boundary ended and the boundary did not.

    Otherwise the run would be recorded as undone or cancelled while effects remain that nothing compensates any more.
    """
    if active.ending.done() and not active.ending.result().commanded:
        return active.ending.result()
    unclosed = open_boundaries(active.history)
    if not unclosed:
        return None
    error = BeforehandError(f"the transaction {unclosed[0].name} could not be closed")
    return Ending("error", error.message, error=error)


async def unwind(active: ActiveRun) -> None:
    """End the tasks of agent code and refuse every step of their cleanup. A task that does not end is abandoned."""
    tasks = active.root.tasks()
    for branch in tasks:
        branch.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=active.process.settings.grace_ms / 1000)
    retrieve_exceptions(tasks)
    for branch in tasks:
        if not branch.done():
            abandon(active, branch)


def retrieve_exceptions(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Retrieve the exceptions of these tasks: nothing else does, and asyncio would report them as forgotten."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


def warn_of_undelivered(active: ActiveRun) -> None:
    """Warn which messages were never delivered to the code of a run that has ended; they stay on record."""
    messages = active.history.messages
    for message in () if messages is None else messages.undelivered:
        LOG.warning("run %s ended before its code received the message of %s: %s", active.run, message.by, message.text)


def called_off_by(error: BaseException | None) -> tuple[str, ...]:
    """The transactions whose abort stopped the run: after a fix they begin anew."""
    names: list[str] = []
    seen: set[int] = set()
    at = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, TransactionAborted) and at.transaction:
            names.append(at.transaction)
        at = at.__cause__ or at.__context__
    return tuple(name for name in names if not any(encloses(other, name) for other in names if other != name))
