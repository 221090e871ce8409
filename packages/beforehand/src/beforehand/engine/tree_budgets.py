"""The budget of a tree of runs: the limits of a run hold for it and all runs below it together.

From its first child on, a run with limits charges its calls of models and its effects to counters in the journal, as
the runs below it do: those that shared budgets have (`engine/shared_budgets.py`). So the comparison is made in one
place, whichever processes drive the tree, and no child has limits that were copied. The record of the first child
charges what the run has used and reserved before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from beforehand.journal.port import BodyFilter
from beforehand.journal.record_codec import decode_all, prefixes_of
from beforehand.model import records as r
from beforehand.model.run_budget import BudgetState
from beforehand.model.shared_use import PREFIX
from beforehand.policies import RunBudget
from beforehand.queues.limits import SharedBudget

if TYPE_CHECKING:
    from beforehand.engine.active_run.log import RunRecorder
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.process import Process

OwnedRun: TypeAlias = "ActiveRun | RunRecorder"
"""A run that this process drives, as its own history and its process say."""
_LIMITS: Final = BodyFilter(prefixes_of(r.RunStarted, r.BudgetRaised))


def tree_budget(limits: RunBudget) -> SharedBudget:
    """These limits as a budget that runs share."""
    then: Literal["wait", "stop"] = "stop" if limits.then == "stop" else "wait"
    return SharedBudget(
        tokens=limits.tokens, model_calls=limits.model_calls, effects=limits.effects, cost=limits.cost,
        unpriced=limits.unpriced, then=then,
    )  # fmt: skip


def trees_of(active: OwnedRun) -> tuple[str, ...]:
    """The runs whose limits this run shares: those above it, and itself once it has a child."""
    history = active.history
    started = history.lifecycle.started
    above = () if started is None or started.parent is None else started.parent.budgets
    begun = history.budget is not None and history.children is not None
    return (*above, active.run) if begun else above


def tree_budgets_of(active: OwnedRun) -> Mapping[str, SharedBudget]:
    """The budgets of the trees that this run is in, as far as this process has read their limits."""
    trees = trees_of(active)
    if not trees:
        return {}
    known = {run: active.process.tree_limits.get(run) for run in trees}
    if active.history.budget is not None and active.run in known:
        known[active.run] = active.history.budget.limits
    return {PREFIX + run: tree_budget(limits) for run, limits in known.items() if limits is not None}


async def read_limits(active: OwnedRun) -> None:
    """Read the limits of the runs above this one that are not known in this process."""
    for run in trees_of(active):
        if run != active.run and run not in active.process.tree_limits:
            await refresh_limits(active.process, run)


async def refresh_limits(process: Process, run: str) -> None:
    """Read the limits of a run from its records: those at its start, with what people added."""
    budget: BudgetState | None = None
    after = 0
    while rows := await process.journal.read(run, after, only=_LIMITS):
        after = rows[-1].seq
        for record in decode_all(row.body for row in rows if _LIMITS.fits(row.body)):
            if isinstance(record, r.RunStarted):
                budget = None if record.budget is None else BudgetState(record.budget)
            elif budget is not None:
                budget.take(record)
    if budget is not None:
        process.tree_limits[run] = budget.limits
