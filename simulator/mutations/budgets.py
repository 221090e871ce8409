"""Planted bugs of budgets: what is reserved, used and lost, limits that are not compared, and waits without an end."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from beforehand.model.usage import Usage
from simulator.generator.budgets import BUDGETED
from simulator.mutations.mutation import Mutant, always, never_mind


def lost_calls_used_nothing(original: Any) -> Any:
    """A call whose process is gone counts as refused."""

    def settle(self: Any, step: str, usage: Any, cost: Any) -> None:
        original(self, step, usage if usage.known else Usage(refused=True), cost)

    return settle


def compared_outside(original: Any) -> Any:
    """The counters of shared budgets are changed without being compared with their limits."""

    def charged(charges: Any, stored: Any) -> Any:
        return original([replace(one, most=None) for one in charges], stored)

    return charged


def reservations_kept(original: Any) -> Any:
    """A call that is settled keeps what it had reserved of shared budgets."""

    def charges(held: Any, used: Any, sign: int) -> Any:
        return [one if sign > 0 else replace(one, reserved=0) for one in original(held, used, sign)]

    return charges


def days_of_utc(original: Any) -> Any:
    """The days of all budgets are those of UTC."""

    def day_of(_zone: str, at_ms: int) -> Any:
        return original("UTC", at_ms)

    return day_of


def effects_counted_at_their_end(original: Any) -> Any:
    """An effect counts once its outcome is known."""

    def is_effect(operation: Any) -> bool:
        return bool(operation is not None and operation.final and original(operation))

    return is_effect


def effects_uncompared(original: Any) -> Any:
    """An attempt is charged to shared budgets without being compared with their limits."""

    def compared(limits: Any, charges: Any) -> Any:
        return tuple(replace(one, most=None) if one.limit == "effects" else one for one in original(limits, charges))

    return compared


def effects_kept(original: Any) -> Any:
    """An effect of which it is proven that it did not happen keeps its place in shared budgets."""

    def charges(before: Any, after: Any) -> Any:
        return [one for one in original(before, after) if one.used + one.reserved >= 0]

    return charges


def not_reopened(original: Any) -> Any:
    """A run whose budget was raised stays stopped."""

    def raised(*given: Any) -> Any:
        return original(*given)[:1]

    return raised


def released_unseen(_original: Any) -> Any:
    """A command that comes while a stopped run is released is not noticed."""

    async def release_stopped(active: Any, change: Any, record: Any = None, posts: Any = ()) -> None:
        await active.log.append(*(() if record is None else (record,)), change=change, posts=posts)

    return release_stopped


BUDGET_BUGS: Final = (
    Mutant(
        "lost calls used nothing",
        "what a call reserved is released although its process is gone and it may have been answered",
        "beforehand.model.run_budget:BudgetState.settle",
        lost_calls_used_nothing,
        from_seed=BUDGETED,
    ),
    Mutant(
        "reservations not counted",
        "calls that are under way leave room for others",
        "beforehand.model.run_budget:BudgetState.reserved",
        always(0),
        from_seed=BUDGETED,
    ),
    Mutant(
        "effects counted at their end",
        "an effect that is under way or unknown leaves room for another one",
        "beforehand.model.run_budget:is_effect",
        effects_counted_at_their_end,
        from_seed=BUDGETED,
    ),
    Mutant(
        "shared limits not compared",
        "the commit that reserves does not compare what other runs have taken",
        "beforehand.journal.cells:charged",
        compared_outside,
        from_seed=BUDGETED,
    ),
    Mutant(
        "shared reservations kept",
        "a call that has ended keeps what it reserved of shared budgets",
        "beforehand.model.shared_use:_charges",
        reservations_kept,
        from_seed=BUDGETED,
    ),
    Mutant(
        "shared effects not compared",
        "an effect begins although other runs have taken all that a shared budget permits",
        "beforehand.engine.active_run.log:SharedLimits.compared",
        effects_uncompared,
        from_seed=BUDGETED,
    ),
    Mutant(
        "shared effects kept",
        "an effect that did not happen keeps its place in shared budgets",
        "beforehand.model.shared_use:operation_charges",
        effects_kept,
        from_seed=BUDGETED,
    ),
    Mutant(
        "days of another zone",
        "a shared budget begins anew at midnight in UTC",
        "beforehand.queues.zones:day_of",
        days_of_utc,
        from_seed=BUDGETED,
    ),
    Mutant(
        "a raise wakes nothing",
        "a run whose budget was raised stays stopped",
        "beforehand.engine.commands:_raised",
        not_reopened,
        from_seed=BUDGETED,
    ),
    Mutant(
        "a raise during the release",
        "a command that comes while a stopped run is released is never applied",
        "beforehand.engine.run_driver:_release_stopped",
        released_unseen,
        from_seed=BUDGETED,
    ),
    Mutant(
        "other limits wake nothing",
        "runs that wait for a shared budget do not see that it was raised",
        "beforehand.engine.shared_budgets:wake_waiting",
        never_mind,
        from_seed=BUDGETED,
    ),
)
"""Each is looked for in the seeds with budgets."""
