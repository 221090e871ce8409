"""Planted bugs of schedules: moments, missed ones, clocks that change, pauses, and declarations."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from simulator.generator.schedules import SCHEDULED
from simulator.mutations.mutation import Mutant, always


def _rule(missed: str) -> Any:
    """Another rule for what was missed than the one that is declared."""

    def twist(original: Any) -> Any:
        def due(schedule: Any, after_ms: int, now_ms: int, most: int = 100) -> Any:
            return original(replace(schedule, missed=missed), after_ms, now_ms, most)

        return due

    return twist


def first_of_the_missed(_original: Any) -> Any:
    """Of the moments that were missed the first one fires, and not the last one."""

    def last_moment(schedule: Any, after_ms: int, until_ms: int) -> Any:
        from beforehand.queues.firing_times import next_moment  # noqa: PLC0415 - it is the module that is mutated

        found = next_moment(schedule, after_ms)
        return found if found is not None and found <= until_ms else None

    return last_moment


def clocks_of_utc(original: Any) -> Any:
    """The time zone of an expression is not read."""

    def cron(expression: str, _zone: Any, after_ms: int) -> Any:
        from datetime import UTC  # noqa: PLC0415 - as the original

        return original(expression, UTC, after_ms)

    return cron


def repeated_hour_fires_again(_original: Any) -> Any:
    """A time that exists twice fires twice: the second pass of an hour is not told from the first."""

    def cron(expression: str, zone: Any, after_ms: int) -> Any:
        from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - as the original

        from cronsim import CronSim  # noqa: PLC0415 - an extra

        # Times are counted without a zone, and each is read with the offset of the moment before it.
        start = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(zone)
        offset = start.utcoffset() or timedelta()
        for found in CronSim(expression, start.replace(tzinfo=None)):
            moment = (found - offset).replace(tzinfo=UTC)
            offset = moment.astimezone(zone).utcoffset() or timedelta()
            yield round(moment.timestamp() * 1000)

    return cron


def resumed_from_its_pause(original: Any) -> Any:
    """A schedule that is resumed fires what it missed while it was paused."""

    def after(self: Any, number: int, at_ms: int, entry: Any) -> Any:
        found = original(self, number, at_ms, entry)
        if entry.word != "resume" or entry.schedule not in found.schedules:
            return found
        known = {**found.schedules}
        known[entry.schedule] = replace(known[entry.schedule], since_ms=self.schedules[entry.schedule].since_ms)
        return replace(found, schedules=known)

    return after


def declared_anew(original: Any) -> Any:
    """A schedule whose timing has changed keeps the moment from which on it fires."""

    def declared(before: Any, schedule: Any, at_ms: int) -> Any:
        found = original(before, schedule, at_ms)
        return found if before is None else replace(found, since_ms=before.since_ms)

    return declared


def firings_not_stored(original: Any) -> Any:
    """The commit that submits a run does not store that its schedule has fired."""

    def apply(database: Any, changes: Any) -> None:
        changes.cells = {address: body for address, body in changes.cells.items() if address[0] != "once"}
        original(database, changes)

    return apply


SCHEDULE_BUGS: Final = (
    Mutant(
        "firings not stored",
        "the commit that submits the run does not store that its schedule has fired",
        "beforehand.journal.sqlite.facts:apply",
        firings_not_stored,
        from_seed=SCHEDULED,
    ),
    Mutant(
        "firings not compared",
        "the transaction does not compare the moment and the newest declaration",
        "beforehand.journal.requests:_may_fire",
        always(value=True),
        from_seed=SCHEDULED,
    ),
    Mutant(
        "what was missed fires",
        "all missed moments fire, whatever is declared",
        "beforehand.queues.firing_times:due",
        _rule("all"),
        from_seed=SCHEDULED,
    ),
    Mutant(
        "what was missed is skipped",
        "no missed moment fires, whatever is declared",
        "beforehand.queues.firing_times:due",
        _rule("skip"),
        from_seed=SCHEDULED,
    ),
    Mutant(
        "the first of the missed",
        "of the missed moments the first one fires instead of the last",
        "beforehand.queues.firing_times:last_moment",
        first_of_the_missed,
        from_seed=SCHEDULED,
    ),
    Mutant(
        "zone of an expression ignored",
        "expressions are read in UTC",
        "beforehand.queues.firing_times:_cron",
        clocks_of_utc,
        from_seed=SCHEDULED,
    ),
    Mutant(
        "clock changes ignored",
        "a time that clocks repeat fires twice, or another hour than the declared one",
        "beforehand.queues.firing_times:_cron",
        repeated_hour_fires_again,
        from_seed=SCHEDULED,
    ),
    Mutant(
        "a pause made up for",
        "a schedule that is resumed fires what it missed while it was paused",
        "beforehand.queues.schedules:ScheduleBook.after",
        resumed_from_its_pause,
        from_seed=SCHEDULED,
    ),
    Mutant(
        "new timing from the beginning",
        "a schedule that is declared with another timing fires moments of the past",
        "beforehand.queues.schedules:_declared",
        declared_anew,
        from_seed=SCHEDULED,
    ),
)
"""Each is looked for in the seeds with schedules, over a journal in a file."""
