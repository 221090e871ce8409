"""From a seed to a plan with schedules. These seeds are a range of their own, so the plans of all others stay."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from beforehand.queues.firing_times import MissedRule, Schedule
from beforehand.testing.clock import EPOCH_MS
from simulator.agents.scheduled import SCHEDULED as AGENT
from simulator.agents.scheduled import Round
from simulator.generator.calls import dice
from simulator.generator.queues import QUEUES, TENANTS
from simulator.plan import Fault, Plan, ScheduleOrder, Timetable

SCHEDULED: Final = 4_000_000
"""The first seed of a plan with schedules."""
_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
NIGHTS: Final = (
    ("Europe/Berlin", "2027-03-28T01:00"), ("Europe/Berlin", "2027-10-31T01:00"),
    ("America/New_York", "2027-03-14T07:00"), ("America/New_York", "2027-11-07T06:00"),
    ("Australia/Lord_Howe", "2027-10-02T15:30"), ("Australia/Lord_Howe", "2027-04-03T15:00"),
    ("UTC", "2028-02-29T00:00"), ("Asia/Kolkata", "2028-02-28T18:30"), ("America/New_York", "2028-03-01T05:00"),
    ("UTC", "2027-01-01T00:00"), ("Europe/Berlin", "2027-06-15T10:00"),
)  # fmt: skip
"""A zone, and a moment (UTC) around which a plan takes place: its clocks change, or a leap day or a year begins."""
EXPRESSIONS: Final = (
    "*/5 * * * *", "*/20 * * * *", "7 * * * *", "0 */1 * * *", "*/30 0-3 * * *", "0 2 * * *", "30 1,2,3 * * *",
    "0,15,30,45 0,1,2,3 * * *", "30 2 * * 0", "5 0,3,10 * * *", "0 0 29 2 *", "30 23,0,1 28,29 2 *", "10 0 1 * 1",
)  # fmt: skip
_NAMES: Final = ("nightly", "sweep", "hourly", "report")
_KINDS: Final = ("note", "pay", "look")
_RULES: Final[tuple[MissedRule, ...]] = ("skip", "once", "all")


def with_schedules(plan: Plan, seed: int) -> Plan:
    """The plan with schedules, which submit runs beside the few that processes submit. Tools have no limits."""
    chance = dice("schedules", seed)
    zone, change = chance.choice(NIGHTS)
    begin = _ms(change) - chance.randrange(5, 50) * _MINUTE
    span = chance.randrange(15, 75) * _MINUTE
    timetables = _timetables(chance, zone, begin, span)
    kept = plan.submissions[:2]
    names = {plan.scripts[one.script].id for one in kept}
    limits = tuple(
        replace(one, limits=replace(one.limits, tools={}, queues={
            name: replace(queue, capacity=chance.choice((100_000, 100_000, 100_000, 2))) for name, queue in
            one.limits.queues.items()
        })) for one in plan.declarations
    )  # fmt: skip
    jumps = [jump for _ in range(chance.choice((0, 0, 1, 2))) for jump in _jumps(chance)]
    return replace(
        plan, submissions=kept, declarations=limits, orders=tuple(one for one in plan.orders if one.run in names),
        timetables=timetables, schedule_orders=_orders(chance, span), skew_ms=begin - EPOCH_MS,
        faults=(*(one for one in plan.faults if one.kind != "disk_broken"), *jumps),
    )  # fmt: skip


def _timetables(chance: random.Random, zone: str, begin: int, span: int) -> tuple[Timetable, ...]:
    """What is declared: at first, sometimes again, and at the end nothing."""
    first = {name: _schedule(chance, zone, begin, span) for name in chance.sample(_NAMES, chance.randrange(1, 4))}
    found = [Timetable(first)]
    for at in sorted(chance.randrange(_MINUTE, span) for _ in range(chance.choice((0, 0, 1, 2)))):
        found.append(Timetable(_changed(chance, found[-1].schedules, zone, begin, span), at))
    return *found, Timetable({}, span)


def _changed(
    chance: random.Random, before: dict[str, Schedule], zone: str, begin: int, span: int
) -> dict[str, Schedule]:
    """The same schedules with another timing, another input, or without one of them; or with one more."""
    name = chance.choice(_NAMES)
    drawn, known = _schedule(chance, zone, begin, span), before.get(name)
    if known is None or chance.random() < 0.4:
        return before | {name: drawn}
    if chance.random() < 0.4:
        return {other: one for other, one in before.items() if other != name}
    return before | {name: replace(known, input=drawn.input, priority=drawn.priority, tenant=drawn.tenant)}


def _schedule(chance: random.Random, zone: str, begin: int, span: int) -> Schedule:
    drawn = chance.random()
    cron = chance.choice(EXPRESSIONS) if drawn < 0.6 else ""
    every = chance.choice((2, 5, 7, 15, 60)) * _MINUTE + chance.choice((0, 0, 1_000)) if 0.6 <= drawn < 0.85 else 0
    at = "" if cron or every else _local(begin + chance.randrange(-10 * _MINUTE, span), zone)
    about = Round(f"k{chance.randrange(3)}", tuple(chance.choice(_KINDS) for _ in range(chance.choice((0, 0, 1, 2)))))
    return Schedule(
        AGENT, msgspec.to_builtins(about), cron, every, at,
        zone=zone if chance.random() < 0.8 else chance.choice(NIGHTS)[0],
        missed=chance.choice(_RULES), grace_ms=chance.choice((1_000, 20_000, _MINUTE, _MINUTE, 10 * _MINUTE)),
        queue=chance.choice(QUEUES), priority=chance.choice((0, 0, 5)), tenant=chance.choice(TENANTS),
    )  # fmt: skip


def _local(moment: int, zone: str) -> str:
    """The time on clocks of that zone an hour around that moment: some of these times they skip or repeat."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - as the product does

    here = datetime.fromtimestamp(moment // _MINUTE * 60, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return f"{here.replace(minute=here.minute // 5 * 5) + timedelta(minutes=30):%Y-%m-%dT%H:%M}"


def _orders(chance: random.Random, span: int) -> tuple[ScheduleOrder, ...]:
    """Some schedules are paused, and resumed after a while, or not."""
    found: list[ScheduleOrder] = []
    for name in _NAMES:
        if chance.random() < 0.3:
            at = chance.randrange(span)
            found.append(ScheduleOrder(name, "pause", at))
            if chance.random() < 0.8:
                found.append(ScheduleOrder(name, "resume", at + chance.randrange(_MINUTE, 30 * _MINUTE)))
    return tuple(found)


def _jumps(chance: random.Random) -> list[Fault]:
    """The wall clock is set by minutes or hours, and sometimes it was wrong, and is set right after a while."""
    ms = chance.choice((chance.randrange(-30, 90) * _MINUTE, chance.choice((-5, -2, 3, 6, 24)) * _HOUR))
    point = chance.randrange(1, 800)
    found = [Fault("clock_jump", point, ms=ms)]
    if chance.random() < 0.5:
        found.append(Fault("clock_jump", point + chance.randrange(1, 30), ms=-ms))
    return found


def _ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)
