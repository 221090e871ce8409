"""The monitors' rules: what they find, what they leave alone, and that the past is judged as the present was."""

import asyncio
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Rejected, Run, agent, tool
from holdfast.inspect.monitors import (
    DAY_MS,
    MonitorSettings,
    SettledWrite,
    Silence,
    far_above_the_past,
    present,
    recorded,
    silences_in,
    tail,
    without_progress,
)
from holdfast.journal.port import RunRow
from holdfast.model import records as r
from tests.unit.engine.lab import Lab, virtual

NOW = 1_800_000_000_000
MINUTE = 60_000
SETTINGS = MonitorSettings()
ROW = RunRow("run-1", 1, "desk", "", "running", "", None, b"[]", 1, "w", 0, 0)


def writes(status: str, number: int, at_ms: int, agent: str = "desk") -> list[SettledWrite]:
    return [SettledWrite(agent, f"{agent}-{status}-{at_ms}-{one}/pay#1", status, at_ms) for one in range(number)]


PAST = [*writes("succeeded", 400, NOW - 5 * DAY_MS), *writes("unknown", 2, NOW - 6 * DAY_MS)]


def test_unknown_outcomes_far_above_the_past_are_found_with_their_evidence():
    now = [*writes("succeeded", 30, NOW - MINUTE), *writes("unknown", 7, NOW - 2 * MINUTE)]
    (found,) = far_above_the_past([*PAST, *now], NOW, SETTINGS)
    assert (found.rule, found.agent) == ("unknown outcomes", "desk")
    assert found.what == "7 of 37 writes ended unknown in the last 1 d; before: 2 of 402"
    assert len(found.evidence) == 5
    assert found.command == f"holdfast why {now[30].operation}"


def test_refusals_are_a_rule_of_their_own():
    now = [*writes("succeeded", 5, NOW), *writes("failed", 6, NOW)]
    assert [one.rule for one in far_above_the_past([*PAST, *now], NOW, SETTINGS)] == ["refusals"]


@pytest.mark.parametrize(
    ("past", "now"),
    [
        (PAST, writes("unknown", 2, NOW)),  # too few
        (writes("succeeded", 19, NOW - 2 * DAY_MS), writes("unknown", 9, NOW)),  # too little past
        (writes("succeeded", 400, NOW - 40 * DAY_MS), writes("unknown", 9, NOW)),  # the past is too long ago
        (PAST, [*writes("unknown", 3, NOW), *writes("succeeded", 400, NOW)]),  # a chance of one in a hundred
        (
            [*PAST, *writes("unknown", 200, NOW - 3 * DAY_MS)],
            [*writes("unknown", 20, NOW), *writes("succeeded", 40, NOW)],
        ),  # it is always so
        (PAST, writes("unknown", 9, NOW + 1)),  # not yet
        (PAST, [*writes("cancelled", 9, NOW), *writes("succeeded", 9, NOW)]),  # a person's decision
    ],
    ids=["few", "young", "old", "chance", "usual", "later", "cancelled"],
)
def test_what_is_not_far_above_the_past_is_left_alone(past: list[SettledWrite], now: list[SettledWrite]):
    assert far_above_the_past([*past, *now], NOW, SETTINGS) == []


def test_agents_are_judged_by_their_own_past():
    other = [*writes("unknown", 9, NOW, "other"), *writes("unknown", 300, NOW - 2 * DAY_MS, "other")]
    assert far_above_the_past([*PAST, *other, *writes("succeeded", 9, NOW)], NOW, SETTINGS) == []


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 99))
def test_the_tail_is_that_of_the_binomial_distribution(number: int, least: int, percent: int):
    share = percent / 100
    exact = math.fsum(
        math.comb(number, one) * share**one * (1 - share) ** (number - one) for one in range(least, number + 1)
    )
    assert tail(least, number, share) == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_the_tail_of_many_is_a_probability():
    assert tail(0, 10**6, 0.5) == 1.0
    assert 0 < tail(5 * 10**5 + 1, 10**6, 0.5) < 0.51


