"""Spending as it happens: the calls of models in the newest records, summed up over a sliding window.

Each look reads only the records that came since the last one, so it is cheap however large the journal is. The complete
sums are those of `inspect/costs.py`, which reads every run.
"""

from __future__ import annotations

import contextlib
from typing import Final

from msgspec.structs import replace

from beforehand.errors import Unreadable
from beforehand.inspect.costs import CallsOfRun, CostLine
from beforehand.inspect.prices import Prices
from beforehand.journal.port import EVERY_RECORD, Reader
from beforehand.journal.record_codec import decode, prefixes_of
from beforehand.model import records as r

WINDOW_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_KINDS: Final = prefixes_of(r.DecisionStarted, r.DecisionRecorded, r.ReservationSettled)
_BEGINNINGS: Final = '{"kind":"Decision', '{"kind":"ReservationSettled'
"""The beginnings of these kinds, which the searches look for."""
_AT_ONCE: Final = 10_000
"""How many records are read at once, and how many of them may be calls of models."""
_NEAR: Final = 20
_MOST: Final = 200_000
"""How many records the first look reads at most."""


class Spending:
    """The calls of models in the last hour, by the wall clock, as far as they were read.

    `since_ms` is where the sums begin: later than an hour ago in a journal that grows too fast for the first look.
    """

    def __init__(self, journal: Reader, prices: Prices) -> None:
        self._journal: Final = journal
        self._prices: Final = prices
        self._minutes: dict[int, CostLine] = {}
        self._runs: dict[str, CallsOfRun] = {}  # those with calls that have not ended
        self._read = 0
        self.since_ms = 0

    async def look(self, now_ms: int) -> CostLine:
        """Read what came since the last look. The sums of the last hour."""
        since = self.since_ms = max(self.since_ms, now_ms - WINDOW_MS)
        found = await self._journal.search("", EVERY_RECORD, 1)
        newest = found[0].number if found else 0
        came: list[tuple[int, str, r.Record]] = []
        last, floor = newest, max(self._read + 1, newest + 1 - _MOST)
        while last >= floor:
            start = max(floor, last + 1 - _AT_ONCE)
            for beginning in _BEGINNINGS:
                found = await self._journal.search(beginning, range(start, last + 1), _AT_ONCE)
                came += [(one.number, one.run, record) for one in found if (record := _counted(one.body)) is not None]
            last = start - 1
            if await self._moment(start) < self.since_ms:
                break
        else:
            if floor > self._read + 1:  # more than one look reads
                self.since_ms = max(self.since_ms, await self._moment(floor))
        self._read = max(self._read, newest)
        for _, run, record in sorted(came, key=lambda one: one[0]):
            call = self._runs.setdefault(run, CallsOfRun()).take(record)
            if call is not None and call.at_ms >= since:
                line = self._minutes.setdefault(call.at_ms // _MINUTE_MS, CostLine("minute"))
                line.called(call.used, call.cost(self._prices))
        self._runs = {run: calls for run, calls in self._runs.items() if not calls.forget(since)}
        self._minutes = {minute: one for minute, one in self._minutes.items() if minute >= self.since_ms // _MINUTE_MS}
        total = CostLine("total")
        for line in self._minutes.values():
            total.merge(line)
        for calls in self._runs.values():
            for call in calls.open():
                total.called(call.used, None)
        return total

    async def _moment(self, number: int) -> int:
        """The wall clock at about this record; where it cannot be read, the begin of the sums."""
        for found in await self._journal.search("", range(number, number + _NEAR), _NEAR):
            with contextlib.suppress(Unreadable):
                if at_ms := decode(found.body).at:  # contracts have none
                    return at_ms
        return self.since_ms


def _counted(body: bytes) -> r.Record | None:
    """A record of a call without the texts: those of all calls of an hour may be large. None for any other record."""
    if not body.startswith(_KINDS):
        return None
    try:
        record = decode(body)
    except Unreadable:
        return None
    return replace(record, seen=r.NOTHING, result=r.NOTHING) if isinstance(record, r.DecisionRecorded) else record
