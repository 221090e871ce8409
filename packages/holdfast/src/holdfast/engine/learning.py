"""What a run knows, as it learns it: a correction stops what rested on the old value, and that is on record."""

from __future__ import annotations

import msgspec

from holdfast.engine.instance import Instance
from holdfast.model import records as r
from holdfast.model.facts import Correction, Fact
from holdfast.model.transaction import encloses


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
    drop(instance, {*correction.dropped, *correction.underway} & known.planned.keys(), fact.name)
    return correction


def unlearned(instance: Instance) -> tuple[r.MessageReceived, ...]:
    """Messages with facts that no code of this instance was told yet."""
    messages = instance.history.messages
    if messages is None:
        return ()
    return tuple(one for one in messages.received.values() if one.facts and one.entry not in instance.learned)


def drop_what_is_open(instance: Instance) -> None:
    """A plan begins, perhaps again: its steps that are under way and rest on what a message corrected are dropped."""
    under_way = [operation.step for operation in instance.history.open_operations()]
    for message in unlearned(instance):
        for fact in message.facts:
            resting = instance.known.resting_on(fact.name, msgspec.json.decode(fact.value))
            drop(instance, {one for one in resting if any(encloses(one, step) for step in under_way)}, fact.name)


def drop(instance: Instance, steps: set[str], fact: str) -> None:
    """Send nothing more for these steps of plans: the fact that they rest on was corrected."""
    steps -= instance.history.given_up
    if steps:
        instance.ride(r.StepsDropped(steps=tuple(sorted(steps)), why=f"{fact} was corrected", **instance.stamp()))
        instance.wake()
