"""Budgets of runs: a budget as it is written on a command line, its state for people, and raising it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from beforehand.errors import UsageError
from beforehand.model import records as r
from beforehand.model.money import HIGHEST, HIGHEST_UNITS, Money, amount_of, written_money
from beforehand.model.run_budget import words_of
from beforehand.model.shell import to_type
from beforehand.policies import BUDGET_LIMITS, COUNTED_LIMITS, MOST, BudgetLimit, RunBudget

if TYPE_CHECKING:
    from beforehand.model.run_budget import BudgetState
    from beforehand.model.run_history import RunHistory

_EXAMPLE: Final = "write it as: tokens=50000,effects=3,cost=2.50EUR,then=stop"
_LIMITS: Final[dict[str, BudgetLimit]] = {name: name for name in BUDGET_LIMITS}
_FINAL: Final = frozenset({"completed", "undone"})


class BudgetLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One limit of a budget. `over` is what calls used that were in flight when the limit was reached.

    Those of a `cost` are amounts of `currency`; as JSON an amount is text, so that no program rounds it. `assumed` is
    the part of it that calls reserved whose cost is not known.
    """

    limit: str
    most: int | Decimal | None
    used: int | Decimal
    reserved: int | Decimal
    over: int | Decimal
    currency: str = ""
    assumed: int | Decimal = 0


def budget_line(limit: str, most: int | None, used: int, reserved: int, currency: str = "") -> BudgetLine:
    """One limit, with the amounts of a cost, which are counted in billionths, as decimal numbers."""
    over = 0 if most is None else max(0, used - most)
    if not currency:
        return BudgetLine(limit, most, used, reserved, over)
    highest = None if most is None else amount_of(most)
    return BudgetLine(limit, highest, amount_of(used), amount_of(reserved), amount_of(over), currency)


def budget_lines(budget: BudgetState) -> list[BudgetLine]:
    """The limits of a run, and what it used of each. Without a limit of the cost no cost is counted."""
    lines = [
        budget_line(name, budget.limits.most(name), budget.used(name), budget.reserved(name)) for name in COUNTED_LIMITS
    ]
    if (money := budget.limits.money) is not None:
        cost = budget_line("cost", money.units, budget.cost, budget.reserved("cost"), money.currency)
        lines.append(replace(cost, assumed=amount_of(budget.assumed)))
    return lines


def written_budget(text: str) -> RunBudget:
    """A budget as a command line writes it: `tokens=50000,effects=3,then=stop`. Raises `UsageError`."""
    parts = _parts(text)
    then = parts.pop("then", "ask")
    limits: dict[str, Any] = {name: parts.pop(name) for name in ("cost", "unpriced") if name in parts}
    limits |= {name: _amount(name, value) for name, value in parts.items()}
    if then not in {"ask", "stop"}:
        raise UsageError(f"then={then} is not known: it is ask or stop", next_step=_EXAMPLE)
    try:
        return RunBudget(**limits, then="ask" if then == "ask" else "stop")
    except ValueError as error:
        raise UsageError(f"the budget {text!r} is refused: {error}", next_step=_EXAMPLE) from error


def written_amounts(text: str) -> dict[str, int | str]:
    """The amounts by which limits are raised: `tokens=20000,cost=1.50 EUR`. Raises `UsageError`."""
    return {name: value if name == "cost" else _amount(name, value) for name, value in _parts(text).items()}


def raised_budget(history: RunHistory, amounts: Mapping[str, int | str], *, by: str, note: str) -> r.BudgetRaised:
    """The record of a higher budget. Raises `UsageError` where it cannot apply."""
    run, budget = history.run, history.budget
    if budget is None:
        raise UsageError(
            f"run {run} has no budget of its own",
            known="the budget of a run is set when it is started",
            next_step="see the budgets that runs share: beforehand budget",
        )
    if history.lifecycle.status in _FINAL:
        raise UsageError(f"run {run} is {history.lifecycle.status}", next_step=to_type("budget", run))
    if not amounts:
        raise UsageError("no limit is named", next_step=to_type("budget", run, "--raise", "tokens=20000"))
    for name, amount in amounts.items():
        _known(name)
        if name != "cost" and (type(amount) is not int or not 0 < amount <= MOST):
            raise UsageError(
                f"{name}={amount}: a limit is raised by a whole number from 1 to {MOST}",
                next_step=to_type("budget", run, "--raise", f"{name}=1000"),
            )
        if getattr(budget.limits, name) is None:
            limited = [one for one in BUDGET_LIMITS if getattr(budget.limits, one) is not None]
            raise UsageError(
                f"the budget of run {run} does not limit {words_of(_known(name))}",
                known=f"it limits {', '.join(map(words_of, limited))}",
                next_step=to_type("budget", run),
            )
    counts = {name: amounts[name] for name in COUNTED_LIMITS if name in amounts}
    money = _raised_cost(run, budget.limits.money, amounts["cost"]) if "cost" in amounts else ""
    return r.BudgetRaised(by=by, note=note, money=money, **cast("dict[str, int]", counts))


def _raised_cost(run: str, limit: Money | None, written: int | str) -> str:
    """The amount by which the limit of a cost is raised. Raises `UsageError` for one that cannot be added to it."""
    assert limit is not None, run
    step = to_type("budget", run, "--raise", f"cost=1.00 {limit.currency}")
    try:
        added = written_money(written)
    except ValueError as error:
        raise UsageError(f"cost={written}: {error}", known="nothing was changed", next_step=step) from error
    if added.currency != limit.currency:
        known = f"the limit is {limit}; currencies are not converted, and nothing was changed"
        raise UsageError(f"cost={written} is in another currency", known=known, next_step=step)
    if not 0 < added.units <= HIGHEST_UNITS - limit.units:
        known = f"the limit is {limit}, and at most {HIGHEST:,} {limit.currency}"
        raise UsageError(f"cost={written} raises nothing, or too much", known=known, next_step=step)
    return str(added)


def _parts(text: str) -> dict[str, str]:
    """The parts of a written budget, by name. Raises `UsageError` for one without a value, or named twice."""
    parts: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = (one.strip() for one in part.partition("="))
        if not (name and sign and value):
            raise UsageError(f"{part.strip()!r} is not LIMIT=NUMBER", next_step=_EXAMPLE)
        if name in parts:
            raise UsageError(f"{name} is named twice", next_step=_EXAMPLE)
        parts[name] = value
    return parts


def _amount(name: str, value: str) -> int:
    _known(name)
    if not (value.isascii() and value.removeprefix("-").replace("_", "").isdigit()) or len(value) > len(str(MOST)) + 8:
        raise UsageError(f"{name}={value[:80]}: a limit is a whole number from 0 to {MOST}", next_step=_EXAMPLE)
    return int(value.replace("_", ""))


def _known(name: str) -> BudgetLimit:
    """The limit of that name. Raises `UsageError` for an unknown one."""
    if (found := _LIMITS.get(name)) is None:
        raise UsageError(
            f"{name!r} is not a limit of a budget", known=f"limits: {', '.join(BUDGET_LIMITS)}", next_step=_EXAMPLE
        )
    return found
