"""Counters of shared budgets against the records: each is the sum of what the records of all runs charge.

The journal changes a counter in the commit of the record that charges it, so only another program makes the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from beforehand.errors import BeforehandError
from beforehand.inspect.reader import JournalReader
from beforehand.journal.cells import BudgetUse, budget_uses, charged
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory
from beforehand.model.shared_use import Charge
from beforehand.model.shell import to_type

MEND: Final = f"mend it: {to_type('doctor', '--rebuild')}"
"""For what the records say better."""
LOST: Final = "records that it covers are gone, or another program changed it: restore a backup that has them"
"""For what claims more than the records hold. Computed anew from them, a run that has ended would go on."""

Sums: TypeAlias = dict[tuple[str, str, str], BudgetUse]
"""The counters that the records add up to, by budget, period and limit."""


class WrongCounter(msgspec.Struct, frozen=True):
    """A counter as it is stored, and as it should be."""

    stored: BudgetUse
    right: BudgetUse

    @property
    def name(self) -> str:
        """The counter in a sentence."""
        return f"the counter of {self.right.limit} of the budget {self.right.budget}, {self.right.period}"

    @property
    def why(self) -> str:
        """The difference, and what helps."""
        right, stored = self.right, self.stored
        return (
            f"it has {stored.used} used and {stored.reserved} reserved, and the records add up to {right.used} and "
            f"{right.reserved}; {LOST if stored.used > right.used else MEND}"
        )

    @property
    def mend(self) -> Charge:
        """The charge that puts it right, whatever is charged meanwhile."""
        right, stored = self.right, self.stored
        more = right.used - stored.used, right.reserved - stored.reserved
        return Charge(right.budget, right.period, right.limit, *more)


def take(history: RunHistory, record: r.Record, charges: list[Charge]) -> None:
    """Add a record to the history of its run, and its charges to those of the run."""
    if history.shared is not None or getattr(record, "shared", False) or isinstance(record, r.ChildStarted):
        charges += history.charges((record,))
    history.add(record)
    if isinstance(record, r.CommandApplied) and record.command == "fork":
        charges.clear()  # those before it belong to the run it was forked from


def add_up(sums: Sums, charges: Sequence[Charge]) -> None:
    """Add the charges of one run."""
    for use in charged(charges, lambda one: _of(sums, (one.budget, one.period, one.limit))):
        sums[use.budget, use.period, use.limit] = use


async def wrong_counters(reader: JournalReader, sums: Sums | None = None) -> list[WrongCounter]:
    """The counters that differ from the records; none where a run cannot be read. `sums` are those read before.

    Processes may charge while records are read. So what differs is read once more, and counts if nothing has moved.
    """
    first = await _differing(reader, await _sums(reader) if sums is None else sums)
    if not first:
        return []
    return [one for one in await _differing(reader, await _sums(reader)) if one in first]


async def _differing(reader: JournalReader, sums: Sums | None) -> list[WrongCounter]:
    if sums is None:
        return []
    stored: Sums = {(use.budget, use.period, use.limit): use for use in await budget_uses(reader.journal, None)}
    return [
        WrongCounter(_of(stored, key), _of(sums, key))
        for key in sorted({*stored, *sums})
        if _of(stored, key) != _of(sums, key)
    ]


async def _sums(reader: JournalReader) -> Sums | None:
    sums: Sums = {}
    try:
        async for row in reader.every_run():
            history, charges = RunHistory(row.run), list[Charge]()
            async for _, record in reader.records(row.run):
                take(history, record, charges)
            add_up(sums, charges)
    except BeforehandError:
        return None
    return sums


def _of(sums: Sums, key: tuple[str, str, str]) -> BudgetUse:
    return sums.get(key) or BudgetUse(*key)
