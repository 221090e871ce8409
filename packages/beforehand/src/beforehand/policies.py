"""Policies that users write: how often to try, and how much it may cost.

Full jitter (`uniform(0, min(cap, base * 2**n))`) spreads the retries of many runs that met the same
outage; it is the form that AWS found to finish soonest with the fewest calls.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

from beforehand.model.errors import UsageError

if TYPE_CHECKING:
    from beforehand.model.money import Money

_MILLISECOND: Final = timedelta(milliseconds=1)
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits and pauses of an operation's retries. They count per operation and survive a crash.

    `attempts` includes the first attempt. Attempts whose process died do not count, unless `attempts` is 1; the setting
    `deaths_allowed` limits them. `elapsed` limits the time used for attempts, which is that of their calls and of the
    pauses between them. The pause after attempt n is drawn between 0 and `min(cap, base * 2**(n - 1))`. A `retry_after`
    of the service is added to it. A tool that declares no `Retry` has a default of its own.
    """

    attempts: int = 4
    elapsed: timedelta = timedelta(minutes=10)
    base: timedelta = timedelta(milliseconds=200)
    cap: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts={self.attempts}: the first attempt counts, so it is at least 1")
        if min(milliseconds(self.elapsed), milliseconds(self.base), milliseconds(self.cap)) < 0:
            raise ValueError("elapsed, base and cap are durations: they cannot be negative")

    def ceiling_ms(self, retries: int) -> int:
        """The longest pause before the next attempt, after `retries` retries were made."""
        cap, base = milliseconds(self.cap), milliseconds(self.base)
        return cap if retries > 30 else min(cap, base * 2**retries)


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limit of one operation's cost over all its attempts, in the unit that its tool reports.

    A tool reports its cost with `current_operation().spend(...)`. Once `cost` is spent, no further attempt begins. The
    cost of an attempt is known only at its end, so the last attempt may exceed the limit.

    `call` is what one call costs, with the currency: `"0.40 EUR"`. A `RunBudget` with a cost in that currency counts
    it: an attempt reserves it before it is sent, and is settled by what the tool reports, which then is in that
    currency, or else by this.
    """

    cost: float = float("inf")
    call: str = ""

    def __post_init__(self) -> None:
        if not self.cost >= 0:
            raise ValueError(f"cost={self.cost}: it is what may be spent, so it is at least 0")
        if self.call:
            from beforehand.model.money import written_money  # noqa: PLC0415 - only for a cost in a currency

            try:
                written_money(self.call)
            except ValueError as error:
                raise ValueError(f"call: {error}") from None


BudgetLimit: TypeAlias = Literal["tokens", "model_calls", "effects", "cost"]
MOST: Final = 2**53 - 1
"""The highest limit: a larger number is not the same in every reader of JSON."""


class RunBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of one run. A limit that is None does not hold.

    `tokens` are the input and output tokens of all its model calls, `model_calls` their number, and `effects` the
    writes that happened or may have happened, without compensations. `cost` is what its model calls may cost, with the
    currency: `"2.50 EUR"`. Once a limit is reached, no further call of that kind begins. How much a model call uses is
    known only at its end, so calls that are in flight then may exceed it.

    Under a `cost`, a model without a price in that currency is not asked, unless `unpriced` declares what a call counts
    whose price is not known: `"0.05 EUR"`.

    With `then="ask"` the run stops and a person is asked: once the limit is raised, the run continues. With
    `then="stop"` the call raises `BudgetExceeded`, which the agent may catch. Raises `ValueError` for a limit that is
    not a whole number from 0 to 2**53 - 1, for an amount of money that cannot be, and if there is no limit.
    """

    tokens: int | None = None
    model_calls: int | None = None
    effects: int | None = None
    cost: str | None = None
    unpriced: str | None = None
    then: Literal["ask", "stop"] = "ask"

    def __post_init__(self) -> None:
        for name in COUNTED_LIMITS:
            value = getattr(self, name)
            if value is not None and not (type(value) is int and 0 <= value <= MOST):
                raise ValueError(f"{name}={value!r}: a limit is a whole number from 0 to {MOST}")
        if all(getattr(self, name) is None for name in BUDGET_LIMITS):
            raise ValueError(f"a budget needs a limit: {', '.join(BUDGET_LIMITS)}")
        money_given = self.cost is not None or self.unpriced is not None
        if money_given and (fault := money_fault(self.cost, self.unpriced)) is not None:
            raise ValueError(fault)
        if self.then not in {"ask", "stop"}:
            raise ValueError(f"then={self.then!r}: it is ask or stop")

    @property
    def money(self) -> Money | None:
        """The limit of the cost, if there is one."""
        if self.cost is None:
            return None
        from beforehand.model.money import written_money  # noqa: PLC0415 - as above

        return written_money(self.cost)

    def tightened(self, asked: RunBudget) -> RunBudget:
        """The same with the lower of each limit. Raises `ValueError` for costs in different currencies."""
        mine, others = self.money, asked.money
        if mine is not None and others is not None and mine.currency != others.currency:
            raise ValueError(f"cost={asked.cost!r}: the budget of this agent is in {mine.currency}")
        cost = asked.cost if mine is None or (others is not None and others.units < mine.units) else self.cost
        counts: dict[str, int | None] = {}
        for name in COUNTED_LIMITS:
            given = [value for value in (getattr(self, name), getattr(asked, name)) if value is not None]
            counts[name] = min(given, default=None)
        unpriced = self.unpriced if mine is not None else asked.unpriced  # else it would lift the limit of the cost
        return RunBudget(cost=cost, unpriced=unpriced, then=self.then, **counts)

    def most(self, limit: BudgetLimit) -> int | None:
        """How much of this limit the run may use, that of the cost in billionths; None where it does not hold."""
        if limit == "cost":
            return None if (money := self.money) is None else money.units
        found: int | None = getattr(self, limit)
        return found


