"""Messages to a run: nothing new is sent before its code has heard them, and a replay hears them at the same place.

A message is on record from the moment in which the owner of the run takes it. What was begun and cannot have landed
is called off by it; what begins later, in a branch that has not heard it, is called off before it is sent. Either
way the code that waits there is told. Code that only waits (for an answer, an event, a time) hears at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.commands import take_commands
from holdfast.engine.sealing import refuse, sealing
from holdfast.engine.situation import next_move
from holdfast.errors import Interrupted
from holdfast.model import records as r
from holdfast.model.decision import moves as m
from holdfast.model.facts import Fact
from holdfast.model.run_history import exit_of

if TYPE_CHECKING:
    from holdfast.engine.active_run.scopes import Scope
    from holdfast.engine.driven_operation import DrivenOperation
    from holdfast.model.decision.situation import Now
    from holdfast.model.operation import OperationState


Messages = tuple[r.MessageReceived, ...]


# --- what begins --------------------------------------------------------------------------------------------


async def may_still_begin(driver: DrivenOperation, operation: OperationState, now: Now) -> bool:
    """Whether it is still decided to send, after others had the chance to record something."""
    await driver.log.after_pending()
    return type(next_move(driver, operation, now)) is m.Attempt


def delivery_at_cancelled(driver: DrivenOperation) -> tuple[r.MessageHeard, ...]:
    """What its caller is told by this operation that a message called off; nobody is, where the caller has left."""
    history = driver.active.history
    messages = history.messages
    if messages is None or driver.step in history.left:
        return ()
    since = messages.called_off.get(driver.step)
    if driver.scope is not None:
        heard = messages.since(driver.scope.host.heard)
    else:
        assert since is not None, "what nobody calls has called off nothing"
        heard = messages.since(since - 1)
    return (r.MessageHeard(step=driver.step, messages=heard, **driver.active.log.stamp()),)


# --- what waits ---------------------------------------------------------------------------------------------


def is_interrupted(scope: Scope, step: str) -> bool:
    """Whether this wait ends here, with a message that its branch has not heard. That is then on record."""
    messages = scope.active.history.messages
    if messages is None or messages.last <= scope.host.heard:
        return False
    _record_delivery(scope, step)
    return True


def interruption_at(scope: Scope, step: str) -> Interrupted | None:
    """The error of a wait that a message ended; None where it had an answer."""
    if not isinstance(scope.active.history.answers.get(step), r.MessageHeard):
        return None
    return interrupted_by(scope.active.run, deliver_messages(scope, step))


async def interruption_before_commit(section: Scope, transaction: str, *, sends: bool) -> Interrupted | None:
    """The message that has to be heard before this boundary commits, if what is held in it would leave."""
    active, step = section.active, exit_of(transaction) + "~heard"
    if step not in active.history.answers:
        if not sends or not section.has_message():
            return None
        _record_delivery(section, step)
    await active.replay.take_turn(section, step)
    return interruption_at(section, step)


def _record_delivery(scope: Scope, step: str) -> None:
    active = scope.active
    messages = active.history.messages
    assert messages is not None, step
    heard = messages.since(scope.host.heard)
    active.log.buffer(r.MessageHeard(step=step, messages=heard, **active.log.stamp()))


@sealing
async def read_messages(scope: Scope) -> Messages:
    """What this branch has not heard yet, as code asks for it. Journaled, whether there is anything or not."""
    active = scope.active
    if active.closed:
        await refuse(scope)
    step = scope.step("messages")
    if step not in active.history.answers:
        await take_commands(active)
        messages = active.history.messages
        heard = () if messages is None else tuple(one for one in messages.received if one > scope.host.heard)
        active.log.buffer(r.MessageHeard(step=step, messages=heard, **active.log.stamp()))
    await active.replay.take_turn(scope, step)
    active.replay.forget(step)
    return deliver_messages(scope, step)


# --- hearing ------------------------------------------------------------------------------------------------


def deliver_messages(scope: Scope, step: str) -> Messages:
    """What its code is told at this step. The run learns the facts in it, once, whoever hears them first."""
    active = scope.active
    messages = active.history.messages
    if messages is None:
        return ()
    told = messages.told_at(step)
    for message in told:
        scope.host.heard = max(scope.host.heard, message.entry)
        if message.entry not in active.facts.learned:
            active.facts.learned.add(message.entry)
            for fact in message.facts:
                active.facts.learn(Fact(fact.name, msgspec.json.decode(fact.value), message.by, message.at))
    if "#" not in step.rpartition("/")[2]:
        scope.again(step)
    return told


def interrupted_by(run: str, told: Messages) -> Interrupted:
    """The error that delivers these messages to code."""
    facts = r.values_of(fact for message in told for fact in message.facts)
    sender = ", ".join(dict.fromkeys(message.by for message in told))
    text = "; ".join(message.text for message in told)
    return Interrupted(text, run=run, sender=sender, facts=facts, stop=any(message.stop for message in told))
