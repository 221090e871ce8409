"""When schedules fire: on the nights on which clocks change, on a leap day, after a break, and with clocks that are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand.queues.firing_times import MissedRule, Schedule, due, last_moment, moments, next_moment
from beforehand.queues.schedules import ScheduleBook, ScheduleEntry, run_id_of, schedule_faults
from simulator.checkers import calendar

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
NIGHT_ZONES = (
    "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Santiago", "Africa/Casablanca", "Antarctica/Troll",
    "Australia/Lord_Howe", "Pacific/Chatham",
)  # fmt: skip
GRACE = 60_000


def ms(text: str) -> int:
    """A time with its offset, in milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def cron(expression: str, zone: str = "UTC", missed: MissedRule = "all") -> Schedule:
    return Schedule("desk", cron=expression, zone=zone, missed=missed, grace_ms=GRACE)


def shown(schedule: Schedule, after: str, count: int) -> list[str]:
    """The moments after a time, as clocks of the schedule's zone show them."""
    zone = ZoneInfo(schedule.zone)
    found = islice(moments(schedule, ms(after)), count)
    return [datetime.fromtimestamp(one / 1000, zone).strftime("%d %H:%M%z") for one in found]


# --- nights on which clocks change, in three zones; a leap day ---------------------------------------------------------

NIGHTS = [
    # Clocks go forward from 02:00 to 03:00: what would fire in between fires when they have, once.
    ("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00+01:00", ["28 03:00+0200", "29 02:30+0200"]),
    ("30 3 * * *", "Europe/Berlin", "2027-03-27T12:00+01:00", ["28 03:30+0200", "29 03:30+0200"]),
    ("0 * * * *", "Europe/Berlin", "2027-03-28T00:30+01:00", ["28 01:00+0100", "28 03:00+0200", "28 04:00+0200"]),
    # They go back from 03:00 to 02:00: a fixed time fires the first time alone, and what follows elapsed time each time.
    ("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00+02:00", ["31 02:30+0200", "01 02:30+0100"]),
    ("30 2 * * *", "Europe/Berlin", "2027-10-31T02:10+01:00", ["01 02:30+0100", "02 02:30+0100"]),
    ("0 * * * *", "Europe/Berlin", "2027-10-31T01:30+02:00", ["31 02:00+0200", "31 02:00+0100", "31 03:00+0100"]),
    # A look in the first of the two hours: all of the second one is still to come.
    (
        "*/30 * * * *",
        "Europe/Berlin",
        "2027-10-31T02:15+02:00",
        ["31 02:30+0200", "31 02:00+0100", "31 02:30+0100", "31 03:00+0100"],
    ),
    ("*/30 * * * *", "Europe/Berlin", "2027-10-31T02:30+02:00", ["31 02:00+0100", "31 02:30+0100", "31 03:00+0100"]),
    ("5 * * * *", "Europe/Berlin", "2027-10-31T02:05+02:00", ["31 02:05+0100", "31 03:05+0100"]),
    ("30 2 * * *", "Europe/Berlin", "2027-10-31T02:40+02:00", ["01 02:30+0100", "02 02:30+0100"]),
    ("30 2 * * *", "America/New_York", "2027-03-13T12:00-05:00", ["14 03:00-0400", "15 02:30-0400"]),
    ("30 1 * * *", "America/New_York", "2027-11-06T12:00-04:00", ["07 01:30-0400", "08 01:30-0500"]),
    # Half an hour: from 02:00 to 02:30, and from 02:00 to 01:30.
    ("15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00+10:30", ["03 02:30+1100", "04 02:15+1100"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2027-04-03T12:00+11:00", ["04 01:45+1100", "05 01:45+1030"]),
    (
        "30 * * * *",
        "Australia/Lord_Howe",
        "2027-04-04T01:00+11:00",
        ["04 01:30+1100", "04 01:30+1030", "04 02:30+1030"],
    ),
    ("*/10 * * * *", "Australia/Lord_Howe", "2027-04-04T01:50+11:00", ["04 01:30+1030", "04 01:40+1030"]),
    ("0 */2 * * *", "Australia/Lord_Howe", "2027-04-04T01:00+11:00", ["04 02:00+1030", "04 04:00+1030"]),
    ("30 * * * *", "Australia/Lord_Howe", "2027-10-03T01:00+10:30", ["03 01:30+1030", "03 02:30+1100"]),
    # From 02:45 to 03:45: no full hour.
    ("*/15 2 * * *", "Pacific/Chatham", "2027-09-26T02:15+12:45", ["26 02:30+1245", "27 02:00+1345"]),
    ("*/15 2 * * *", "Pacific/Chatham", "2027-04-04T02:30+13:45", ["04 02:45+1345", "04 02:45+1245", "05 02:00+1245"]),
    # Two hours.
    ("30 2 * * *", "Antarctica/Troll", "2027-03-27T12:00+00:00", ["28 03:00+0200", "29 02:30+0200"]),
]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), NIGHTS)
def test_a_night_on_which_clocks_change(expression: str, zone: str, after: str, expected: list[str]):
    assert shown(cron(expression, zone), after, len(expected)) == expected


