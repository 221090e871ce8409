"""What is kept of an answer that comes later, of parts, and of what a call said about the world besides."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand.model import records as r
from beforehand.model.transitions import IllegalTransition
from tests.unit.model.stories import HOUR, Story

PRICE = r.Reported("price", r.Raw(b"12"))
STOCK = r.Reported("stock", r.Raw(b"3"))


def last_end(story: Story) -> r.End:
    end = story.state.attempts[-1].end
    assert end is not None
    return end


def test_a_deferral_says_where_its_answer_will_come_and_how_often_to_look():
    story = Story().starts().deferred(HOUR, key="job-7", every_ms=9)
    assert (story.state.deferral.key, story.state.deferral.every_ms) == ("job-7", 9)
    assert story.state.wait is not None
    assert story.state.wait.rule == "the answer comes later"


def test_a_deferral_is_the_end_of_its_attempt_with_all_that_the_call_said():
    end = last_end(Story().starts().deferred(HOUR, cost=2.5, facts=(PRICE,), key_read=False))
    assert (end.kind, end.cost, end.facts, end.key_read) == ("ambiguous", 2.5, (PRICE,), False)
    assert last_end(Story().starts().deferred(HOUR)).key_read


# --- what code may be told stays as it was -------------------------------------------------------------------


def test_the_facts_of_a_call_come_with_its_end():
    assert last_end(Story().sent("returned", facts=(PRICE,))).facts == (PRICE,)


@pytest.mark.parametrize("kind", ["returned", "rejected"])
def test_a_later_end_changes_no_fact(kind):
    told = Story().sent("ambiguous", facts=(PRICE,)).late(kind, facts=(STOCK,))
    assert (last_end(told).kind, last_end(told).facts) == (kind, (PRICE,))
    silent = Story().sent("ambiguous").late(kind, facts=(STOCK,))
    assert (last_end(silent).kind, last_end(silent).facts) == (kind, ())


def test_a_report_that_comes_late_brings_no_facts():
    """The code that could be told has gone on without them."""
    assert last_end(Story().starts().late("returned", facts=(STOCK,))).facts == ()


def test_the_first_end_on_record_brings_its_facts_although_the_outcome_is_recorded_with_it():
    story = Story().starts().settled("succeeded", number=1, end=r.End("returned", facts=(PRICE,)))
    assert last_end(story).facts == (PRICE,)


# --- two answers that contradict each other ------------------------------------------------------------------


def answered(first: r.EndKind = "returned", **end: Any) -> Story:
    """A call whose answer came later, under a key."""
    story = Story().starts().deferred(HOUR, key="job-7").late(first, **end)
    assert (last_end(story).kind, story.state.links.disputes) == (first, ())
    return story


@pytest.mark.parametrize(("first", "second"), [("returned", "rejected"), ("rejected", "returned")])
def test_the_first_deferred_answer_counts_and_the_opposite_one_is_kept_as_evidence(first: r.EndKind, second: r.EndKind):
    story = answered(first).late(second)
    (kept,) = story.state.links.disputes
    assert (kept.end.kind, last_end(story).kind) == (second, first)


def test_the_same_answer_again_contradicts_nothing():
    assert answered().late("returned").state.links.disputes == ()


def test_an_answer_that_does_not_fit_the_tool_contradicts_nothing():
    assert answered(unfit=True).late("rejected").state.links.disputes == ()


def test_only_an_answer_that_comes_under_a_key_is_contradicted():
    assert Story().sent("returned").late("rejected").state.links.disputes == ()


def test_after_the_outcome_a_later_answer_is_no_longer_compared_with_the_first():
    story = answered().settled("succeeded").late("rejected")
    assert (story.phase, story.state.links.disputes) == ("succeeded", ())


def test_an_answer_is_compared_with_the_end_of_its_own_attempt():
    story = Story().starts().deferred(HOUR, key="job-7").late("not_sent").sent("ambiguous")
    story.late("returned", number=1).late("rejected", number=1)
    (kept,) = story.state.links.disputes
    assert (kept.number, kept.end.kind) == (1, "rejected")


def test_the_first_answer_of_an_open_attempt_contradicts_nothing():
    story = Story().starts().deferred(HOUR, key="job-7").late("not_sent").starts().late("returned", number=2)
    assert (story.state.links.disputes, last_end(story).kind) == ((), "returned")


def test_a_report_about_an_attempt_that_was_never_made_is_refused():
    with pytest.raises(IllegalTransition):
        answered().late("rejected", number=2)
