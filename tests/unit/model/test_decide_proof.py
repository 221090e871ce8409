"""What attempts and readings prove, and how long the world is read back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from beforehand.model import records as r
from beforehand.model.contract import Key
from beforehand.model.decision import moves as m
from tests.unit.model.decision_rows import KEYED_READ_BACK
from tests.unit.model.stories import HOUR, KEYED, PATIENT, PLAIN, SECOND, SETTLE, VERIFIABLE, Story, changed

STORES_ALL = changed(KEYED, idempotency=Key(ttl=timedelta(hours=24), stores="all"))
EXPECTS = changed(VERIFIABLE, expects=True)
DEADLINE = VERIFIABLE.verify_deadline_ms


# --- returned ------------------------------------------------------------------------------------------


def test_the_result_is_that_of_the_attempt_that_returned():
    move = Story(KEYED).sent("returned", result=r.Raw(b"1")).decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.attempt, move.basis.by) == ("succeeded", 1, "returned")


def test_an_answer_counts_even_after_another_attempt_was_refused():
    story = Story(KEYED).sent("ambiguous").sent("rejected").late("returned")
    assert story.says() == "succeeded: returned"


def test_evidence_that_is_expected_settles_with_the_result_of_the_call():
    move = Story(EXPECTS).sent("returned").verified("happened").decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.attempt, move.basis.by) == ("succeeded", 1, "evidence")


def test_evidence_cannot_be_read_once_the_tool_is_gone():
    assert Story(EXPECTS).sent("returned").says(tool="gone") == "succeeded unverified: returned, could not be read back"


def test_evidence_without_a_verifier_is_never_read():
    story = Story(changed(PLAIN, expects=True)).sent("returned")
    assert story.says() == "succeeded unverified: returned, could not be read back"


def test_an_absence_that_was_believed_stands_when_the_tool_is_gone():
    story = Story(EXPECTS).sent("returned").later(SETTLE).verified("did_not_happen")
    assert story.says(tool="gone") == "unknown: returned, but absent after the window"


def test_what_was_not_there_when_it_was_last_looked_for_is_no_success_though_its_absence_cannot_be_believed():
    story = Story(changed(EXPECTS, settle_ms=None)).sent("returned").verified("did_not_happen")
    assert story.says(tool="gone") == "unknown: returned, but absent until the deadline"
    assert story.says() == "wait for verify: until the next reading"
    story.verified("cannot_tell")
    assert story.says(tool="gone") == "succeeded unverified: returned, could not be read back"


def test_an_absence_that_cannot_be_believed_says_nothing_about_a_later_attempt():
    story = Story(changed(EXPECTS, settle_ms=None)).sent("ambiguous").verified("did_not_happen").sent("returned")
    assert story.says(tool="gone") == "succeeded unverified: returned, could not be read back"


def test_an_absence_before_the_attempt_that_returned_says_nothing_about_it():
    story = Story(EXPECTS).sent("ambiguous").later(SETTLE).verified("did_not_happen").sent("returned")
    assert story.says() == "verify: read back at once: presence can be believed"


def test_a_read_that_returned_is_done_whatever_its_contract_expects():
    story = Story(changed(EXPECTS, effect="read")).sent("returned")
    assert story.says() == "succeeded: returned"


# --- refused -------------------------------------------------------------------------------------------


def test_a_refusal_names_its_attempt_and_its_words():
    move = Story().sent("rejected", why="no such account", code="404").decide()
    assert isinstance(move, m.Settle)
    assert (move.attempt, move.reason, move.code, move.basis.by) == (1, "no such account", "404", "returned")


def test_a_refusal_counts_once_the_ambiguous_attempts_are_proven_absent():
    story = Story(VERIFIABLE).sent("ambiguous").sent("rejected").later(SETTLE).verified("did_not_happen")
    assert story.says() == "failed: refused, and nothing landed"


def test_the_one_stored_answer_of_a_key_covers_all_its_attempts():
    assert Story(STORES_ALL).sent("ambiguous").sent("rejected").says() == "failed: refused: the key's one answer"


@pytest.mark.parametrize(
    "key",
    [
        Key(ttl=timedelta(hours=24), stores="success"),
        Key(ttl=timedelta(hours=24), stores="all", in_progress="runs_twice"),
    ],
    ids=["stores successes only", "runs twice while in progress"],
)
def test_other_services_have_no_one_answer(key: Key):
    story = Story(changed(KEYED, idempotency=key)).sent("ambiguous").sent("rejected")
    assert story.says() == "unknown: nothing can prove it"


def test_a_forgotten_key_has_no_one_answer():
    assert (
        Story(STORES_ALL).sent("ambiguous").sent("rejected").later(24 * HOUR).says() == "unknown: nothing can prove it"
    )


def test_an_open_call_may_still_bring_an_answer_that_outweighs_a_refusal():
    story = Story(STORES_ALL).sent("ambiguous").starts().late("rejected", number=1)
    assert story.says(live=frozenset({2})) == "wait for call: a call is still open"


# --- a call that runs ------------------------------------------------------------------------------------


def test_an_open_call_is_waited_for():
    assert Story().starts().says(live=frozenset({1})) == "wait for call: a call is still open"


def test_what_a_verifier_found_does_not_wait_for_an_open_call():
    story = Story(VERIFIABLE).starts().verified("happened")
    assert story.says(live=frozenset({1})) == "succeeded: found by verification"


def test_an_attempt_without_an_end_is_never_followed_by_another():
    story = Story(KEYED).starts().reclaimed()
    assert story.says() == "wait for end: the end of an earlier call is not on record yet"


def test_an_attempt_without_an_end_is_read_back_meanwhile():
    assert Story(KEYED_READ_BACK).starts().reclaimed().says() == "verify: read back at once: presence can be believed"


def test_an_attempt_without_an_end_of_a_plain_write_is_unknown():
    assert Story().starts().reclaimed().says() == "unknown: nothing can prove it"


def test_a_person_s_order_waits_for_a_call_that_was_given_up():
    story = Story().sent("ambiguous", over=False).settled("unknown").person("retry")
    assert story.says(live=frozenset({1})) == "wait for call: an earlier call still runs"


def test_an_absence_is_not_believed_while_the_call_may_still_run():
    story = Story(VERIFIABLE).sent("ambiguous", over=False).later(HOUR).verified("did_not_happen")
    assert story.state.verification.absent_through == 0
    assert story.says(live=frozenset({1})).startswith("wait for verify")


# --- when an absence is believed ---------------------------------------------------------------------------


def test_presence_is_looked_for_at_once_then_the_window_is_waited_out():
    story = Story(VERIFIABLE).sent("ambiguous").verified("did_not_happen")
    move = story.decide()
    assert isinstance(move, m.Wait)
    assert (move.low_ms, move.high_ms, move.drawn) == (5 * SECOND, 6_250, False)
    story.later(SETTLE - SECOND)
    short = story.decide()
    assert isinstance(short, m.Wait)
    assert (short.low_ms, short.high_ms) == (SECOND, SECOND + SECOND // 4)


def test_readings_are_never_closer_than_a_millisecond():
    move = Story(changed(VERIFIABLE, verify_every_ms=0)).sent("ambiguous").verified("cannot_tell").decide()
    assert isinstance(move, m.Wait)
    assert move.low_ms == 1


def test_a_pause_between_readings_is_drawn_once():
    story = Story(VERIFIABLE).sent("ambiguous").verified("cannot_tell").waits(5 * SECOND, "verify").later(SECOND)
    move = story.decide()
    assert isinstance(move, m.Wait)
    assert (move.rule, move.low_ms, move.high_ms, move.drawn) == ("drawn", 4 * SECOND, 4 * SECOND, True)
    assert story.later(4 * SECOND).says() == "verify: time to read back"


def test_a_reading_one_millisecond_early_proves_nothing():
    story = Story(VERIFIABLE).sent("ambiguous").later(SETTLE - 1).verified("did_not_happen")
    assert story.says().startswith("wait for verify")


def test_another_boot_starts_the_window_anew():
    story = Story(VERIFIABLE).sent("lost").rebooted(wall_ms=HOUR).verified("did_not_happen")
    assert story.state.verification.absent_through == 0
    assert story.later(SETTLE).verified("did_not_happen").state.verification.absent_through == 1


def test_another_process_of_the_same_boot_is_credited_with_the_time_that_passed():
    story = Story(VERIFIABLE).sent("lost").later(SETTLE).reclaimed().verified("did_not_happen")
    assert story.state.verification.absent_through == 1


# --- how long the world is read back -----------------------------------------------------------------------


def test_the_deadline_counts_from_the_moment_when_absence_may_be_believed():
    story = Story(VERIFIABLE).sent("ambiguous").later(SETTLE).verified("cannot_tell")
    assert story.later(DEADLINE - 1).says().startswith("wait for verify")
    assert story.later(1).says() == "unknown: could not be proven in time"


def test_the_deadline_never_ends_before_a_reading_after_that_moment():
    story = Story(VERIFIABLE).sent("ambiguous").verified("cannot_tell").later(DEADLINE * 9)
    assert story.says().startswith("wait for verify")
    assert story.verified("cannot_tell").says() == "unknown: could not be proven in time"


def test_a_reading_for_an_earlier_attempt_does_not_count_for_a_later_one():
    story = Story(changed(VERIFIABLE, retry=PATIENT)).sent("ambiguous").later(SETTLE).verified("did_not_happen")
    story.sent("ambiguous").verified("cannot_tell").later(DEADLINE * 9)
    assert story.says().startswith("wait for verify")


def test_an_unknown_window_counts_from_the_first_reading():
    story = Story(changed(VERIFIABLE, settle_ms=None)).sent("ambiguous").later(HOUR).verified("cannot_tell")
    assert story.later(DEADLINE - 1).says().startswith("wait for verify")
    assert story.later(1).says() == "unknown: could not be proven in time"


def test_an_unknown_window_never_lets_absence_be_believed():
    story = Story(changed(VERIFIABLE, settle_ms=None)).sent("ambiguous").later(HOUR).verified("did_not_happen")
    assert story.state.verification.absent_through == 0


def test_the_time_for_reading_never_ends_before_the_first_reading():
    story = Story(changed(VERIFIABLE, settle_ms=None)).sent("ambiguous").later(HOUR)
    assert story.says() == "verify: read back at once: presence can be believed"


def test_a_first_reading_that_comes_late_does_not_prolong_the_deadline():
    story = Story(VERIFIABLE).sent("ambiguous").later(SETTLE + DEADLINE - SECOND).verified("cannot_tell")
    assert story.says().startswith("wait for verify")
    assert story.later(SECOND).says() == "unknown: could not be proven in time"


def test_a_pause_between_readings_lasts_to_its_last_millisecond():
    story = Story(VERIFIABLE).sent("ambiguous").verified("cannot_tell").waits(5, "verify").later(4)
    assert story.says() == "wait for verify: drawn"
    assert story.later(1).says() == "verify: time to read back"


def test_a_call_that_hangs_in_this_process_ends_in_a_person():
    story = Story(VERIFIABLE).sent("ambiguous", over=False).later(HOUR).verified("cannot_tell")
    assert story.later(DEADLINE - 1).says(live=frozenset({1})).startswith("wait for verify")
    assert story.later(1).says(live=frozenset({1})) == "unknown: could not be proven in time"


def test_a_process_that_is_not_proven_dead_is_waited_for():
    story = Story(VERIFIABLE).sent("lost", over=False).verified("cannot_tell").later(DEADLINE * 9)
    assert story.says().startswith("wait for verify")
    story.ends("lost").later(SETTLE + DEADLINE).verified("cannot_tell")
    assert story.says() == "unknown: could not be proven in time"


def test_time_before_this_boot_does_not_count_towards_the_deadline():
    story = Story(changed(VERIFIABLE, settle_ms=None)).sent("lost").verified("cannot_tell").rebooted(wall_ms=HOUR)
    assert story.later(DEADLINE - 1).says().startswith("wait for verify")
    assert story.later(1).says() == "unknown: could not be proven in time"


# --- check first ---------------------------------------------------------------------------------------------


CHECKS = changed(VERIFIABLE, check_first=True)


def test_check_first_reads_before_the_first_attempt():
    story = Story(CHECKS).planned()
    assert story.says() == "verify: read back at once: presence can be believed"
    assert story.verified("did_not_happen").says() == "send: first attempt"


def test_check_first_finds_that_it_was_done_already():
    move = Story(CHECKS).planned().verified("happened", result=r.Raw(b"7")).decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.attempt, move.basis.by) == ("succeeded", 0, "evidence")


def test_check_first_meets_something_that_is_not_ours():
    story = Story(CHECKS).planned().verified("conflict", evidence="their invoice")
    assert story.decide() == m.Park("conflict", why="their invoice")
    assert story.parked().says() == "wait for person: a person is asked"


def test_check_first_reads_again_until_its_deadline_then_a_person_is_asked():
    story = Story(CHECKS).planned().later(HOUR).verified("cannot_tell")
    assert story.later(DEADLINE - 1).says().startswith("wait for verify")
    assert story.later(1).says() == "park: cannot tell whether it was already sent"


def test_check_first_is_not_repeated_before_later_attempts():
    story = Story(CHECKS).planned().verified("did_not_happen").sent("not_sent").waits(0, "retry")
    assert story.says() == "send: nothing landed: attempt again"


def test_check_first_yields_to_a_person_s_order():
    story = Story(CHECKS).planned().verified("conflict").parked().person("retry")
    assert story.says() == "send: first attempt"


def test_check_first_means_the_first_although_the_tool_asks_for_it_only_since_then():
    story = Story(changed(VERIFIABLE, check_first=True)).sent("not_sent").waits(0, "retry")
    assert story.says() == "send: nothing landed: attempt again"
