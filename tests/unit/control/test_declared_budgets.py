"""Declaring shared budgets: what `queues.yaml` may say, and the days of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.queues import zones  # a planted bug reaches what is looked up there
from beforehand.queues.limits import DeclaredLimits, LimitsError, SharedBudget, read_limits
from beforehand.queues.zones import day_of

HOUR_MS = 3_600_000


def read(**budgets: Any) -> DeclaredLimits:
    return read_limits({"budgets": budgets}, "queues.yaml")


def test_a_budget_is_read_with_its_defaults():
    limits = read(support={"agent": "desk", "tokens": 5}, acme={"tenant": "acme", "model_calls": 0, "then": "stop"})
    assert limits.budgets["support"] == SharedBudget(agent="desk", tokens=5)
    assert limits.budgets["support"].per == "day"
    assert limits.budgets["support"].then == "wait"
    assert limits.budgets["support"].zone == "UTC"
    assert limits.budgets_of("desk", "acme") == limits.budgets
    assert list(limits.budgets_of("other", "acme")) == ["acme"]
    assert limits.budgets_of("other", "") == {}
    assert list(read(every={"tokens": 1}).budgets_of("any", "")) == ["every"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"agent": "desk"}, "budgets.b: it needs a limit: tokens, model_calls"),
        ({"tokens": -1}, "budgets.b.tokens=-1: a limit is a whole number from 0 to 9007199254740991"),
        ({"tokens": 2**53}, "budgets.b.tokens=9007199254740992: a limit is a whole number"),
        ({"tokens": 2**80}, "budgets.b"),
        ({"tokens": "many"}, "budgets.b: Expected `int | null`, got `str` - at `$.tokens`"),
        ({"tokens": True}, "budgets.b: Expected `int | null`, got `bool`"),
        ({"tokens": 1.5}, "budgets.b: Expected `int | null`, got `float`"),
        ({"tokens": 1, "zone": "Europe/Berlln"}, "budgets.b.zone: time zone 'Europe/Berlln' does not exist"),
        ({"tokens": 1, "zone": "../../etc/passwd"}, "budgets.b.zone: time zone '../../etc/passwd' does not exist"),
        ({"tokens": 1, "per": "week"}, "budgets.b: Invalid enum value 'week' - at `$.per`"),
        ({"tokens": 1, "then": "ask"}, "budgets.b: Invalid enum value 'ask' - at `$.then`"),
        ({"token": 1}, "budgets.b.token"),
        ({"tokens": 1, "tenant": "*"}, "leave it out to cover every tenant"),
        ({"tokens": 1, "agent": "a/b"}, "budgets.b.agent='a/b': it names one agent"),
        ("2000", "budgets.b: it is a mapping of limits"),
    ],
)
def test_a_mistake_is_named_with_its_place(fields: Any, fault: str):
    with pytest.raises(LimitsError) as refused:
        read(b=fields)
    assert fault in str(refused.value)
    assert "correct queues.yaml" in refused.value.next_step


def test_a_budget_of_a_tenant_that_is_not_declared_is_refused():
    given = {"tenants": {"acme": {"concurrency": 1}}, "budgets": {"b": {"tenant": "acne", "tokens": 1}}}
    with pytest.raises(LimitsError, match=r"tenant='acne': it is not declared under tenants; did you mean acme\?"):
        read_limits(given, "queues.yaml")
    given["tenants"]["*"] = {}
    assert read_limits(given, "queues.yaml").budgets["b"].tenant == "acne"


def test_a_name_that_cannot_be_one_is_refused():
    with pytest.raises(LimitsError, match="cannot be a name"):
        read(**{"a/b": {"tokens": 1}})


def ms(text: str, zone: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("zone", "date", "hours"),
    [
        ("Europe/Berlin", "2027-03-28", 23),
        ("Europe/Berlin", "2027-10-31", 25),
        ("America/Santiago", "2026-09-05", 24),  # its last midnight does not exist: clocks go from 24:00 to 1:00
        ("America/Santiago", "2026-09-06", 23),
        ("America/Santiago", "2026-04-04", 25),  # from 24:00 back to 23:00
        ("America/Havana", "2026-11-01", 25),  # from 1:00 back to 0:00: its first midnight begins it
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("Europe/Berlin", "2028-02-29", 24),
        ("Pacific/Apia", "2011-12-29", 24),  # the next date is skipped
    ],
)
def test_a_day_has_the_hours_of_its_zone(zone: str, date: str, hours: float):
    noon = ms(f"{date}T12:00", zone)
    day = day_of(zone, noon)
    assert day.name == date
    begin = ms(f"{date}T00:00", zone)
    assert day.end_ms - begin == hours * HOUR_MS
    assert day_of(zone, day.end_ms - 1) == day
    assert day_of(zone, day.end_ms).name > date


@given(
    st.sampled_from(["UTC", "Europe/Berlin", "America/Santiago", "Asia/Beirut", "America/Havana", "Pacific/Apia"]),
    st.integers(1_000_000_000_000, 2_000_000_000_000),
)
def test_every_moment_is_in_the_day_of_its_date_and_days_follow_each_other(zone: str, at_ms: int):
    day = day_of(zone, at_ms)
    assert day.name == datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(zone)).date().isoformat()
    assert at_ms < day.end_ms <= at_ms + 26 * HOUR_MS
    assert day_of(zone, day.end_ms - 1).name == day.name
    assert day_of(zone, day.end_ms).name > day.name


@pytest.mark.parametrize(
    ("zone", "first", "hours"),
    [
        ("UTC", "2027-01-01T13:59:59+00:00", ["2027-01-01T13+00:00 60", "2027-01-01T14+00:00 60"]),
        ("Asia/Kolkata", "2027-01-01T23:10+05:30", ["2027-01-01T23+05:30 60", "2027-01-02T00+05:30 60"]),
        (
            "Europe/Berlin",
            "2027-10-31T01:30+02:00",
            ["2027-10-31T01+02:00 60", "2027-10-31T02+02:00 60", "2027-10-31T02+01:00 60", "2027-10-31T03+01:00 60"],
        ),
        ("Europe/Berlin", "2027-03-28T01:30+01:00", ["2027-03-28T01+01:00 60", "2027-03-28T03+02:00 60"]),
        (
            "Australia/Lord_Howe",
            "2027-04-04T01:59+11:00",
            ["2027-04-04T01+11:00 60", "2027-04-04T01+10:30 30", "2027-04-04T02+10:30 60"],
        ),
        (
            "Pacific/Chatham",
            "2027-09-26T02:00+12:45",
            ["2027-09-26T02+12:45 45", "2027-09-26T03+13:45 15", "2027-09-26T04+13:45 60"],
        ),
    ],
)
def test_hours_of_a_zone_follow_each_other_and_an_hour_that_exists_twice_is_two(
    zone: str, first: str, hours: list[str]
):
    at_ms, listed = round(datetime.fromisoformat(first).timestamp() * 1000), list[str]()
    for _ in hours:
        hour = zones.hour_of(zone, at_ms)
        assert zones.hour_of(zone, hour.end_ms - 1) == hour
        begin = max(
            at for at in range(hour.end_ms - 3_600_000, hour.end_ms, 900_000) if zones.hour_of(zone, at - 1) != hour
        )
        listed.append(f"{hour.name} {(hour.end_ms - begin) // 60_000}")
        at_ms = hour.end_ms
    assert listed == hours


def test_an_hour_is_written_with_its_offset_and_a_day_as_its_date():
    moment = ms("2027-01-01T13:20", "Europe/Berlin")
    assert zones.hour_of("Europe/Berlin", moment).words == "the hour 2027-01-01 13:00+01:00"
    assert day_of("Europe/Berlin", moment).words == "2027-01-01"
