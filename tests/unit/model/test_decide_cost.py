"""The cost of all attempts together ends the sending, and nothing else does."""

from beforehand.model.decision import moves as m
from beforehand.policies import Budget
from tests.unit.model.stories import PLAIN, Story, changed

COSTED = changed(PLAIN, budget=Budget(cost=1.0))


def test_below_the_budget_another_attempt_is_wanted():
    story = Story(COSTED).sent("not_sent", why="busy", cost=0.5)
    assert isinstance(story.decide(), m.Wait)


def test_the_budget_counts_every_attempt():
    story = Story(COSTED).sent("not_sent", why="busy", cost=0.5).sent("not_sent", why="busy", cost=0.5)
    move = story.decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.reason) == ("failed", "its budget of 1 is spent (1); busy")


def test_an_attempt_without_an_end_has_cost_nothing_yet():
    story = Story(COSTED).sent("not_sent", why="busy", cost=0.9).starts()
    assert "budget" not in story.says(live=frozenset({2}))


def test_without_a_budget_nothing_is_too_dear():
    assert isinstance(Story().sent("not_sent", why="busy", cost=1e12).decide(), m.Wait)
