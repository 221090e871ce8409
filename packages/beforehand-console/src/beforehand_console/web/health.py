"""How people keep up, for pages and API: read at most once in a while, for all callers."""

from __future__ import annotations

import asyncio
from typing import Final, Literal, TypeAlias

import msgspec

from beforehand.inspect.reader import JournalReader
from beforehand_console.reviews.report import ReviewReport, report

Days: TypeAlias = Literal[1, 7, 30, 90]
FRESH_MS: Final = 30_000
"""How old a report may be. Reading one takes the records of every run that changed in its days."""


class HealthQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of days: a few choices, so that there are only a few reports to keep."""

    days: Days = 7


class ReportCache:
    """The last report of each length."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader: Final = reader
        self._kept: Final[dict[Days, ReviewReport]] = {}
        self._reading: Final = asyncio.Lock()

    async def recent(self, days: Days, now_ms: int) -> ReviewReport:
        """A report of the last `days` that is no older than `FRESH_MS`; a caller waits while it is read."""
        async with self._reading:
            kept = self._kept.get(days)
            if kept is None or not 0 <= now_ms - kept.watch.health.at_ms < FRESH_MS:
                kept = self._kept[days] = await report(self._reader, now_ms, days)
            return kept
