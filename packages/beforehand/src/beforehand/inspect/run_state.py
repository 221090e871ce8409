"""The state of a run from its records: as a whole (for a person who takes it over), or at one of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader, ReadRecord
from beforehand.inspect.timeline import TimelineEntry, timeline, tokens_of
from beforehand.model import records as r
from beforehand.model.facts import Fact
from beforehand.model.messages import Message, message_of
from beforehand.model.operation import OperationState, key_of
from beforehand.model.outcome import Basis, Receipt
from beforehand.model.receipts import proven
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type

_FACT = "fact:"
LIFE = (r.RunSuspendedRecord, r.RunStoppedRecord, r.RunCompleted, r.CommandApplied)
"""The life of a run, beside its reopening, as opposed to the actions of its code."""


def without_life(records: Sequence[r.Record]) -> list[r.Record]:
    """The actions of the code of a run, without the life of the run: as if it had never been interrupted.

    A stop and the reopening after it are kept: the failed answer with which the code ended is void from then on.
    """
    reopened = max((at for at, record in enumerate(records) if isinstance(record, r.RunReopened)), default=-1)
    return [
        record
        for at, record in enumerate(records)
        if not isinstance(record, LIFE) or (isinstance(record, r.RunStoppedRecord) and at < reopened)
    ]


class Open(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation without a final outcome. `part_of` is the effect of which it is a pending part.

    `awaits` is the key under which its answer arrives, and `attempts` the number of sends.
    """

    operation: str
    tool: str
    phase: str
    arguments: r.Raw
    reason: str = ""
    attempts: int = 0
    part_of: str = ""
    awaits: str = ""


class RunState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a run. For a hand-off, `given` is what code passed, `queue` the recipient, `why` the reason.

    `facts` are the facts at the hand-off; without a hand-off, the current facts. `done` are the receipts of the effects
    in force, and `open` the operations with an unknown outcome. `asks` are the open questions, `sleeps` the other
    waits, `undelivered` the messages not yet delivered, and `spent` the costs by purpose.
    """

    run: str
    agent: str
    status: str
    why: str
    given: r.Raw
    queue: str = ""
    facts: tuple[Fact, ...] = ()
    done: tuple[Receipt, ...] = ()
    open: tuple[Open, ...] = ()
    asks: tuple[str, ...] = ()
    sleeps: tuple[str, ...] = ()
    undelivered: tuple[Message, ...] = ()
    spent: Mapping[str, float] = {}
    started_ms: int = 0


async def state_of(reader: JournalReader, run: str, step: str = "") -> RunState:
    """The state of the run; for the `step` of a hand-off, with what was given. Raises `UnknownRun` and `UsageError`."""
    history = RunHistory(run)
    records: list[r.Record] = []
    for _, record in await reader.all_records(run):
        history.add(record)
        records.append(record)
    asked = history.steps.questions.get(step)
    if step and (asked is None or asked.handoff is None):
        raise UsageError(f"run {run} was not handed over at {step}", next_step=to_type("show", run))
    stopped = history.lifecycle.stopped
    why = history.lifecycle.reason if stopped is None else f"{stopped.reason}: {stopped.error}"
    started, handoff = history.lifecycle.started, asked.handoff if asked is not None else None
    given = None if handoff is None else msgspec.json.decode(handoff.facts, type=dict[str, Fact])
    known = _learned(records) if given is None else tuple(given.values())
    return RunState(
        run,
        started.agent if started is not None else "",
        history.lifecycle.status,
        why if asked is None else asked.question.text,
        handoff.state if handoff is not None else r.NOTHING,
        handoff.queue if handoff is not None else "",
        known,
        _done(history, reader.identity.namespace),
        tuple(_open(run, operation) for operation in history.open_operations() if not operation.intent.serves),
        tuple(f"{run}/{name}" for name in history.steps.questions if name not in history.steps.answers),
        tuple(f"{run}/{name}" for name in history.steps.timers if name not in history.steps.answers),
        tuple(map(message_of, history.messages.undelivered)) if history.messages is not None else (),
        spent(records),
        started.at if started is not None else 0,
    )


def _done(history: RunHistory, namespace: str) -> tuple[Receipt, ...]:
    return tuple(
        Receipt(
            name, operation.intent.tool, key_of(namespace, history.run, operation.step, operation.intent),
            operation.settlement.basis or Basis("returned"), operation.settlement.at,
        )
        for name, operation in proven(history).items()
    )  # fmt: skip


def _open(run: str, operation: OperationState) -> Open:
    intent = operation.intent
    return Open(
        f"{run}/{operation.step}", intent.tool, operation.phase, intent.arguments, operation.reason,
        len(operation.attempts), f"{run}/{intent.completes}" if intent.completes else "", operation.deferral.key,
    )  # fmt: skip


def _learned(records: Sequence[r.Record]) -> tuple[Fact, ...]:
    """The newest value of each fact, from the records."""
    found: dict[str, Fact] = {}
    for record in records:
        if isinstance(record, r.ValueRecorded) and record.what.startswith(_FACT):
            fact = msgspec.json.decode(record.value, type=Fact)
            found[fact.name] = fact
        elif isinstance(record, r.MessageReceived):
            found.update({one.name: _reported(one, record.by, record.at) for one in record.facts})
        elif (reported := _reported_in(record)) and not isinstance(record, r.MessageReceived):
            source = str(getattr(record, "tool", "") or getattr(record, "step", ""))
            found.update({one.name: _reported(one, source, record.at) for one in reported})
    return tuple(found.values())


def _reported_in(record: r.Record) -> tuple[r.Reported, ...]:
    end: Any = getattr(record, "end", None)
    if isinstance(end, r.End):
        return end.facts
    return record.facts if isinstance(record, r.ReadRecorded | r.OperationDeferred) else ()


def _reported(fact: r.Reported, source: str, at_ms: int) -> Fact:
    return Fact(fact.name, msgspec.json.decode(fact.value), source, at_ms)


def spent(records: Sequence[r.Record]) -> dict[str, float]:
    """The costs by purpose, in the units that models and tools report; a purpose that cost nothing is left out."""
    made = [record for record in records if isinstance(record, r.DecisionRecorded)]
    ends = [end for record in records if isinstance(end := getattr(record, "end", None), r.End)]
    found = {
        "models": sum(one.cost for one in made),
        "tokens": float(sum(map(tokens_of, records))),
        "tools": sum(one.cost or 0 for one in ends),
    }
    return {what: cost for what, cost in found.items() if cost}


class StateAt(msgspec.Struct, frozen=True):
    """A run's state after record `record`. `focus` is the step in full, `entries` the lines up to then."""

    run: str
    agent: str
    at: int
    record: int
    of: int
    status: str
    step: str
    focus: TimelineEntry | None
    entries: list[TimelineEntry]
    open: list[str]
    not_yet: list[str]


