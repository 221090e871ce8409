"""When an attempt may follow one that may have landed: natural effects and keys."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import moves as m
from holdfast.model.contract import Key, Natural
from tests.unit.model.decision_rows import KEYED_READ_BACK, NATURAL_READ_BACK
from tests.unit.model.stories import (
    AGAIN,
    DAY,
    HOUR,
    KEYED,
    MINUTE,
    NATURAL,
    PATIENT,
    SECOND,
    SETTLE,
    Story,
    changed,
    pause,
)

# --- natural -------------------------------------------------------------------------------------------------------


def test_natural_without_observe_is_repeated_within_its_time_only():
    story = Story(changed(NATURAL, retry=PATIENT)).sent("ambiguous").waits(0, "retry").later(5 * MINUTE - 1)
    assert story.says() == "attempt: repeating changes nothing"
    assert story.later(1).says() == "unknown: nothing can prove it"


def test_natural_with_unchanged_preconditions_is_repeated_at_any_time():
    story = Story(changed(NATURAL, retry=PATIENT, observes=True)).sent("ambiguous").waits(0, "retry").later(9 * DAY)
    assert story.says(reading="same") == "attempt: repeating changes nothing"


def test_natural_time_counts_from_the_first_attempt_that_may_have_arrived():
    story = Story(changed(NATURAL, retry=PATIENT)).sent("not_sent").later(HOUR).sent("ambiguous").waits(0, "retry")
    assert story.says() == "attempt: repeating changes nothing"


def test_natural_after_its_time_is_read_back_where_it_can_be():
    story = Story(changed(NATURAL_READ_BACK, retry=PATIENT)).sent("ambiguous").waits(0, "retry").later(HOUR)
    assert story.says() == "verify: read back at once: presence can be believed"


def test_natural_time_on_another_boot_allows_for_the_error_of_the_wall_clock():
    story = Story(changed(NATURAL, retry=PATIENT)).sent("ambiguous").waits(0, "retry").rebooted(4 * MINUTE - 1)
    assert story.says(clock_error_ms=MINUTE) == "attempt: repeating changes nothing"
    assert story.later(1).says(clock_error_ms=MINUTE) == "unknown: nothing can prove it"


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
    assert gone.says() == "wait for end: the end of an earlier call is not known yet"
    alive = Story(contract).sent("ambiguous", over=False)
    assert alive.says(live=frozenset({1})) == "wait for call: an earlier call still runs"


def test_other_keys_are_used_again_while_the_first_request_may_still_run():
    assert Story(KEYED).sent("lost", over=False).waits(0, "retry").says() == AGAIN


def test_natural_of_no_kind_is_not_keyed():
    assert Story(changed(NATURAL, idempotency=Natural(timedelta(0)))).sent("ambiguous").says() == (
        "unknown: nothing can prove it"
    )
