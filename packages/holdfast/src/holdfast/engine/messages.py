"""Messages to a run: nothing new is sent before its code has heard them, and a replay hears them at the same place.

A message is on record from the moment in which the owner of the run takes it. What was begun and cannot have landed
is called off by it; what begins later, in a branch that has not heard it, is called off before it is sent. Either
way the code that waits there is told. Code that only waits (for an answer, an event, a time) hears at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine.sealing import refuse, sealing
from holdfast.engine.tool_protocol import wake
from holdfast.errors import Interrupted
from holdfast.model import records as r
from holdfast.model.decision import moves as m
from holdfast.model.facts import Correction, Fact
from holdfast.model.run_history import exit_of
from holdfast.model.transaction import encloses

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun
    from holdfast.engine.operation_driver import OperationDriver
    from holdfast.engine.scopes import Scope
    from holdfast.model.decision.situation import Now
    from holdfast.model.operation import OperationState


Messages = tuple[r.MessageReceived, ...]


# --- what begins --------------------------------------------------------------------------------------------


def has_undelivered_message(scope: Scope) -> bool:
    """Whether the code of this branch has a message to hear before its next write, or was told to stop."""
    messages = scope.instance.history.messages
    return messages is not None and (messages.stop > 0 or messages.last > scope.host.heard)


async def may_still_begin(flight: OperationDriver, operation: OperationState, now: Now) -> bool:
    """Whether it is still decided to send, after others had the chance to record something."""
    await after_pending_records(flight.instance)
    return type(flight.next_move(operation, now)) is m.Attempt


def delivery_at_cancelled(flight: OperationDriver) -> tuple[r.MessageHeard, ...]:
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


def is_interrupted(scope: Scope, step: str) -> bool:
    """Whether this wait ends here, with a message that its branch has not heard. That is then on record."""
    messages = scope.instance.history.messages
    if messages is None or messages.last <= scope.host.heard:
        return False
    _record_delivery(scope, step)
    return True


def interruption_at(scope: Scope, step: str) -> Interrupted | None:
    """The error of a wait that a message ended; None where it had an answer."""
    if not isinstance(scope.instance.history.answers.get(step), r.MessageHeard):
        return None
    return interrupted_by(scope.instance.run, deliver_messages(scope, step))


async def interruption_before_commit(section: Scope, transaction: str, *, sends: bool) -> Interrupted | None:
    """The message that has to be heard before this boundary commits, if what is held in it would leave."""
    instance, step = section.instance, exit_of(transaction) + "~heard"
    if step not in instance.history.answers:
        if not sends or not has_undelivered_message(section):
            return None
        _record_delivery(section, step)
    await instance.take_turn(section, step)
    return interruption_at(section, step)


def _record_delivery(scope: Scope, step: str) -> None:
    instance = scope.instance
    messages = instance.history.messages
    assert messages is not None, step
    heard = messages.since(scope.host.heard)
    instance.ride(r.MessageHeard(step=step, messages=heard, **instance.stamp()))


@sealing
async def read_messages(scope: Scope) -> Messages:
    """What this branch has not heard yet, as code asks for it. Journaled, whether there is anything or not."""
    instance = scope.instance
    if instance.closed:
        await refuse(scope)
    step = scope.step("messages")
    if step not in instance.history.answers:
        from holdfast.engine.commands import take_commands  # noqa: PLC0415 - commands needs this

        await take_commands(instance)
        messages = instance.history.messages
        heard = () if messages is None else tuple(one for one in messages.received if one > scope.host.heard)
        instance.ride(r.MessageHeard(step=step, messages=heard, **instance.stamp()))
    await instance.take_turn(scope, step)
    instance.forget(step)
    return deliver_messages(scope, step)


# --- hearing ------------------------------------------------------------------------------------------------


def deliver_messages(scope: Scope, step: str) -> Messages:
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
                learn_fact(instance, Fact(fact.name, msgspec.json.decode(fact.value), message.by, message.at))
    if "#" not in step.rpartition("/")[2]:
        scope.again(step)
    return told


def interrupted_by(run: str, told: Messages) -> Interrupted:
    """The error that delivers these messages to code."""
    facts = r.values_of(fact for message in told for fact in message.facts)
    sender = ", ".join(dict.fromkeys(message.by for message in told))
    text = "; ".join(message.text for message in told)
    return Interrupted(text, run=run, sender=sender, facts=facts, stop=any(message.stop for message in told))


# What a message or an order finds when it comes: no write may begin after it that was decided before it.


_WOKEN: Final = {"operation", "question", "handoff", "event", "timer"}  # these look again, and wait on


def may_have_arrived(instance: ActiveRun) -> bool:
    """Whether a message has come, or an order is coming or could come before this attempt, as others stand in line."""
    return instance.history.messages is not None or instance.log.alone is not None or instance.receiving is not None


async def after_pending_records(instance: ActiveRun) -> None:
    """Return when what is recorded next comes after everything that was begun, and after an order that comes."""
    while instance.checking or instance.receiving is not None:
        await asyncio.wait({*instance.checking, *([] if instance.receiving is None else [instance.receiving])})


@asynccontextmanager
async def between_attempts(instance: ActiveRun) -> AsyncGenerator[None]:
    """What is recorded here stands between attempts: what the ledger may still refuse is over, none begins."""
    instance.receiving = asyncio.get_running_loop().create_future()
    try:
        while instance.checking:
            await asyncio.wait(instance.checking)
        yield
    finally:
        instance.receiving.set_result(None)
        instance.receiving = None


def wake_everything(instance: ActiveRun) -> None:
    """Something came that everybody has to know of: let whoever waits look at his situation again."""
    instance.wake()
    for waiting, pause in list(instance.pauses.items()):
        if pause.kind in _WOKEN:
            wake(waiting)


# What a run knows, as it learns it: a correction stops what rested on the old value, and that is on record.


def learn_fact(instance: ActiveRun, fact: Fact, by: str = "") -> Correction | None:
    """Take a fact. Where it corrects what steps of a plan under way rely on, nothing more is sent for them.

    That is on record: whoever recovers the run does not send it either.
    """
    known = instance.known
    correction = known.learn(fact, by)
    if correction is None:
        return None
    if correction != Correction(fact.name):
        known.corrections.append(correction)
    drop_plan_steps(instance, {*correction.dropped, *correction.underway} & known.planned.keys(), fact.name)
    return correction


def undelivered_facts(instance: ActiveRun) -> tuple[r.MessageReceived, ...]:
    """Messages with facts that no code of this instance was told yet."""
    messages = instance.history.messages
    if messages is None:
        return ()
    return tuple(one for one in messages.received.values() if one.facts and one.entry not in instance.learned)


def drop_open_plan_steps(instance: ActiveRun) -> None:
    """A plan begins, perhaps again: its steps that are under way and rest on what a message corrected are dropped."""
    under_way = [operation.step for operation in instance.history.open_operations()]
    for message in undelivered_facts(instance):
        for fact in message.facts:
            resting = instance.known.resting_on(fact.name, msgspec.json.decode(fact.value))
            drop_plan_steps(
                instance, {one for one in resting if any(encloses(one, step) for step in under_way)}, fact.name
            )


def drop_plan_steps(instance: ActiveRun, steps: set[str], fact: str) -> None:
    """Send nothing more for these steps of plans: the fact that they rest on was corrected."""
    steps -= instance.history.given_up
    if steps:
        instance.ride(r.StepsDropped(steps=tuple(sorted(steps)), why=f"{fact} was corrected", **instance.stamp()))
        instance.wake()