def state_at(run: str, rows: Sequence[ReadRecord], where: str) -> StateAt:
    """The state when the step `where` had received its outcome, or after the record of that number.

    A step that never got an outcome is shown as of its last record. Raises `UsageError`.
    """
    named = any(step_of(record) == where for _, record in rows)
    last = int(where) if where.isdecimal() and not named else _moment_of(run, rows, where)
    if not 1 <= last <= len(rows):
        raise UsageError(f"run {run} has no record {last}", known=f"it has {len(rows)} records, from 1")
    records = [record for _, record in rows]
    history = RunHistory(run)
    for record in records[:last]:
        history.add(record)
    story = timeline(run, records[:last])
    step = step_of(records[last - 1])
    later = [entry.step for entry in timeline(run, records).entries if entry.kind != "run"]
    known = {entry.step for entry in story.entries}
    return StateAt(
        run,
        story.agent,
        records[last - 1].at,
        last,
        len(records),
        history.lifecycle.status,
        step,
        next((entry for entry in reversed(story.entries) if entry.step == step and entry.kind != "run"), None),
        story.entries,
        [operation.step for operation in history.open_operations()],
        [name for name in later if name not in known],
    )


def step_of(record: r.Record) -> str:
    """The step that a record is about; empty for records of the run itself."""
    return str(getattr(record, "step", ""))


def no_step(run: str, rows: Sequence[ReadRecord], step: str) -> UsageError:
    """The error for a step that none of these records of the run is about."""
    names = dict.fromkeys(name for _, record in rows if (name := step_of(record)))
    return UsageError(
        f"run {run} has no step {step}",
        known=f"its steps: {', '.join(names) or 'none'}",
        next_step=to_type("show", run),
    )


def _moment_of(run: str, rows: Sequence[ReadRecord], step: str) -> int:
    """The number of the record that gave the step its outcome."""
    history, last = RunHistory(run), 0
    for row, record in rows:
        history.add(record)
        if step_of(record) == step:
            last = row.seq
            if step in history.delivered.by_step:
                return last
    if last:
        return last
    raise no_step(run, rows, step)
