"""Budgets of runs: a budget as it is written on a command line, its state for people, and raising it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import UsageError
from holdfast.model import records as r
from holdfast.model.run_budget import words_of
from holdfast.policies import BUDGET_LIMITS, MOST, BudgetLimit, RunBudget

if TYPE_CHECKING:
    from holdfast.model.run_budget import BudgetState
    from holdfast.model.run_history import RunHistory

_EXAMPLE: Final = "write it as: tokens=50000,effects=3,then=stop"
_LIMITS: Final[dict[str, BudgetLimit]] = {name: name for name in BUDGET_LIMITS}
_FINAL: Final = frozenset({"completed", "undone"})


class BudgetLine(msgspec.Struct, frozen=True):
    """One limit of a budget. `over` is what calls used that were in flight when the limit was reached."""

    limit: str
    most: int | None
    used: int
    reserved: int
    over: int


def budget_lines(budget: BudgetState) -> list[BudgetLine]:
    """The limits of a run, and what it used of each."""
    lines: list[BudgetLine] = []
    for name in BUDGET_LIMITS:
        most: int | None = getattr(budget.limits, name)
        used = budget.used(name)
        over = 0 if most is None else max(0, used - most)
        lines.append(BudgetLine(name, most, used, budget.reserved(name), over))
    return lines


def written_budget(text: str) -> RunBudget:
    """A budget as a command line writes it: `tokens=50000,effects=3,then=stop`. Raises `UsageError`."""
    parts = _parts(text)
    then = parts.pop("then", "ask")
    limits = {name: _amount(name, value) for name, value in parts.items()}
    if then not in {"ask", "stop"}:
        raise UsageError(f"then={then} is not known: it is ask or stop", next_step=_EXAMPLE)
    try:
        return RunBudget(**limits, then="ask" if then == "ask" else "stop")
    except ValueError as error:
        raise UsageError(f"the budget {text!r} is refused: {error}", next_step=_EXAMPLE) from error


def written_amounts(text: str) -> dict[str, int]:
    """The amounts by which limits are raised: `tokens=20000,effects=1`. Raises `UsageError`."""
    return {name: _amount(name, value) for name, value in _parts(text).items()}


def raised_budget(history: RunHistory, amounts: Mapping[str, int], *, by: str, note: str) -> r.BudgetRaised:
    """The record of a higher budget. Raises `UsageError` where it cannot apply."""
    run, budget = history.run, history.budget
    if budget is None:
        raise UsageError(
            f"run {run} has no budget of its own",
            known="the budget of a run is set when it is started",
            next_step="holdfast budget lists the budgets that runs share",
        )
    if history.lifecycle.status in _FINAL:
        raise UsageError(f"run {run} is {history.lifecycle.status}", next_step=f"holdfast budget {run}")
    if not amounts:
        raise UsageError("no limit is named", next_step=f"holdfast budget {run} --raise tokens=20000")
    for name, amount in amounts.items():
        _known(name)
        if type(amount) is not int or not 0 < amount <= MOST:
            raise UsageError(
                f"{name}={amount}: a limit is raised by a whole number from 1 to {MOST}",
                next_step=f"holdfast budget {run} --raise {name}=1000",
            )
        if getattr(budget.limits, name) is None:
            limited = [one for one in BUDGET_LIMITS if getattr(budget.limits, one) is not None]
            raise UsageError(
                f"the budget of run {run} does not limit {words_of(_known(name))}",
                known=f"it limits {', '.join(map(words_of, limited))}",
                next_step=f"holdfast budget {run}",
            )
    return r.BudgetRaised(by=by, note=note, **amounts)


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
