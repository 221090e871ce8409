"""The moments of a schedule, found by looking at every minute. It shares no code with the product.

An expression whose minutes or hours begin with `*` follows elapsed time. Any other one names times of a day: one that
clocks skip comes when they have, and one that they repeat comes the first time.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from beforehand.queues.firing_times import Schedule

MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * MINUTE_MS
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def moments(schedule: Schedule, after_ms: int, until_ms: int) -> list[int]:
    """All moments after the one and up to the other, in order."""
    if until_ms <= after_ms:
        return []
    if schedule.every_ms:
        every = schedule.every_ms
        return list(range((after_ms // every + 1) * every, until_ms + 1, every))
    if schedule.at:
        found = [_one_time(schedule.at, schedule.zone)]
    else:
        hours = range(after_ms // _HOUR_MS, until_ms // _HOUR_MS + 1)
        found = [moment for hour in hours for moment in _in_hour(schedule.cron, schedule.zone, hour)]
    return found[bisect_right(found, after_ms) : bisect_right(found, until_ms)]


def due(schedule: Schedule, after_ms: int, now_ms: int) -> list[int]:
    """The moments after `after_ms` that fire now, as the schedule declares it for those that are missed."""
    found = moments(schedule, after_ms, now_ms)
    on_time = [moment for moment in found if now_ms - moment <= schedule.grace_ms]
    match schedule.missed:
        case "all":
            return found
        case "once":
            return on_time or found[-1:]
        case "skip":
            return on_time


# --- inside -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1_000)
def _one_time(at: str, zone: str) -> int:
    written = datetime.fromisoformat(at)
    around = round(written.replace(tzinfo=UTC).timestamp() / 60)
    for minute in range(around - 26 * 60, around + 26 * 60):
        if _local(minute, zone).replace(tzinfo=None) == written:
            return minute * MINUTE_MS
    before = _local(around - 26 * 60, zone).utcoffset()  # clocks skip it: it is counted on from before they do
    assert before is not None, zone
    return round((written.replace(tzinfo=UTC) - before).timestamp() * 1000)


@lru_cache(maxsize=100_000)
def _in_hour(cron: str, zone: str, hour: int) -> tuple[int, ...]:
    return tuple(minute * MINUTE_MS for minute in range(hour * 60, hour * 60 + 60) if _matches(cron, zone, minute))


def _matches(cron: str, zone: str, minute: int) -> bool:
    fields = cron.split()
    local = _local(minute, zone)
    if fields[0].startswith("*") or fields[1].startswith("*"):
        return _names(cron, local)
    if not local.fold and _names(cron, local):
        return True
    before, skipped = _local(minute - 1, zone).replace(tzinfo=None), timedelta(minutes=1)
    while before + skipped < local.replace(tzinfo=None):
        if _names(cron, before + skipped):
            return True
        skipped += timedelta(minutes=1)
    return False


def _names(cron: str, local: datetime) -> bool:
    """True if the expression names this time of this day."""
    values = local.minute, local.hour, local.day, local.month, local.isoweekday() % 7
    fields = cron.split()
    held = [value in _values(field, *span) for value, field, span in zip(values, fields, _RANGES, strict=True)]
    minute, hour, day, month, weekday = held
    both = fields[2].startswith("*") or fields[4].startswith("*")
    return minute and hour and month and (day and weekday if both else day or weekday)


@lru_cache(maxsize=1_000)
def _values(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def _local(minute: int, zone: str) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC).astimezone(_zone(zone))


@lru_cache(maxsize=100)
def _zone(zone: str) -> ZoneInfo:
    return ZoneInfo(zone)
