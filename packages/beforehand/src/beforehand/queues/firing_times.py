"""When a schedule fires: pure functions of its declaration and of the clock that they are given.

Times are milliseconds since 1970. A cron expression has the meaning that Debian's cron gives it, in the time zone of
the schedule: a fixed time that does not exist on the night on which clocks go forward fires when they have, and one
that exists twice fires the first time. An expression whose minutes or hours begin with `*` follows elapsed time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from beforehand.installation import extra_command
from beforehand.model.errors import UsageError
from beforehand.queues.limits import DEFAULT
from beforehand.queues.zones import zone_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MissedRule = Literal["skip", "once", "all"]
MOST_AT_ONCE: Final = 100
"""How many missed moments of one schedule are fired before others have their turn."""
_HOUR_MS: Final = 3_600_000
_BACK_MS: Final = tuple(_HOUR_MS * hours for hours in (2, 48, 960, 9_600, 80_000, 450_000))
"""Spans in which the last moment is searched, up to 51 years; cron expressions repeat after 28 years at the latest."""


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When runs of an agent are submitted, and with which input: by `cron`, each `every_ms`, or once at the time `at`.

    `input` has plain JSON values. `cron` and an `at` without an offset are read in the time zone `zone`. A moment is on
    time for `grace_ms`; `missed` says what becomes of older ones.
    """

    agent: str
    input: Any = None
    cron: str = ""
    every_ms: int = 0
    at: str = ""
    zone: str = "UTC"
    missed: MissedRule = "skip"
    grace_ms: int = 60_000
    queue: str = DEFAULT
    priority: int = 0
    tenant: str = ""

    @property
    def timing(self) -> tuple[object, ...]:
        """Everything that decides which moments fire."""
        return self.cron, self.every_ms, self.at, self.zone, self.missed, self.grace_ms


def due(schedule: Schedule, after_ms: int, now_ms: int, most: int = MOST_AT_ONCE) -> list[int]:
    """The moments that fire now, in order, at most `most`. All up to `after_ms` were fired or given up before.

    A moment is on time until `grace_ms` after it. Those that are older were missed, and `missed` says what becomes of
    them: `all` fire, none, or with `once` the last one, if none is on time.
    """
    if schedule.missed == "all":
        return list(islice(_until(schedule, after_ms, now_ms), most))
    on_time_after = max(after_ms, now_ms - schedule.grace_ms - 1)
    on_time = list(islice(_until(schedule, on_time_after, now_ms), most))
    if on_time or schedule.missed == "skip":
        return on_time
    last = last_moment(schedule, after_ms, now_ms)
    return [] if last is None else [last]


def next_moment(schedule: Schedule, after_ms: int) -> int | None:
    """The first moment after `after_ms`, or None if the schedule has none left."""
    return next(moments(schedule, after_ms), None)


def last_moment(schedule: Schedule, after_ms: int, until_ms: int) -> int | None:
    """The last moment after `after_ms` and up to `until_ms`, or None if none falls between them."""
    for span in _BACK_MS:
        start = max(after_ms, until_ms - span)
        found = [*_until(schedule, start, until_ms)]
        if found or start == after_ms:
            return found[-1] if found else None
    return None


def moments(schedule: Schedule, after_ms: int) -> Iterator[int]:
    """All moments after this one, in order. Raises `UsageError` where `cronsim` or the time zone is not installed."""
    if schedule.every_ms:
        moment = after_ms - after_ms % schedule.every_ms
        while True:
            moment += schedule.every_ms
            yield moment
    elif schedule.cron:
        yield from _cron(schedule.cron, zone_of(schedule.zone), after_ms)
    elif (moment := one_time(schedule)) > after_ms:
        yield moment


def one_time(schedule: Schedule) -> int:
    """The moment of a schedule that fires once. A time that clocks skip is counted on from before they do."""
    local = datetime.fromisoformat(schedule.at)
    return _ms(local if local.tzinfo is not None else local.replace(tzinfo=zone_of(schedule.zone)))


def _until(schedule: Schedule, after_ms: int, until_ms: int) -> Iterator[int]:
    for moment in moments(schedule, after_ms):
        if moment > until_ms:
            return
        yield moment


def _cron(expression: str, zone: ZoneInfo, after_ms: int) -> Iterator[int]:
    try:
        from cronsim import CronSim  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the schedule {expression!r} is a cron expression, and cronsim is not installed",
            next_step=extra_command("schedules"),
        ) from error
    # cronsim walks over local times without a zone: with one it loses moments where clocks change by half an hour.
    start = _local(after_ms, zone).replace(tzinfo=None)
    first, second = _passes(start, zone)
    # In the first of two passes the walk begins before it, since all of the second one is still to come.
    walk = CronSim(expression, start - timedelta(milliseconds=max(second - first, 0)))
    minute, hour, *_ = expression.split()
    elapsed = minute.startswith("*") or hour.startswith("*")
    for moment in _elapsed(walk, zone) if elapsed else _named(walk, zone):
        if moment > after_ms:
            yield moment
            after_ms = moment


def _elapsed(walk: Iterator[datetime], zone: ZoneInfo) -> Iterator[int]:
    """The moments at which clocks show these local times: none for one that is skipped, and two for a repeated one."""
    repeated: list[int] = []  # of the second pass, which comes after all moments of the first one
    for local in walk:
        first, second = _passes(local, zone)
        while repeated and repeated[0] < first:
            yield repeated.pop(0)
        if first <= second:
            yield first
        if first < second:
            repeated.append(second)


def _named(walk: Iterator[datetime], zone: ZoneInfo) -> Iterator[int]:
    """One moment for each of these local times: the first one, or the end of the change that skips it."""
    for local in walk:
        first, second = _passes(local, zone)
        yield first if first <= second else _change(zone, second, first)


def _passes(local: datetime, zone: ZoneInfo) -> tuple[int, int]:
    """The moment of a local time as it is read with the offset before a change near it, and with the one after it.

    They differ where clocks repeat the time, and are in the other order where clocks skip it.
    """
    return _ms(local.replace(tzinfo=zone, fold=0)), _ms(local.replace(tzinfo=zone, fold=1))


def _change(zone: ZoneInfo, before_ms: int, after_ms: int) -> int:
    """The moment after the one and up to the other from which on clocks have another offset."""
    old = _local(before_ms, zone).utcoffset()
    later = range(before_ms + 1, after_ms + 1)
    return later[bisect_left(later, True, key=lambda moment: _local(moment, zone).utcoffset() != old)]


def _local(moment_ms: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).astimezone(zone)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
