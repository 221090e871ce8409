"""Messages to a run: they are delivered before anything new is sent, and at the same place on replay.

A message is on record as soon as the owner of the run takes it. It cancels operations that were begun and cannot have
landed. An operation that begins later, in a branch that has not received it, is cancelled before it is sent. Either
way the waiting code is notified. Code that only waits (for an answer, an event, a time) receives it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beforehand.engine.sealing import take_answer
from beforehand.engine.situation import next_move
from beforehand.errors import Interrupted
from beforehand.model import records as r
from beforehand.model.decision import moves as m
from beforehand.model.facts import Fact
from beforehand.model.run_history import exit_of

if TYPE_CHECKING:
    from beforehand.engine.active_run.scopes import Scope
    from beforehand.engine.operation_driver import OperationDriver
    from beforehand.model.decision.situation import Now
    from beforehand.model.operation import OperationState


Messages = tuple[r.MessageReceived, ...]


# --- what begins --------------------------------------------------------------------------------------------


async def may_still_begin(driver: OperationDriver, operation: OperationState, now: Now) -> bool:
    """True if nothing about the operation and its decision has changed, once pending records of others are in."""
    await driver.log.after_pending()
    return driver.operation is operation and type(next_move(driver, operation, now)) is m.Send


def delivery_at_cancelled(driver: OperationDriver) -> tuple[r.MessageHeard, ...]:
    """The delivery of a message to the caller of an operation that it cancelled; empty if the caller was cancelled."""
    history = driver.active.history
    messages = history.messages
    if messages is None or driver.step in history.delivered.left:
        return ()
    since = messages.called_off.get(driver.step)
    if driver.scope is not None:
        entries = messages.since(driver.scope.host.last_received)
    else:
        assert since is not None, "a call outside a scope was called off by a message"
        entries = messages.since(since - 1)
    return (r.MessageHeard(step=driver.step, messages=entries, **driver.active.log.stamp()),)


# --- what waits ---------------------------------------------------------------------------------------------


def is_interrupted(scope: Scope, step: str) -> bool:
    """Report whether an undelivered message ends this wait; if so, the delivery is recorded."""
    messages = scope.active.history.messages
    if messages is None or messages.last <= scope.host.last_received:
        return False
    _record_delivery(scope, step)
    return True


async def interruption_before_commit(section: Scope, transaction: str, *, sends: bool) -> Interrupted | None:
    """The message that has to be delivered before this boundary commits, if the commit would send anything."""
    active, step = section.active, exit_of(transaction) + "~heard"
    if step not in active.history.steps.answers:
        if not sends or not section.has_message():
            return None
        _record_delivery(section, step)
    await take_answer(section, step)
    return interrupted_by(active.run, deliver_messages(section, step))


def _record_delivery(scope: Scope, step: str) -> None:
    active = scope.active
    messages = active.history.messages
    assert messages is not None, step
    entries = messages.since(scope.host.last_received)
    active.log.buffer(r.MessageHeard(step=step, messages=entries, **active.log.stamp()))


# --- delivery -----------------------------------------------------------------------------------------------


def deliver_messages(scope: Scope, step: str) -> Messages:
    """Deliver the messages at this step; merge their facts into the run state once."""
    active = scope.active
    messages = active.history.messages
    if messages is None:
        return ()
    received = messages.delivered_at(step)
    for message in received:
        scope.host.last_received = max(scope.host.last_received, message.entry)
        if message.entry not in active.facts.learned:
            active.facts.learned[message.entry] = None
            for fact in message.facts:
                active.facts.learn(Fact(fact.name, msgspec.json.decode(fact.value), message.by, message.at))
    if "#" not in step.rpartition("/")[2]:
        scope.again(step)
    return received


def interrupted_by(run: str, messages: Messages) -> Interrupted:
    """The error that delivers these messages to code."""
    facts = r.values_of(fact for message in messages for fact in message.facts)
    sender = ", ".join(dict.fromkeys(message.by for message in messages))
    text = "; ".join(message.text for message in messages)
    return Interrupted(text, run=run, sender=sender, facts=facts, stop=any(message.stop for message in messages))
