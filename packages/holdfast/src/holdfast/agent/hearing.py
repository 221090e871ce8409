"""What tools report besides their results becomes what the run knows, at the moment when its code is told of the call.

Nothing more is recorded for that: what was said is in the operation's own records, and code is told of calls in the
same order on replay.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.engine.messages import deliver_messages, interrupted_by, learn_fact
from holdfast.engine.scopes import Scope
from holdfast.engine.steps import DeliveredOperation
from holdfast.errors import Interrupted
from holdfast.model import records as r
from holdfast.model.facts import Fact
from holdfast.model.ids import operation_id
from holdfast.model.messages import was_interrupted


def heard(scope: Scope, told: DeliveredOperation) -> None:
    """Learn what those calls reported of which code is told. A fact is as old as the beginning of its call.

    A call that a message called off tells the message.
    """
    operation = told.operation
    if scope.instance.history.messages is not None and was_interrupted(operation):
        deliver_messages(scope, told.step)
    for attempt in told.heard:
        if attempt.end is not None and attempt.end.facts:
            _learn(scope, operation.intent.tool, operation.step, attempt.at, attempt.end.facts)


def interruption_of(scope: Scope, told: DeliveredOperation) -> Interrupted | None:
    """What its caller is told in place of an outcome, where a message called the operation off."""
    messages = scope.instance.history.messages
    if messages is None or not was_interrupted(told.operation):
        return None
    return interrupted_by(scope.instance.run, messages.told_at(told.step))


def heard_at_commit(scope: Scope, transaction: str) -> None:
    """Learn what the effects reported that were held for this commit, in the order in which they were asked for."""
    history = scope.instance.history
    if not history.promised:
        return
    for operation in list(history.operations.values()):
        if operation.intent.hold == transaction:
            heard(scope, DeliveredOperation(operation, operation.step))


def heard_reading(scope: Scope, record: r.ReadRecorded) -> None:
    """Learn what a read reported."""
    if record.facts:
        _learn(scope, record.tool, record.step, record.at, record.facts)


def _learn(scope: Scope, tool: str, step: str, at_ms: int, facts: Iterable[r.Reported]) -> None:
    name = operation_id(scope.instance.run, step)
    for fact in facts:
        value = msgspec.json.decode(fact.value)
        learn_fact(scope.instance, Fact(fact.name, value, tool, at_ms, operation=name), by=step)
