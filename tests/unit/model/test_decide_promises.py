"""When an attempt may follow one that may have landed: natural effects and keys."""

from __future__ import annotations

from datetime import timedelta

from beforehand.model.contract import Contract, Key, Natural
from beforehand.model.decision import moves as m
from beforehand.policies import Budget, Retry
from tests.unit.model.decision_rows import KEYED_READ_BACK, NATURAL_READ_BACK
from tests.unit.model.stories import (
    AGAIN,
    DAY,
    HOUR,
    KEYED,
    MINUTE,
    NATURAL,
    PATIENT,
    PLAIN,
    READ,
    SECOND,
    SETTLE,
    Story,
    changed,
    pause,
)

# --- natural -------------------------------------------------------------------------------------------------------


def test_natural_without_observe_is_repeated_within_its_time_only():
    story = Story(changed(NATURAL, retry=PATIENT)).sent("ambiguous").waits(0, "retry").later(5 * MINUTE - 1)
    assert story.says() == "send: repeating changes nothing"
    assert story.later(1).says() == "unknown: nothing can prove it"


def test_natural_with_unchanged_preconditions_is_repeated_at_any_time():
    story = Story(changed(NATURAL, retry=PATIENT, observes=True)).sent("ambiguous").waits(0, "retry").later(9 * DAY)
    assert story.says(reading="same") == "send: repeating changes nothing"


def test_natural_time_counts_from_the_first_attempt_that_may_have_arrived():
    story = Story(changed(NATURAL, retry=PATIENT)).sent("not_sent").later(HOUR).sent("ambiguous").waits(0, "retry")
    assert story.says() == "send: repeating changes nothing"


def test_natural_after_its_time_is_read_back_where_it_can_be():
    story = Story(changed(NATURAL_READ_BACK, retry=PATIENT)).sent("ambiguous").waits(0, "retry").later(HOUR)
    assert story.says() == "verify: read back at once: presence can be believed"


def test_natural_time_on_another_boot_allows_for_the_error_of_the_wall_clock():
    story = Story(changed(NATURAL, retry=PATIENT)).sent("ambiguous").waits(0, "retry").rebooted(4 * MINUTE - 1)
    assert story.says(clock_error_ms=MINUTE) == "send: repeating changes nothing"
    assert story.later(1).says(clock_error_ms=MINUTE) == "unknown: nothing can prove it"


# --- natural, and what is written next ------------------------------------------------------------------------------

WINDOW = 30 * SECOND
RUNS = "wait for end: an attempt without an answer may still run"
MAY_LAND = "wait for end: an attempt without an answer may still land"


def test_a_success_counts_once_the_earlier_attempt_can_land_no_more():
    story = Story(NATURAL).sent("ambiguous").later(10 * SECOND).sent("returned")
    move = story.decide()
    assert move == m.Wait("an attempt without an answer may still land", 20 * SECOND, 20 * SECOND, "end")
    assert story.later(20 * SECOND - 1).says() == MAY_LAND
    assert story.later(1).says() == "succeeded: returned"


def test_the_window_counts_from_the_end_of_the_call_and_not_from_its_start():
    story = Story(NATURAL).starts().later(50 * SECOND).ends("ambiguous").sent("returned")
    assert story.later(WINDOW - 1).says() == MAY_LAND
    assert story.later(1).says() == "succeeded: returned"


def test_the_longest_of_several_windows_counts():
    story = Story(NATURAL).sent("ambiguous").later(10 * SECOND).sent("ambiguous").sent("returned")
    assert story.later(20 * SECOND).says() == MAY_LAND
    assert story.later(10 * SECOND).says() == "succeeded: returned"


def test_a_call_that_may_still_run_keeps_it_open_until_its_end_is_known():
    story = Story(NATURAL).sent("ambiguous", over=False).sent("returned").later(DAY)
    assert story.decide() == m.Wait("an attempt without an answer may still run", MINUTE, MINUTE, "end")
    assert story.ends("ambiguous", number=1).says() == MAY_LAND
    assert story.later(WINDOW).says() == "succeeded: returned"


def test_what_was_refused_or_never_sent_is_not_waited_for():
    for harmless in ("not_sent", "rejected"):
        assert Story(NATURAL).sent(harmless).sent("returned").says() == "succeeded: returned"


