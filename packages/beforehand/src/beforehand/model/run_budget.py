"""The budget of a run: its limits, what was used, and what is reserved by calls that have not ended. Pure.

Folded from the records alone (`RunHistory.budget`). A model call reserves before it is sent and is settled by the
usage and the cost on record. What a lost call used is not known, so its reservation counts as used; only a request that
was refused used nothing. An effect counts from its first attempt, or from the moment when it is held for a commit,
until it is proven that there is none. A cost is counted in billionths of the budget's currency.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.money import (
    HIGHEST_UNITS,
    MOST_UNITS,
    Money,
    reported_units,
    shown_units,
    units_of,
    written_money,
)
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import COUNTED_LIMITS, MOST, BudgetLimit, RunBudget

if TYPE_CHECKING:
    from beforehand.model.operation import OperationState

_OF_MODELS: Final[tuple[BudgetLimit, ...]] = ("tokens", "model_calls", "cost")
OF_EFFECTS: Final[tuple[BudgetLimit, ...]] = ("effects",)
OF_COSTS: Final[tuple[BudgetLimit, ...]] = ("cost",)
_BYTES_OF_TOKEN: Final = 4
"""How many bytes of a question count as one token before any call of the run has stated its usage."""


class BudgetLeft(msgspec.Struct, frozen=True):
    """The part of a limit that remains, from 0 to 1, and the limit in words, such as `tokens of the run`."""

    share: float
    words: str


class ReservedCall(msgspec.Struct, frozen=True, gc=False):
    """The tokens that a model call in flight reserves, and its cost in billionths of `currency`, if that is limited."""

    tokens: int
    cost: int = 0
    currency: str = ""


class CallUse(msgspec.Struct, frozen=True, gc=False):
    """The use of an ended model call. `assumed`: its cost is not known, so its reservation counts."""

    calls: int
    tokens: int
    cost: int
    assumed: bool = False


class BudgetState(msgspec.Struct, eq=False):
    """The limits of a run, and what it used of them. `open` is what calls in flight reserve, by step.

    `unknown` counts the calls that ended without a statement of their usage: their reservations count as used.
    `unpriced` counts those whose cost is not known, and `assumed` is the part of `cost` that they reserved. `cost` and
    `assumed` are billionths of the currency of the limit. `largest` and `dearest` are the tokens and the cost of the
    largest call. `calling` is what attempts of tools in flight reserve of the cost.
    """

    limits: RunBudget
    tokens: int = 0
    model_calls: int = 0
    effects: int = 0
    cost: int = 0
    unknown: int = 0
    unpriced: int = 0
    assumed: int = 0
    largest: int = 0
    dearest: int = 0
    calling: int = 0
    open: dict[str, ReservedCall] = {}

    @property
    def limits_models(self) -> bool:
        """True if a limit is about calls of models, which then are durable before they are sent."""
        return any(getattr(self.limits, name) is not None for name in _OF_MODELS)

    def used(self, limit: BudgetLimit) -> int:
        """How much of a limit was used."""
        found: int = getattr(self, limit)
        return found

    def reserved(self, limit: BudgetLimit) -> int:
        """How much of a limit the model calls in flight reserve."""
        match limit:
            case "tokens":
                return sum(one.tokens for one in self.open.values())
            case "model_calls":
                return len(self.open)
            case "cost":
                return self.calling + sum(one.cost for one in self.open.values())
            case "effects":
                return 0

    def spent(self, limits: tuple[BudgetLimit, ...], without: int = 0) -> str:
        """The limits of these that are reached, in words; empty if none is. `without` is not counted."""
        found: list[str] = []
        for name in limits:
            most = self.limits.most(name)
            used, reserved = self.used(name) - without, self.reserved(name)
            if most is not None and used + reserved >= most:
                currency = "" if (money := self.limits.money) is None or name != "cost" else money.currency
                found.append(f"the limit of {words_of(name)} is reached: {use_of(currency, used, reserved, most)}")
        return "; ".join(found)

    def left(self, without: str) -> Iterator[BudgetLeft]:
        """The part that remains of each limit of model calls. What the call of the step `without` reserves is left."""
        others = replace(self, open={step: one for step, one in self.open.items() if step != without})
        for name in _OF_MODELS:
            if (most := self.limits.most(name)) is not None:
                yield BudgetLeft(
                    part_left(most, others.used(name) + others.reserved(name)), f"{words_of(name)} of the run"
                )

    def _raise(self, added: r.BudgetRaised) -> None:
        more = {name: getattr(added, name) for name in COUNTED_LIMITS}
        limits = {name: getattr(self.limits, name) for name in more}
        raised: dict[str, int | str] = {
            name: min(MOST, most + more[name]) for name, most in limits.items() if most is not None
        }
        if added.money and (money := self.limits.money) is not None:
            units = min(HIGHEST_UNITS, money.units + written_money(added.money).units)
            raised["cost"] = str(Money(units, money.currency))
        self.limits = replace(self.limits, **raised)

    def refusal(self, step: str, before: Usage, cost: CallCost | None = None) -> str:
        """The limits that permit no call of a model, in words. `before` and `cost` are of its last call."""
        trial = replace(self, open=dict(self.open))
        trial.settle(step, before, cost)
        return trial.spent(_OF_MODELS)

    def take(self, record: r.Record) -> None:
        """Take one record of the run. Operations are taken by `change`."""
        match record:
            case r.DecisionStarted():
                self.settle(record.step, record.before, None)  # an earlier call of the same step has ended
                money = self.limits.money
                reserved = 0 if money is None else units_of(record.price, money.currency) or 0
                self.open[record.step] = ReservedCall(record.reserved, reserved, money.currency if money else "")
            case r.DecisionRecorded() | r.ReservationSettled():
                self.settle(record.step, record.usage, record.price)
            case r.Claimed():
                for step in list(self.open):
                    self.settle(step, Usage(), None)  # their process is gone: what they used will never be known
            case r.BudgetRaised():
                self._raise(record)
            case _:
                pass

    def settle(self, step: str, usage: Usage, cost: CallCost | None) -> None:
        reserved = self.open.pop(step, None)
        if reserved is None:
            return
        use = settled(usage, cost, reserved)
        self.model_calls += use.calls
        self.tokens += use.tokens
        self.unknown += use.calls and not usage.known
        self.largest = max(self.largest, usage.input_tokens + usage.output_tokens)
        if reserved.currency:
            self.cost = min(MOST_UNITS, self.cost + use.cost)
            self.unpriced += use.assumed
            self.assumed += use.cost if use.assumed else 0
            self.dearest = self.dearest if use.assumed else max(self.dearest, use.cost)

    def change(self, before: OperationState | None, after: OperationState | None) -> None:
        """An operation went from one state to another."""
        self.effects += is_effect(after) - is_effect(before)
        if (money := self.limits.money) is not None:
            (used, calling), (used_before, calling_before) = (cost_of(one, money.currency) for one in (after, before))
            self.cost = min(MOST_UNITS, self.cost + used - used_before)
            self.calling += calling - calling_before


def reservation(largest: int, question: int) -> int:
    """The tokens that a call reserves: those of the largest call so far, or those of a question of so many bytes."""
    return max(largest, -(-question // _BYTES_OF_TOKEN))


def settled(usage: Usage, cost: CallCost | None, reserved: ReservedCall) -> CallUse:
    """The use that a call with this usage and cost counts for, which had reserved so much."""
    if not usage.called:
        return CallUse(0, 0, 0)
    used = usage.input_tokens + usage.output_tokens
    known = units_of(cost, reserved.currency) if usage.known else None
    spent = reserved.cost if known is None else known
    return CallUse(1, used if usage.known else reserved.tokens, spent, known is None)


def cost_of(operation: OperationState | None, currency: str) -> tuple[int, int]:
    """The cost of the attempts of a tool that declares it, and the reservation of those in flight, in billionths.

    An attempt of which it is proven that nothing was sent costs nothing. One whose end is not known, once the operation
    has ended, costs what it reserved. Compensations count, too.
    """
    if operation is None or not operation.intent.price:
        return 0, 0
    price = written_money(operation.intent.price)
    if price.currency != currency:
        return 0, 0
    used = calling = 0
    for attempt in operation.attempts:
        if attempt.end is None and not operation.final:
            calling += price.units
        elif not attempt.unsent:
            used += call_cost(price, attempt.end)
    return used, calling


def call_cost(price: Money, end: r.End | None) -> int:
    """The cost of one call of a tool that declares this price: what it reported, or else the price."""
    return reported_units(end.cost) if end is not None and end.cost is not None else price.units


def is_effect(operation: OperationState | None) -> bool:
    """True if the operation counts as an effect of the run: it happened, may have happened, or is going to.

    What serves another operation never counts: a spent budget stops no compensation. Nor does an outcome that was
    taken from another operation.
    """
    if operation is None or operation.intent.serves:
        return False
    if operation.final:
        return operation.landed and operation.may_have_been_sent
    return operation.phase == "held" or operation.released or operation.may_have_landed


def part_left(most: int, used: int) -> float:
    """The part of a limit that remains, from 0 to 1."""
    return max(0.0, 1 - used / most) if most else 0.0


def words_of(limit: str) -> str:
    """The name of a limit as people read it. That of a shared cost ends in its currency."""
    return limit.partition(" ")[0].replace("_", " ")


def use_of(currency: str, used: int, reserved: int, most: int) -> str:
    """How much of a limit is used and reserved, in words; with a currency these are billionths."""
    if not currency:
        reserves = f", {reserved:,} reserved" if reserved else ""
        return f"{used:,} of {most:,} used{reserves}"
    reserves = f", {shown_units(reserved)} reserved" if reserved else ""
    return f"{shown_units(used)} of {shown_units(most)} {currency} used{reserves}"
