"""Queues in one process: limits, submitted runs, and slots. A slot is the lease of a run, and given back with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from beforehand.engine.process import Process
from beforehand.engine.run_start import check_input, first_records
from beforehand.engine.tool_protocol import Input
from beforehand.errors import LimitsChanged, ParameterMismatch, RunQueued
from beforehand.journal.port import (
    AgentKey,
    ClaimRequest,
    LeaseGranted,
    QueuePlace,
    RunChange,
    RunRow,
    RunStatus,
    TakeRequest,
)
from beforehand.journal.record_codec import decode, encode
from beforehand.journal.run_log import beginning
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type
from beforehand.model.system import is_system

if TYPE_CHECKING:
    from beforehand.engine.tool_protocol import AgentCode

_TAKEN: Final[tuple[RunStatus, ...]] = ("running", "suspended")
"""Statuses of runs that may have a slot. One that has not begun is `queued`."""
_PAGE: Final = 1000
ENDED: Final = frozenset({"completed", "stopped", "undone"})


async def take_slots(process: Process, room: int, skip: Collection[str]) -> list[RunRow]:
    """Take slots for runs of queues that may start now, and keep their leases for `drive_run`.

    Each of them has to be driven: a lease that is held and not driven keeps its slot as long as this process lives.
    The slots of a process that died are free by themselves: a `TakeRequest` counts only the leases of living owners.
    """
    queues = process.queues
    if queues.newest is None or room <= 0:
        return []
    agents = [(name, agent.program) for name, agent in process.agents.items() if not is_system(name)]
    async with queues.taking:  # two looks at once would both count the same room
        if queues.in_doubt:
            await _give_back_unknown(process)
            queues.in_doubt = False
        try:
            granted = await _taken(process, agents, room, skip)
        except BaseException:
            queues.in_doubt = True
            raise
        for one in granted:
            process.leases.hold(one.lease.run)
            queues.slots[one.lease.run] = one
    return [one.row for one in granted]


async def _taken(
    process: Process, agents: Collection[AgentKey], room: int, skip: Collection[str]
) -> list[LeaseGranted]:
    """Commit a `TakeRequest` under the limits in force, which may be others than those that were read last."""
    queues, journal = process.queues, process.journal
    while queues.newest is not None:
        try:
            return await journal.commit(TakeRequest(process.worker.id, agents, room, queues.newest, skip))
        except LimitsChanged:
            await queues.refresh(journal)
    return []


async def _give_back_unknown(process: Process) -> None:
    """Give back the leases that are ours without our knowledge: a look that failed may have taken them.

    Nothing else would: their runs are not driven here, and other processes leave them to this one while it lives.
    """
    for status in _TAKEN:
        after, more = "", True
        while more:
            rows = await process.journal.runs(status=status, limit=_PAGE, after=after)
            ours = [row for row in rows if row.owner == process.worker.id and row.queue]
            for row in [row for row in ours if not process.leases.concern(row.run)]:
                process.leases.give_back(row)
            if more := len(rows) == _PAGE:
                after = rows[-1].run


def needs_slot(claimed: LeaseGranted, history: RunHistory) -> bool:
    """True if the run is in a queue, goes on, and has no slot. One that is being undone has left its queue."""
    return bool(claimed.row.queue) and not claimed.slot and history.lifecycle.status not in ENDED


def queued(process: Process, row: RunRow) -> RunQueued:
    """The error of driving a run that has no slot."""
    newest = process.queues.newest
    paused = None if newest is None else newest.mode(row.queue).paused
    message = f"run {row.run} waits in the queue {row.queue} for a slot"
    if paused is not None:
        known, resume = f"it is stored; the queue is paused {paused}", to_type("queues", "resume", row.queue)
        return RunQueued(message, run=row.run, known=known, next_step=resume)
    return RunQueued(
        message, run=row.run, known="it is stored, and a worker starts it when the limits of the queue permit",
        next_step="start it: beforehand worker",
    )  # fmt: skip


async def store_submitted(
    process: Process, run: str, agent: AgentCode, given: Input, place: QueuePlace, due_ms: int
) -> bool:
    """Store the run in its queue; False where it exists with the same input.

    Raises `ParameterMismatch` where the input differs, `QueueFull` and `QueueDraining`.
    """
    started = replace(first_records(process, agent, given)[0], queue=place.queue, tenant=place.tenant)
    change = RunChange("queued", f"in the queue {place.queue}", due_ms, release=True)
    new = beginning(process.identity.namespace, run, agent.name, [encode(started)], change, agent.program)
    # Only the claim can tell whether the run exists: what is read before it, another submission may change.
    stored = await process.journal.commit(ClaimRequest(run, process.worker.id, replace(new, place=place)))
    if isinstance(stored, LeaseGranted):
        return True
    await _check_same(process, run, agent, given)
    return False


async def _check_same(process: Process, run: str, agent: AgentCode, given: Input) -> None:
    """Raise `ParameterMismatch` if the run that exists is that of another agent, or has another input."""
    rows = await process.journal.read(run, limit=1)
    history = RunHistory(run)
    history.add(decode(rows[0].body))
    started = history.lifecycle.started
    if started is not None and (started.agent, started.program) != (agent.name, agent.program):
        raise ParameterMismatch(
            f"run {run} belongs to the agent {started.agent} of the program {started.program}",
            run=run, known="nothing was stored", next_step="submit it under another key",
        )  # fmt: skip
    check_input(history, given.stored, given.digest)
