"""What is kept of an answer that comes later, of parts, and of what a call said about the world besides."""

from __future__ import annotations

import pytest

from holdfast.model import records as r
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
