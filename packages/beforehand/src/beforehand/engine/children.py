"""Child runs, on the side of one process: the steps of agent code that start one and that join it.

The step that starts a child is durable on record of the parent before the child is stored. A crash between the two is
mended by the replay: code comes back to the step, which stores the child. The name of the child follows from the step,
so two processes store one run. In the other order a crash could leave a child that its parent does not know, and that
would not be cancelled with it.

A child tells its parent by a command that it has ended (`engine/relatives.py`). The parent then reads the end from the
records of the child, so that a notice that comes late, or twice, changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.commands import child_watchers
from beforehand.engine.journaled import journaled
from beforehand.engine.messages import is_interrupted
from beforehand.engine.queueing import ENDED, store_submitted
from beforehand.engine.run_start import first_records
from beforehand.engine.sealing import sealing
from beforehand.engine.suspension import Ending, Pause
from beforehand.engine.tree_budgets import trees_of
from beforehand.errors import LimitsChanged, ParameterMismatch, UsageError
from beforehand.journal.port import BodyFilter, QueuePlace, RunChange
from beforehand.journal.record_codec import decode, encode, prefixes_of
from beforehand.journal.run_log import beginning
from beforehand.model import records as r
from beforehand.model.children import DEEPEST, RunEnd, child_id, ended_as
from beforehand.model.ids import operation_id
from beforehand.model.shell import to_type
from beforehand.model.transaction import around
from beforehand.model.waits import CHILD
from beforehand.queues.limits import Declaration

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.active_run.scopes import Scope
    from beforehand.engine.tool_protocol import AgentCode, Input
    from beforehand.journal.port import Journal
    from beforehand.model.run_history import Answer

_ENDS: Final = BodyFilter(prefixes_of(r.RunCompleted, r.RunStoppedRecord, r.RunUndone, r.RunReopened))
_NEWEST: Final = 100


class ChildTerms(msgspec.Struct, frozen=True):
    """How a child is started. `place` gives its place in a queue under the limits in force; None: it is in none."""

    place: Callable[[Declaration], QueuePlace] | None = None
    outlives: bool = False


# --- start -----------------------------------------------------------------------------------------------------------


@sealing
async def start(scope: Scope, agent: AgentCode, given: Input, terms: ChildTerms, step: str | None = None) -> str:
    """Start a child run, once, and return its name. On replay it is stored only if a crash came before that.

    Raises `UsageError` for an agent, a queue or a depth that is not possible, and `ParameterMismatch` where the name of
    the child belongs to another run: then nothing is stored.
    """
    active, name = scope.active, scope.step(f"start:{agent.name}", step)
    if name not in active.history.steps.answers:
        _check(active, name, agent)

    def same(started: r.ChildStarted) -> str:
        same = (started.agent, started.digest) == (agent.name, given.digest)
        return "" if same else "starts another child than when it was recorded"

    async def store(started: Answer | None) -> None:
        if started is None and not is_interrupted(scope, name):
            started = await _start_now(active, name, agent, given, terms)
        if not isinstance(started, r.ChildStarted) or same(started):
            return
        if started.run == child_id(active.run, name):  # another name is that of the run that this one was forked from
            await _stored(active, agent, given, terms, started)

    return (await journaled(scope, name, r.ChildStarted, store, same, writes=True)).run


async def _start_now(active: ActiveRun, name: str, agent: AgentCode, given: Input, terms: ChildTerms) -> r.ChildStarted:
    """Record that the child is started, durably. Nothing is recorded where it cannot be."""
    child, place = child_id(active.run, name), await _place(active, terms)
    if await active.process.journal.runs(run=child):
        raise _taken(active, child, "nothing was stored")
    record = r.ChildStarted(
        step=name, run=child, agent=agent.name, digest=given.digest, version=agent.version, outlives=terms.outlives,
        queue="" if place is None else place.queue, tenant=given.tenant,
        priority=0 if place is None else place.priority, **active.log.stamp(),
    )  # fmt: skip
    crash = active.process.environment.crash
    crash.reached("before_start")
    await active.log.append(record)
    crash.reached("after_start")
    active.check()
    return record


def _check(active: ActiveRun, name: str, agent: AgentCode) -> None:
    """Raise `UsageError` where this code starts no child. It has no record: a replay refuses it at the same point."""
    process, started = active.process, active.history.lifecycle.started
    assert started is not None, active.run
    if process.agents.get(agent.name) is not agent:
        raise UsageError(
            f"the agent {agent.name} is not among the agents of this app, so nothing would drive its run",
            known="nothing was stored",
            next_step=f"name it: Beforehand(..., agents=[..., {agent.name}]); for commands, in pyproject.toml under "
            f'[tool.beforehand]: agents = ["FILE.py:{started.agent}", "FILE.py:{agent.name}"]',
        )  # fmt: skip
    depth = 1 if started.parent is None else started.parent.depth + 1
    if depth > DEEPEST:
        raise UsageError(
            f"run {active.run} has {DEEPEST} runs above it, and starts no further child",
            known="nothing was stored; agents that start each other without end stop here",
            next_step="let an agent return what it found, and start the next run from the run above",
        )
    if any(boundary.name for boundary in around(name, active.history.boundaries.by_name)):
        raise UsageError(
            f"run {active.run} starts a child inside a transaction, which could not undo it",
            known="nothing was stored", next_step="start the child before or after the transaction, and join it there",
        )  # fmt: skip


async def _place(active: ActiveRun, terms: ChildTerms) -> QueuePlace | None:
    """The place of the child in its queue. Raises `UsageError` where it cannot be started in it."""
    process = active.process
    if terms.place is None:
        return None
    place = terms.place(process.queues.newest or await process.queues.begin(process.journal))
    if place.key and place.queue in _queues_above(active):
        raise UsageError(
            f"the queue {place.queue} runs one run per key at a time, and run {active.run} is in it or below a run "
            "that is: the child could wait for ever",
            known="nothing was stored", next_step="start it in another queue, or in none",
        )  # fmt: skip
    return place


def _queues_above(active: ActiveRun) -> tuple[str, ...]:
    """The queues of this run and of the runs above it."""
    started = active.history.lifecycle.started
    assert started is not None, active.run
    above = () if started.parent is None else started.parent.queues
    return tuple(dict.fromkeys([*above, started.queue] if started.queue else above))


async def _stored(active: ActiveRun, agent: AgentCode, given: Input, terms: ChildTerms, record: r.ChildStarted) -> None:
    """Store the child, unless it is stored. The run stops where another run took its name meanwhile."""
    process, parent = active.process, _parent_of(active, record)
    if not await process.journal.runs(run=record.run):
        started = active.history.lifecycle.started
        assert started is not None, active.run
        given = replace(given, by=started.by, parent=parent)
        if record.queue:
            await _submit(active, agent, given, terms, record)
        else:
            await _begin(active, agent, given, record.run)
        process.environment.crash.reached("after_child_stored")
        process.came_due.set()
    first = decode((await process.journal.read(record.run, limit=1))[0].body)
    if not isinstance(first, r.RunStarted) or first.parent is None or not _same(first.parent, parent):
        raise active.break_off(_taken(active, record.run, "no child was stored"))


def _same(one: r.Parent, other: r.Parent) -> bool:
    return (one.run, one.step) == (other.run, other.step)


def _parent_of(active: ActiveRun, record: r.ChildStarted) -> r.Parent:
    """The record of this run in the child."""
    started = active.history.lifecycle.started
    assert started is not None, active.run
    depth = 1 if started.parent is None else started.parent.depth + 1
    until = active.process.deadline_of(active.history) or 0
    voices = active.history.lifecycle.told
    return r.Parent(active.run, record.step, depth, until, _queues_above(active), trees_of(active), voices)


async def _begin(active: ActiveRun, agent: AgentCode, given: Input, child: str) -> None:
    """Store a child that is in no queue: it waits for nothing, so it is due at once."""
    process, why = active.process, f"started by {active.run}"
    started = first_records(process, agent, given)[0]
    rests = r.RunSuspendedRecord(reason=why, at=started.at, up=started.up)
    change = RunChange("suspended", why, started.at, release=True)
    bodies = [encode(started), encode(rests)]
    new = beginning(process.identity.namespace, child, agent.name, bodies, change, agent.program)
    await process.leases.store(child, new)  # or another process stored it since the look


async def _submit(active: ActiveRun, agent: AgentCode, given: Input, terms: ChildTerms, record: r.ChildStarted) -> None:
    """Store a child in its queue. A full or draining queue takes it: the run above was admitted, and waits for it."""
    process = active.process
    newest = process.queues.newest or await process.queues.begin(process.journal)
    while True:
        key = "" if terms.place is None else terms.place(newest).key
        place = QueuePlace(record.queue, record.tenant, key, record.priority, declared=newest.entry)
        try:
            await store_submitted(process, record.run, agent, given, place, process.wall_ms())
        except LimitsChanged:
            newest = await process.queues.begin(process.journal)
        else:
            return


def _taken(active: ActiveRun, child: str, known: str) -> ParameterMismatch:
    return ParameterMismatch(
        f"run {active.run} cannot start the child {child}: another run, which it did not start, has that id",
        run=active.run, known=known,
        next_step=f'run.start(..., step="NAME") gives the child another id; that run: {to_type("show", child)}',
    )  # fmt: skip


# --- join ------------------------------------------------------------------------------------------------------------


@sealing
async def join(scope: Scope, child: str, agent: str, step: str | None = None) -> r.ChildJoined:
    """Wait until the child has ended, without a process, and return its end; the same on replay."""
    name = scope.step(f"join:{agent}", step)

    async def wait(_: object) -> None:
        await _wait_for_end(scope, name, child)

    def same(joined: r.ChildJoined) -> str:
        return "" if joined.run == child else f"is recorded as another step than joining {child}"

    return await journaled(scope, name, r.ChildJoined, wait, same)


async def _wait_for_end(scope: Scope, name: str, child: str) -> None:
    """Record the end of the child once there is one; the run may be suspended meanwhile."""
    active = scope.active
    crash = active.process.environment.crash
    while not is_interrupted(scope, name):
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watchers = child_watchers(active, child)
        watchers.append(ended)  # before the read: an end that comes during it is not missed
        try:
            if (joined := await _end_of(active, name, child)) is not None:
                crash.reached("before_join")
                active.log.buffer(joined)
                crash.reached("after_join")
                return
            asks = f"run {active.run} waits for its child {child}"
            await active.waiters.wait_for(scope, ended, Pause(CHILD, name, asks=asks))
        finally:
            if ended in watchers:
                watchers.remove(ended)


async def _end_of(active: ActiveRun, name: str, child: str) -> r.ChildJoined | None:
    """The end of the child as its records have it; None while it goes on."""
    journal = active.process.journal
    rows = await journal.runs(run=child)
    if not rows or rows[0].status not in ENDED:
        return None
    match await _ended_as(journal, child):
        case r.RunCompleted(result=result, voices=voices):
            return r.ChildJoined(name, child, "completed", result=result, voices=voices, **active.log.stamp())
        case r.RunStoppedRecord(reason="budget"):
            return None  # it continues once the limit is raised, and is cancelled otherwise
        case r.RunStoppedRecord(reason=reason, error=error, voices=voices):
            return r.ChildJoined(name, child, "stopped", reason, error, voices=voices, **active.log.stamp())
        case r.RunUndone(by=by):
            error = f"undone by {by}"
            return r.ChildJoined(step=name, run=child, status="undone", error=error, **active.log.stamp())
        case None:
            return None


async def _ended_as(journal: Journal, child: str) -> RunEnd | None:
    read = await journal.read(child, limit=_NEWEST, newest=True, only=_ENDS)
    return ended_as(decode(row.body) for row in read if _ENDS.fits(row.body))


async def undone_below(active: ActiveRun) -> tuple[Ending | None, tuple[str, ...]]:
    """The suspension of a run until the undo of its children is over; otherwise None, and the effects that stand below.

    The end of a child's undo wakes the run.
    """
    journal, standing = active.process.journal, list[str]()
    for child in () if active.history.children is None else active.history.children.by_name:
        rows = await journal.runs(run=child)
        if not rows or rows[0].status == "undone":
            continue  # it was never stored, or nothing of it stands
        end = await _ended_as(journal, child)
        if not isinstance(end, r.RunUndone):
            asks = f"run {active.run} waits for the undo of its child {child}"
            return Ending("suspended", asks, waits=(Pause(CHILD, asks=asks),)), ()
        standing += (*(operation_id(child, step) for step in end.still_standing), *end.below)
    return None, tuple(standing)
