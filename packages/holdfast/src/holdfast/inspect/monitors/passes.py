"""Passes over the journal: count what came since the last one, store the tallies, and apply the rules.

The tallies of all agents are one note in the journal together with the number of the last record that they count. It is
replaced as a whole and only where it still is the one that was read. So a pass that ends in the middle has changed
nothing, of two passes at once one counts, and a note that is lost is counted again from the records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from holdfast.engine.outbox import Outbox
from holdfast.engine.process import newest_limits
from holdfast.errors import ChainBroken, Unreadable
from holdfast.inspect.monitors import FINDINGS
from holdfast.inspect.monitors.observations import RunReading
from holdfast.inspect.monitors.rules import (
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
from holdfast.inspect.monitors.tallies import DAY_MS, HOUR_MS, AgentTallies, number_of
from holdfast.inspect.reader import JournalReader, read_schedules, schedule_clock
from holdfast.journal.backend_rules import due_since
from holdfast.journal.entry_codec import readable, written
from holdfast.journal.port import EVERY_RECORD, FoundRecord, Journal, Post, RunRow
from holdfast.journal.record_codec import decode
from holdfast.model import records as r
from holdfast.model.system import is_system
from holdfast.model.webhooks import OUTBOX, Kind, Notice
from holdfast.queues.firing_times import last_moment
from holdfast.queues.limits import Declaration

NOTE: Final = "monitors"
"""The name of the note that holds the tallies."""
STREAM: Final = "monitors"
"""The ledger stream of acknowledgements."""
ANNOUNCED: Final = "monitors/announced"
"""The name of the note with the findings that webhooks have announced, and have not announced to be over."""
AT_ONCE: Final = 2000
"""How many records are read at once."""
A_PASS: Final = 5 * AT_ONCE
"""How many new records a pass counts at most: it takes a fifth of a second. The next one goes on where it ended."""
KEPT_RECORDS: Final = 200_000
"""The records behind the readings that a process keeps between passes, at most: about 40 MB."""
FINE_MS: Final = 2 * DAY_MS
"""The time up to now of which the tallies are kept by the hour; before, by the day."""
_VERSION: Final = 2
_ENDED: Final = ("completed", "stopped", "undone")
_MOST: Final = 100


class StoredTallies(msgspec.Struct):
    """The note: the tallies of every agent over the records up to the number `through`, of this life of the journal."""

    incarnation: str = ""
    through: int = 0
    agents: dict[str, AgentTallies] = {}
    unreadable: list[str] = []
    version: int = _VERSION


class JudgedFindings(msgspec.Struct, frozen=True):
    """The findings at one moment, those included that are acknowledged, and since when each is found, by its name."""

    at_ms: int = 0
    findings: list[SilentFailure] = []
    since: dict[str, int] = {}


class Acknowledgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person has seen a finding, and its evidence up to that wall clock. `until_ms` is its end; 0: it has none."""

    finding: str
    newest_ms: int
    by: str
    why: str = ""
    until_ms: int = 0

    def ended_ms(self, finding: SilentFailure, at_ms: int, now_ms: int) -> int | None:
        """Since when newer evidence or its end let the finding be shown again. None: it covers the finding.

        `at_ms` is when it was given: with newer evidence the finding is found since then, and notified of anew.
        """
        if finding.newest_ms > self.newest_ms:
            return at_ms
        return self.until_ms if 0 < self.until_ms <= now_ms else None


class MonitorReport(msgspec.Struct):
    """The findings, the oldest first; how many runs were counted, and those whose records cannot be read.

    `acknowledged` is the number of findings that a person has seen, and whose evidence has not changed since.
    """

    findings: list[SilentFailure] = []
    runs: int = 0
    unreadable: list[str] = []
    acknowledged: int = 0


# --- counting --------------------------------------------------------------------------------------------------------


