"""Use of budgets that runs share: the open reservations of one run, and the charges that a record makes. Pure.

Each budget has one counter for each limit and period, which every process changes. A record that reserves or settles
carries its charges in its own commit, so the counters are the sum over all records, whichever process is killed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.model import records as r
from holdfast.model.run_budget import settled
from holdfast.model.usage import Usage
from holdfast.policies import MOST


class Charge(msgspec.Struct, frozen=True, gc=False):
    """A change of one counter: that of a limit of a budget in one period.

    With `most` it is refused where what is used and reserved has come to that before; the charge itself may exceed it.
    """

    budget: str
    period: str
    limit: str
    used: int
    reserved: int
    most: int | None = None


class Reservation(msgspec.Struct, frozen=True):
    """A model call in flight: the periods of the budgets that it is charged to, and the tokens that it reserves."""

    periods: tuple[tuple[str, str], ...]
    tokens: int


class SharedUse(msgspec.Struct, eq=False):
    """The reservations of a run that are open, by step, and the tokens of its largest call."""

    open: dict[str, Reservation] = {}
    largest: int = 0

    def take(self, record: r.Record) -> list[Charge]:
        """Take one record of the run, and return its charges.

        A call that has no answer when its run ends, is suspended or gets another owner counts with what it reserved.
        """
        match record:
            case r.DecisionStarted():
                charges = self._settle(record.step, record.before)
                if record.shared:
                    self.open[record.step] = Reservation(record.shared, min(record.reserved, MOST))
                    charges += _charges(self.open[record.step], (0, 0), 1)
                return charges
            case r.DecisionRecorded() | r.ReservationSettled():
                return self._settle(record.step, record.usage)
            case r.Claimed() | r.RunSuspendedRecord() | r.RunStoppedRecord() | r.RunCompleted() | r.RunUndone():
                return [charge for step in list(self.open) for charge in self._settle(step, Usage())]
            case _:
                return []

    def reserved_by(self, step: str, period: tuple[str, str], limit: str) -> int:
        """How much of a limit the call of this step reserves in that period of a budget."""
        held = self.open.get(step)
        if held is None or period not in held.periods:
            return 0
        return held.tokens if limit == "tokens" else 1

    def _settle(self, step: str, usage: Usage) -> list[Charge]:
        held = self.open.pop(step, None)
        if held is None:
            return []
        calls, tokens = settled(usage, held.tokens)
        self.largest = max(self.largest, usage.input_tokens + usage.output_tokens)
        return _charges(held, (calls, min(tokens, MOST)), -1)


def charges_of(use: SharedUse | None, records: Iterable[r.Record]) -> tuple[Charge, ...]:
    """The charges of records that are about to be added. The state of the run is not changed."""
    use = SharedUse() if use is None else replace(use, open=dict(use.open))
    return tuple(charge for record in records for charge in use.take(record))


def _charges(held: Reservation, used: tuple[int, int], sign: int) -> list[Charge]:
    calls, tokens = used
    return [
        Charge(budget, period, *change)
        for budget, period in held.periods
        for change in (("model_calls", calls, sign), ("tokens", tokens, sign * held.tokens))
    ]
