"""The monitors' rules: what they find, what they leave alone, and that the past is judged as the present was."""

import asyncio
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import Rejected, Run, agent, tool
from beforehand.control.schedules import declare_schedules
from beforehand.inspect.monitors.observations import Observation
from beforehand.inspect.monitors.passes import present, recorded
from beforehand.inspect.monitors.rules import (
    DueRun,
    MissedFiring,
    MonitorSettings,
    Rule,
    Silence,
    SilentFailure,
    WaitingQueue,
    aged_queues,
    judged,
    late_schedules,
    silences_in,
    tail,
    undriven,
    without_progress,
)
from beforehand.inspect.monitors.tallies import DAY_MS, HOUR_MS, AgentTallies
from beforehand.journal.port import RunRow
from beforehand.model import records as r
from beforehand.queues.firing_times import Schedule
from tests.unit.engine.lab import Lab, virtual

NOW = 1_800_000_000_000
MINUTE = 60_000
SETTINGS = MonitorSettings()
ROW = RunRow("run-1", 1, "desk", "", "running", "", None, b"[]", 1, "w", 0, 0)


def seen(topic: str, value: str, number: int, at_ms: int) -> list[Observation]:
    return [Observation(topic, value, f"{value}-{at_ms}-{one}", at_ms) for one in range(number)]


def writes(status: str, number: int, at_ms: int) -> list[Observation]:
    return seen("writes", status, number, at_ms)


def findings(
    *parts: list[Observation], settings: MonitorSettings = SETTINGS, **others: list[Observation]
) -> list[SilentFailure]:
    agents = {"desk": AgentTallies(), **{name: AgentTallies() for name in others}}
    for name, made in (("desk", [one for part in parts for one in part]), *others.items()):
        for one in made:
            agents[name].add(one)
    return judged(agents, NOW, settings)


def rules(*parts: list[Observation], **options: MonitorSettings) -> list[Rule]:
    return [one.rule for one in findings(*parts, **options)]


PAST = [*writes("succeeded", 400, NOW - 5 * DAY_MS), *writes("unknown", 2, NOW - 6 * DAY_MS)]


def test_unknown_outcomes_far_above_the_past_are_found_with_their_evidence():
    now = [*writes("succeeded", 30, NOW - MINUTE), *writes("unknown", 7, NOW - 2 * MINUTE)]
    (found,) = findings(PAST, now)
    assert (found.rule, found.agent) == ("unknown outcomes", "desk")
    assert found.what == "7 of 37 writes ended unknown in the last 1 d; before: 2 of 402"
    assert len(found.evidence) == 5
    assert found.command == f"beforehand why {now[-1].subject}"
    assert found.newest_ms == NOW - 2 * MINUTE


def test_four_unknown_outcomes_of_sixteen_are_found_in_an_agent_that_had_none():
    past = writes("succeeded", 80, NOW - 2 * DAY_MS)
    now = [*writes("succeeded", 12, NOW), *writes("unknown", 4, NOW)]
    assert rules(past, now) == ["unknown outcomes"]


def test_refusals_are_a_rule_of_their_own():
    assert rules(PAST, writes("succeeded", 5, NOW), writes("failed", 6, NOW)) == ["refusals"]


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
        (PAST, writes("unknown", 9, NOW + HOUR_MS)),  # not yet
        (PAST, [*writes("cancelled", 9, NOW), *writes("succeeded", 9, NOW)]),  # a person's decision
    ],
    ids=["few", "young", "old", "chance", "usual", "later", "cancelled"],
)
def test_what_is_not_far_above_the_past_is_left_alone(past: list[Observation], now: list[Observation]):
    assert findings(past, now) == []


def test_agents_are_judged_by_their_own_past():
    other = [*writes("unknown", 9, NOW), *writes("unknown", 300, NOW - 2 * DAY_MS)]
    assert findings(PAST, writes("succeeded", 9, NOW), other=other) == []


RUNS = seen("runs", "completed", 100, NOW - 3 * DAY_MS)