def money_fault(cost: str | None, unpriced: str | None) -> str | None:
    """The reason why a budget cannot have this limit of the cost, and this amount for a call without a price."""
    from beforehand.model.money import written_money  # noqa: PLC0415 - as above

    found: dict[str, Money] = {}
    for name, text in (("cost", cost), ("unpriced", unpriced)):
        if text is not None:
            try:
                found[name] = written_money(text)
            except ValueError as error:
                return f"{name}: {error}"
    if "unpriced" in found and "cost" not in found:
        return "unpriced: it is what a call without a price counts under a limit of the cost, and cost is missing"
    if len(currencies := {one.currency for one in found.values()}) > 1:
        return f"unpriced: a budget has one currency, and these are {' and '.join(sorted(currencies))}"
    return None


BUDGET_LIMITS: Final[tuple[BudgetLimit, ...]] = get_args(BudgetLimit)
COUNTED_LIMITS: Final[tuple[Literal["tokens", "model_calls", "effects"], ...]] = ("tokens", "model_calls", "effects")
"""The limits that are plain numbers."""


class Require(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the people who approve a call have to be known.

    `fresh_sign_in` is how long ago they may have proven who they are, with a password. `person` says that a token does
    not count, nor a name that was typed on a command line.
    """

    fresh_sign_in: timedelta | None = None
    person: bool = False

    def __post_init__(self) -> None:
        if self.fresh_sign_in is not None and milliseconds(self.fresh_sign_in) <= 0:
            raise ValueError(f"fresh_sign_in={self.fresh_sign_in}: it takes some time to answer after signing in")


def strictest(*required: Require | None) -> Require | None:
    """The requirement that satisfies each of these; None where none requires anything."""
    found = [one for one in required if one is not None]
    fresh = [one.fresh_sign_in for one in found if one.fresh_sign_in is not None]
    return Require(min(fresh, default=None), any(one.person for one in found)) if found else None


class Gate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The condition under which a person approves a call before it is sent.

    `when` is a condition in CEL over the parameters. `people` is the number of different people who must approve. One
    refusal declines the call. After the time `within` the call is refused with the code `expired`; None means the
    deadline of the run. `require` says how the approvers must have identified themselves.
    """

    when: str
    people: int = 1
    within: timedelta | None = None
    require: Require | None = None

    def __post_init__(self) -> None:
        if self.people < 1:
            raise ValueError(f"people={self.people}: at least one person has to say yes")
        if self.within is not None and milliseconds(self.within) <= 0:
            raise ValueError(f"within={self.within}: people need some time")

    def with_other(self, other: Gate) -> Gate:
        """The gate that asks if one of the two does, with the stricter setting of each."""
        spans = [one.within for one in (self, other) if one.within is not None]
        if "true" in {self.when, other.when}:
            when = "true"
        else:
            when = self.when if self.when == other.when else f"({self.when}) || ({other.when})"
        return Gate(
            when, max(self.people, other.people), min(spans, default=None), strictest(self.require, other.require)
        )


def milliseconds(duration: timedelta) -> int:
    """Whole milliseconds of a duration, rounded down. Raises `UsageError` for a bare number, which names no unit."""
    try:
        return duration // _MILLISECOND
    except TypeError:
        raise UsageError(
            f"{duration!r} is not a duration", next_step=f"write timedelta(seconds={duration!r})"
        ) from None


def written_duration(text: str) -> timedelta | None:
    """A duration as files and commands write it, such as 30s, 5m or 1.5h; None for any other text."""
    found = _WRITTEN.fullmatch(text.strip())
    try:
        return None if found is None else timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        return None


READ_RETRY: Final = Retry(attempts=5, elapsed=timedelta(minutes=2), base=timedelta(milliseconds=100))
DECISION_RETRY: Final = Retry(attempts=200, base=timedelta(milliseconds=500))
WRITE_RETRY: Final = Retry()
OUTAGE_RETRY: Final = Retry(attempts=200, cap=timedelta(minutes=2))
"""The default of a write that can be sent again without a guess. Its time ends it: an outage shorter asks no person."""
ONCE: Final = Retry(attempts=1)