def test_a_leap_day_fires_in_leap_years_alone():
    schedule = cron("0 12 29 2 *", "Europe/Berlin")
    found = [datetime.fromtimestamp(one / 1000, UTC).year for one in islice(moments(schedule, ms("2027-01-01T00Z")), 3)]
    assert found == [2028, 2032, 2036]
    assert last_moment(schedule, 0, ms("2103-12-31T00:00Z")) == ms("2096-02-29T12:00+01:00")  # 2100 is no leap year


@pytest.mark.parametrize(("at", "moment"), [
    ("2027-03-28T02:30", "2027-03-28T03:30+02:00"),  # it does not exist, and is counted on from before the change
    ("2027-10-31T02:30", "2027-10-31T02:30+02:00"),  # it exists twice
    ("2027-10-31T02:30+01:00", "2027-10-31T02:30+01:00"),
    ("2028-02-29", "2028-02-29T00:00+01:00"),
])  # fmt: skip
def test_one_time_is_read_in_the_zone_of_the_schedule(at: str, moment: str):
    schedule = Schedule("desk", at=at, zone="Europe/Berlin")
    assert list(moments(schedule, 0)) == [ms(moment)]
    assert next_moment(schedule, ms(moment)) is None


def test_an_interval_is_counted_from_1970_so_every_process_counts_alike():
    assert list(islice(moments(Schedule("desk", every_ms=15 * MINUTE), ms("2027-01-01T00:07Z")), 2)) == [
        ms("2027-01-01T00:15Z"), ms("2027-01-01T00:30Z"),
    ]  # fmt: skip


# --- what holds for all schedules --------------------------------------------------------------------------------------

times = st.integers(ms("2026-01-01T00Z"), ms("2033-01-01T00Z"))
minute_fields = st.sampled_from(["0", "30", "*", "*/15", "*/20", "5,35"])
hour_fields = st.sampled_from(["*", "2", "1-3", "0,2", "*/2", "*/5"])
day_fields = st.sampled_from(["*", "1", "29", "L", "28-31"])
expressions = st.builds(
    "{} {} {} {} {}".format, minute_fields, hour_fields, day_fields, st.sampled_from(["*", "2", "3,10,11"]),
    st.sampled_from(["*", "SUN", "1-5"]),
)  # fmt: skip
schedules = st.one_of(
    st.builds(cron, expressions, st.sampled_from(ZONES)),
    st.builds(lambda every: Schedule("desk", every_ms=every * SECOND, missed="all"), st.integers(60, 400_000)),
    st.builds(
        lambda at: Schedule("desk", at=at.isoformat(), zone="America/New_York", missed="all"),
        st.datetimes(datetime(2026, 1, 1), datetime(2033, 1, 1)),  # noqa: DTZ001 - local times of that zone
    ),
)
# Nights on which clocks change are drawn often: few of all moments are near one.
nights = st.sampled_from(
    ["2027-03-28T01:00Z", "2027-10-31T01:00Z", "2027-03-14T07:00Z", "2027-11-07T06:00Z", "2027-10-02T15:30Z"]
)
starts = times | st.builds(lambda night, off: ms(night) + off, nights, st.integers(-6 * HOUR, 6 * HOUR))


