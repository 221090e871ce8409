"""Standing permissions: a person's advance approval of calls of one tool that fit a condition, up to a bound.

Pure data and one pure decision. Uses of one permission are numbered from 1, and each carries the sum so far: a
use that takes a number under compare-and-set has seen every use before it, so two can never spend what one may.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from beforehand.model.ids import stream

GIVEN = "standing"
"""The ledger stream of all permissions that were ever given."""


class StandingPermission(msgspec.Struct, frozen=True, omit_defaults=True):
    """One permission. `where` is a condition in CEL over the parameters, `until_ms` a wall clock.

    `times` and `total` bound its uses, and the sum of the parameter `amount` over them; 0: no bound.
    """

    id: str
    tool: str
    by: str
    until_ms: int
    where: str = "true"
    times: int = 0
    total: float = 0
    amount: str = ""
    note: str = ""


class Use(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry under a permission's next number: an operation that used it, or the end of it.

    `sum` is what all uses so far come to. `revoked_by` names who ended it: nothing follows that entry.
    """

    operation: str = ""
    spent: float = 0
    sum: float = 0
    revoked_by: str = ""
    note: str = ""


class Spent(msgspec.Struct, frozen=True):
    """The state of a permission after all entries about its use. `operations` used it, in order."""

    number: int = 0
    times: int = 0
    sum: float = 0
    revoked_by: str = ""
    operations: tuple[str, ...] = ()


def uses_stream(permission: str) -> str:
    """The ledger stream in which the uses of one permission are counted."""
    return stream("standing", permission, "used")


def spent_by(uses: Sequence[Use]) -> Spent:
    """The state of a permission after these entries, in order."""
    if not uses:
        return Spent()
    operations = tuple(use.operation for use in uses if use.operation)
    return Spent(len(uses), len(operations), uses[-1].sum, uses[-1].revoked_by, operations)


def why_not(permission: StandingPermission, spent: Spent, cost: float, now_ms: int) -> str:
    """Why this permission does not cover one more use of that cost now; empty where it does."""
    if spent.revoked_by:
        return f"it was revoked by {spent.revoked_by}"
    if now_ms >= permission.until_ms:
        return "it has expired"
    if permission.times and spent.times >= permission.times:
        return f"it was used {permission.times} times"
    if cost < 0:
        return f"{permission.amount} is negative"
    if permission.total and spent.sum + cost > permission.total:
        return f"{spent.sum:g} of {permission.total:g} are spent"
    return ""
