"""What stands before a send, and when an attempt may follow one that may have landed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from beforehand.model import records as r
from beforehand.model.decision import moves as m
from beforehand.model.decision.situation import OtherEffect
from beforehand.policies import Retry
from tests.unit.model.decision_rows import KEYED_READ_BACK
from tests.unit.model.stories import (
    AGAIN,
    HOUR,
    KEYED,
    MINUTE,
    PATIENT,
    PLAIN,
    READ,
    SECOND,
    SETTLE,
    STEP,
    VERIFIABLE,
    Story,
    changed,
    pause,
)

# --- another operation stands for the same effect ---------------------------------------------------------


def test_what_a_fork_would_repeat_is_asked_about():
    met = {"other": OtherEffect("fork", "succeeded", "old/charge#1", "ask")}
    assert Story().planned().says(**met) == "request approval: a repeat has to be approved"


def test_a_claim_that_succeeded_is_reused():
    move = Story().planned().decide(other=OtherEffect("claim", "succeeded", "other/charge#1"))
    assert move == m.Reuse("claim met a success", source="other/charge#1")


def test_a_claim_that_is_open_is_waited_for_and_ends_in_a_person():
    other = OtherEffect("claim", "pending", "other/charge#1")
    assert Story().planned().decide(other=other) == m.Wait(
        "claim held by other/charge#1", why="claim", until_woken=True
    )
    other = OtherEffect("claim", "pending", "other/charge#1", waited_out=True)
    parked = Story().planned().decide(other=other)
    assert parked == m.Park("claim held too long", why="other/charge#1 has not been settled")


def test_a_repeat_is_replayed_blocked_asked_or_allowed():
    def says(then: str, story: Story) -> str:
        return story.says(other=OtherEffect("guard", "succeeded", "desk/charge#0", then=then))

    assert says("replay", Story().planned()) == "reuse: guard met a success"
    assert says("block", Story().planned()) == "failed(repeat): repeat blocked"
    assert says("ask", Story().planned()) == "request approval: a repeat has to be approved"
    assert says("ask", Story().planned().parked().approved()) == "send: first attempt"
    assert says("allow", Story().planned()) == "send: first attempt"


def test_a_blocked_repeat_names_what_it_repeats():
    move = Story().planned().decide(other=OtherEffect("guard", "succeeded", "desk/charge#0", then="block"))
    assert isinstance(move, m.Settle)
    assert (move.reason, move.basis.by) == ("repeats desk/charge#0", "rule")


def test_a_person_s_order_stands_above_a_claim():
    story = Story().planned().parked().person("retry")
    assert story.says(other=OtherEffect("claim", "succeeded", "x/y")) == "send: first attempt"


def test_a_claim_matters_before_the_first_attempt_only():
    story = Story().sent("not_sent").waits(0, "retry")
    assert story.says(other=OtherEffect("claim", "succeeded", "x/y")) == "send: nothing landed: attempt again"


# --- gates and holds ----------------------------------------------------------------------------------------


def test_a_gate_asks_before_anything_is_sent_and_one_approval_covers_all_attempts():
    story = Story(KEYED).planned()
    assert story.says(gate="wanted") == "request approval: the contract asks for a person"
    story.parked()
    assert story.says(gate="wanted") == "wait for person: a person is asked"
    story.approved()
    assert story.says(gate="wanted") == "send: first attempt"
    story.starts(approval="a1").ends("not_sent").waits(0, "retry")
    assert story.says(gate="wanted") == "send: nothing landed: attempt again"


def test_a_gate_that_appears_later_asks_before_the_next_attempt():
    assert (
        Story().sent("not_sent").waits(0, "retry").says(gate="wanted")
        == "request approval: the contract asks for a person"
    )


def test_a_gated_operation_can_be_called_off():
    assert Story().planned().parked().says(blocked="cancel") == "cancelled: called off before it was sent"
    assert Story().planned().parked().says(blocked="deadline") == "failed: sending ended, nothing landed"


def test_changed_preconditions_void_the_approval_and_ask_again():
    story = Story(changed(KEYED, observes=True)).planned().parked().approved().reobserved("changed")
    assert (story.phase, story.state.approval.approved_digest, bytes(story.state.observed)) == ("gated", "", b"2")
    assert story.says(gate="wanted", reading="changed") == "wait for person: a person is asked"
    assert story.approved().says(gate="wanted", reading="same") == "send: first attempt"


def test_changed_preconditions_do_not_ask_again_once_something_may_have_landed():
    story = Story(changed(KEYED, observes=True)).planned().parked().approved().starts().ends("ambiguous")
    story.waits(0, "retry").reobserved("changed")
    assert story.phase == "verifying"
    assert story.says(reading="changed") == "unknown: nothing can prove it"


def test_an_irreversible_effect_is_held_until_its_transaction_commits():
    story = Story().planned()
    assert story.says(hold="trip") == "hold: irreversible inside a transaction"
    story.held()
    assert story.says(hold="trip") == "wait for commit: held until its transaction commits"
    assert story.says() == "wait for commit: held until its transaction commits"
    assert story.says(blocked="aborting") == "cancelled: called off before it was sent"
    assert story.released().says(hold="trip") == "send: first attempt"


def test_a_gate_comes_before_a_hold():
    assert Story().planned().says(gate="wanted", hold="trip") == "request approval: the contract asks for a person"


# --- obstacles ------------------------------------------------------------------------------------------------


def test_nothing_is_sent_while_the_journal_is_not_trusted():
    assert Story().planned().says(distrusted="copied") == "wait for trust: the journal is not trusted"


def test_nothing_is_sent_while_the_tool_is_paused():
    assert Story().planned().says(paused="charge") == "wait for paused: paused: charge"


def test_reading_back_goes_on_while_the_tool_is_paused():
    assert Story(KEYED_READ_BACK).sent("ambiguous").says(paused="charge").startswith("verify")


def test_a_tool_that_is_gone_leaves_it_to_a_person():
    move = Story(VERIFIABLE).sent("ambiguous").decide(tool="gone")
    assert move == m.Park("tool gone", why="the tool charge is no longer in this app")
    assert Story().planned().says(tool="gone") == "park: tool gone"


def test_deaths_quarantine_the_operation_not_the_evidence():
    story = Story(changed(KEYED, retry=PATIENT)).sent("lost").sent("lost").sent("lost").sent("lost").waits(0, "retry")
    assert story.says() == AGAIN
    story.sent("lost").waits(0, "retry")
    assert story.decide() == m.Park("quarantined", why="5 processes died during an attempt of it")
    assert story.parked().person("retry").says() == "send: a person ordered one more attempt"


def test_a_quarantined_operation_is_read_back_first():
    story = Story(changed(KEYED_READ_BACK, retry=PATIENT))
    for _ in range(5):
        story.sent("lost")
    story.waits(0, "retry")
    assert story.says() == "verify: read back at once: presence can be believed"
    story.later(SETTLE).verified("did_not_happen")
    assert story.says() == "park: quarantined"
    assert story.parked().phase == "gated"


def test_redacted_arguments_are_sent_only_by_the_code_that_has_them():
    story = Story(KEYED, executable=False).planned()
    assert story.says() == "wait for code: its arguments are not stored"
    assert story.says(at_hand=True) == "send: first attempt"


def test_redacted_arguments_do_not_keep_it_from_being_read_back():
    story = Story(KEYED_READ_BACK, executable=False).sent("lost").waits(0, "retry")
    assert story.says() == "verify: read back at once: presence can be believed"
    story.later(SETTLE).verified("did_not_happen")
    assert story.says() == "wait for code: its arguments are not stored"


# --- the pause before a retry ---------------------------------------------------------------------------------


def test_the_pause_is_drawn_by_full_jitter():
    story = Story(changed(KEYED, retry=PATIENT)).sent("ambiguous")
    assert pause(story.decide()) == (0, 200)
    assert pause(story.waits(0, "retry").sent("ambiguous").decide()) == (0, 400)


def test_a_service_that_names_a_pause_gets_at_least_that():
    assert pause(Story().sent("not_sent", retry_after_ms=7_000).decide()) == (7_000, 7_200)


def test_the_pause_is_drawn_once_and_survives_a_restart():
    story = Story(KEYED).sent("not_sent").waits(10 * SECOND, "retry").later(4 * SECOND)
    move = story.decide()
    assert isinstance(move, m.Wait)
    assert (move.rule, move.low_ms, move.high_ms, move.drawn) == ("drawn", 6 * SECOND, 6 * SECOND, True)
    story.rebooted(wall_ms=SECOND)
    assert pause(story.decide()) == (5 * SECOND, 5 * SECOND)


def test_a_reading_makes_a_new_pause():
    story = Story(VERIFIABLE).sent("ambiguous").waits(0, "retry").later(SETTLE).verified("did_not_happen")
    assert pause(story.decide()) == (0, 200)


def test_a_person_s_order_needs_no_pause():
    story = Story().sent("ambiguous").settled("unknown").person("retry")
    assert story.says() == "send: a person ordered one more attempt"


# --- budgets ---------------------------------------------------------------------------------------------------


def test_attempts_are_counted_over_the_life_of_the_operation():
    story = Story(changed(PLAIN, retry=Retry(attempts=2))).sent("not_sent", why="refused connection")
    assert story.says() == "wait for retry: full jitter before the next attempt"
    move = story.sent("not_sent", why="refused connection").decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.reason) == ("failed", "2 of 2 attempts were made; refused connection")


def test_a_refusal_to_listen_that_names_a_time_spends_no_attempt():
    story = Story(changed(PLAIN, retry=Retry(attempts=2)))
    for _ in range(4):
        story.sent("not_sent", retry_after_ms=1_000)
    assert story.says() == "wait for retry: full jitter before the next attempt"


def test_an_ambiguous_end_spends_an_attempt_whatever_it_names():
    story = Story(changed(KEYED, retry=Retry(attempts=1))).sent("ambiguous", retry_after_ms=1_000)
    assert story.says() == "unknown: nothing can prove it"


def test_the_time_for_attempts_is_that_of_the_calls_and_the_pauses():
    story = Story().sent("not_sent").pauses(9 * MINUTE).starts().later(MINUTE - 1).ends("not_sent")
    assert story.later(HOUR).says() == "wait for retry: full jitter before the next attempt"
    move = story.pauses(1).decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.reason) == ("failed", "the time for attempts is over (0:10:00); ")


def test_an_open_breaker_makes_nothing_failed():
    story = Story().sent("not_sent").pauses(HOUR)
    assert pause(story.decide(breaker_ms=1)) == (1, 1)
    assert story.says(breaker_ms=0) == "failed: sending ended, nothing landed"


def test_a_pause_behind_the_breaker_is_recorded_once_and_is_no_time_for_attempts():
    story = Story(changed(PLAIN, retry=Retry(attempts=9, elapsed=timedelta(minutes=1)))).sent("not_sent")
    story.waits(1, "retry").later(1)
    assert story.decide(breaker_ms=HOUR) == m.Wait("the breaker is open", HOUR, HOUR, "breaker", shut=True)
    story.waits(HOUR, "breaker", shut=True).later(MINUTE)
    left = HOUR - MINUTE
    assert story.decide(breaker_ms=2 * HOUR) == m.Wait("drawn", left, left, "breaker", drawn=True)
    assert story.decide(breaker_ms=9) == m.Wait("drawn", 9, 9, "breaker", drawn=True)
    assert story.says(breaker_ms=0) == "send: nothing landed: attempt again"


def test_a_pause_comes_before_the_breaker():
    assert Story().sent("not_sent").says(breaker_ms=9) == "wait for retry: full jitter before the next attempt"


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("cancel", "the run was cancelled"),
        ("deadline", "the deadline passed"),
        ("aborting", "the transaction was called off"),
        ("corrected", "what it relied on was corrected"),
        ("message", "a message came for the run"),
        ("stopped", "the run has stopped"),
    ],
)
def test_every_stop_says_why(stop, reason):
    move = Story().sent("ambiguous").decide(blocked=stop)
    assert isinstance(move, m.Settle)
    assert (move.status, move.reason) == ("unknown", reason)


@pytest.mark.parametrize(("stop", "status"), [("cancel", "failed"), ("aborting", "failed"), ("deadline", "failed")])
def test_what_was_refused_or_absent_is_failed_not_cancelled(stop, status):
    story = Story(VERIFIABLE).sent("ambiguous").later(SETTLE).verified("did_not_happen")
    assert story.says(blocked=stop) == f"{status}: sending ended, nothing landed"


@pytest.mark.parametrize(
    "story",
    [
        Story().planned(),
        Story().sent("not_sent"),
        Story(VERIFIABLE).sent("ambiguous").later(SETTLE).verified("did_not_happen"),
    ],
)
def test_what_landed_nowhere_is_left_to_the_reopening_of_a_stopped_run(story):
    assert story.decide(blocked="stopped") == m.Wait("the run has stopped", why="person", until_woken=True)


@pytest.mark.parametrize("stop", ["cancel", "aborting", "corrected"])
def test_what_was_never_sent_is_called_off_as_cancelled(stop):
    assert Story().sent("not_sent").says(blocked=stop) == "cancelled: called off before it was sent"


@pytest.mark.parametrize(("stop", "code"), [("cancel", ""), ("message", "interrupted")])
def test_what_a_message_called_off_says_so(stop, code):
    absent = Story(VERIFIABLE).sent("ambiguous").later(SETTLE).verified("did_not_happen")
    for story in (Story().planned(), Story().sent("not_sent"), absent):
        move = story.decide(blocked=stop)
        assert isinstance(move, m.Settle)
        assert move.code == code


def test_a_stop_stands_above_a_person_s_order():
    assert Story().sent("ambiguous").settled("unknown").person("retry").says(blocked="cancel").startswith("unknown")


# --- preconditions -----------------------------------------------------------------------------------------------


def test_a_person_s_order_stands_above_changed_preconditions():
    story = Story(changed(PLAIN, observes=True)).sent("ambiguous").settled("unknown").person("retry")
    assert story.says() == "observe: preconditions before every attempt"
    assert story.says(reading="changed") == "send: a person ordered one more attempt"


def test_preconditions_are_read_last_before_the_attempt():
    story = Story(changed(PLAIN, observes=True)).planned()
    assert story.says(breaker_ms=9) == "wait for breaker: the breaker is open"
    assert story.says() == "observe: preconditions before every attempt"


def test_preconditions_of_a_read_do_not_matter():
    assert Story(changed(READ, observes=True)).sent("ambiguous").waits(0, "retry").says(reading="changed") == (
        "send: a read may be repeated"
    )


def test_a_reading_nobody_asked_for_stops_nothing():
    assert Story().planned().says(reading="changed") == "send: first attempt"


def test_changed_preconditions_say_so():
    move = Story(changed(PLAIN, observes=True)).planned().decide(reading="unreadable")
    assert isinstance(move, m.Settle)
    assert (move.status, move.code, move.reason) == ("failed", "unreadable", "its preconditions are unreadable")


def test_an_approval_serves_only_what_was_asked_and_only_until_it_ends():
    story = Story().planned().parked("a gate")
    granted = story.took(r.ApprovalGranted(step=STEP, approval="d1", by="ann", until=story.wall + 10 * MINUTE))
    assert granted.says(gate="wanted", asks="d1", clock_error_ms=MINUTE) == "send: first attempt"
    assert granted.says(gate="wanted", asks="d2") == "request approval: the contract asks for a person"
    assert (
        granted.says(gate="wanted", asks="d1", clock_error_ms=10 * MINUTE)
        == "request approval: the contract asks for a person"
    )
    begun = granted.starts(approval="d1").ends("not_sent").waits(0, "retry")
    assert begun.says(gate="wanted", asks="d1", clock_error_ms=10 * MINUTE) == "send: nothing landed: attempt again"


def test_an_approval_asked_for_again_after_an_attempt_ends_like_the_first():
    sent = Story().planned().parked("a gate").approved().starts(approval="a1").ends("not_sent").waits(0, "retry")
    again = sent.took(r.OperationParked(step=STEP, why="it changed", asks="d2"))
    granted = again.took(r.ApprovalGranted(step=STEP, approval="d2", by="ann", until=again.wall + 10 * MINUTE))
    granted = granted.waits(0, "retry")
    assert granted.says(gate="wanted", asks="d2", clock_error_ms=MINUTE) == "send: nothing landed: attempt again"
    assert (
        granted.says(gate="wanted", asks="d2", clock_error_ms=10 * MINUTE)
        == "request approval: the contract asks for a person"
    )


def test_a_question_whose_subject_changed_is_asked_anew():
    story = Story().planned().took(r.OperationParked(step=STEP, why="a gate", asks="d1"))
    assert story.says(gate="wanted", asks="d1") == "wait for person: a person is asked"
    assert story.says(gate="wanted", asks="d2") == "request approval: what a person was asked about has changed"


def test_other_arguments_under_one_business_key_are_proven_unsent():
    met = OtherEffect("claim", "pending", "other/charge#1", mismatch=True)
    move = Story(claim="A-17").planned().decide(other=met)
    assert isinstance(move, m.Settle)
    assert (move.status, move.code) == ("failed", "mismatch")
    assert move.reason == "charge 'A-17' is already other/charge#1, with other arguments"
