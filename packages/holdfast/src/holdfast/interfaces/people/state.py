"""The state of a run for whoever it is handed over to: what it knows, did, has open and waits for, by its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.engine.flight import key_of
from holdfast.errors import UsageError
from holdfast.interfaces.looking import Looking
from holdfast.model import records as r
from holdfast.model.claims import proven
from holdfast.model.facts import Fact
from holdfast.model.messages import Message, message_of
from holdfast.model.operation import OperationState
from holdfast.model.outcome import Basis, Receipt
from holdfast.model.run import RunHistory

_FACT = "fact:"


class Open(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation without a final outcome. `part_of`: it is a part of that effect, which comes later.

    `awaits` is the key under which its answer comes, `attempts` how often it was sent.
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
    """A run as it stands. `given` is what its code said when it handed over, `queue` to whom, and `why`.

    `facts` are what it knew then; where it was not handed over, what it learned last. `done` are the effects that
    stand, with their receipts, `open` those that nobody knows the end of. `asks` are its open questions, `sleeps` what
    it waits for besides, `unheard` the messages that its code was not told, `spent` its costs by what they were for.
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
    unheard: tuple[Message, ...] = ()
    spent: Mapping[str, float] = {}
    started_ms: int = 0


async def state_of(looking: Looking, run: str, step: str = "") -> RunState:
    """How the run stands; with the `step` of a hand-off, with what went along. Raises `UnknownRun` and `UsageError`."""
    history = RunHistory(run)
    records: list[r.Record] = []
    for _, record in await looking.told(run):
        history.add(record)
        records.append(record)
    asked = history.questions.get(step)
    if step and (asked is None or asked.handoff is None):
        raise UsageError(f"run {run} was not handed over at {step}", next_step=f"holdfast show {run}")
    started, handoff = history.started, asked.handoff if asked is not None else None
    return RunState(
        run,
        started.agent if started is not None else "",
        history.status,
        asked.question.text if asked is not None else _why(history),
        handoff.state if handoff is not None else r.NOTHING,
        handoff.queue if handoff is not None else "",
        _facts_of(handoff.facts) if handoff is not None else _learned(records),
        _done(history, looking.identity.namespace),
        tuple(_open(run, operation) for operation in history.open_operations() if not operation.intent.serves),
        tuple(f"{run}/{name}" for name in history.questions if name not in history.answers),
        tuple(f"{run}/{name}" for name in history.timers if name not in history.answers),
        tuple(map(message_of, history.messages.unheard)) if history.messages is not None else (),
        _spent(records),
        started.at if started is not None else 0,
    )


def _why(history: RunHistory) -> str:
    return history.reason if history.stopped is None else f"{history.stopped.reason}: {history.stopped.error}"


def _done(history: RunHistory, namespace: str) -> tuple[Receipt, ...]:
    return tuple(
        Receipt(
            name, operation.intent.tool, key_of(namespace, history.run, operation.step, operation.intent),
            operation.basis or Basis("returned"), operation.settled_at,
        )
        for name, operation in proven(history).items()
    )  # fmt: skip


def _open(run: str, operation: OperationState) -> Open:
    intent = operation.intent
    return Open(
        f"{run}/{operation.step}", intent.tool, operation.phase, intent.arguments, operation.reason,
        len(operation.attempts), f"{run}/{intent.completes}" if intent.completes else "", operation.answer_key,
    )  # fmt: skip


def _facts_of(stored: r.Raw) -> tuple[Fact, ...]:
    return tuple(msgspec.json.decode(stored, type=dict[str, Fact]).values())


def _learned(records: Sequence[r.Record]) -> tuple[Fact, ...]:
    """What was learned last of each name, as the records have it."""
    found: dict[str, Fact] = {}
    for record in records:
        if isinstance(record, r.ValueRecorded) and record.what.startswith(_FACT):
            fact = msgspec.json.decode(record.value, type=Fact)
            found[fact.name] = fact
        elif isinstance(record, r.MessageReceived):
            found.update({one.name: _reported(one, record.by, record.at) for one in record.facts})
        elif (said := _said(record)) and not isinstance(record, r.MessageReceived):
            source = str(getattr(record, "tool", "") or getattr(record, "step", ""))
            found.update({one.name: _reported(one, source, record.at) for one in said})
    return tuple(found.values())


def _said(record: r.Record) -> tuple[r.Reported, ...]:
    end: Any = getattr(record, "end", None)
    if isinstance(end, r.End):
        return end.facts
    return record.facts if isinstance(record, r.ReadRecorded | r.OperationDeferred) else ()


def _reported(fact: r.Reported, source: str, at_ms: int) -> Fact:
    return Fact(fact.name, msgspec.json.decode(fact.value), source, at_ms)


def _spent(records: Sequence[r.Record]) -> dict[str, float]:
    made = [record for record in records if isinstance(record, r.DecisionRecorded)]
    ends = [end for record in records if isinstance(end := getattr(record, "end", None), r.End)]
    found = {
        "models": sum(one.cost for one in made),
        "tokens": float(sum(one.input_tokens + one.output_tokens for one in made)),
        "tools": sum(one.cost for one in ends),
    }
    return {what: cost for what, cost in found.items() if cost}
