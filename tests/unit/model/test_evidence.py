"""What attempts prove together, and how much time is credited: the arithmetic behind the rules."""

from __future__ import annotations

from datetime import timedelta

import pytest

from beforehand.model.contract import Key
from beforehand.model.decision import evidence
from tests.unit.model.decision_rows import KEYED_READ_BACK
from tests.unit.model.stories import (
    DAY,
    HOUR,
    KEYED,
    MINUTE,
    NATURAL,
    PLAIN,
    SECOND,
    SETTLE,
    VERIFIABLE,
    Story,
    changed,
)

ONE_HOUR = changed(KEYED, idempotency=Key(ttl=timedelta(hours=1)))


def weight(story: Story, **situation) -> evidence.AttemptEvidence:
    return evidence.evidence_of(story.state, story.situation(**situation), story.now)


def test_attempts_are_sorted_by_what_they_prove():
    story = Story(KEYED).sent("not_sent").sent("rejected").sent("ambiguous").sent("returned").starts()
    found = weight(story)
    assert found.returned is not None
    assert found.rejected is not None
    assert (found.returned.number, found.rejected.number) == (4, 2)
    assert [attempt.number for attempt in found.ambiguous] == [3, 5]
    assert (found.open, found.live, found.unsent, found.spent) == (True, False, False, 5)
    assert weight(story, live=frozenset({5})).live


def test_an_attempt_of_another_operation_does_not_live_here():
    assert not weight(Story().planned(), live=frozenset({1})).live


def test_nothing_sent_is_unsent():
    found = weight(Story().planned())
    assert (found.unsent, found.open, found.spent, found.ambiguous) == (True, False, 0, ())
    assert weight(Story().sent("not_sent")).unsent
    assert not weight(Story().sent("rejected").sent("not_sent")).unsent


def test_a_believed_absence_sorts_the_attempts_it_covers():
    story = Story(VERIFIABLE).sent("ambiguous").later(SETTLE).verified("did_not_happen").sent("ambiguous")
    found = weight(story)
    assert [attempt.number for attempt in found.ambiguous] == [2]
    assert not found.unsent


@pytest.mark.parametrize(
    ("contract", "column"),
    [
        (changed(PLAIN, effect="read", verifies=True), "read"),
        (NATURAL, "natural"),
        (KEYED_READ_BACK, "keyed"),
        (VERIFIABLE, "verifiable"),
        (PLAIN, "none"),
    ],
)
def test_the_column_is_the_strongest_promise(contract, column):
    assert weight(Story(contract).planned()).repeat_safety == column


def test_a_forgotten_key_leaves_the_verifier():
    assert weight(Story(KEYED_READ_BACK).sent("ambiguous").later(DAY)).repeat_safety == "verifiable"
    assert weight(Story(KEYED_READ_BACK).sent("ambiguous", key_read=False)).repeat_safety == "verifiable"


# --- ages close things, at their largest -----------------------------------------------------------------


def test_the_age_is_that_of_the_first_attempt_that_may_have_arrived():
    assert evidence.age_ms(Story().planned().state, Story().now) == 0
    story = Story().sent("not_sent").later(HOUR).sent("rejected").later(MINUTE).sent("ambiguous").later(SECOND)
    assert evidence.age_ms(story.state, story.now) == MINUTE + SECOND


def test_the_age_on_another_boot_is_read_from_the_wall_clock():
    story = Story().sent("lost").rebooted(wall_ms=HOUR)
    assert evidence.age_ms(story.state, story.now) == HOUR
    story = Story().sent("lost").rebooted(wall_ms=0)
    assert evidence.age_ms(story.state, story.now) == 0
    story = Story().sent("lost").rebooted(wall_ms=-1)
    assert evidence.age_ms(story.state, story.now) == evidence.FOREVER_MS


def test_the_age_on_another_boot_counts_what_a_clock_that_was_set_back_hides():
    story = Story().sent("lost").later(HOUR)
    story.wall -= 3 * HOUR
    story = story.sent("lost").rebooted(wall_ms=MINUTE)
    assert evidence.age_ms(story.state, story.now) == HOUR + MINUTE


def test_a_key_is_left_until_its_time_less_the_time_limit_and_the_clock_error():
    story = Story(ONE_HOUR).sent("ambiguous").later(MINUTE)
    assert evidence.key_left_ms(story.state, story.situation(), story.now) == 57 * MINUTE
    assert evidence.key_left_ms(story.state, story.situation(key_age_ms=2 * MINUTE), story.now) == 56 * MINUTE


