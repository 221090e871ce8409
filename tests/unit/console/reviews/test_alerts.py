"""Whether people keep up: alarms need proof, haste is found where it cannot be reading, and work is spread."""

from typing import Any

import msgspec
import pytest

from beforehand.model.shadow import Traits
from beforehand_console.reviews.alerts import (
    DAY_MS,
    Alarm,
    AlertLimits,
    Health,
    OpenItem,
    alarms,
    by_urgency,
    health,
    quick_ones,
    suggested,
)
from beforehand_console.reviews.events import Review

NOW = 100 * DAY_MS
LIMITS = AlertLimits()


def looks(count: int, said: Any = "approved", by: str = "bea", every_ms: int = 600_000, **fields: Any) -> list[Review]:
    """Answers of one person, the last one just now; each was asked a minute before, and had 480 characters to read."""
    return [
        msgspec.structs.replace(
            Review(
                f"{by}-{said}-{n}/t#1",
                "approval",
                said,
                by,
                NOW - n * every_ms - 60_000,
                NOW - n * every_ms,
                480,
                Traits("t"),
            ),
            **fields,
        )
        for n in range(count)
    ]


def names(found: Health, limits: AlertLimits = LIMITS) -> list[tuple[str, str]]:
    return [(one.name, one.reviewer) for one in alarms(found, limits)]


def test_where_all_is_well_nothing_rings():
    words = [*looks(40), *looks(10, "declined"), *looks(45, by="carl"), *looks(6, "declined", by="carl")]
    found = health([OpenItem("x", NOW - 1000)], words, NOW, 7)
    assert names(found) == []
    assert (found.depth, found.oldest_ms, found.answered, found.overdue) == (1, 1000, 101, 0)
    assert found.median_ms == 60_000
    assert found.work_ms == pytest.approx(found.observed_ms / 101, abs=1)


def test_the_pace_of_three_minutes_is_not_spread_over_a_week():
    """Else a person who has answered one of 27 questions after a minute is told of 182 days of work."""
    waiting = [OpenItem(str(n), NOW - 180_000) for n in range(26)]
    found = health(waiting, looks(1), NOW, 7)
    assert (found.observed_ms, found.work_ms) == (180_000, 26 * 180_000)
    assert health(waiting, [], NOW, 7).work_ms is None
    assert health([OpenItem("old", 0)], looks(1), NOW, 7).observed_ms == 7 * DAY_MS, "no more than these days"


def test_twenty_approvals_in_a_row_prove_nothing_two_hundred_do():
    assert names(health([], looks(20), NOW, 7)) == []
    assert names(health([], looks(300), NOW, 7)) == [("approved", "")]
    others = looks(60, "declined", by="carl")
    assert ("approved", "bea") in names(health([], [*looks(300), *others], NOW, 7))


def test_planted_cases_are_no_approvals():
    found = health([], [*looks(300), *looks(5, kind="planted", by="bea")], NOW, 7)
    assert found.approved.of == 300


def test_who_answers_faster_than_reading_is_found():
    """480 characters take ten seconds at the limit; nine are too few, and what was asked long ago may have been read."""
    hasty = looks(60, every_ms=9_000, asked_ms=NOW - DAY_MS)
    assert len(quick_ones(hasty)) == 59, "the first may have been read for a day"
    careful = looks(60, every_ms=11_000, asked_ms=NOW - DAY_MS)
    assert quick_ones(careful) == set()
    found = health([], [*hasty, *looks(20, "declined", every_ms=60_000, by="carl")], NOW, 7)
    assert ("quick", "bea") in names(found)
    assert ("quick", "carl") not in names(found)
    assert names(health([], hasty[:9], NOW, 7)) == [], "nine are not enough"


def test_what_is_answered_at_once_is_one_text():
    """Ten payloads of 480 characters: together they take 100 seconds, however they are answered."""
    together = looks(10, every_ms=0, asked_ms=NOW - DAY_MS)
    before = looks(1, every_ms=0, said="declined", answered_ms=NOW - 90_000, asked_ms=NOW - DAY_MS)
    assert len(quick_ones([*before, *together])) == 10
    earlier = [msgspec.structs.replace(one, answered_ms=NOW - 110_000) for one in before]
    assert quick_ones([*earlier, *together]) == set()


def test_who_misses_what_was_planted_is_found():
    words = [
        *looks(80), *looks(20, "declined"), *looks(4, "declined", kind="planted"), *looks(20, kind="planted", every_ms=700_000)
    ]  # fmt: skip
    found = health([], words, NOW, 7)
    assert found.caught.hits == 4
    assert ("missed", "") in names(found)
    few = health([], [*looks(20), *looks(4, kind="planted")], NOW, 7)
    assert names(few) == [], "four prove nothing"


def test_a_queue_that_grows_is_told_in_time():
    waiting = [OpenItem(str(n), NOW - n * 600_000) for n in range(150)]
    found = health(waiting, looks(40), NOW, 7)
    assert [name for name, _ in names(found)] == ["queue", "age", "behind"]
    [queue, *_] = alarms(found, LIMITS)
    assert queue == Alarm("queue", "150 things wait, more than 100: 3.9 days of work at the present pace")
    assert alarms(health(waiting, [], NOW, 7), LIMITS)[0].says.endswith("no answers")


def test_what_runs_out_and_what_is_overdue_are_told():
    words = [*looks(30), *looks(10, "declined"), *looks(20, "expired", by="")]
    found = health([OpenItem("late", NOW - 1000, due_ms=NOW - 1)], words, NOW, 7)
    assert {name for name, _ in names(found)} == {"overdue", "expired"}


def test_one_who_does_nearly_everything_is_told():
    words = [*looks(200), *looks(40, "declined"), *looks(20, "declined", by="carl")]
    assert names(health([], words, NOW, 7)) == [("load", "bea")]
    assert names(health([], looks(40, "declined"), NOW, 7)) == [], "alone, one does everything"


def test_older_words_do_not_count():
    assert health([], looks(10, answered_ms=NOW - 8 * DAY_MS), NOW, 7).answered == 0


def test_limits_are_yours():
    assert names(health([], looks(20), NOW, 7), AlertLimits(approved=0.8)) == [("approved", "")]


def test_what_is_urgent_comes_first():
    waiting = [
        OpenItem("old", 1), OpenItem("blocks", 5, blocked=3), OpenItem("due", 9, due_ms=NOW), OpenItem("urgent", 9, escalated=1)
    ]  # fmt: skip
    assert [one.item for one in by_urgency(waiting)] == ["urgent", "due", "blocks", "old"]


def test_work_is_spread_and_the_tired_are_spared():
    fair = [*looks(30, "declined"), *looks(30, "declined", by="carl")]
    waiting = [OpenItem(str(n), n) for n in range(6)] + [OpenItem("given", 0, to="carl")]
    found = suggested(waiting, health(waiting, fair, NOW, 7), LIMITS)
    assert "given" not in found
    assert sorted(found.values()) == ["bea"] * 4 + ["carl"] * 2 or sorted(found.values()) == ["bea"] * 3 + ["carl"] * 3
    tired = [*looks(400), *looks(60, "declined", by="carl"), *looks(60, "declined", by="dora")]
    now = health(waiting, tired, NOW, 7)
    assert set(suggested(waiting, now, LIMITS).values()) == {"carl", "dora"}
    assert suggested(waiting, health(waiting, [], NOW, 7), LIMITS) == {}, "nobody is known"
