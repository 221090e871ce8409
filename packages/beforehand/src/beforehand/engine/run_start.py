"""Before a run is driven: its first records, its agent, the check of its input, and going on after a stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.environment import Stamp
from beforehand.engine.process import Process, unchanged_listing
from beforehand.engine.suspension import told_to_end
from beforehand.engine.tool_protocol import Input
from beforehand.errors import JournalError, ParameterMismatch, UsageError
from beforehand.journal.port import LeaseGranted, RunChange
from beforehand.journal.record_codec import encode
from beforehand.model import records as r
from beforehand.model.canonical.plain import plain_arguments
from beforehand.model.shell import to_type
from beforehand.model.stop_reasons import STOP_REASONS

if TYPE_CHECKING:
    from beforehand.engine.engine import Engine
    from beforehand.engine.tool_protocol import AgentCode
    from beforehand.journal.run_log import RunLog
    from beforehand.model.run_history import Ownership, RunHistory


def first_records(engine: Process, agent: AgentCode, given: Input) -> tuple[r.RunStarted, r.Claimed]:
    """The records of a new run: its start, and that this process claims it."""
    now = engine.journal.clock()
    started = r.RunStarted(
        agent=agent.name,
        input=r.Raw(given.stored),
        digest=given.digest,
        version=agent.version,
        by=given.by,
        program=agent.program,
        trace="" if engine.tracing is None else engine.tracing.caller(),
        tenant=given.tenant,
        budget=given.budget,
        parent=given.parent,
        at=now.wall_ms,
        up=now.latest_ms,
    )
    return started, engine.claim(now)


def traced(engine: Process, run: str, started: r.RunStarted | None, claim: r.Claimed, before: str = "") -> r.Claimed:
    """The claim with the trace context of what follows it; `before` is that of the claim before it."""
    if engine.tracing is None or started is None:
        return claim
    return msgspec.structs.replace(claim, trace=engine.tracing.claimed(run, started, claim, before))


def agent_of(engine: Engine, history: RunHistory, agent: AgentCode | None) -> AgentCode:
    """The code that drives this run. Raises `ParameterMismatch` for another agent, `UsageError` where it is unknown."""
    started = history.lifecycle.started
    if agent is not None and started is not None:
        check_agent(history.run, agent, started.agent, started.program)
    name = started.agent if started is not None else ""
    found = agent or engine.agents.get(name)
    if found is None:
        known = sorted(name for name in engine.agents if not name.startswith("beforehand:"))  # ours cannot be chosen
        raise UsageError(
            f"the agent {name!r} of run {history.run} is not known to this app",
            known=f"known agents: {', '.join(known) or 'none'}",
            next_step="name the file or module that defines it",
        )
    return found


def check_agent(run: str, agent: AgentCode, name: str, program: str) -> None:
    """Raise `ParameterMismatch` for a run of another agent, or another program: its steps are those of other code."""
    if agent.name != name:
        raise ParameterMismatch(
            f"run {run} belongs to the agent {name}, not {agent.name}", run=run,
            known="nothing was sent", next_step="give the run another id",
        )  # fmt: skip
    if program and agent.program and agent.program != program:
        raise ParameterMismatch(
            f"run {run} belongs to the agent {agent.name} of the program {program}, not of {agent.program}",
            run=run,
            known="nothing was sent",
            next_step="give the run another id; where the program was moved or renamed, declare its former name: "
            f"@agent(program={program!r})",
        )


def check_input(history: RunHistory, stored: bytes, digest: str) -> None:
    """Raise `ParameterMismatch` where the run was begun with another input."""
    if history.lifecycle.started is None or history.lifecycle.started.digest == digest:
        return
    recorded, now = _shown(history.lifecycle.started.input), _shown(stored)
    if recorded == now:  # they differ in a type, or in a part that is not shown
        recorded, now = bytes(history.lifecycle.started.input).decode(), stored.decode()
    raise ParameterMismatch(
        f"run {history.run} exists with another input",
        run=history.run,
        known=f"recorded: {recorded}; now: {now}. Nothing was sent",
        next_step="a run id names one input: use another id, or the same input",
    )


def _shown(stored: bytes) -> str:
    """An input as a person would write it."""
    return msgspec.json.encode(plain_arguments(stored).get("input")).decode()


async def go_on_after_stop(engine: Engine, history: RunHistory, log: RunLog, by: str) -> None:
    """Let a stopped run go on, and list it as running: recovery takes it up if it is abandoned. Its outcomes hold.

    Raises `UsageError` where a person has taken it over.
    """
    stopped = history.lifecycle.stopped
    if stopped is not None and STOP_REASONS[stopped.reason].final:
        raise UsageError(
            f"run {history.run} is no longer driven by this process: {stopped.error}",
            next_step=to_type("show", history.run),
        )
    stamp = Stamp(at=engine.wall_ms(), up=engine.journal.clock().earliest_ms)
    reopened = r.RunReopened(by=by, **stamp)
    await log.append([encode(reopened)], RunChange("running"))
    history.add(reopened)


async def release(engine: Engine, history: RunHistory, log: RunLog, claimed: LeaseGranted) -> None:
    """Give back the lease of a run that was not driven; the listing stays as it was, or as a reopening has made it."""
    change = unchanged_listing(claimed.row, engine.wall_ms())
    if claimed.row.status == "stopped" and history.lifecycle.status == "running":
        change = RunChange("running", release=True)
    try:
        await log.append((), change)
    except JournalError:
        engine.leases.give_back(claimed.row)


async def number_of_claim(active: ActiveRun) -> int:
    """How many processes have driven the run and may have died of it since one ended in order, this one included.

    An earlier owner that is seen to live was paused or lost its lease, so it is not counted, nor is one that was told
    to end, nor one that lived on after it had lost the run. Code that blocks each process that takes it would go on
    for ever like this: once twice as many as may die made no progress, all are counted.
    """
    engine, ownership = active.process, active.history.ownership
    allowed, here = engine.settings.claims_allowed, engine.worker.id
    fruitless = {claim.worker for claim in ownership.fruitless} - {here}
    if len(fruitless) >= 2 * allowed:
        return len(fruitless) + 1
    earlier = {claim.worker: claim for claim in ownership.unended if claim.worker != here}
    died = [claim for claim in earlier.values() if await _may_have_died_of_it(engine, ownership, claim)]
    # Only a death on its last chance, on which it was alone, sets it aside: others may be found later. A death in an
    # operation in which a process had died before is charged to that, though its end is not recorded yet.
    begun = [operation for operation in active.history.open_operations() if operation.deaths]
    charged = {operation.attempts[-1].token for operation in begun if operation.attempts[-1].end is None}
    last_chance_used = any(claim.number >= allowed and claim.token not in charged for claim in died)
    return min(len(died) + 1, allowed + last_chance_used)


async def _may_have_died_of_it(engine: Process, ownership: Ownership, claim: r.Claimed) -> bool:
    """True unless the process is seen to live, lived on without the run, or was told to end.

    A manager ends a process whose calls take too long. One that was paused may die of another run much later: its
    lease then lasts longer than it could have been renewed before the next owner took this run.
    """
    state = await engine.journal.fate(claim.worker)
    if state.seen_to_live:
        return False
    now = engine.journal.clock()
    later = (owner.up for token, owner in ownership.owners.items() if token > claim.token and owner.boot == now.epoch)
    if (lost := next(later, None)) is not None and now.earliest_ms - state.silent_ms > lost + engine.settings.lease_ms:
        return False
    return not await engine.journal.entries(told_to_end(claim.worker).stream)


async def admitted(active: ActiveRun, number: int) -> bool:
    """Wait until the run may be driven beside the other work in flight in this process.

    A run that waits here is not charged: its claim is recorded afterwards. False where the process shuts down.
    """
    engine = active.process
    allowed = engine.settings.claims_allowed
    if number > allowed:
        return True  # its code no longer runs
    return await engine.isolation.enter_run(active.run, chances=allowed - number + 1 if number > 1 else 0)


async def record_claim(active: ActiveRun, claimed: LeaseGranted, number: int) -> None:
    """Record the claim of a run that was begun before. It rides with the first thing that waits.

    If the owner before us did not end in order, or wrote no record at all, this run may have killed it: then the claim
    is durable before agent code runs, so that every further death is counted.
    """
    engine, history = active.process, active.history
    assert claimed.last is not None, "a run is stored together with its first records"
    before = next(reversed(history.ownership.owners.values())).trace if history.ownership.owners else ""
    claim = engine.claim(engine.journal.clock(), active.lease.token, number)
    claim = traced(engine, history.run, history.lifecycle.started, claim, before)
    suspicious = bool(history.ownership.unended) or claimed.lease.token > claimed.last.token + 1
    active.log.buffer(claim)
    if suspicious:
        await active.log.journal_log.flush()