@given(schedules, starts)
def test_moments_grow_and_any_one_of_them_continues_the_others(schedule: Schedule, after: int):
    found = list(islice(moments(schedule, after), 8))
    assert all(one > after for one in found)
    assert all(one < other for one, other in pairwise(found))
    for number, moment in enumerate(found):
        assert list(islice(moments(schedule, moment), 8 - number - 1)) == found[number + 1 :]
        assert next_moment(schedule, moment - 1) == moment


# Most draws fire in the night itself: an expression with days or months rarely does.
daily = st.builds("{} {} * * *".format, minute_fields, hour_fields)


@given(daily | expressions.filter(lambda one: not one.isupper()), st.sampled_from(NIGHT_ZONES), st.data())
def test_moments_of_a_night_are_those_that_a_look_at_every_minute_finds(
    expression: str, zone: str, data: st.DataObject
):
    night = data.draw(st.sampled_from(changes(zone)))
    after = night + data.draw(st.integers(-6 * HOUR, 6 * HOUR))
    found = list(takewhile(lambda one: one <= after + 12 * HOUR, moments(cron(expression, zone), after)))
    assert found == calendar.moments(cron(expression, zone), after, after + 12 * HOUR)


@cache
def changes(zone: str) -> list[int]:
    """The hours of 2027 in which clocks of the zone change."""
    hours = range(ms("2027-01-01T00Z"), ms("2028-01-01T00Z"), HOUR)
    offsets = [datetime.fromtimestamp(hour / 1000, ZoneInfo(zone)).utcoffset() for hour in hours]
    return [hour for hour, (before, after) in zip(hours, pairwise(offsets), strict=False) if before != after]


@given(schedules, starts, st.integers(0, 3 * DAY))
def test_the_last_moment_is_the_last_of_all(schedule: Schedule, after: int, span: int):
    found = list(takewhile(lambda one: one <= after + span, islice(moments(schedule, after), 5_000)))
    assert last_moment(schedule, after, after + span) == (found[-1] if found else None)


@given(expressions, st.sampled_from(ZONES), starts)
def test_a_moment_is_a_time_that_the_expression_names_or_the_end_of_a_change(expression: str, zone: str, after: int):
    """A second opinion on the fields of minutes and hours, which reads them by itself."""
    for moment in islice(moments(cron(expression, zone), after), 5):
        local = datetime.fromtimestamp(moment / 1000, ZoneInfo(zone))
        before = local.utcoffset()
        changed = before != (local.astimezone(UTC) - timedelta(hours=2)).astimezone(ZoneInfo(zone)).utcoffset()
        minute, hour, *_ = expression.split()
        assert changed or (named(minute, local.minute, 60) and named(hour, local.hour, 24)), local


def named(field: str, value: int, whole: int) -> bool:
    if field.startswith("*"):
        return value in range(0, whole, int(field.partition("/")[2] or 1))
    parts = [part.partition("-") for part in field.split(",")]
    return any(int(first) <= value <= int(last or first) for first, _, last in parts)


# --- what is missed, and clocks that are set ---------------------------------------------------------------------------


def simulated(schedule: Schedule, looks: list[int], since: int) -> list[int]:
    """The moments that fire where a worker looks at these times of its clock. The journal keeps the last one."""
    last, fired = since, list[int]()
    for now in looks:
        for moment in due(schedule, last, now):
            assert last < moment <= now
            last = moment
            fired.append(moment)
    return fired


@given(schedules, starts, st.lists(st.integers(-2 * DAY, 2 * DAY), max_size=30))
def test_each_moment_fires_once_however_the_clock_is_set(schedule: Schedule, since: int, steps: list[int]):
    looks = [since]
    for step in steps:
        looks.append(looks[-1] + step)
    for missed in ("all", "once", "skip"):
        fired = simulated(Schedule(**{**_fields(schedule), "missed": missed}), looks, since)
        assert fired == sorted(set(fired))
        assert set(fired) <= set(_up_to(schedule, since, max(looks)))
    everything = list(_up_to(schedule, since, max(looks)))[:100]
    fired = simulated(schedule, [*looks, *[max(looks)] * 40], since)
    assert fired[: len(everything)] == everything, "none is lost, whatever the clock has shown meanwhile"


