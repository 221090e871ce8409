"""Moves to the letter: what is waited for, what a person is told, and which reason is recorded."""

from __future__ import annotations

from datetime import timedelta

import pytest

from beforehand.model.contract import Key
from beforehand.model.decision import evidence
from beforehand.model.decision import moves as m
from beforehand.model.outcome import Basis
from beforehand.policies import Retry
from tests.unit.model.stories import DAY, HOUR, KEYED, MINUTE, PLAIN, READ, SETTLE, VERIFIABLE, Story, changed

LIVE = {"live": frozenset({1})}
TWICE = changed(KEYED, idempotency=Key(ttl=timedelta(hours=24), in_progress="runs_twice"), settle_ms=SETTLE)


@pytest.mark.parametrize(
    ("story", "situation", "rule", "why"),
    [
        (Story().starts(), LIVE, "a call is still open", "call"),
        (Story(KEYED).sent("ambiguous", over=False), LIVE, "an earlier call still runs", "call"),
        (Story(KEYED).starts(), {}, "the end of an earlier call is not on record yet", "end"),
        (Story().planned().parked(), {}, "a person is asked", "person"),
        (Story().planned().held(), {}, "held until its transaction commits", "commit"),
        (Story().planned(), {"distrusted": "copied"}, "the journal is not trusted", "trust"),
        (Story().planned(), {"paused": "charge"}, "paused: charge", "paused"),
        (Story(executable=False).planned(), {}, "its arguments are not stored", "code"),
    ],
)
def test_some_waits_have_no_end_of_their_own(story, situation, rule, why):
    assert story.decide(**situation) == m.Wait(rule, why=why, until_woken=True)


def reason(move: m.Move) -> str:
    assert isinstance(move, m.Settle), move
    return move.reason


def test_an_outcome_says_why():
    assert reason(Story().sent("ambiguous").decide()) == "an attempt may have landed"
    assert (
        reason(Story().sent("ambiguous").sent("rejected").decide()) == "refused after an attempt that may have landed"
    )
    ordered = Story().sent("ambiguous").settled("unknown").person("retry")
    assert reason(ordered.sent("ambiguous", why="timed out").decide()) == "a person was asked before; timed out"
    once = changed(PLAIN, retry=Retry(attempts=1))
    open_end = Story(once).starts().decide()
    assert reason(open_end) == "1 of 1 attempts were made; the last one has no end on record"
    assert reason(Story(KEYED).starts().deferred(MINUTE).later(MINUTE).decide()) == "its answer did not come in time"
    absent = Story(changed(VERIFIABLE, expects=True)).sent("returned").later(SETTLE).verified("did_not_happen")
    assert reason(absent.decide()) == "returned, but not there"


FORGOTTEN = "it may have been sent before the journal was restored"


def test_a_person_is_told_what_is_in_the_way():
    expects = Story(changed(VERIFIABLE, expects=True)).sent("returned").verified("conflict", evidence="theirs")
    assert expects.decide() == m.Park("returned, but something else is there", why="theirs")
    restored = Story().planned().decide(began_doubtful=True)
    assert restored == m.Park("restored journal", why=FORGOTTEN, forgotten=True)
    checks = Story(changed(VERIFIABLE, check_first=True)).planned().later(HOUR).verified("cannot_tell").later(HOUR)
    assert checks.decide() == m.Park("cannot tell whether it was already sent", why="the world could not be read")


def test_nothing_leaves_a_copy_before_somebody_has_looked():
    trust = m.Wait("the journal is not trusted", why="trust", until_woken=True)
    for story in (Story(READ).planned(), Story(changed(KEYED, idempotency=Key.forever())).planned()):
        assert story.decide(distrusted="it is old") == trust
        assert story.says() == "send: first attempt"


