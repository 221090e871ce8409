"""A rate is never exceeded, whatever asks when, and is used where calls wait for their turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from beforehand.journal.cells import CallPace, judge, on_boot, opens_in_ms, settled, slowed
from beforehand.model.cell_limit import CellLimit
from beforehand.queues.call_limits import CallLimit

LIMITS = st.builds(
    CallLimit,
    rate=st.builds("{}/{}".format, st.integers(1, 1000), st.sampled_from(["second", "minute", "hour", "day"])),
    burst=st.integers(1, 20),
).map(CallLimit.cell)
STEPS = st.lists(st.integers(0, 5_000), min_size=1, max_size=60)


@given(LIMITS, STEPS)
def test_no_window_has_more_calls_than_the_rate_gives_it_beside_the_burst(limit: CellLimit, steps: list[int]):
    now, pace, granted = 0, CallPace(), list[int]()
    for step in steps:
        now += step
        verdict = judge(limit, 0, pace, "b", now)
        pace = verdict.pace
        assert verdict.granted or verdict.wait_ms > 0
        if verdict.granted:
            granted.append(now)
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            assert last - first + 1 <= limit.burst + (granted[last] - granted[first]) * 1_000_000 // limit.apart_ns


@given(LIMITS, STEPS)
def test_what_waits_as_long_as_it_was_told_is_granted(limit: CellLimit, steps: list[int]):
    now, pace = 0, CallPace()
    for step in steps:
        now += step
        verdict = judge(limit, 0, pace, "b", now)
        pace, after = verdict.pace, opens_in_ms(limit, verdict.pace, "b", now)
        assert after == verdict.wait_ms
        assert after * 1_000_000 <= limit.apart_ns + 1_000_000
        assert judge(limit, 0, pace, "b", now + after).granted


@given(LIMITS, st.integers(0, 2**40), st.integers(0, 2**40))
def test_moments_of_another_boot_neither_permit_a_burst_nor_stop_the_tool(limit: CellLimit, due: int, now: int):
    pace = on_boot(limit, CallPace("before", due, due), "b", now)
    assert on_boot(limit, pace, "b", now) == pace
    wait = opens_in_ms(limit, pace, "b", now)
    assert 0 < wait * 1_000_000 <= limit.apart_ns + 1_000_000
    assert judge(limit, 0, pace, "b", now + wait).granted


@given(LIMITS, st.lists(st.integers(0, 10_000), min_size=1))
def test_a_service_is_left_alone_for_as_long_as_it_asked(limit: CellLimit, waits: list[int]):
    pace = CallPace()
    for wait in waits:
        pace = slowed(pace, "b", wait)
    for now in range(0, max(waits), 500):
        assert judge(limit, 0, pace, "b", now).granted == (now >= max(waits))


@given(st.integers(1, 5), st.integers(0, 9))
def test_as_many_are_under_way_as_may_be(at_once: int, in_use: int):
    verdict = judge(CellLimit("", at_once), in_use, CallPace(), "b", 0)
    assert verdict.granted == (in_use < at_once)
    assert verdict.full == (in_use + 1 >= at_once)


CALLS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 50), st.integers(0, 80), st.integers(0, 20_000)))


@given(LIMITS, CALLS)
def test_what_was_used_is_within_the_rate_but_for_estimates_that_were_wrong(
    limit: CellLimit, calls: list[tuple[int, int, int, int]]
):
    """Each call has a pause before it, an estimate, what it uses, and the time until that is known."""
    now, pace, granted, open_calls = 0, CallPace(), list[tuple[int, int, int]](), list[tuple[int, int, int, int]]()
    for pause, estimate, used, lasts in calls:
        now += pause
        for over in sorted(one for one in open_calls if one[0] <= now):
            open_calls.remove(over)
            pace = settled(pace, "b", over[2], over[3], over[1], now)
        verdict = judge(replace(limit, units=estimate), 0, pace, "b", now)
        pace = verdict.pace
        if verdict.granted:
            granted.append((now, estimate, used))
            open_calls.append((now + lasts, now, estimate, used))
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            since = granted[last][0] - granted[first][0]
            counted = sum(used for _, _, used in granted[first:last])
            wrong = sum(abs(used - estimate) for _, estimate, used in granted[:last])
            assert counted <= limit.burst + since * 1_000_000 // limit.apart_ns + wrong


@given(LIMITS, st.integers(1, 100), st.integers(0, 100), st.integers(0, 10_000))
def test_a_call_that_used_another_number_counts_as_if_that_had_been_known(
    limit: CellLimit, estimate: int, used: int, lasts: int
):
    pace = judge(replace(limit, units=estimate), 0, CallPace(), "b", 0).pace
    known = judge(replace(limit, units=used), 0, CallPace(), "b", 0).pace
    settled_later = settled(pace, "b", estimate, used, 0, lasts)
    if used <= estimate:
        assert settled_later.due_ns == known.due_ns
    else:
        assert settled_later.due_ns >= known.due_ns


@given(LIMITS, st.integers(2, 100), st.integers(0, 10_000))
def test_what_an_estimate_reserved_in_an_idle_time_is_not_given_back_later(limit: CellLimit, estimate: int, pause: int):
    first = judge(replace(limit, units=estimate), 0, CallPace(), "b", 0).pace
    now = -(-first.due_ns // 1_000_000) + pause
    later = judge(replace(limit, units=estimate), 0, first, "b", now).pace
    assert settled(later, "b", estimate, 1, 0, now) == later
    assert settled(later, "b", estimate, 1, now, now).due_ns < later.due_ns
