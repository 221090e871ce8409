"""Counting: the tallies of all records, in the memory of the process that counts, and in the ledger portion by portion.

A portion is `PORTION` records with consecutive numbers. Its tallies follow from the records alone, so every process
computes the same, and the first one to finish a portion posts them as a ledger entry. A process that starts adds up
the entries and counts the records after them, fewer than a portion. A count that fails halfway has changed nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from beforehand.errors import ChainBroken, Unreadable
from beforehand.inspect.monitors import TALLIES
from beforehand.inspect.monitors.observations import RunReading
from beforehand.inspect.monitors.rules import MonitorSettings
from beforehand.inspect.monitors.tallies import DAY_MS, HOUR_MS, AgentTallies
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import EVERY_RECORD, FoundRecord, Journal, LedgerEntry, Post
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.model.system import is_system

PORTION: Final = 10_000
"""The number of records in a portion. Counting them takes a fifth of a second."""
BLOCK: Final = 100
"""The number of portions in a stream. Streams older than the past of the rules are not read."""
AT_ONCE: Final = 2000
"""How many records are read at once."""
KEPT_RECORDS: Final = 200_000
"""The records behind the readings that a process keeps, at most: about 40 MB."""
FINE_MS: Final = 2 * DAY_MS
"""The time up to now of which the tallies are kept by the hour; before, by the day."""
_MOST: Final = 100


class PortionTallies(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A ledger entry: the tallies of a portion by agent, and its runs whose records cannot be read."""

    agents: dict[str, AgentTallies] = {}
    unreadable: list[str] = []

    def add(self, other: PortionTallies) -> None:
        """Add the tallies of another portion."""
        for agent, tallies in other.agents.items():
            self.agents.setdefault(agent, AgentTallies()).add_all(tallies)
        self.unreadable = sorted({*self.unreadable, *other.unreadable})[:_MOST]

    def shortened(self, first: int, fine: int) -> PortionTallies:
        """As `AgentTallies.shortened`, for every agent that has tallies left."""
        kept = {agent: tallies.shortened(first, fine) for agent, tallies in self.agents.items()}
        return PortionTallies({agent: tallies for agent, tallies in kept.items() if tallies.hours}, self.unreadable)


class Readings:
    """The readings of runs that have not ended, kept for the next count: without one, a run is read from the start."""

    def __init__(self) -> None:
        self._runs: dict[str, RunReading] = {}
        self._records = 0

    def taken(self, run: str, seq: int) -> RunReading:
        """The reading of a run up to that record or before it, which the caller goes on with."""
        reading = self._runs.pop(run, None)
        if reading is None:
            return RunReading(run)
        self._records -= reading.length
        return reading if reading.length < seq else RunReading(run)  # of a count that failed

    def keep(self, reading: RunReading) -> None:
        """Keep a reading. Those that were kept first make room for it."""
        if reading.ended:
            return
        self._runs[reading.run] = reading
        self._records += reading.length
        while self._records > KEPT_RECORDS:
            self.taken(next(iter(self._runs)), 0)


class RecordTallies:
    """The tallies of all records up to the number `through`, for the past that rules look at.

    `whole` is the number of the last record of the last complete portion.
    """

    def __init__(self) -> None:
        self.counted = PortionTallies()
        self.through: int = 0
        self.whole: int = 0
        self._portion = PortionTallies()  # what is counted after `whole`
        self._readings = Readings()
        self._loaded = False

    async def count(self, reader: JournalReader, now_ms: int, settings: MonitorSettings, to: Journal | None) -> bool:
        """Count new records up to the end of the portion, and post it `to` a journal. True: no more are left."""
        first, fine = settings.first_ms(now_ms) // HOUR_MS, (now_ms - FINE_MS) // HOUR_MS
        found = await reader.journal.search("", EVERY_RECORD, 1)
        newest = found[0].number if found else 0
        if not self._loaded:
            await self._load(reader, newest, first)
            self.counted = self.counted.shortened(first, fine)
        last = min(newest, self.whole + PORTION)
        while self.through < last:
            await self._count(reader, min(last, self.through + AT_ONCE))
        if self.through == self.whole + PORTION:
            number = self.whole // PORTION
            if to is not None:
                body = written(self._portion.shortened(0, fine))
                await to.commit(Post(f"{TALLIES}/{number // BLOCK}", str(number), body))
            self.whole, self._portion = self.through, PortionTallies()
            self.counted = self.counted.shortened(first, fine)
        return self.through == newest

    async def _load(self, reader: JournalReader, newest: int, first: int) -> None:
        """Add up the portions in the ledger, starting with the newest stream that was begun before the hour `first`."""
        block, entries = newest // PORTION // BLOCK, list[LedgerEntry]()
        while block >= 0 and (not entries or entries[0].at_ms >= first * HOUR_MS):
            entries = [*await reader.journal.entries(f"{TALLIES}/{block}"), *entries]
            block -= 1
        portions = await readable(reader.journal, entries, PortionTallies)
        self.through = int(entries[0].key) * PORTION if entries else 0
        for entry, portion in portions:
            if int(entry.key) * PORTION != self.through:
                break  # the entry of a portion cannot be read: its records are counted again
            self.counted.add(portion)
            self.through += PORTION
        self.whole, self._loaded = self.through, True

    async def _count(self, reader: JournalReader, last: int) -> None:
        numbers, made = range(self.through + 1, last + 1), PortionTallies()
        by_run: dict[str, list[FoundRecord]] = {}
        for one in reversed(await reader.journal.search("", numbers, len(numbers))):
            by_run.setdefault(one.run, []).append(one)
        for run, found in by_run.items():
            reading = self._readings.taken(run, found[0].seq)
            try:
                before = await _between(reader, reading, found[0].seq)
                records = [(record, False) for record in before] + [(decode(one.body), True) for one in found]
            except (ChainBroken, Unreadable):
                made.unreadable.append(run)
                continue
            add_records(made.agents, reading, records)
            self._readings.keep(reading)
        self.through = last
        self.counted.add(made)
        self._portion.add(made)


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