def test_a_key_that_was_never_sent_has_all_its_time():
    story = Story(ONE_HOUR).sent("not_sent").later(HOUR)
    assert evidence.key_left_ms(story.state, story.situation(), story.now) == evidence.FOREVER_MS
    assert evidence.key_left_ms(story.state, story.situation(key_age_ms=MINUTE), story.now) == 57 * MINUTE


def test_a_key_sent_in_this_very_moment_has_been_sent():
    story = Story(ONE_HOUR).sent("ambiguous")
    assert evidence.key_left_ms(story.state, story.situation(), story.now) == 58 * MINUTE


def test_no_key_has_no_time():
    story = Story(PLAIN).planned()
    assert evidence.key_left_ms(story.state, story.situation(), story.now) == 0
    assert evidence.natural_left_ms(story.state, story.situation(), story.now) == 0


def test_the_next_attempt_is_sent_before_its_key_is_forgotten():
    story = Story(ONE_HOUR).sent("ambiguous")
    assert evidence.attempt_timeout_ms(story.state, story.situation(), story.now) == MINUTE
    story.later(58 * MINUTE - SECOND)
    assert evidence.attempt_timeout_ms(story.state, story.situation(), story.now) == SECOND
    story.later(SECOND)
    assert (
        evidence.attempt_timeout_ms(story.state, story.situation(), story.now) == MINUTE
    )  # forgotten: other proof is needed
    plain = Story(PLAIN).planned()
    assert evidence.attempt_timeout_ms(plain.state, plain.situation(), plain.now) == MINUTE


def test_natural_time_is_left():
    story = Story(NATURAL).sent("ambiguous").later(MINUTE)
    assert evidence.natural_left_ms(story.state, story.situation(), story.now) == 4 * MINUTE
    assert evidence.natural_left_ms(Story(NATURAL).planned().state, story.situation(), story.now) == 5 * MINUTE


def elapsed(story: Story) -> int:
    return evidence.elapsed_ms(story.state, story.situation(), story.now)


def test_calls_and_the_pauses_between_them_are_time_for_attempts():
    assert elapsed(Story().planned().pauses(HOUR)) == 0, "no attempt was due"
    story = Story().starts().later(10 * SECOND)
    assert elapsed(story) == 10 * SECOND, "a call that runs"
    assert elapsed(story.ends("not_sent")) == 10 * SECOND
    assert elapsed(story.waits(MINUTE, "retry").later(20 * SECOND)) == 30 * SECOND, "a pause that lasts"
    assert elapsed(story.later(40 * SECOND).starts().later(SECOND).ends("ambiguous")) == 71 * SECOND
    assert elapsed(story.pauses(MINUTE, "verify").verified("cannot_tell").pauses(MINUTE, "verify")) == 191 * SECOND


def test_time_in_which_nobody_could_attempt_is_no_time_for_attempts():
    story = Story().sent("not_sent").waits(MINUTE, "retry").later(DAY)
    assert elapsed(story) == MINUTE, "its process was gone, or its clock jumped"
    assert elapsed(story.later(DAY).sent("not_sent").later(DAY)) == MINUTE, "nothing was drawn"
    assert elapsed(story.waits(MINUTE, "retry").rebooted(wall_ms=DAY)) == 2 * MINUTE, "the machine was off"
    assert elapsed(story.starts().later(DAY)) == 2 * MINUTE + story.contract.timeout_ms, "its process died in a call"
    assert elapsed(story.ends("lost")) == 2 * MINUTE + story.contract.timeout_ms


def test_a_call_whose_process_died_is_no_time_for_attempts():
    """Two deaths in calls that may take five minutes would otherwise use up ten minutes without a worker."""
    died = Story().sent("not_sent").waits(MINUTE, "retry").later(DAY).starts().later(DAY).ends("lost", died=True)
    assert elapsed(died) == MINUTE


def test_the_pause_before_a_host_calls_again_counts_once_it_has():
    late = Story(late=True).sent("not_sent").waits(HOUR, "retry").later(2 * HOUR)
    assert elapsed(late) == 0
    assert elapsed(late.sent("not_sent")) == HOUR


def test_a_call_whose_end_no_one_clock_saw_counts_for_its_time_limit():
    limit = Story().contract.timeout_ms
    assert elapsed(Story().starts().rebooted(wall_ms=1)) == limit
    assert elapsed(Story().starts().rebooted(wall_ms=1).ends("lost")) == limit
    assert elapsed(Story().sent("ambiguous", over=False)) == limit
    backwards = Story().starts()
    backwards.up -= SECOND
    assert elapsed(backwards) == 0