@pytest.mark.parametrize(
    ("topic", "rule", "usual", "far"),
    [
        ("repeats", "repetition", 2, 8),
        ("tokens", "cost", 1000, 4000),
        ("driven", "duration", 10_000, 40_000),
    ],
)
def test_a_run_far_above_the_past_is_found(topic: str, rule: Rule, usual: int, far: int):
    now = seen(topic, str(far), 1, NOW)
    (found,) = findings(RUNS, now)
    assert found.rule == rule
    assert found.command == f"beforehand show {now[0].subject}"
    assert rules(RUNS, now, seen(topic, str(usual), 1, NOW - DAY_MS * 2)) == []  # one in a hundred reached a part of it
    many = [*RUNS, *seen("runs", "completed", 200, NOW - 4 * DAY_MS)]
    assert rules(many, now, seen(topic, str(usual), 1, NOW - DAY_MS * 2)) == [rule]  # a single outlier before
    assert rules(RUNS[:20], now) == []
    assert rules(RUNS, seen(topic, str(far // 2), 1, NOW)) == []


def test_a_run_is_named_with_the_largest_size_that_it_reached():
    now = [Observation("tokens", str(1000 * 2**power), "run-1", NOW) for power in range(7)]
    (found,) = findings(RUNS, now)
    assert "1 run far above the agent's past: run-1 used 64,000 tokens of models or more" in found.what
    assert found.evidence[0].startswith("run-1 used 64,000 tokens of models or more at ")
    assert len(found.evidence) == 1


def test_a_run_without_the_effect_that_all_had_before_is_found():
    before = [*seen("effects", "mail, pay", 40, NOW - 3 * DAY_MS), *seen("effects", "pay", 10, NOW - 3 * DAY_MS)]
    (found,) = findings(before, seen("effects", "mail", 2, NOW), seen("effects", "pay", 5, NOW))
    assert (found.rule, found.what) == ("missing effect", "2 runs completed without pay; all 50 runs before had it")
    assert findings(before, seen("effects", "pay", 5, NOW)) == []
    assert findings(before[:29], seen("effects", "", 5, NOW)) == []
    assert findings(before, seen("effects", "", 1, NOW - 2 * DAY_MS), seen("effects", "", 1, NOW)) == []


def test_a_verifier_that_says_yes_to_everything_is_found():
    yes = seen("verdicts of pay", "happened", 29, NOW - 2 * DAY_MS)
    (found,) = findings(yes, seen("verdicts of pay", "happened", 1, NOW))
    assert (found.rule, found.what) == ("verifier says yes", "the verifier of pay found the effect 30 of 30 times")
    assert findings(yes) == []
    assert findings(yes[1:], seen("verdicts of pay", "happened", 1, NOW)) == []
    for verdict in ("did_not_happen", "cannot_tell", "conflict"):
        assert (
            findings(yes, seen("verdicts of pay", "happened", 9, NOW), seen("verdicts of pay", verdict, 1, NOW)) == []
        )


def test_a_receipt_that_the_records_do_not_support_is_found():
    (found,) = findings(seen("claims", "run-2/pay#1", 1, NOW))
    assert found.rule == "unsupported claim"
    assert "claims run-2/pay#1" in found.evidence[0]


def test_two_versions_side_by_side_are_found_after_a_while():
    def begun(version: str, *hours: float) -> list[Observation]:
        return [Observation("versions", version, f"{version}-{one}", NOW - int(one * HOUR_MS)) for one in hours]

    (found,) = findings(begun("1", 9, 8, 4, 1), begun("2", 5, 3, 0.5))
    assert (found.rule, found.what) == ("versions", "runs begin under the versions 1 and 2 for 4 h")
    assert findings(begun("1", 9, 8, 4, 3.1), begun("2", 5, 3, 0.5)) == []  # replaced within two hours
    assert findings(begun("1", 9, 8, 4, 1)) == []


@virtual
async def test_a_schedule_on_which_a_wrong_clock_has_left_its_trace_is_found(lab: Lab):
    lab.journal._wall = lab.clock.wall_ms
    async with lab.app(sleeper, recover=True) as app:
        await declare_schedules(app.engine, {"n": Schedule("sleeper", "n", every_ms=HOUR_MS)}, app.agents)
        for ahead_ms in (3 * HOUR_MS, 0):
            lab.clock.skew_ms = ahead_ms
            await app.engine.look()
            await lab.pass_time(seconds=20)
        (found,) = (await present(app.service.reader, lab.clock.wall_ms(), SETTINGS)).findings
        assert (found.rule, found.what) == ("schedule", "the schedule n met a wrong clock")
        assert found.evidence == ["a clock was wrong: it has fired for 2026-01-01T03:00:00Z already"]
        await lab.pass_time(seconds=20)
        (again,) = (await present(app.service.reader, lab.clock.wall_ms(), SETTINGS)).findings
        assert (again.id, again.newest_ms) == (found.id, found.newest_ms), "it can be acknowledged"


def test_a_schedule_a_queue_and_due_runs_that_wait_are_found_after_a_while():
    late, aged = NOW - SETTINGS.late_ms - 1, NOW - SETTINGS.queue_ms - 1
    for at_ms, number in ((late, 1), (late + 1, 0)):
        assert len(late_schedules([MissedFiring("nightly", "desk", at_ms)], NOW, SETTINGS)) == number
        assert len(undriven([DueRun("desk", "run-1", at_ms)], NOW, SETTINGS)) == number
    for at_ms, number in ((aged, 1), (aged + 1, 0)):
        assert len(aged_queues([WaitingQueue("mail", 7, at_ms)], NOW, SETTINGS)) == number
    (found,) = undriven([DueRun("desk", f"run-{one}", late - one) for one in range(9)], NOW, SETTINGS)
    assert found.what == "no process drives 9 runs that are due"
    assert found.evidence[0].startswith("run-8 has been due since ")


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


@pytest.mark.deep
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
        assert (found.rule, found.command) == ("no progress", "beforehand show ann")
        await running
        assert (await present(app.service.reader, lab.clock.wall_ms(), SETTINGS)).findings == []
        (later,) = (await recorded(app.service.reader, begin, lab.clock.wall_ms(), SETTINGS)).findings
    assert (later.rule, later.at_ms) == (found.rule, found.at_ms)
