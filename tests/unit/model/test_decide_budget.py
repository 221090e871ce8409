"""The rule of budgets: which effects a limit of the run stops, and which go on."""

import pytest
from msgspec.structs import replace

from beforehand.model.decision.moves import Settle, Wait
from beforehand.model.decision.situation import SpentBudget
from beforehand.model.outcome import EXCEEDED
from beforehand.model.run_budget import is_effect
from tests.unit.model.stories import COLUMNS, KEYED, VERIFIABLE, Story

STOPS = SpentBudget("the limit of effects is reached: 3 of 3 used", "stop")
ASKS = replace(STOPS, then="ask")


@pytest.mark.parametrize("contract", COLUMNS.values(), ids=COLUMNS)
def test_a_first_attempt_fails(contract):
    move = Story(contract).planned().decide(budget=STOPS)
    assert isinstance(move, Settle)
    assert (move.status, move.code, move.reason) == ("failed", EXCEEDED, STOPS.reason)


def test_a_person_is_asked_where_the_budget_says_so():
    move = Story().planned().decide(budget=ASKS)
    assert isinstance(move, Wait)
    assert (move.why, move.until_woken, move.rule) == ("budget", True, "the budget of the run is spent")


def test_what_was_not_sent_is_stopped_like_a_first_attempt():
    move = Story(KEYED).sent("not_sent").decide(budget=STOPS)
    assert isinstance(move, Settle)
    assert move.code == EXCEEDED


def test_what_may_have_landed_is_found_out_all_the_same():
    assert Story(KEYED).sent("ambiguous").says(budget=STOPS) == Story(KEYED).sent("ambiguous").says()
    assert Story(VERIFIABLE).sent("lost").says(budget=STOPS) == Story(VERIFIABLE).sent("lost").says()


def test_a_person_who_orders_an_attempt_overrides_it():
    assert Story().sent("lost").settled("unknown").person("retry").says(budget=STOPS).startswith("send")


def test_what_counts_as_an_effect():
    assert not is_effect(None)
    assert not is_effect(Story().planned().state)
    assert is_effect(Story().starts().state)
    assert is_effect(Story().sent("ambiguous").state)
    assert is_effect(Story().sent("returned").settled("succeeded").state)
    assert not is_effect(Story().sent("not_sent").state)
    assert not is_effect(Story().sent("rejected").settled("failed").state)
    assert is_effect(Story(hold="trip").planned().held().state)
    assert is_effect(Story(hold="trip").planned().held().released().state)
    assert not is_effect(Story(hold="trip").planned().held().settled("cancelled").state)
    assert not is_effect(Story(compensates="charge#9").starts().state), "a compensation"
