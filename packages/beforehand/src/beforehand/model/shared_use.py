"""Use of budgets that runs share: the open reservations of one run, and the charges that a record makes. Pure.

Each budget has one counter for each limit and period, which every process changes. A record that reserves or settles
carries its charges in its own commit, so the counters are the sum over all records, whichever process is killed.

A model call is charged by its records, and an operation by what its state counts before and after each of its records:
an effect that is under way is reserved, and one that happened or may have happened is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.money import cost_counter, units_of, written_money
from beforehand.model.operation import OperationState
from beforehand.model.run_budget import BudgetState, CallUse, ReservedCall, cost_of, is_effect, settled
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import MOST

TREE: Final = "tree"
"""The period of the budget of a tree of runs: it has no days."""
Place: TypeAlias = tuple[str, str]
"""A budget, and its period."""
PREFIX: Final = "tree/"
"""The name of the counters of a tree is this and the run at its top; a declared budget has no such name."""


class Charge(msgspec.Struct, frozen=True, gc=False):
    """A change of one counter: that of a limit of a budget in one period.

    The counter of a cost is named with its currency (`cost EUR`) and counts billionths of it, so that a budget whose
    currency is changed never adds up two. With `most` it is refused where what is used and reserved has come to that
    before; the charge itself may exceed it.
    """

    budget: str
    period: str
    limit: str
    used: int
    reserved: int
    most: int | None = None


class Reservation(msgspec.Struct, frozen=True):
    """A model call in flight: the periods of the budgets that it is charged to, and what it reserves of each."""

    periods: tuple[tuple[str, str], ...]
    reserved: ReservedCall


class SharedUse(msgspec.Struct, eq=False):
    """The reservations of a run that are open, by step, and the tokens and the cost of its largest call."""

    open: dict[str, Reservation] = {}
    largest: int = 0
    dearest: dict[str, int] = {}

    def take(self, record: r.Record, tree: Place | None) -> list[Charge]:
        """Take one record of the run, and return its charges. `tree` is charged, too, whatever the record names.

        A call that has no answer when its run ends, is suspended or gets another owner counts with what it reserved.
        """
        match record:
            case r.DecisionStarted():
                charges = self._settle(record.step, record.before, None)
                if periods := _with_tree(record.shared, tree):
                    self.open[record.step] = held = Reservation(periods, _reserved(record))
                    charges += _charges(held, _NOTHING, 1)
                return charges
            case r.DecisionRecorded() | r.ReservationSettled():
                return self._settle(record.step, record.usage, record.price)
            case r.Claimed() | r.RunSuspendedRecord() | r.RunStoppedRecord() | r.RunCompleted() | r.RunUndone():
                return [charge for step in list(self.open) for charge in self._settle(step, Usage(), None)]
            case _:
                return []

    def join(self, tree: Place, calls: Mapping[str, ReservedCall]) -> list[Charge]:
        """Charge these calls, which are in flight, to the tree that begins, too; the charges."""
        charges: list[Charge] = []
        for step, reserved in calls.items():
            known = self.open.get(step) or Reservation((), reserved)
            self.open[step] = Reservation((*known.periods, tree), known.reserved)
            charges += _charges(Reservation((tree,), known.reserved), _NOTHING, 1)
        return charges

    def reserved_by(self, step: str, period: tuple[str, str], limit: str) -> int:
        """How much of a limit the call of this step reserves in that period of a budget."""
        held = self.open.get(step)
        if held is None or period not in held.periods:
            return 0
        if limit == "model_calls":
            return 1
        reserved = held.reserved
        return (
            reserved.tokens if limit == "tokens" else reserved.cost if limit == cost_counter(reserved.currency) else 0
        )

    def copy(self) -> SharedUse:
        """An independent copy: what one takes leaves the other as it is."""
        return SharedUse(dict(self.open), self.largest, dict(self.dearest))

    def _settle(self, step: str, usage: Usage, price: CallCost | None) -> list[Charge]:
        held = self.open.pop(step, None)
        if held is None:
            return []
        use = settled(usage, price, held.reserved)
        self.largest = max(self.largest, usage.input_tokens + usage.output_tokens)
        if not use.assumed and (currency := held.reserved.currency):
            self.dearest[currency] = max(self.dearest.get(currency, 0), use.cost)
        return _charges(held, use, -1)


def charges_so_far(tree: Place, budget: BudgetState, left: Iterable[OperationState]) -> list[Charge]:
    """The charges to the tree that begins of what the run at its top used of its limits. `left` have not ended."""
    money = budget.limits.money
    used = {"tokens": budget.tokens, "model_calls": budget.model_calls, "effects": budget.effects}
    if money is not None:
        used[cost_counter(money.currency)] = budget.cost
    charges: list[Charge] = []
    for operation in left:
        used["effects"] -= is_effect(operation)
        if money is not None:
            used[cost_counter(money.currency)] -= cost_of(operation, money.currency)[0]
        charges += operation_charges(None, replace(operation, shared=()), tree)
    return [Charge(*tree, limit, number, 0) for limit, number in used.items() if number] + charges


def operation_charges(before: OperationState | None, after: OperationState, tree: Place | None) -> list[Charge]:
    """The charges of one record about an operation: what it counts then, less what it counted before.

    The tree of the run is charged, too, whatever the record names: a record that was prepared before the tree began
    may come after it.
    """
    places = _with_tree(after.shared, tree)
    if not places:
        return []
    changes = [("effects", *_change(_effect_use(before), _effect_use(after)))]
    if after.intent.price:
        currency = written_money(after.intent.price).currency
        changes.append((cost_counter(currency), *_change(cost_of(before, currency), cost_of(after, currency))))
    return [
        Charge(budget, period, limit, used, reserved)
        for budget, period in places
        for limit, used, reserved in changes
        if used or reserved
    ]


def _with_tree(named: tuple[Place, ...], tree: Place | None) -> tuple[Place, ...]:
    return named if tree is None or tree in named else (*named, tree)


def _effect_use(operation: OperationState | None) -> tuple[int, int]:
    """The use of an operation, and its reservation, of a limit of effects."""
    if not is_effect(operation):
        return 0, 0
    return (0, 1) if operation is not None and operation.phase == "running" else (1, 0)


def _change(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    return after[0] - before[0], after[1] - before[1]


_NOTHING: Final = CallUse(0, 0, 0)


def _reserved(started: r.DecisionStarted) -> ReservedCall:
    """The reservation of a call in each of its shared budgets."""
    currency = "" if started.price is None else started.price.currency
    return ReservedCall(min(started.reserved, MOST), units_of(started.price, currency) or 0, currency)


def _charges(held: Reservation, use: CallUse, sign: int) -> list[Charge]:
    reserved = held.reserved
    changes = [("model_calls", use.calls, sign), ("tokens", min(use.tokens, MOST), sign * reserved.tokens)]
    if reserved.currency:
        changes.append((cost_counter(reserved.currency), use.cost, sign * reserved.cost))
    return [Charge(budget, period, *change) for budget, period in held.periods for change in changes]
