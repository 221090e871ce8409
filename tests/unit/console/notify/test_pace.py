"""When a channel is told what: reminders, lists, rests and what was missed, as one pure function of what was sent."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand_console import Only, Pace
from beforehand_console.notify.schedule import ChannelHistory, Missed, NotifiableItem, Sent, planned

MIN = 60_000
HOUR = 60 * MIN
EVERYTHING = Only()


def asked(number: int, at: int = 0, **settings: int) -> NotifiableItem:
    return NotifiableItem(f"r-{number}/refund#1", "approval", at, **settings)  # type: ignore[arg-type]  # only moments are given


def days(pace: Pace, waiting: list[NotifiableItem], *, until: int, step: int = MIN) -> list[tuple[int, Sent]]:
    """What is sent over some time, looked at once a minute."""
    told, sent = ChannelHistory(), list[tuple[int, Sent]]()
    for now in range(0, until, step):
        for one in planned(EVERYTHING, pace, told, [one for one in waiting if one.asked_ms <= now], now):
            told.add(one)
            sent.append((now, one))
    return sent


def test_one_question_is_told_once_and_reminded_once_before_its_deadline():
    sent = days(Pace(), [asked(1, due_ms=8 * HOUR)], until=24 * HOUR)
    assert [(at // MIN, one.abouts[0].word) for at, one in sent] == [(0, "new"), (7 * 60, "reminder")]


def test_without_a_deadline_it_is_reminded_as_often_as_is_said_and_not_by_itself():
    assert len(days(Pace(), [asked(1)], until=72 * HOUR)) == 1
    assert len(days(Pace(remind_every=timedelta(hours=24)), [asked(1)], until=72 * HOUR)) == 3


def test_what_is_asked_shortly_before_its_deadline_is_told_and_not_reminded_of_at_once():
    sent = days(Pace(), [asked(1, at=10 * MIN, due_ms=40 * MIN)], until=HOUR)
    assert [one.abouts[0].word for _, one in sent] == ["new"]


def test_what_rests_or_is_over_is_not_told():
    assert [at for at, _ in days(Pace(), [asked(1, rests_ms=2 * HOUR)], until=4 * HOUR)] == [2 * HOUR]
    assert days(Pace(after=timedelta(hours=2)), [asked(1, due_ms=HOUR)], until=4 * HOUR) == []


def test_of_what_waits_on_after_its_deadline_everybody_is_told_that_nobody_answered_once():
    overdue = msgspec.structs.replace(asked(1, due_ms=8 * HOUR), then="hold")
    sent = days(Pace(), [overdue], until=72 * HOUR)
    assert [(at // HOUR, one.abouts[0].word) for at, one in sent] == [(0, "new"), (7, "reminder"), (8, "escalated")]
    late = days(Pace(after=timedelta(hours=9)), [overdue], until=72 * HOUR)
    assert [(at // HOUR, one.abouts[0].word) for at, one in late] == [(9, "escalated")]
    every = days(Pace(remind_every=timedelta(days=1)), [overdue], until=72 * HOUR)
    assert [at // HOUR for at, _ in every] == [0, 7, 8, 32, 56]


def test_a_pause_is_not_kept_where_something_would_be_over_before_its_end():
    trickle = [asked(number, at=number * MIN) for number in range(6)]
    assert [at for at, _ in days(Pace(), trickle, until=HOUR)][-1] == 15 * MIN
    pressing = [*trickle, asked(9, at=6 * MIN, due_ms=30 * MIN)]
    assert [at for at, _ in days(Pace(), pressing, until=20 * MIN)][-1] == 6 * MIN


def test_what_may_not_have_arrived_is_told_again_twice_at_most():
    told, words = ChannelHistory(), list[str]()
    for now in range(0, 24 * HOUR, MIN):
        for one in planned(EVERYTHING, Pace(), told, [asked(1)], now):
            told.add(one)
            told.miss(Missed(now, (one.abouts[0].identity,)))
            words.append(one.abouts[0].word)
    assert words == ["new", "again", "again"]


@given(st.lists(st.integers(0, 3 * 60), max_size=60), st.integers(1, 6), st.integers(1, 60))
def test_everything_is_told_once_and_never_more_than_the_pace_allows(minutes: list[int], most: int, window: int):
    """However they come: each is told, no window has more than `most` single ones and two lists."""
    pace = Pace(most=most, window=timedelta(minutes=window))
    sent = days(pace, [asked(number, at=at * MIN) for number, at in enumerate(minutes)], until=6 * HOUR)
    told = [about.identity for _, one in sent for about in one.abouts]
    assert sorted(told) == sorted(f"r-{number}/refund#1@{at * MIN}" for number, at in enumerate(minutes))
    for start, _ in sent:
        within = [one for at, one in sent if start <= at < start + window * MIN]
        assert sum(1 for one in within if len(one.abouts) == 1) <= most + 1
        assert sum(1 for one in within if len(one.abouts) > 1) <= 1


@pytest.mark.parametrize(
    "settings", [{"after": timedelta(-1)}, {"remind_every": timedelta(0)}, {"most": 0}, {"window": timedelta(-1)}]
)
def test_a_pace_that_cannot_be_is_refused(settings: dict[str, timedelta]):
    with pytest.raises(ValueError, match=r"negative|end|at least"):
        Pace(**settings)  # type: ignore[arg-type]  # that is the point