def test_what_is_believed_absent_is_not_waited_for():
    story = Story(NATURAL_READ_BACK).sent("ambiguous").later(SETTLE).verified("did_not_happen").sent("returned")
    assert story.says() == "succeeded: returned"


def test_what_was_found_may_be_another_one_s_so_the_attempt_is_waited_for():
    story = Story(NATURAL_READ_BACK).sent("ambiguous").verified("happened")
    assert story.says() == MAY_LAND
    assert story.later(WINDOW).says() == "succeeded: found by verification"


def test_an_attempt_that_a_restored_journal_forgot_is_waited_for():
    """Its process was gone when this one took the run, and a person cannot know that nothing is on its way."""
    story = Story(NATURAL).sent("returned")
    assert story.says(began_doubtful=True) == MAY_LAND
    assert story.later(WINDOW).says(began_doubtful=True) == "succeeded: returned"


def test_evidence_is_read_back_meanwhile():
    story = Story(changed(NATURAL_READ_BACK, expects=True)).sent("ambiguous").sent("returned")
    assert story.says() == "verify: read back at once: presence can be believed"
    assert story.verified("happened").says() == MAY_LAND
    assert story.later(WINDOW).says() == "succeeded: returned, evidence read back"


def test_after_a_reboot_only_what_this_process_waited_counts():
    story = Story(NATURAL).sent("ambiguous").sent("returned").rebooted(HOUR)
    assert story.says() == MAY_LAND
    assert story.later(WINDOW).says() == "succeeded: returned"


def test_once_a_person_was_asked_a_late_report_is_waited_for_without_forgetting_the_person():
    story = Story(NATURAL).sent("ambiguous").sent("ambiguous").settled("unknown").late("returned", number=2)
    assert story.decide() == m.Wait("an attempt without an answer may still land", WINDOW, WINDOW, "person")
    assert story.later(WINDOW).says() == "succeeded: a late report"


def test_once_a_person_was_asked_a_call_that_may_still_run_is_asked_about_on_the_slow_schedule():
    story = Story(NATURAL).sent("ambiguous", over=False).sent("ambiguous").settled("unknown").late("returned", number=2)
    for slow, pause_ms in ((HOUR, HOUR), (1, 1), (0, 1)):
        move = m.Wait("an attempt without an answer may still run", pause_ms, pause_ms, "person")
        assert story.decide(slow_verify_ms=slow) == move


def test_a_cancelled_run_waits_as_well():
    assert Story(NATURAL).sent("ambiguous").sent("returned").says(blocked="cancel") == MAY_LAND


def test_a_key_and_a_read_need_no_window():
    for contract in (KEYED, READ, PLAIN):
        assert Story(contract).sent("ambiguous", over=False).sent("returned").says() == "succeeded: returned"


# --- keyed -----------------------------------------------------------------------------------------------------------

ONE_HOUR = changed(KEYED, idempotency=Key(ttl=timedelta(hours=1)), retry=PATIENT, timeout_ms=MINUTE)


def test_a_key_closes_early_by_the_time_limit_and_the_clock_error():
    story = Story(ONE_HOUR).sent("ambiguous").waits(0, "retry").later(57 * MINUTE - 1)
    assert story.says(clock_error_ms=2 * MINUTE) == AGAIN
    assert story.later(1).says(clock_error_ms=2 * MINUTE) == "unknown: nothing can prove it"


def test_a_key_counts_from_the_first_send_that_may_have_arrived():
    story = Story(ONE_HOUR).sent("not_sent").later(HOUR).sent("ambiguous").waits(0, "retry")
    assert story.says() == AGAIN


def test_a_key_that_another_operation_used_first_is_as_old_as_that():
    story = Story(ONE_HOUR).sent("ambiguous").waits(0, "retry")
    assert story.says(key_age_ms=HOUR) == "unknown: nothing can prove it"


def test_a_clock_that_went_backwards_closes_a_key():
    story = Story(ONE_HOUR).sent("ambiguous").waits(0, "retry").rebooted(wall_ms=-MINUTE)
    assert story.says() == "unknown: nothing can prove it"


def test_a_key_that_is_never_forgotten_outlives_every_clock():
    story = Story(changed(ONE_HOUR, idempotency=Key.forever())).sent("ambiguous").waits(0, "retry")
    assert story.rebooted(wall_ms=-MINUTE).says() == AGAIN