def test_what_cannot_be_read_any_more_is_not_sent_unread():
    """The clause is stored with the operation; its code has no verifier any more."""
    move = Story(changed(PLAIN, check_first=True)).planned().decide()
    assert move == m.Park("cannot tell whether it was already sent", why="the world could not be read")


def test_what_a_message_calls_off_is_cancelled():
    assert Story().planned().says(blocked="message") == "cancelled(interrupted): called off before it was sent"


def test_an_outcome_says_who_proved_it():
    told = Story(VERIFIABLE).sent("ambiguous").verified("happened").decide()
    assert isinstance(told, m.Settle)
    assert told.basis == Basis("evidence", "read back")
    ended = Story().sent("ambiguous").decide()
    assert isinstance(ended, m.Settle)
    assert ended.basis == Basis("rule")
    unread = Story(changed(PLAIN, expects=True)).sent("returned").decide()
    assert isinstance(unread, m.Settle)
    assert (unread.attempt, unread.unverified, unread.basis.by) == (1, True, "returned")


def test_what_was_parked_for_a_conflict_can_be_called_off():
    story = Story(changed(VERIFIABLE, check_first=True)).planned().verified("conflict").parked()
    assert story.says(blocked="cancel") == "cancelled: called off before it was sent"


def test_a_person_s_order_passes_no_gate():
    story = Story().planned().parked().person("retry")
    assert story.says(gate="wanted") == "request approval: the contract asks for a person"
    assert story.says() == "send: first attempt"


def test_a_read_is_never_read_back():
    story = Story(changed(VERIFIABLE, effect="read")).sent("ambiguous").waits(0, "retry")
    assert story.says(breaker_ms=9) == "wait for breaker: the breaker is open"


def test_a_pause_before_a_retry_lasts_to_its_last_millisecond():
    story = Story(KEYED).sent("ambiguous").waits(5, "retry").later(4)
    assert story.says() == "wait for retry: drawn"
    twice = Story(TWICE).sent("ambiguous").waits(SETTLE, "retry").later(SETTLE - 1)
    assert twice.says() == "wait for retry: drawn"


# --- which clock counts ------------------------------------------------------------------------------------


def test_on_one_boot_the_wall_clock_counts_for_nothing():
    story = Story(KEYED).sent("ambiguous").waits(HOUR, "retry").later(MINUTE)
    for wall in (-DAY, 2 * DAY):
        story.wall += wall
        assert evidence.age_ms(story.state, story.now) == MINUTE
        assert evidence.elapsed_ms(story.state, story.situation(), story.now) == MINUTE
        assert evidence.wait_left_ms(story.state, story.situation(), story.now) == HOUR - MINUTE
    deferred = Story().starts().deferred(MINUTE).later(HOUR)
    deferred.wall -= DAY
    over = evidence.over_ms(deferred.state.attempts[0], deferred.situation(), deferred.now)
    assert over == HOUR - MINUTE


def test_a_deferred_call_is_not_over_before_its_answer_is_due():
    story = Story().starts().deferred(HOUR).rebooted(wall_ms=MINUTE).later(MINUTE)
    assert evidence.over_ms(story.state.attempts[0], story.situation(), story.now) == 0


def test_what_is_proven_absent_is_not_waited_for():
    story = Story(VERIFIABLE).planned().later(HOUR).sent("ambiguous").later(SETTLE).verified("did_not_happen")
    assert evidence.quiet_ms(story.state, story.situation(), story.now) == HOUR + SETTLE


def test_the_last_millisecond_of_a_key_is_a_limit():
    story = Story(changed(KEYED, idempotency=Key(ttl=timedelta(hours=1)))).sent("ambiguous").later(58 * MINUTE - 1)
    assert evidence.attempt_timeout_ms(story.state, story.situation(), story.now) == 1


def test_a_call_that_lives_is_seen_behind_later_attempts():
    story = Story(KEYED).sent("ambiguous", over=False).sent("ambiguous")
    assert evidence.evidence_of(story.state, story.situation(**LIVE), story.now).live
