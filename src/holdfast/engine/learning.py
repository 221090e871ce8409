"""What a run knows, as it learns it: a correction stops what rested on the old value, and that is on record."""

from __future__ import annotations

from holdfast.engine.instance import Instance
from holdfast.model import records as r
from holdfast.model.facts import Correction, Fact


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


def drop(instance: Instance, steps: set[str], fact: str) -> None:
    """Send nothing more for these steps of plans: the fact that they rest on was corrected."""
    steps -= instance.history.given_up
    if steps:
        instance.ride(r.StepsDropped(steps=tuple(sorted(steps)), why=f"{fact} was corrected", **instance.stamp()))
        instance.wake()