async def stored_tallies(reader: JournalReader) -> tuple[StoredTallies, bytes | None]:
    """The tallies as the last pass stored them, and the note itself. They are empty where they cannot be used."""
    note = await reader.journal.hint(NOTE)
    fresh = StoredTallies(reader.identity.incarnation)
    if note is None:
        return fresh, note
    try:
        found = msgspec.json.decode(note, type=StoredTallies)
    except (msgspec.MsgspecError, ValueError):
        return fresh, note
    usable = found.version == _VERSION and found.incarnation == fresh.incarnation
    return (found if usable and found.through <= await _newest(reader) else fresh), note


async def _newest(reader: JournalReader) -> int:
    newest = await reader.journal.search("", EVERY_RECORD, 1)
    return newest[0].number if newest else 0


class Readings:
    """The readings of the runs that have not ended, kept between passes: without them a run is read from the start."""

    def __init__(self) -> None:
        self._runs: dict[str, RunReading] = {}
        self._records = 0

    def taken(self, run: str, seq: int) -> RunReading:
        """The reading of a run up to that record or before it, which the caller goes on with."""
        reading = self._runs.pop(run, None)
        if reading is None:
            return RunReading(run)
        self._records -= reading.length
        return reading if reading.length < seq else RunReading(run)  # of a pass that was not stored

    def keep(self, reading: RunReading) -> None:
        """Keep a reading. Those that were kept first make room for it."""
        if reading.ended:
            return
        self._runs[reading.run] = reading
        self._records += reading.length
        while self._records > KEPT_RECORDS:
            self.taken(next(iter(self._runs)), 0)


async def catch_up(reader: JournalReader, tallies: StoredTallies, readings: Readings, most: int | None = None) -> int:
    """Count the records that came since, at most so many; the number of those that were counted."""
    before, newest = tallies.through, await _newest(reader)
    last = newest if most is None else min(newest, before + most)
    while tallies.through < last:
        await _count(reader, tallies, readings, min(last, tallies.through + AT_ONCE))
    return tallies.through - before


async def _count(reader: JournalReader, tallies: StoredTallies, readings: Readings, last: int) -> None:
    numbers = range(tallies.through + 1, last + 1)
    by_run: dict[str, list[FoundRecord]] = {}
    for one in reversed(await reader.journal.search("", numbers, len(numbers))):
        by_run.setdefault(one.run, []).append(one)
    for run, found in by_run.items():
        reading = readings.taken(run, found[0].seq)
        try:
            before = await _between(reader, reading, found[0].seq)
            records = [(record, False) for record in before] + [(decode(one.body), True) for one in found]
        except (ChainBroken, Unreadable):
            tallies.unreadable = sorted({*tallies.unreadable, run})[:_MOST]
            continue
        add_records(tallies.agents, reading, records)
        readings.keep(reading)
    tallies.through = last


async def _between(reader: JournalReader, reading: RunReading, seq: int) -> list[r.Record]:
    """The records after a reading and before that one. Raises `ChainBroken` where some are missing."""
    missing = seq - 1 - reading.length
    if not missing:
        return []
    rows = await reader.records_between(reading.run, reading.length, seq - 1)
    if len(rows) != missing:
        raise ChainBroken(f"run {reading.run} has {len(rows)} of {missing} records before {seq}")
    return [record for _, record in rows]


def add_records(agents: dict[str, AgentTallies], reading: RunReading, records: list[tuple[r.Record, bool]]) -> None:
    """Go on with the reading of a run, and count the marked records. Runs of the runtime itself are not counted."""
    made = [one for record, wanted in records for one in reading.read(record) if wanted]
    if not reading.agent or is_system(reading.agent):
        return
    for one in made:
        agents.setdefault(reading.agent, AgentTallies()).add(one)


