"""The pause behind an open breaker: how long it stood in the way, and what goes on meanwhile."""

from __future__ import annotations

from beforehand.model.decision import moves as m
from beforehand.model.decision.situation import LimitWait
from tests.unit.model.decision_rows import KEYED_READ_BACK
from tests.unit.model.stories import HOUR, MINUTE, Story

FULL = LimitWait("service cards", HOUR)


def test_a_pause_behind_the_breaker_lasts_to_its_last_millisecond():
    story = Story().planned().waits(MINUTE, "breaker", shut=True).later(MINUTE - 1)
    assert story.decide(breaker_ms=HOUR) == m.Wait("drawn", 1, 1, "breaker", drawn=True)


def test_a_breaker_that_is_open_longer_than_its_pause_makes_a_new_one():
    story = Story().planned().waits(MINUTE, "breaker", shut=True).later(MINUTE)
    assert story.decide(breaker_ms=HOUR) == m.Wait("the breaker is open", HOUR, HOUR, "breaker", shut=True)


def test_reading_back_behind_an_open_breaker_keeps_its_own_pause():
    story = Story(KEYED_READ_BACK).sent("ambiguous").verified("cannot_tell").waits(MINUTE, "verify", shut=True)
    assert story.says(breaker_ms=HOUR) == "wait for verify: drawn"
    assert story.later(MINUTE).says(breaker_ms=HOUR) == "verify: time to read back"


def test_the_limit_of_the_tool_makes_an_attempt_wait_and_nothing_failed():
    waits = m.Wait("the limit of service cards is reached", HOUR, HOUR, "limit")
    assert Story().planned().decide(limit=FULL) == waits
    retried = Story().sent("not_sent").pauses(1)
    assert retried.decide(limit=FULL) == waits
    assert retried.says() == "send: nothing landed: attempt again"
    assert Story().planned().decide(limit=FULL, breaker_ms=9).why == "breaker"


def test_behind_the_limit_of_its_tool_an_attempt_without_a_proof_is_still_read_back():
    story = Story(KEYED_READ_BACK).sent("ambiguous").later(HOUR)
    assert story.says(limit=FULL).startswith("verify:")
