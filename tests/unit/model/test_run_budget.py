"""The cost of an operation in a budget: what each attempt has used or reserves, whatever becomes of the operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from beforehand.model.run_budget import cost_of
from tests.unit.model.stories import HOUR, VERIFIABLE, Story

EURO = 10**9
Step = Callable[[Story], Story]

ATTEMPTS: dict[str, tuple[Step, int, int]] = {
    "none": (lambda story: story.planned(), 0, 0),
    "one in flight": (lambda story: story.starts(), 0, 1),
    "one returned": (lambda story: story.sent("returned"), 1, 0),
    "one returned that reported its cost": (lambda story: story.sent("returned", cost=3.0), 3, 0),
    "one lost": (lambda story: story.sent("lost"), 1, 0),
    "one rejected": (lambda story: story.sent("rejected"), 1, 0),
    "one that was not sent": (lambda story: story.sent("not_sent", cost=3.0), 0, 0),
    "one lost and one in flight": (lambda story: story.sent("lost").starts(), 1, 1),
    "one accepted, with its answer later": (lambda story: story.starts().deferred(HOUR), 1, 0),
}
"""What was done, and the euros that are used and reserved meanwhile."""
ENDS: dict[str, Step] = {
    "succeeds": lambda story: story.settled("succeeded"),
    "fails": lambda story: story.settled("failed"),
    "happened, says a person": lambda story: story.parked(asks="").person("happened"),
    "did not happen, says a person": lambda story: story.parked(asks="").person("did_not_happen"),
}


@pytest.mark.parametrize("attempts", ATTEMPTS)
def test_an_attempt_costs_what_it_reported_or_its_price_and_one_in_flight_reserves_that(attempts: str):
    does, used, reserved = ATTEMPTS[attempts]
    assert cost_of(does(Story(VERIFIABLE, price="1 EUR")).state, "EUR") == (used * EURO, reserved * EURO)
    assert cost_of(does(Story(VERIFIABLE, price="1 EUR")).state, "USD") == (0, 0)
    assert cost_of(does(Story(VERIFIABLE)).state, "EUR") == (0, 0)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("attempts", ATTEMPTS)
def test_an_operation_that_has_ended_reserves_nothing_and_keeps_what_it_may_have_cost(attempts: str, ends: str):
    """Also where the end of its last call is never known: a process that stood still may have made it."""
    does, used, reserved = ATTEMPTS[attempts]
    state = ENDS[ends](does(Story(VERIFIABLE, price="1 EUR"))).state
    assert state.final
    assert cost_of(state, "EUR") == ((used + reserved) * EURO, 0)