async def monitor_pass(
    reader: JournalReader, now_ms: int, settings: MonitorSettings, readings: Readings, most: int = A_PASS
) -> int | None:
    """Count what came since the last pass and store that; the number of records. None: another process was faster."""
    tallies, note = await stored_tallies(reader)
    read = await catch_up(reader, tallies, readings, most)
    if not read:
        return 0
    first = (now_ms - settings.recent_ms - settings.past_ms) // DAY_MS * (DAY_MS // HOUR_MS)
    kept = {name: one.shortened(first, (now_ms - FINE_MS) // HOUR_MS) for name, one in tallies.agents.items()}
    tallies.agents = {name: one for name, one in kept.items() if one.hours}
    return read if await reader.journal.put_hint(NOTE, msgspec.json.encode(tallies), note) else None


async def watch(reader: JournalReader, now_ms: int, settings: MonitorSettings, readings: Readings) -> bool:
    """One round of a worker: a pass, and what the rules find then. While much is uncounted, nothing is judged.

    False where the pass was full: the next round should follow soon.
    """
    read = await monitor_pass(reader, now_ms, settings, readings)
    if read == A_PASS:
        return False
    if read is None:
        return True
    note = await reader.journal.hint(FINDINGS)
    tallies, _ = await stored_tallies(reader)
    before, found = _judged_findings(note).since, await _judged(reader, tallies, now_ms, settings)
    judged_now = JudgedFindings(now_ms, found, {one.id: before.get(one.id, now_ms) for one in found})
    await reader.journal.put_hint(FINDINGS, msgspec.json.encode(judged_now), note)
    return True


async def watched(reader: JournalReader, now_ms: int) -> JudgedFindings:
    """The findings of the last round, without those that are acknowledged.

    One whose acknowledgement has ended is found since then.
    """
    last = _judged_findings(await reader.journal.hint(FINDINGS))
    since = await _unseen(reader, last.findings, now_ms, last.since) if last.findings else {}
    return JudgedFindings(last.at_ms, [one for one in last.findings if one.id in since], since)


async def announce(reader: JournalReader, outbox: Outbox, now_ms: int) -> None:
    """Post each finding that came since the last call, and each that is over or acknowledged, if an endpoint asks.

    The note is replaced after the posts, and each post has a key: a process that dies loses none and repeats none.
    """
    journal, shown = reader.journal, await watched(reader, now_ms)
    note, found = await journal.hint(ANNOUNCED), _judged_findings(await journal.hint(FINDINGS)).since
    before = _judged_findings(note)
    news = [_notice("finding.raised", one, shown.since[one.id], now_ms) for one in _only_in(shown, before)]
    for one in _only_in(before, shown):
        reason = "acknowledged" if one.id in found else "over"
        news.append(_notice("finding.ended", one, before.since[one.id], now_ms, reason))
    for notice in news:
        if outbox.wants(notice.kind):
            await journal.post(Post(OUTBOX, f"{notice.kind}/{notice.run}@{notice.turn}", written(notice)))
    if news:
        await journal.put_hint(ANNOUNCED, msgspec.json.encode(shown), note)


def _only_in(here: JudgedFindings, there: JudgedFindings) -> list[SilentFailure]:
    """The findings that are not in the others, or since another moment."""
    return [one for one in here.findings if here.since[one.id] != there.since.get(one.id)]


def _notice(kind: Kind, one: SilentFailure, since_ms: int, now_ms: int, reason: str = "") -> Notice:
    data = {**msgspec.to_builtins(one), "since_ms": since_ms, "reason": reason}
    return Notice(kind, one.id, one.agent, now_ms, turn=since_ms, data=data)


def _judged_findings(note: bytes | None) -> JudgedFindings:
    try:
        return JudgedFindings() if note is None else msgspec.json.decode(note, type=JudgedFindings)
    except (msgspec.MsgspecError, ValueError):
        return JudgedFindings()


# --- judging ---------------------------------------------------------------------------------------------------------


async def present(reader: JournalReader, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    """The findings of all rules now, without those that are acknowledged. Nothing is stored."""
    report = await with_acknowledged(reader, now_ms, settings)
    shown = await _unseen(reader, report.findings, now_ms)
    fresh = [one for one in report.findings if one.id in shown]
    report.findings, report.acknowledged = fresh, len(report.findings) - len(fresh)
    return report


async def with_acknowledged(reader: JournalReader, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    """The findings of all rules now, those included that are acknowledged."""
    tallies, _ = await stored_tallies(reader)
    await catch_up(reader, tallies, Readings())
    found = await _judged(reader, tallies, now_ms, settings)
    return MonitorReport(found, _runs_in(tallies.agents), tallies.unreadable)


async def _judged(
    reader: JournalReader, tallies: StoredTallies, now_ms: int, settings: MonitorSettings
) -> list[SilentFailure]:
    return [*await _of_now(reader, now_ms, settings), *judged(tallies.agents, now_ms, settings)]


async def acknowledge(journal: Journal, seen: Acknowledgement) -> None:
    """Record that a person has seen a finding: it is shown again once there is newer evidence, or its time is over."""
    await journal.post(Post(STREAM, "", written(seen)))


async def _unseen(
    reader: JournalReader, found: list[SilentFailure], now_ms: int, since: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """Those that no acknowledgement covers, by name, each with the moment since which it has to be shown."""
    entries = await readable(reader.journal, await reader.journal.entries(STREAM), Acknowledgement)
    seen = {one.finding: (one, entry.at_ms) for entry, one in entries}
    shown: dict[str, int] = {}
    for one in found:
        acknowledged, at_ms = seen.get(one.id, (None, 0))
        ended = 0 if acknowledged is None else acknowledged.ended_ms(one, at_ms, now_ms)
        if ended is not None:
            shown[one.id] = max(since.get(one.id, now_ms), ended)
    return shown


def _runs_in(agents: dict[str, AgentTallies]) -> int:
    return sum(number_of(topics, "versions") for one in agents.values() for topics in one.hours.values())


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
    found = [
        *without_progress([one async for one in _driven_now(reader, now_ms)], settings),
        *late_schedules([one async for one in _missed(reader, now_ms, settings)], now_ms, settings),
        *wrong_clocks([one async for one in _clocks(reader, now_ms)], now_ms),
        *aged_queues([one async for one in _waiting(reader)], now_ms, settings),
        *undriven([one async for one in _due(reader)], now_ms, settings),
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


async def _missed(reader: JournalReader, now_ms: int, settings: MonitorSettings) -> AsyncIterator[MissedFiring]:
    """The schedules whose last moment, as long ago as they may be late, has not fired."""
    for name, known in (await read_schedules(reader.journal)).schedules.items():
        if known.paused:
            continue
        fired = await reader.journal.fired(name, now_ms)
        after = known.since_ms if fired is None else max(known.since_ms, fired.moment_ms)
        missed = last_moment(known.schedule, after, now_ms - settings.of(known.schedule.agent).late_ms - 1)
        if missed is not None:
            yield MissedFiring(name, known.schedule.agent, missed)


async def _clocks(reader: JournalReader, now_ms: int) -> AsyncIterator[WrongClock]:
    """The schedules on which a wrong clock has left its trace."""
    for name, known in (await read_schedules(reader.journal)).schedules.items():
        if trace := await schedule_clock(reader.journal, name, known, now_ms):
            yield WrongClock(name, known.schedule.agent, trace)


async def _waiting(reader: JournalReader) -> AsyncIterator[WaitingQueue]:
    """The queues in which a run is ready and waits, without those that a person has paused."""
    paused = (await newest_limits(reader.journal) or Declaration()).paused
    for one in await reader.journal.queues():
        if one.oldest_ms is not None and one.queue not in paused:
            yield WaitingQueue(one.queue, one.waiting, one.oldest_ms)


async def _due(reader: JournalReader) -> AsyncIterator[DueRun]:
    """The runs that are due and that no living process drives."""
    for row in await reader.journal.runs(wakeable=True, limit=_MOST):
        if not is_system(row.agent):
            yield DueRun(row.agent, row.run, due_since(row)[0])