MOMENTS = st.lists(st.integers(NOW, NOW + 2 * DAY_MS), min_size=2, max_size=12).map(sorted)


@given(MOMENTS, st.data())
def test_a_silence_is_a_long_time_between_records_of_one_driver(moments: list[int], data: st.DataObject):
    kinds = st.sampled_from([
        lambda at: r.RunSuspendedRecord("a person", at=at),
        lambda at: r.Claimed(worker="w", token=1, boot="b", at=at),
        lambda at: r.RunReopened("anna", at=at),
    ])  # fmt: skip
    records = [data.draw(kinds)(at) for at in moments]
    found = [(one.since_ms, one.until_ms) for one in silences_in(ROW, records, 30 * MINUTE)]
    assert found == [
        (before.at, after.at)
        for before, after in pairwise(records)
        if after.at - before.at >= 30 * MINUTE
        and not isinstance(before, r.RunSuspendedRecord)
        and not isinstance(after, r.Claimed)
    ]


def test_a_silent_run_is_found_when_it_has_been_silent_long_enough():
    long = Silence("desk", "run-1", NOW, NOW + 31 * MINUTE, "AttemptStarted")
    short = Silence("desk", "run-2", NOW, NOW + 29 * MINUTE, "AttemptStarted")
    (found,) = without_progress([long, short], SETTINGS)
    assert found.what == "run run-1 recorded nothing for 31 min while a process drove it"
    assert found.at_ms == NOW + 30 * MINUTE
    assert "AttemptStarted" in found.evidence[0]


@tool
async def pay(cents: int) -> int:
    if cents > 900:
        raise Rejected("over the limit")
    return cents


@agent(run_id="{name}")
async def desk(run: Run, name: str) -> str:
    return (await pay.outcome(1000 if "dear" in name else 5)).status


@agent(run_id="{name}")
async def sleeper(run: Run, name: str) -> None:
    await asyncio.sleep(3600)


@virtual
async def test_the_recorded_past_is_judged_as_the_present_was(lab: Lab):
    settings = MonitorSettings(chance=0.01)
    daily: list[tuple[str, str, int]] = []
    async with lab.app(desk) as app:
        reader, begin = app.service.reader, lab.clock.wall_ms()
        for day in range(6):
            await asyncio.sleep(3600)
            for number in range(8):
                await app.run(desk, f"d{day}-{number}{'-dear' if day in {3, 5} and number > 1 else ''}")
            await asyncio.sleep((begin + (day + 1) * DAY_MS - lab.clock.wall_ms()) / 1000)
            now = lab.clock.wall_ms()
            daily += [(one.rule, one.agent, one.at_ms) for one in (await present(reader, now, settings)).findings]
        past = await recorded(reader, begin, now, settings)
    assert [(one.rule, one.agent, one.at_ms) for one in past.findings] == daily
    assert [rule for rule, _, _ in daily] == ["refusals", "refusals"]
    assert past.runs == 48


@virtual
async def test_a_run_that_does_nothing_is_found_while_it_does_and_afterwards(lab: Lab):
    async with lab.app(sleeper) as app:
        begin = lab.clock.wall_ms()
        running = asyncio.create_task(app.run(sleeper, "ann"))
        await asyncio.sleep(20 * 60)
        assert (await present(app.service.reader, lab.clock.wall_ms(), SETTINGS)).findings == []
        await asyncio.sleep(20 * 60)
        (found,) = (await present(app.service.reader, lab.clock.wall_ms(), SETTINGS)).findings
        assert (found.rule, found.command) == ("no progress", "holdfast show ann")
        await running
        assert (await present(app.service.reader, lab.clock.wall_ms(), SETTINGS)).findings == []
        (later,) = (await recorded(app.service.reader, begin, lab.clock.wall_ms(), SETTINGS)).findings
    assert (later.rule, later.at_ms) == (found.rule, found.at_ms)
