"""Messages to a run: nothing new is sent before its code has heard them, and a replay hears them at the same place.

A message is on record from the moment in which the owner of the run takes it. What was begun and cannot have landed
is called off by it; what begins later, in a branch that has not heard it, is called off before it is sent. Either
way the code that waits there is told. Code that only waits (for an answer, an event, a time) hears at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.arriving import in_order
from holdfast.engine.boundary import sealing
from holdfast.engine.commands import take_commands
from holdfast.engine.flight import Flight, news_for
from holdfast.engine.learning import learned
from holdfast.engine.refusing import refuse
from holdfast.engine.scopes import Scope
from holdfast.errors import Interrupted
from holdfast.model import records as r
from holdfast.model.decision import moves as m
from holdfast.model.facts import Fact
from holdfast.model.run_history import exit_of

if TYPE_CHECKING:
    from holdfast.model.decision.situation import Now
    from holdfast.model.operation import OperationState

Told = tuple[r.MessageReceived, ...]


# --- what begins --------------------------------------------------------------------------------------------


async def may_still_begin(flight: Flight, operation: OperationState, now: Now) -> bool:
    """Whether it is still decided to send, after others had the chance to record something."""
    await in_order(flight.instance)
    return type(flight.next_move(operation, now)) is m.Attempt


def hearing(flight: Flight) -> tuple[r.MessageHeard, ...]:
    """What its caller is told by this operation that a message called off; nobody is, where the caller has left."""
    history = flight.instance.history
    messages = history.messages
    if messages is None or flight.step in history.left:
        return ()
    since = messages.called_off.get(flight.step)
    if flight.scope is not None:
        heard = messages.since(flight.scope.host.heard)
    else:
        assert since is not None, "what nobody calls has called off nothing"
        heard = messages.since(since - 1)
    return (r.MessageHeard(step=flight.step, messages=heard, **flight.instance.stamp()),)


# --- what waits ---------------------------------------------------------------------------------------------


def interrupts(scope: Scope, step: str) -> bool:
    """Whether this wait ends here, with a message that its branch has not heard. That is then on record."""
    messages = scope.instance.history.messages
    if messages is None or messages.last <= scope.host.heard:
        return False
    _hear_at(scope, step)
    return True


def interruption_at(scope: Scope, step: str) -> Interrupted | None:
    """The error of a wait that a message ended; None where it had an answer."""
    if not isinstance(scope.instance.history.answers.get(step), r.MessageHeard):
        return None
    return interruption(scope.instance.run, hear(scope, step))


async def before_commit(section: Scope, transaction: str, *, sends: bool) -> Interrupted | None:
    """The message that has to be heard before this boundary commits, if what is held in it would leave."""
    instance, step = section.instance, exit_of(transaction) + "~heard"
    if step not in instance.history.answers:
        if not sends or not news_for(section):
            return None
        _hear_at(section, step)
    await instance.take_turn(section, step)
    return interruption_at(section, step)


def _hear_at(scope: Scope, step: str) -> None:
    instance = scope.instance
    messages = instance.history.messages
    assert messages is not None, step
    heard = messages.since(scope.host.heard)
    instance.ride(r.MessageHeard(step=step, messages=heard, **instance.stamp()))


@sealing
async def look(scope: Scope) -> Told:
    """What this branch has not heard yet, as code asks for it. Journaled, whether there is anything or not."""
    instance = scope.instance
    if instance.closed:
        await refuse(scope)
    step = scope.step("messages")
    if step not in instance.history.answers:
        await take_commands(instance)
        messages = instance.history.messages
        heard = () if messages is None else tuple(one for one in messages.received if one > scope.host.heard)
        instance.ride(r.MessageHeard(step=step, messages=heard, **instance.stamp()))
    await instance.take_turn(scope, step)
    instance.forget(step)
    return hear(scope, step)


# --- hearing ------------------------------------------------------------------------------------------------


def hear(scope: Scope, step: str) -> Told:
    """What its code is told at this step. The run learns the facts in it, once, whoever hears them first."""
    instance = scope.instance
    messages = instance.history.messages
    if messages is None:
        return ()
    told = messages.told_at(step)
    for message in told:
        scope.host.heard = max(scope.host.heard, message.entry)
        if message.entry not in instance.learned:
            instance.learned.add(message.entry)
            for fact in message.facts:
                learned(instance, Fact(fact.name, msgspec.json.decode(fact.value), message.by, message.at))
    if "#" not in step.rpartition("/")[2]:
        scope.again(step)
    return told


def interruption(run: str, told: Told) -> Interrupted:
    """The messages as the error that code is told them with."""
    facts = r.values_of(fact for message in told for fact in message.facts)
    by = ", ".join(dict.fromkeys(message.by for message in told))
    text = "; ".join(message.text for message in told)
    return Interrupted(text, run=run, by=by, facts=facts, stop=any(message.stop for message in told))
