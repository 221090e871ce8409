"""What is answered later: waited for, looked for, and what follows when the answer does not come or does not fit."""

from __future__ import annotations

import pytest

from beforehand.model.decision import evidence
from beforehand.model.decision import moves as m
from tests.unit.model.decision_rows import KEYED_READ_BACK
from tests.unit.model.stories import DAY, HOUR, KEYED, MINUTE, PLAIN, SECOND, SETTLE, VERIFIABLE, Story

COMES_LATER = "wait for answer: the answer comes later"


def awaiting(contract=VERIFIABLE, ms: int = HOUR, **said) -> Story:
    return Story(contract).starts().deferred(ms, **said)


# --- the answer is waited for --------------------------------------------------------------------------------


def test_a_deferred_answer_is_waited_for_and_then_read_back():
    story = Story(KEYED_READ_BACK).starts().deferred(HOUR)
    assert story.says() == "wait for answer: the answer comes later"
    assert story.later(HOUR - 1).says(blocked="cancel") == "wait for answer: the answer comes later"
    assert story.later(1).says() == "verify: read back at once: presence can be believed"
    assert story.verified("cannot_tell").says().startswith("wait for verify")
    assert story.phase == "awaiting"


def test_a_deferred_answer_that_never_comes_is_unknown_not_failed_and_not_repeated():
    assert Story(KEYED).starts().deferred(MINUTE).later(MINUTE).says() == "unknown: nothing can prove it"
    assert Story(KEYED).starts().deferred(MINUTE).late("returned").says() == "succeeded: returned"


def test_the_window_of_a_deferred_effect_starts_when_its_answer_is_due():
    story = Story(VERIFIABLE).starts().deferred(HOUR).later(HOUR + SETTLE - 1).verified("did_not_happen")
    assert story.state.verification.absent_through == 0
    assert story.later(1).verified("did_not_happen").state.verification.absent_through == 1


def test_that_window_is_not_shortened_by_a_restart_before_the_answer_is_due():
    story = Story(VERIFIABLE).starts().deferred(HOUR).rebooted(wall_ms=MINUTE).later(59 * MINUTE + SETTLE - 1)
    assert story.verified("did_not_happen").state.verification.absent_through == 0
    assert story.later(1).verified("did_not_happen").state.verification.absent_through == 1


def test_the_wait_for_an_answer_is_on_record_already():
    story = awaiting(PLAIN).later(MINUTE)
    left = HOUR - MINUTE
    assert story.decide() == m.Wait("the answer comes later", left, left, "answer", drawn=True)


def test_an_answer_may_come_until_the_last_millisecond():
    story = awaiting(PLAIN).later(HOUR - 1)
    assert story.says() == COMES_LATER
    assert story.later(1).says() == "unknown: nothing can prove it"


def test_the_time_for_an_answer_runs_on_the_clock_of_its_boot():
    story = awaiting(PLAIN).later(MINUTE)
    for wall in (-DAY, 2 * DAY):
        story.wall += wall
        assert evidence.answer_left_ms(story.state, story.now) == HOUR - MINUTE


def test_the_time_for_an_answer_runs_on_by_the_wall_clock_on_another_boot():
    story = awaiting(PLAIN).rebooted(wall_ms=MINUTE)
    assert evidence.answer_left_ms(story.state, story.now) == HOUR - MINUTE
    assert evidence.answer_left_ms(story.state, story.rebooted(wall_ms=DAY).now) == 0


# --- it is looked for meanwhile ------------------------------------------------------------------------------


def test_an_answer_is_looked_for_every_so_often():
    story = awaiting(every_ms=10 * MINUTE)
    pause = 10 * MINUTE
    assert story.decide() == m.Wait("until the next look for its answer", pause, pause, "verify")
    story.waits(pause, "verify").later(pause - 1)
    assert story.decide() == m.Wait("drawn", 1, 1, "verify", drawn=True)
    assert story.later(1).decide() == m.Verify("time to look for its answer")
    story.verified("cannot_tell")
    assert story.decide() == m.Wait("until the next look for its answer", pause, pause, "verify")


def test_the_last_look_is_when_the_answer_is_due():
    story = awaiting(every_ms=HOUR).later(HOUR - 3 * SECOND)
    assert story.decide() == m.Wait("until the next look for its answer", 3 * SECOND, 3 * SECOND, "verify")


def test_an_answer_that_nothing_can_look_for_is_only_waited_for():
    assert awaiting(KEYED, every_ms=MINUTE).says() == COMES_LATER
    assert awaiting(VERIFIABLE, every_ms=MINUTE).says(tool="gone") == COMES_LATER


# --- when its absence may be believed ------------------------------------------------------------------------


def until_believable(story: Story) -> int | None:
    return evidence.until_believable_ms(story.state, story.situation(), story.now)


def test_an_absence_is_believed_a_window_after_the_answer_was_due():
    story = awaiting()
    assert until_believable(story) == HOUR + SETTLE
    assert until_believable(story.later(HOUR - 1)) == 1 + SETTLE
    assert until_believable(story.later(1)) == SETTLE
    assert until_believable(story.later(SETTLE)) == 0


def test_no_absence_is_believed_where_the_window_is_not_known():
    assert until_believable(awaiting(PLAIN)) is None


# --- an answer that does not fit -----------------------------------------------------------------------------


def misfit(contract=VERIFIABLE, why: str = "it is a list") -> Story:
    return awaiting(contract).later(MINUTE).late("returned", unfit=True, why=why)


def test_an_answer_that_does_not_fit_proves_nothing_alone():
    story = misfit()
    assert story.phase == "awaiting"
    assert story.state.may_have_landed
    assert evidence.evidence_of(story.state, story.situation(), story.now).returned is None


def test_what_an_answer_that_does_not_fit_is_about_is_read_back():
    story = misfit()
    assert story.says() == "verify: read back at once: presence can be believed"
    assert story.verified("happened").says() == "succeeded: found by verification"


def test_an_answer_that_does_not_fit_is_read_by_a_person_where_nothing_can_be_read_back():
    move = misfit(PLAIN, why="it is a list").decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.rule, move.reason) == ("unknown", "nothing can prove it", "it is a list")


def test_an_answer_that_does_not_fit_stops_no_attempt_that_a_person_orders():
    story = misfit(PLAIN).settled("unknown").person("retry")
    assert story.says() == "send: a person ordered one more attempt"


@pytest.mark.parametrize("kind", ["rejected", "not_sent", "returned", "ambiguous"])
def test_any_later_answer_takes_the_place_of_one_that_does_not_fit(kind):
    end = misfit().late(kind, why="the second").state.attempts[0].end
    assert end is not None
    assert (end.kind, end.unfit, end.why) == (kind, False, "the second")