def test_an_attempt_that_never_read_its_key_makes_the_tool_plain():
    story = Story(KEYED).sent("ambiguous", key_read=False).waits(0, "retry")
    assert story.says() == "unknown: nothing can prove it"


def test_an_attempt_that_was_never_sent_needed_no_key():
    story = Story(changed(KEYED, retry=PATIENT)).sent("not_sent", key_read=False).sent("ambiguous").waits(0, "retry")
    assert story.says() == AGAIN


def test_a_key_is_read_back_first_where_that_proves_something_now():
    story = Story(changed(KEYED_READ_BACK, retry=PATIENT)).sent("ambiguous").waits(0, "retry").later(SETTLE - 1)
    assert story.says() == AGAIN
    story.later(1)
    assert story.says() == "verify: read back at once: presence can be believed"
    story.verified("cannot_tell").waits(0, "retry")
    assert story.says() == AGAIN


def test_a_reading_before_the_window_does_not_stand_for_one_after_it():
    story = Story(changed(KEYED_READ_BACK, retry=PATIENT)).sent("ambiguous").verified("cannot_tell").later(SETTLE)
    assert story.says() == "wait for verify: until the next reading"


def test_reading_back_of_a_key_goes_on_while_the_breaker_is_open_and_nothing_becomes_unknown():
    story = Story(changed(KEYED_READ_BACK, retry=PATIENT)).sent("ambiguous").later(SETTLE).verified("cannot_tell")
    story.waits(0, "retry")
    assert story.says(breaker_ms=9) == "wait for verify: until the next reading"
    assert story.later(HOUR).says(breaker_ms=9) == "wait for breaker: the breaker is open"


RUNS_TWICE = Key(ttl=timedelta(hours=24), in_progress="runs_twice")


def test_a_key_that_runs_twice_waits_until_the_first_request_is_over():
    story = Story(changed(KEYED, idempotency=RUNS_TWICE, settle_ms=SETTLE)).sent("ambiguous")
    assert story.says() == "wait for retry: the system runs a key twice while in progress"
    assert pause(story.decide()) == (SETTLE, SETTLE)
    story.waits(SETTLE, "retry").later(SETTLE - 1)
    assert pause(story.decide()) == (1, 1)
    assert story.later(1).says() == AGAIN


def test_a_key_that_runs_twice_waits_anew_when_the_window_starts_anew():
    story = Story(changed(KEYED, idempotency=RUNS_TWICE, settle_ms=SETTLE)).sent("lost").waits(SECOND, "retry")
    story.later(SECOND)
    assert pause(story.decide()) == (SETTLE - SECOND, SETTLE - SECOND)


def test_a_key_that_runs_twice_with_an_unknown_window_is_proven_or_unknown():
    story = Story(changed(KEYED, idempotency=RUNS_TWICE)).sent("ambiguous")
    move = story.decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.reason) == (
        "unknown",
        "the system may run the key twice, and its window is unknown",
    )
    readable = changed(KEYED_READ_BACK, idempotency=RUNS_TWICE, settle_ms=None)
    assert Story(readable).sent("ambiguous").says() == "verify: read back at once: presence can be believed"


def test_a_key_that_runs_twice_is_read_back_meanwhile():
    story = Story(changed(KEYED_READ_BACK, idempotency=RUNS_TWICE)).sent("ambiguous")
    assert story.says() == "verify: read back at once: presence can be believed"


def test_a_key_that_runs_twice_waits_for_a_call_that_may_still_run():
    contract = changed(KEYED, idempotency=RUNS_TWICE, settle_ms=SETTLE)
    gone = Story(contract).sent("lost", over=False)
    assert gone.says() == "wait for end: an attempt without an answer may still run"
    alive = Story(contract).sent("ambiguous", over=False)
    assert alive.says(live=frozenset({1})) == "wait for call: an earlier call still runs"


def test_other_keys_are_used_again_while_the_first_request_may_still_run():
    assert Story(KEYED).sent("lost", over=False).waits(0, "retry").says() == AGAIN


def test_natural_of_no_kind_is_not_keyed():
    assert Story(changed(NATURAL, idempotency=Natural(timedelta(0)))).sent("ambiguous").says() == (
        "unknown: nothing can prove it"
    )


# --- the system says that it works on our key --------------------------------------------------------------------------

WORKING = "the system is working on our key"


def busy(contract: Contract, times: int = 1, **end: int) -> Story:
    story = Story(contract)
    for _ in range(times):
        story.sent("key_in_progress", **end)
    return story


