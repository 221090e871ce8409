"""A process that is seen to live and never says how its call ended: it is waited for, and then a person is asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from beforehand.model.contract import Key, Natural
from beforehand.model.decision import moves as m
from beforehand.model.outcome import Basis
from beforehand.policies import Retry
from tests.unit.model.stories import DAY, HOUR, KEYED, MINUTE, PLAIN, READ, SETTLE, VERIFIABLE, Story, changed

HUNG: Any = {"hung": "process 7 hangs", "hung_owner_ms": 10 * MINUTE}
NATURAL = changed(PLAIN, idempotency=Natural(within=timedelta(days=2), settle_window=timedelta(seconds=30)))
RUNS_TWICE = changed(
    KEYED, idempotency=Key(ttl=timedelta(days=2), in_progress="runs_twice"), settle_ms=SETTLE, retry=Retry(attempts=9)
)


def hung(contract: Any) -> Story:
    """The last attempt was given up when another process took the run, and its own process still lives."""
    return Story(contract).sent("lost", over=False)


def overtaken() -> Story:
    """The first attempt hangs, and the second one returned."""
    return hung(NATURAL).sent("returned")


def read_back(story: Story, ms: int) -> Story:
    return story.verified("did_not_happen").later(ms).verified("did_not_happen")


WAITS = {
    "a verifiable write is read back": (
        lambda: hung(VERIFIABLE).verified("did_not_happen"),
        "wait for verify",
        "an attempt may have landed",
    ),
    "a key that runs twice is not sent again": (
        lambda: hung(RUNS_TWICE),
        "wait for end",
        "the system may run the key twice",
    ),
    "a natural write may be overtaken": (
        overtaken,
        "wait for end",
        "an earlier attempt may still land on top of later writes",
    ),
}


@pytest.mark.parametrize("case", WAITS)
def test_a_person_is_asked_once_the_process_has_hung_too_long(case: str):
    begin, waits, why = WAITS[case]
    assert begin().later(10 * MINUTE - 1).says(**HUNG).startswith(waits)
    move = begin().later(10 * MINUTE).decide(**HUNG)
    assert isinstance(move, m.Settle), move
    assert move.status == "unknown"
    assert move.reason == f"{why}; process 7 hangs"


@pytest.mark.parametrize("case", WAITS)
def test_without_a_process_that_is_seen_to_live_no_person_is_asked_before_the_end_is_known(case: str):
    begin, waits, _ = WAITS[case]
    assert begin().later(DAY).says().startswith(waits)


@pytest.mark.parametrize("case", WAITS)
def test_the_wait_looks_again_by_itself_because_a_death_wakes_nothing(case: str):
    move = WAITS[case][0]().decide(**HUNG)
    assert isinstance(move, m.Wait)
    assert (move.until_woken, move.high_ms > 0) == (False, True)


def test_the_time_counts_from_when_the_call_was_given_up_and_not_from_a_later_takeover():
    story = hung(VERIFIABLE).verified("did_not_happen").later(10 * MINUTE).reclaimed()
    assert story.says(**HUNG) == "unknown: could not be proven in time"


def test_a_call_that_hangs_in_this_process_is_asked_about_as_well():
    story = Story(KEYED).sent("ambiguous", over=False)
    assert story.says(live=frozenset({1}), **HUNG) == "wait for call: an earlier call still runs"
    move = story.later(10 * MINUTE).decide(live=frozenset({1}), **HUNG)
    assert move == m.Settle(
        "its process hangs", "unknown", Basis("rule"), "an earlier call still runs; process 7 hangs"
    )


def test_no_person_is_asked_about_a_read_that_hangs():
    story = Story(READ).sent("ambiguous", over=False).later(10 * MINUTE)
    assert story.says(live=frozenset({1}), **HUNG) == "wait for call: an earlier call still runs"


def test_a_plain_write_is_unknown_at_once():
    assert hung(PLAIN).says(**HUNG) == "unknown: nothing can prove it"


def test_a_key_is_sent_again_at_once():
    assert hung(KEYED).waits(0, "retry").says(**HUNG) == "send: the same key is still remembered"


# --- after a person was asked ----------------------------------------------------------------------------------


def test_a_process_that_hangs_is_looked_at_often_first_and_then_ever_less():
    story = hung(VERIFIABLE).settled("unknown")
    pauses: list[int] = []
    for passed in (10 * MINUTE, 30 * MINUTE, 2 * DAY):
        story.later(passed)
        move = story.decide(slow_verify_ms=HOUR, **HUNG)
        assert isinstance(move, m.Wait)
        pauses.append(move.low_ms)
    assert pauses == [2 * MINUTE, 5 * MINUTE, HOUR]
    quick = story.decide(slow_verify_ms=1, **HUNG)
    assert isinstance(quick, m.Wait)
    assert quick.low_ms == 1


def test_a_proven_death_brings_the_reading_that_can_be_believed():
    story = hung(VERIFIABLE).settled("unknown").later(HOUR).ends("lost", died=True)
    move = story.decide(slow_verify_ms=HOUR)
    assert isinstance(move, m.Wait)
    assert (move.low_ms, move.why) == (SETTLE, "verify")
    story.waits(SETTLE, "verify").later(SETTLE)
    assert story.says() == "verify: slow schedule"
    assert story.verified("did_not_happen").says() == "failed: proven that nothing landed"


def test_a_late_report_settles_it():
    assert hung(VERIFIABLE).settled("unknown").late("returned").says(**HUNG) == "succeeded: a late report"
    assert hung(RUNS_TWICE).settled("unknown").late("returned").says(**HUNG) == "succeeded: a late report"


def test_a_natural_write_settles_once_the_process_is_dead_and_its_window_is_over():
    story = overtaken().settled("unknown")
    assert story.says(**HUNG) == "wait for person: an attempt without an answer may still run"
    story.ends("lost", number=1, died=True)
    assert story.says() == "wait for person: an attempt without an answer may still land"
    assert story.later(SETTLE).says() == "succeeded: a late report"