@given(schedules, starts, st.integers(0, 3 * DAY))
def test_what_was_missed_is_skipped_run_once_or_all_run(schedule: Schedule, since: int, span: int):
    now = since + span
    everything = list(_up_to(schedule, since, now))
    on_time = [one for one in everything if now - one <= GRACE]
    found = {rule: due(Schedule(**{**_fields(schedule), "missed": rule, "grace_ms": GRACE}), since, now, 10_000)
             for rule in ("all", "once", "skip")}  # fmt: skip
    assert found["all"] == everything
    assert found["skip"] == on_time
    assert found["once"] == (on_time or everything[-1:])


@pytest.mark.parametrize("grace", [0, 1, MINUTE])
def test_a_moment_is_on_time_to_the_end_of_its_grace(grace: int):
    schedule = Schedule("desk", every_ms=DAY, grace_ms=grace)
    assert due(schedule, 0, DAY + grace) == [DAY]
    assert due(schedule, 0, DAY + grace + 1) == []


def test_many_missed_moments_fire_in_portions():
    schedule = Schedule("desk", every_ms=MINUTE, missed="all")
    first = due(schedule, 0, DAY)
    assert (len(first), first[0], first[-1]) == (100, MINUTE, 100 * MINUTE)
    assert due(schedule, first[-1], DAY)[0] == 101 * MINUTE


def _up_to(schedule: Schedule, after: int, until: int) -> list[int]:
    found: list[int] = []
    for moment in moments(schedule, after):
        if moment > until:
            break
        found.append(moment)
    return found


def _fields(schedule: Schedule) -> dict[str, object]:
    return {name: getattr(schedule, name) for name in schedule.__struct_fields__}


# --- the book --------------------------------------------------------------------------------------------------------

words = st.sampled_from(["declare", "change time", "change input", "remove", "pause", "resume", "garbage"])


@given(st.lists(st.tuples(words, st.integers(1, DAY)), max_size=12))
def test_the_book_follows_the_rules_of_declarations(story: list[tuple[str, int]]):
    """Another reading of the same rules, one variable each, beside the book."""
    book, at, schedule = ScheduleBook(), 0, cron("0 3 * * *")
    known, since, paused = False, 0, False
    for number, (word, step) in enumerate(story, 1):
        at += step
        match word:
            case "change time":
                schedule = cron(f"0 {number % 24} * * *" if known else "0 3 * * *", "UTC", "all")
            case "change input":
                schedule = Schedule(**{**_fields(schedule), "input": number})  # type: ignore[arg-type]  # its own fields
        if word == "garbage":
            book = book.after_unreadable(number)
            paused = known
            continue
        if word in {"pause", "resume"}:
            entry = ScheduleEntry("pause" if word == "pause" else "resume", schedule="n", by="ann")
            since = at if known and paused and word == "resume" else since
            paused = known and word == "pause"
        elif word == "remove":
            entry, known, paused = ScheduleEntry("declare"), False, False
        else:
            entry = ScheduleEntry("declare", {"n": schedule})
            before = book.schedules.get("n")
            since = at if before is None or before.schedule.timing != schedule.timing else since
            known = True
        book = book.after(number, at, entry)
        assert book.entry == number
        assert ("n" in book.schedules) == known
        if known:
            one = book.schedules["n"]
            assert (one.schedule, one.since_ms, bool(one.paused)) == (schedule, since, paused)


# --- bad input -------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.text(st.sampled_from("0123456789*/,-#LWMONJA "), max_size=24) | st.text(max_size=20))
def test_any_text_is_a_cron_expression_that_fires_or_a_fault_with_a_name(text: str):
    faults = schedule_faults({"n": Schedule("desk", cron=text or " ")}, None)
    if not faults:
        moment = next_moment(cron(text), ms("2026-01-01T00Z"))
        assert moment is not None
    assert all(fault.startswith("schedules.n.cron: ") for fault in faults)


def test_the_id_of_a_run_names_the_moment():
    assert run_id_of("nightly", ms("2027-03-28T03:00+02:00")) == "nightly@2027-03-28T01:00:00Z"
