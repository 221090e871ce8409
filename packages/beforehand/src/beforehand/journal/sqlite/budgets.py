"""Shared budgets on SQLite: their counters, changed in the transaction of the record that reserves or settles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from beforehand.journal.backend_rules import charged
from beforehand.journal.port import BudgetUse
from beforehand.journal.sqlite.driver import Database

if TYPE_CHECKING:
    from beforehand.model.shared_use import Charge

ONE: Final = "select used, reserved from budget_use where budget = ? and period = ? and what = ?"
OF_PERIOD: Final = "select what, used, reserved from budget_use where budget = ? and period = ? order by what"
_ALL: Final = "select budget, period, what, used, reserved from budget_use order by budget, period, what"
_STORE: Final = (
    "insert into budget_use (budget, period, what, used, reserved) values (?, ?, ?, ?, ?)"
    " on conflict (budget, period, what) do update set used = excluded.used, reserved = excluded.reserved"
)


def uses_after(database: Database, charges: Sequence[Charge]) -> list[BudgetUse]:
    """The counters after these charges, which are not stored yet. Raises `BudgetSpent`."""

    def stored(charge: Charge) -> BudgetUse:
        key = charge.budget, charge.period, charge.limit
        found = database.rows(ONE, key)
        return BudgetUse(*key, *cast("tuple[int, int]", found[0])) if found else BudgetUse(*key)

    return charged(charges, stored)


def store_uses(database: Database, uses: Sequence[BudgetUse]) -> None:
    """Store counters, in the transaction in which they were read."""
    for use in uses:
        database.change(_STORE, (use.budget, use.period, use.limit, use.used, use.reserved))


def uses(database: Database, periods: Mapping[str, str] | None) -> list[BudgetUse]:
    """The counters of these budgets, each in its period; None: all."""
    if periods is None:
        return [BudgetUse(*cast("tuple[str, str, str, int, int]", found)) for found in database.rows(_ALL)]
    return [
        BudgetUse(budget, period, *cast("tuple[str, int, int]", found))
        for budget, period in periods.items()
        for found in database.rows(OF_PERIOD, (budget, period))
    ]
