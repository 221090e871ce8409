"""Spending as it happens: the calls of models in the newest records, summed up over a sliding window.

Each look reads only the records that came since the last one, so it is cheap however large the journal is. The complete
sums are those of `inspect/costs.py`, which reads every run.
"""

from __future__ import annotations

import contextlib
from typing import Final

from holdfast.errors import Unreadable
from holdfast.inspect.costs import CostLine
from holdfast.inspect.prices import Prices
from holdfast.journal.port import EVERY_RECORD, Reader
from holdfast.journal.record_codec import decode, prefixes_of
from holdfast.model import records as r
from holdfast.model.usage import Usage

WINDOW_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_KINDS: Final = prefixes_of(r.DecisionStarted, r.DecisionRecorded)
_COMMON: Final = '{"kind":"Decision'
"""The beginning of both kinds, which the search looks for."""
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
        self._read = 0
        self.since_ms = 0

    async def look(self, now_ms: int) -> CostLine:
        """Read what came since the last look. The sums of the last hour."""
        self.since_ms = max(self.since_ms, now_ms - WINDOW_MS)
        found = await self._journal.search("", EVERY_RECORD, 1)
        newest = found[0].number if found else 0
        last, floor = newest, max(self._read + 1, newest + 1 - _MOST)
        while last >= floor:
            start = max(floor, last + 1 - _AT_ONCE)
            for one in await self._journal.search(_COMMON, range(start, last + 1), _AT_ONCE):
                self._add(one.body)
            last = start - 1
            if await self._moment(start) < self.since_ms:
                break
        else:
            if floor > self._read + 1:  # more than one look reads
                self.since_ms = max(self.since_ms, await self._moment(floor))
        self._read = max(self._read, newest)
        self._minutes = {minute: one for minute, one in self._minutes.items() if minute >= self.since_ms // _MINUTE_MS}
        total = CostLine("total")
        for line in self._minutes.values():
            total.merge(line)
        return total

    async def _moment(self, number: int) -> int:
        """The wall clock at about this record; where it cannot be read, the begin of the sums."""
        for found in await self._journal.search("", range(number, number + _NEAR), _NEAR):
            with contextlib.suppress(Unreadable):
                if at_ms := decode(found.body).at:  # contracts have none
                    return at_ms
        return self.since_ms

    def _add(self, body: bytes) -> None:
        if not body.startswith(_KINDS):
            return
        try:
            record = decode(body)
        except Unreadable:
            return
        used = record.usage if isinstance(record, r.DecisionRecorded) else getattr(record, "before", Usage())
        if record.at < self.since_ms or not (used.known or isinstance(record, r.DecisionRecorded)):
            return
        line = self._minutes.setdefault(record.at // _MINUTE_MS, CostLine("minute"))
        if used.known:
            recorded = getattr(record, "price", None) if isinstance(record, r.DecisionRecorded) else None
            line.add(used, recorded or (None if used.refused else self._prices.cost(used, record.at)))
        else:
            line.calls += 1
            line.uncounted += 1
