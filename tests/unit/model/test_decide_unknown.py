"""What is unknown, and what is final."""

from __future__ import annotations

import pytest

from beforehand.model.decision import moves as m
from beforehand.model.decision.decide import decide
from beforehand.model.outcome import Basis
from tests.unit.model.stories import HOUR, SETTLE, VERIFIABLE, Story, changed

EXPECTS = changed(VERIFIABLE, expects=True)


# --- unknown ---------------------------------------------------------------------------------------------------


def test_unknown_is_read_back_on_a_slow_schedule():
    story = Story(VERIFIABLE).sent("ambiguous").later(SETTLE).settled("unknown")
    move = story.decide(slow_verify_ms=HOUR)
    assert isinstance(move, m.Wait)
    assert (move.low_ms, move.high_ms, move.drawn) == (HOUR, 2 * HOUR, False)
    story.waits(HOUR, "verify").later(HOUR - 1)
    rest = story.decide()
    assert isinstance(rest, m.Wait)
    assert (rest.low_ms, rest.high_ms, rest.drawn) == (1, 1, True)
    assert story.later(1).says() == "verify: slow schedule"
    assert story.verified("cannot_tell").says() == "wait for verify: slow schedule"


def test_the_slow_schedule_is_never_a_busy_loop():
    move = Story(VERIFIABLE).sent("ambiguous").settled("unknown").decide(slow_verify_ms=0)
    assert isinstance(move, m.Wait)
    assert move.low_ms == 1


def test_unknown_without_a_verifier_waits_for_a_person():
    story = Story(VERIFIABLE).sent("ambiguous").settled("unknown")
    assert story.decide(tool="gone") == m.Wait("a person is asked", why="person", until_woken=True)


def test_from_unknown_it_may_be_found():
    story = Story(VERIFIABLE).sent("ambiguous").settled("unknown").verified("happened")
    assert story.says() == "succeeded: found by verification"


def test_from_unknown_a_believed_absence_fails_it_and_sends_nothing():
    story = Story(VERIFIABLE).sent("ambiguous").settled("unknown").later(SETTLE).verified("did_not_happen")
    move = story.decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.rule, move.reason) == ("failed", "proven that nothing landed", "it did not happen")
    assert move.basis == Basis("evidence", "read back")


def test_a_late_report_brings_the_result():
    move = Story().sent("ambiguous").settled("unknown").late("returned").decide()
    assert isinstance(move, m.Settle)
    assert (move.attempt, move.basis.by) == (1, "returned")


def test_from_unknown_a_late_report_settles_it():
    assert Story().sent("ambiguous").settled("unknown").late("returned").says() == "succeeded: a late report"
    assert Story().sent("ambiguous").settled("unknown").late("rejected").says() == "failed: refused, and nothing landed"
    assert Story().sent("lost").settled("unknown").late("not_sent").says() == "failed: proven that nothing landed"


def test_a_return_that_is_absent_is_settled_by_evidence_or_a_person_only():
    story = Story(EXPECTS).sent("returned").later(SETTLE).verified("did_not_happen").settled("unknown")
    assert story.says() == "wait for verify: slow schedule"
    assert story.verified("did_not_happen").says() == "wait for verify: slow schedule"
    assert story.verified("happened").says() == "succeeded: found by verification"


def test_a_return_that_is_absent_is_not_failed_by_the_refusal_of_another_attempt():
    story = Story(EXPECTS).sent("ambiguous").sent("rejected").settled("unknown").late("returned")
    assert story.says() == "wait for verify: slow schedule"


def test_cancelling_does_not_settle_what_is_unknown():
    assert Story().sent("ambiguous").settled("unknown").says(blocked="cancel") == "wait for person: a person is asked"


# --- final -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_nothing_is_left_to_do_after_a_final_outcome(status):
    story = Story().planned().settled(status)
    assert story.says() == "done: the outcome is final"


def test_deciding_twice_gives_the_same_move():
    story = Story(VERIFIABLE).sent("ambiguous").verified("cannot_tell")
    assert decide(story.state, story.situation(), story.now) == decide(story.state, story.situation(), story.now)