def test_what_is_promised_for_later_counts_as_long_as_it_was_promised():
    deferred = Story(changed(PLAIN, timeout_ms=1)).starts().deferred(HOUR).later(MINUTE)
    assert elapsed(deferred) == MINUTE + 1
    assert elapsed(deferred.late("not_sent").later(DAY)) == MINUTE + 1
    assert elapsed(Story(changed(PLAIN, timeout_ms=1)).starts().deferred(HOUR).later(DAY)) == HOUR + 1


def test_time_behind_an_open_breaker_is_not_counted():
    story = Story().sent("not_sent").pauses(MINUTE)
    assert elapsed(story.waits(MINUTE, "breaker", shut=True).later(HOUR)) == MINUTE
    story.waits(HOUR, "breaker", shut=True).later(MINUTE).sent("not_sent")
    assert elapsed(story) == MINUTE, "the breaker closed early"
    story.pauses(HOUR, "verify", shut=True).verified("cannot_tell").pauses(MINUTE, "verify")
    assert elapsed(story) == 2 * MINUTE


def test_a_pause_goes_on_over_a_reboot_by_the_wall_clock():
    story = Story().sent("not_sent").waits(HOUR, "retry").later(MINUTE).rebooted(wall_ms=10 * MINUTE)
    assert elapsed(story) == 11 * MINUTE
    assert elapsed(story.rebooted(wall_ms=-DAY)) == 0, "a clock that went backwards adds no time"


# --- windows are credited, at their smallest ---------------------------------------------------------------


def test_quiet_time_is_that_of_the_call_that_ended_last():
    story = Story().sent("ambiguous").later(HOUR).sent("ambiguous").later(SECOND)
    assert evidence.quiet_ms(story.state, story.situation(), story.now) == SECOND


def test_calls_that_cannot_have_landed_are_not_waited_for():
    story = Story().sent("ambiguous").later(HOUR).sent("rejected", over=False).sent("not_sent", over=False)
    assert evidence.quiet_ms(story.state, story.situation(), story.now) == HOUR
    absent = Story(VERIFIABLE).sent("ambiguous").later(SETTLE).verified("did_not_happen").sent("ambiguous")
    assert evidence.quiet_ms(absent.state, absent.situation(), absent.now) == 0


def test_nothing_is_quiet_while_a_call_may_run():
    story = Story().sent("ambiguous").later(HOUR).sent("ambiguous", over=False)
    assert evidence.quiet_ms(story.state, story.situation(), story.now) is None
    assert evidence.until_believable_ms(story.state, story.situation(), story.now) is None


def test_without_calls_it_is_quiet_since_this_process_took_the_run():
    story = Story().planned().later(MINUTE)
    assert evidence.quiet_ms(story.state, story.situation(), story.now) == MINUTE
    assert evidence.quiet_ms(story.state, story.situation(claimed_up=story.up + 1), story.now) == 0


def test_only_this_process_s_own_waiting_counts_after_a_reboot():
    story = Story().sent("lost").rebooted(wall_ms=DAY).later(SECOND)
    assert evidence.quiet_ms(story.state, story.situation(), story.now) == SECOND


def test_time_never_runs_backwards():
    story = Story().sent("ambiguous").later(-5)
    assert evidence.quiet_ms(story.state, story.situation(), story.now) == 0


def test_an_absence_is_believable_after_the_window():
    story = Story(VERIFIABLE).sent("ambiguous").later(SECOND)
    assert evidence.until_believable_ms(story.state, story.situation(), story.now) == SETTLE - SECOND
    assert evidence.until_believable_ms(story.state, story.situation(), story.later(HOUR).now) == 0
    unknown = Story(PLAIN).sent("ambiguous").later(HOUR)
    assert evidence.until_believable_ms(unknown.state, unknown.situation(), unknown.now) is None


# --- recorded pauses -------------------------------------------------------------------------------------------


def left(story: Story) -> int:
    return evidence.wait_left_ms(story.state, story.situation(), story.now)


def test_a_pause_is_waited_out_on_the_clock_of_its_boot():
    story = Story().planned()
    assert left(story) == 0
    story.waits(MINUTE, "retry").later(SECOND)
    assert left(story) == 59 * SECOND
    story.wall -= DAY
    assert left(story) == 59 * SECOND
    assert left(story.later(HOUR)) == 0


def test_a_pause_ends_on_another_boot_by_the_wall_clock_or_by_waiting():
    def restarted(wall_ms: int) -> Story:
        return Story().planned().waits(MINUTE, "retry").rebooted(wall_ms)

    assert left(restarted(SECOND)) == 59 * SECOND
    assert left(restarted(HOUR)) == 0
    assert left(restarted(-HOUR)) == MINUTE
    assert left(restarted(-HOUR).later(SECOND)) == 59 * SECOND
    assert left(restarted(-HOUR).later(MINUTE)) == 0
