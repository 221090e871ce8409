"""Fork: a new run that begins with the steps another one had completed before a step.

Outcomes are inherited as references: the new run says where each of them was proven, and claims none
of them as its own. Its own steps have its own name, and so their own keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from beforehand.engine.conflicts import INHERITED
from beforehand.engine.engine import Engine
from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader, ReadRecord
from beforehand.inspect.run_state import LIFE, no_step, step_of
from beforehand.journal.port import RunChange
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import beginning
from beforehand.model import records as r
from beforehand.model.ids import checked_run_id, operation_id
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory, is_about_operation
from beforehand.model.shell import to_type


class Forked(msgspec.Struct, frozen=True):
    """The new run. `inherited` are the steps it begins with, `again` the writes that its parent made after them."""

    run: str
    parent: str
    before: str
    inherited: list[str]
    again: list[str]


async def fork(engine: Engine, parent: str, step: str, new: str, by: str) -> Forked:
    """Begin the run `new` with what `parent` had done before `step`. Nothing is sent. Raises `UsageError`."""
    checked_run_id(new)
    reader = JournalReader(engine.journal, engine.identity)
    rows = await reader.all_records(parent)
    first = next((index for index, (_, record) in enumerate(rows) if step_of(record) == step), None)
    if first is None:
        raise no_step(parent, rows, step)
    prefix = rows[:first]
    history = RunHistory(parent)
    for _, record in prefix:
        history.add(record)
    _check(history, parent, step)
    if await engine.journal.runs(run=new):
        raise UsageError(f"run {new} exists already", next_step="give the fork another name with --as")
    whole = RunHistory(parent)
    for _, record in rows:
        whole.add(record)
    origin = r.CommandApplied(
        command="fork",
        by=by,
        entry=0,
        run=parent,
        note=f"of {parent} before {step}: its first {len(prefix)} records, up to {prefix[-1][0].hash.hex()[:16]}",
        voices=history.lifecycle.told,
        at=engine.wall_ms(),
        up=engine.journal.clock().earliest_ms,
    )
    reason = f"forked from {parent} before {step}: {to_type('resume', new)}"
    rests = r.RunSuspendedRecord(reason=reason, at=origin.at, up=origin.up)
    bodies = [encode(record) for record in (*_inherited(parent, prefix), origin, rests)]
    assert whole.lifecycle.started is not None, parent
    agent, program = whole.lifecycle.started.agent, whole.lifecycle.started.program
    change = RunChange("suspended", reason=reason, release=True)
    if not await engine.leases.store(new, beginning(engine.identity.namespace, new, agent, bodies, change, program)):
        raise UsageError(f"another process has just begun the run {new}", next_step="give the fork another name")
    later = (one for one in whole.operations.values() if one.step not in history.operations)
    again = [operation_id(parent, one.step) for one in later if not one.intent.completes]
    return Forked(new, parent, step, [*dict.fromkeys(name for _, record in prefix if (name := step_of(record)))], again)


def _check(history: RunHistory, parent: str, step: str) -> None:
    """Refuse to fork where an operation is still undecided."""
    if not history.operations and history.lifecycle.started is None:
        raise UsageError(f"run {parent} has done nothing before {step}")
    written = history.operations.values()
    children = history.children.not_joined() if history.children is not None else ()
    for names, why, known, next_step in (
        (
            [one.step for one in history.open_operations()], "an operation is open there", "open: ",
            "choose a step before it began, or one after it was settled",
        ),
        (
            [one.step for one in written if one.intent.compensates], "compensations ran there", "by ",
            "choose a step before them",
        ),
        (
            [one.step for one in written if one.intent.asks_only and one.phase == "succeeded"],
            "a plan was approved before it, for that run alone", "approved: ",
            "choose the step that asked for it, or one before",
        ),
        (
            children, "a child is not joined there, and belongs to that run alone", "not joined: ",
            "choose a step before it was started, or one after it was joined",
        ),
    ):  # fmt: skip
        if names:
            message = f"run {parent} cannot be forked before {step}: {why}"
            raise UsageError(message, known=known + ", ".join(names), next_step=next_step)


def _inherited(parent: str, prefix: Sequence[ReadRecord]) -> Iterator[r.Record]:
    """The records of the new run: every value that its code received, in the same order, and no attempt."""
    history = RunHistory(parent)
    dropped = _dropped(parent, prefix)
    for number, (_, record) in enumerate(prefix):
        if not is_about_operation(record):
            history.add(record)
            if isinstance(record, r.RunStarted):  # the run above did not start this one
                yield msgspec.structs.replace(record, parent=None)
            elif number not in dropped and not isinstance(record, (*LIFE, r.RunReopened)):
                yield record
            continue
        before = history.operations.get(record.step)
        history.add(record)
        after = history.operations[record.step]
        if after.final and (before is None or not before.final):
            yield from _reference(parent, after, record)


def _dropped(parent: str, prefix: Sequence[ReadRecord]) -> set[int]:
    """The places of the failed answers that were void once the run was reopened: its code got others in their place.

    The records of the new run do not tell that: its operations have no attempts.
    """
    history, answered, dropped = RunHistory(parent), dict[str, int](), set[int]()
    for number, (_, record) in enumerate(prefix):
        if isinstance(record, r.RunReopened):
            dropped.update(answered[step] for step in history.steps.unanswered)
        elif isinstance(record, (r.DecisionRecorded, r.ChildJoined)):
            answered[record.step] = number
        history.add(record)
    return dropped


def _reference(parent: str, operation: OperationState, record: r.OperationRecord) -> Iterator[r.Record]:
    """The outcome as a reference to where it was proven; a failure as the failure it was."""
    source, stamp = operation_id(parent, operation.step), {"at": record.at, "up": record.up}
    if operation.phase == "succeeded" or operation.links.reused:
        reused = r.OutcomeReused(
            step=operation.step, source=operation.links.reused or source, why=INHERITED,
            result=operation.settlement.result, intent=operation.as_called,
        )  # fmt: skip
        yield msgspec.structs.replace(reused, **stamp)
        return
    assert operation.settlement.basis is not None, operation
    planned = r.OperationPlanned(step=operation.step, intent=operation.as_called)
    yield msgspec.structs.replace(planned, **stamp)
    settled = r.OperationSettled(
        step=operation.step,
        status="cancelled" if operation.phase == "cancelled" else "failed",
        basis=operation.settlement.basis,
        rule=f"inherited from {source}",
        reason=operation.reason,
        code=operation.settlement.code,
    )
    yield msgspec.structs.replace(settled, **stamp)
