"""The look of a worker, and the report of a command: count the records that came since, and apply the rules.

The tallies of whole portions and what was found are entries of the ledger; everything else is read from the records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from beforehand.engine.outbox import Outbox
from beforehand.engine.process import newest_limits
from beforehand.errors import ChainBroken, Unreadable
from beforehand.inspect.monitors.counting import RecordTallies, add_records
from beforehand.inspect.monitors.findings import covered, finding_states, record_findings
from beforehand.inspect.monitors.observations import RunReading
from beforehand.inspect.monitors.rules import (
    DueRun,
    MissedFiring,
    MonitorSettings,
    Silence,
    SilentFailure,
    WaitingQueue,
    WrongClock,
    aged_queues,
    judged,
    late_schedules,
    silences_in,
    undriven,
    without_progress,
    wrong_clocks,
)
from beforehand.inspect.monitors.tallies import DAY_MS, AgentTallies, number_of
from beforehand.inspect.reader import JournalReader, read_schedules, schedule_clock
from beforehand.journal.backend_rules import due_since
from beforehand.journal.cells import last_firing
from beforehand.journal.port import Journal, JournalReads, RunRow
from beforehand.model import records as r
from beforehand.model.system import is_system
from beforehand.queues.firing_times import last_moment
from beforehand.queues.limits import Declaration
from beforehand.queues.schedules import KnownSchedule

_ENDED: Final = ("completed", "stopped", "undone")
_MOST: Final = 100


class MonitorReport(msgspec.Struct):
    """The findings, the oldest first; how many runs were counted, and those whose records cannot be read.

    `acknowledged` is the number of findings that a person has seen, and whose evidence has not changed since.
    """

    findings: list[SilentFailure] = []
    runs: int = 0
    unreadable: list[str] = []
    acknowledged: int = 0


async def watch(
    reader: JournalReader, to: Journal, outbox: Outbox, now_ms: int, settings: MonitorSettings, tallies: RecordTallies
) -> bool:
    """One look of a worker: count what came since the last look, and record what the rules find then, both in `to`.

    False where more records are left: nothing is judged then, and the next look should follow soon.
    """
    if not await tallies.count(reader, now_ms, settings, to):
        return False
    found = await _judged(reader, tallies, now_ms, settings)
    await record_findings(to, outbox, found, now_ms)
    return True


# --- judging ---------------------------------------------------------------------------------------------------------


async def present(reader: JournalReader, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    """The findings of all rules now, without those that are acknowledged. Nothing is stored."""
    report = await with_acknowledged(reader, now_ms, settings)
    states = await finding_states(reader.journal)
    fresh = [one for one in report.findings if not covered(states, one, now_ms)]
    report.findings, report.acknowledged = fresh, len(report.findings) - len(fresh)
    return report


async def with_acknowledged(reader: JournalReader, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    """The findings of all rules now, those included that are acknowledged. Nothing is stored."""
    tallies = RecordTallies()
    while not await tallies.count(reader, now_ms, settings, None):
        pass
    found = await _judged(reader, tallies, now_ms, settings)
    counted = [topics for one in tallies.counted.agents.values() for topics in one.hours.values()]
    runs = sum(number_of(topics, "versions") for topics in counted)
    return MonitorReport(found, runs, tallies.counted.unreadable)


async def _judged(
    reader: JournalReader, tallies: RecordTallies, now_ms: int, settings: MonitorSettings
) -> list[SilentFailure]:
    return [*await _of_now(reader, now_ms, settings), *judged(tallies.counted.agents, now_ms, settings)]


async def recorded(reader: JournalReader, since_ms: int, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    """The findings that the rules would have had since that wall clock, those of now included.

    Each day, counted back from now, is judged by what was on record then; days in a row with one finding are one. Every
    run is read, and nothing that passes have stored is used.
    """
    report, agents, silences, first_ms = MonitorReport(), dict[str, AgentTallies](), list[Silence](), now_ms
    async for row, records in _changed_since(reader, since_ms - settings.recent_ms - settings.past_ms, report):
        add_records(agents, RunReading(row.run), [(one, True) for one in records])
        silences += silences_in(row, records, settings.of(row.agent).silent_ms)
        first_ms = min([first_ms, *(one.at for one in records if one.at)])
    found = [one for one in without_progress(silences, settings) if one.at_ms >= since_ms]
    found += await _of_now(reader, now_ms, settings)
    before: set[str] = set()
    for day in range((now_ms - max(since_ms, first_ms)) // DAY_MS, -1, -1):  # before the first record nothing is found
        of_day = judged(agents, now_ms - day * DAY_MS, settings)
        found += [one for one in of_day if one.id not in before]
        before = {one.id for one in of_day}
    report.findings = sorted(settings.wanted(found), key=lambda one: one.at_ms)
    return report


async def _changed_since(
    reader: JournalReader, since_ms: int, report: MonitorReport
) -> AsyncIterator[tuple[RunRow, list[r.Record]]]:
    """The runs that have not ended before that wall clock, each with its records."""
    async for row in reader.every_run():
        if is_system(row.agent) or (row.status in _ENDED and row.updated_ms < since_ms):
            continue
        report.runs += 1
        try:
            yield row, [record async for _, record in reader.records(row.run)]
        except (ChainBroken, Unreadable):
            report.unreadable.append(row.run)


# --- the present -----------------------------------------------------------------------------------------------------


async def _of_now(reader: JournalReader, now_ms: int, settings: MonitorSettings) -> list[SilentFailure]:
    """The findings of the rules over the present."""
    journal, schedules = reader.journal, (await read_schedules(reader.journal)).schedules
    clocks = [
        WrongClock(name, known.schedule.agent, trace)
        for name, known in schedules.items()
        if (trace := await schedule_clock(journal, name, known, now_ms))
    ]
    paused = (await newest_limits(journal) or Declaration()).paused
    queues = [
        WaitingQueue(one.queue, one.waiting, one.oldest_ms)
        for one in await journal.queues()
        if one.oldest_ms is not None and one.queue not in paused
    ]
    due = [
        DueRun(row.agent, row.run, due_since(row)[0])
        for row in await journal.runs(wakeable=True, limit=_MOST)
        if not is_system(row.agent)
    ]
    found = [
        *without_progress([one async for one in _driven_now(reader, now_ms)], settings),
        *late_schedules([one async for one in _missed(journal, schedules, now_ms, settings)], now_ms, settings),
        *wrong_clocks(clocks, now_ms),
        *aged_queues(queues, now_ms, settings),
        *undriven(due, now_ms, settings),
    ]
    return settings.wanted(found)


async def _driven_now(reader: JournalReader, now_ms: int) -> AsyncIterator[Silence]:
    """The runs that a living process drives, each with the time since its last record."""
    gone: dict[str, bool] = {}
    async for row in reader.every_run(status="running"):
        if row.owner is None or is_system(row.agent):
            continue
        if row.owner not in gone:
            gone[row.owner] = (await reader.journal.fate(row.owner)).gone
        if gone[row.owner]:
            continue  # it waits for a worker: another rule
        newest = [record for _, record in await reader.newest_records(row.run, 3) if record.at]
        if newest:
            yield Silence(row.agent, row.run, newest[-1].at, now_ms, type(newest[-1]).__name__.removesuffix("Record"))


async def _missed(
    journal: JournalReads, schedules: Mapping[str, KnownSchedule], now_ms: int, settings: MonitorSettings
) -> AsyncIterator[MissedFiring]:
    """The schedules whose last moment, as long ago as they may be late, has not fired."""
    for name, known in schedules.items():
        if known.paused:
            continue
        fired = await last_firing(journal, name, now_ms)
        after = known.since_ms if fired is None else max(known.since_ms, fired.moment_ms)
        missed = last_moment(known.schedule, after, now_ms - settings.of(known.schedule.agent).late_ms - 1)
        if missed is not None:
            yield MissedFiring(name, known.schedule.agent, missed)