def test_the_pauses_for_a_key_in_progress_grow_from_a_second_and_half_of_each_is_drawn():
    for times, ceiling in ((1, 2), (2, 4), (3, 8), (4, 16), (5, 30), (6, 30), (40, 30)):
        assert busy(KEYED, times).decide() == m.Wait(WORKING, ceiling * SECOND // 2, ceiling * SECOND)


def test_a_policy_can_make_these_pauses_longer_and_never_shorter_than_a_second():
    hasty = changed(KEYED, retry=Retry(base=timedelta(0), cap=timedelta(0)))
    slow = changed(KEYED, retry=Retry(base=timedelta(seconds=10), cap=timedelta(minutes=2)))
    assert pause(busy(hasty, 9).decide()) == (SECOND, 2 * SECOND)
    assert pause(busy(slow).decide()) == (10 * SECOND, 20 * SECOND)
    assert pause(busy(slow, 9).decide()) == (MINUTE, 2 * MINUTE)


def test_what_the_system_asks_for_is_the_least_pause():
    assert pause(busy(KEYED, retry_after_ms=9 * SECOND).decide()) == (9 * SECOND, 10 * SECOND)
    assert pause(busy(KEYED, retry_after_ms=1).decide()) == (SECOND, 2 * SECOND)


def test_a_key_in_progress_costs_no_attempt_and_the_next_pauses_are_those_of_other_ends():
    story = busy(KEYED, 9).sent("ambiguous")
    assert pause(story.decide()) == (0, 200)
    assert pause(story.sent("key_in_progress").sent("ambiguous").decide()) == (0, 400)
    assert busy(changed(KEYED, retry=Retry(attempts=1)), 9).says() == f"wait for retry: {WORKING}"
    assert busy(changed(KEYED, retry=Retry(attempts=1))).sent("ambiguous").says() == "unknown: nothing can prove it"


def test_a_key_in_progress_uses_no_time_for_attempts():
    brief = changed(KEYED, retry=Retry(elapsed=timedelta(seconds=10)))
    story = Story(brief).starts().later(5 * SECOND).ends("key_in_progress").pauses(MINUTE)
    assert story.says() == AGAIN
    assert story.starts().later(9 * SECOND).ends("ambiguous").pauses(SECOND - 1).says() == AGAIN
    assert story.pauses(1).says() == "unknown: nothing can prove it"


def test_the_patience_ends_by_time_and_the_reason_names_it():
    patient = changed(KEYED, idempotency=Key(timedelta(days=1), in_progress_patience=timedelta(minutes=2)))
    story = busy(patient).pauses(MINUTE).sent("key_in_progress", why="409").waits(2 * MINUTE, "retry").later(MINUTE - 1)
    assert story.says() == "wait for retry: drawn"
    move = story.later(1).decide()
    assert isinstance(move, m.Settle)
    said = "the system has been working on it for 0:02:00, as it says itself; 409"
    assert (move.status, move.reason) == ("unknown", said)


def test_five_minutes_are_the_default_whatever_the_tool_promises():
    for contract in (KEYED, NATURAL):
        story = busy(changed(contract, retry=PATIENT)).waits(HOUR, "retry").later(5 * MINUTE - 1)
        assert story.says() == "wait for retry: drawn"
        assert story.later(1).says() == "unknown: nothing can prove it"


def test_after_the_patience_it_is_read_back_where_it_can_be():
    story = busy(KEYED_READ_BACK).pauses(5 * MINUTE)
    assert story.says() == "verify: read back at once: presence can be believed"
    assert story.verified("cannot_tell").says() == "wait for verify: until the next reading"


def test_time_that_nobody_waited_uses_up_no_patience():
    assert busy(KEYED).waits(SECOND, "retry").later(HOUR).says() == AGAIN
    assert busy(KEYED).waits(SECOND, "retry").rebooted(HOUR).says() == AGAIN
    assert busy(KEYED).pauses(HOUR, "verify", shut=True).says() != "unknown: nothing can prove it"


def test_a_budget_holds_while_a_key_is_in_progress_as_well():
    assert busy(changed(KEYED, budget=Budget(2.0)), cost=2).says() == "unknown: nothing can prove it"
    assert busy(changed(KEYED, budget=Budget(2.0)), cost=1).says() == f"wait for retry: {WORKING}"
