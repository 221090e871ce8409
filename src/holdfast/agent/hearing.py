"""What tools report besides their results becomes what the run knows, at the moment when its code is told of the call.

Nothing more is recorded for that: what was said is in the operation's own records, and code is told of calls in the
same order on replay.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.engine.instance import Instance
from holdfast.engine.scopes import Scope
from holdfast.engine.steps import Told
from holdfast.model import records as r
from holdfast.model.facts import Correction, Fact
from holdfast.model.ids import operation_id


def heard(scope: Scope, told: Told) -> None:
    """Learn what those calls reported of which code is told. A fact is as old as the beginning of its call."""
    operation = told.operation
    for attempt in told.heard:
        if attempt.end is not None and attempt.end.facts:
            _learn(scope, operation.intent.tool, operation.step, attempt.at, attempt.end.facts)


def heard_at_commit(scope: Scope, transaction: str) -> None:
    """Learn what the effects reported that were held for this commit, in the order in which they were asked for."""
    history = scope.instance.history
    if not history.promised:
        return
    for operation in list(history.operations.values()):
        if operation.intent.hold == transaction:
            heard(scope, Told(operation, operation.step))


def heard_reading(scope: Scope, record: r.ReadRecorded) -> None:
    """Learn what a read reported."""
    if record.facts:
        _learn(scope, record.tool, record.step, record.at, record.facts)


def _learn(scope: Scope, tool: str, step: str, at_ms: int, facts: Iterable[r.Reported]) -> None:
    name = operation_id(scope.instance.run, step)
    for fact in facts:
        value = msgspec.json.decode(fact.value)
        learned(scope.instance, Fact(fact.name, value, tool, at_ms, operation=name), by=step)


def learned(instance: Instance, fact: Fact, by: str = "") -> Correction | None:
    """Take a fact. Where it corrects what steps of a plan under way rely on, nothing more is sent for them.

    That is on record: whoever recovers the run does not send it either.
    """
    known = instance.known
    correction = known.learn(fact, by)
    if correction is None:
        return None
    if correction != Correction(fact.name):
        known.corrections.append(correction)
    steps = {*correction.dropped, *correction.underway} & known.planned.keys() - instance.history.given_up
    if steps:
        why = f"{fact.name} was corrected"
        instance.ride(r.StepsDropped(steps=tuple(sorted(steps)), why=why, **instance.stamp()))
        instance.wake()
    return correction
