"""Budgets that runs share, on the side of one process: reserving for a model call, waiting, and waking what waits.

The limit is not compared here. The record of the call carries charges (`model/shared_use.py`), and the journal compares
them in the transaction of that record (`charged` in `journal/backend_rules.py`).

A run whose budget is spent waits in this process, or is suspended until the day of the budget is over: then it is due,
like after any other wait. When other limits are declared, every process looks (`wake_waiting`): a run that is suspended
becomes due at once if its budgets have room. A suspension is refused where limits were declared since the run was
refused, so none falls between the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from holdfast.engine.active_run.waiters import BUDGET
from holdfast.engine.process import unchanged_listing
from holdfast.engine.suspension import Pause
from holdfast.engine.tool_protocol import wake
from holdfast.engine.tree_budgets import PREFIX, refresh_limits, tree_budgets_of
from holdfast.errors import BudgetSpent, JournalError, LimitsChanged
from holdfast.journal.backend_rules import FOREVER_MS
from holdfast.journal.port import BudgetUse, Journal, LeaseGranted, Write
from holdfast.model import records as r
from holdfast.model.money import counter_currency
from holdfast.model.run_budget import BudgetLeft, part_left, use_of, words_of
from holdfast.model.shared_use import TREE, SharedUse
from holdfast.model.system import is_system
from holdfast.model.waits import SHARED_BUDGET, decode_waits
from holdfast.queues.limits import SharedBudget
from holdfast.queues.zones import Period, day_of

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun
    from holdfast.engine.active_run.scopes import Scope
    from holdfast.engine.process import Process
    from holdfast.queues.limits import Declaration, DeclaredLimits

_MARK: Final = f'"{SHARED_BUDGET}"'.encode()
_LOOK_AGAIN_MS: Final = 1_000
"""How often a call asks again that only the reservations of calls in flight keep from beginning."""


def budgets_of(active: ActiveRun) -> Mapping[str, SharedBudget]:
    """The shared budgets that cover this run, by name, those of the trees that it is in included."""
    limits, started = active.process.queues.limits, active.history.lifecycle.started
    trees = tree_budgets_of(active)
    if limits is None or not limits.budgets or started is None or is_system(started.agent):
        return trees
    return {**limits.budgets_of(started.agent, started.tenant), **trees}


async def budget_left(active: ActiveRun, step: str) -> BudgetLeft | None:
    """The limit of which the least remains for model calls of a run: of its own and of those that it shares.

    What the call of this step reserves itself is left; None where nothing limits the run.
    """
    own, shared = active.history.budget, active.history.shared or SharedUse()
    found = [] if own is None else list(own.left(step))
    budgets, now = budgets_of(active), active.process.wall_ms()
    days = {name: _period(name, one, now).name for name, one in budgets.items()}
    uses = {(use.budget, use.limit): use for use in await active.process.journal.budget_uses(days)} if days else {}
    for name, limit in ((name, counter) for name, one in budgets.items() for counter in one.counters):
        if (most := budgets[name].most(limit)) is None:
            continue
        use = uses.get((name, limit)) or BudgetUse(name, days[name], limit)
        others = use.used + use.reserved - shared.reserved_by(step, (name, days[name]), limit)
        found.append(BudgetLeft(part_left(most, others), f"{words_of(limit)} of the budget {name}"))
    return min(found, key=lambda one: one.share, default=None)


async def reserve(
    scope: Scope, started: r.DecisionStarted, waiting: Callable[[], AbstractAsyncContextManager[None, None]]
) -> str | None:
    """Record that a model is called, and what it reserves of the shared budgets that cover the run, in one commit.

    `waiting` surrounds each wait: the call gives back meanwhile what others need. Empty once that is durable; the
    reason where a spent budget ends the call with an error. None where other branches have come to the limit of the
    run's own budget meanwhile.
    """
    active, queues = scope.active, scope.active.process.queues
    while True:
        budgets, newest, own = budgets_of(active), queues.newest, active.history.budget
        if not budgets:  # no limit is declared any more
            if own is not None and own.refusal(started.step, started.before):
                return None
            await active.log.append(started)
            return ""
        days = {name: _period(name, one, active.process.wall_ms()) for name, one in budgets.items()}
        made = replace(started, shared=tuple((name, day.name) for name, day in days.items()), **active.log.stamp())
        try:
            if not await _reserve_in_turn(active, made, budgets, None if newest is None else newest.entry):
                return None
        except LimitsChanged:
            await queues.refresh(active.process.journal)
        except BudgetSpent as spent:
            budget, tree = budgets[spent.budget], spent.budget.removeprefix(PREFIX)
            if tree != spent.budget and await _limits_changed(active, tree, budget):
                continue
            if budget.then == "stop":
                return _reason(spent, budget, days[spent.budget])
            async with waiting():
                await _wait(scope, started.step, spent, budget, days[spent.budget], newest)
        else:
            active.check()
            return ""
        active.check()


async def _reserve_in_turn(
    active: ActiveRun, started: r.DecisionStarted, budgets: Mapping[str, SharedBudget], declared: int | None
) -> bool:
    """Reserve if the run's own budget has room. In turn: two branches at once would both find the last of it."""
    async with active.log.reserving_turn:
        own = active.history.budget
        if own is not None and own.refusal(started.step, started.before):
            return False
        await active.log.reserve(started, budgets, declared)
    return True


def _reason(spent: BudgetSpent, budget: SharedBudget, day: Period) -> str:
    use = use_of(counter_currency(spent.limit), spent.used, spent.reserved, budget.most(spent.limit) or 0)
    if day.name == TREE:
        tree = spent.budget.removeprefix(PREFIX)
        return (
            f"the limit of {words_of(spent.limit)} of run {tree} and its children is reached: {use}; "
            f"holdfast budget {tree} --raise LIMIT=AMOUNT lets them continue"
        )
    return (
        f"the limit of {words_of(spent.limit)} of the budget {spent.budget} is reached for {day.name} "
        f"({budget.zone}): {use}"
    )


async def _wait(
    scope: Scope, step: str, spent: BudgetSpent, budget: SharedBudget, day: Period, newest: Declaration | None
) -> None:
    """Wait until the day is over or limits are declared; for calls in flight only, ask again soon."""
    active, process = scope.active, scope.active.process
    most, now = budget.most(spent.limit) or 0, process.wall_ms()
    due = now + _LOOK_AGAIN_MS if spent.used < most else day.end_ms
    pause = _pause(active, step, spent, budget, day, due if spent.used < most or day.name != TREE else None)
    if newest is not None and day.name != TREE:
        pause = replace(pause, declared=newest.entry)
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    watchers = active.waiters.watchers.setdefault(BUDGET, [])
    watchers.append(waiting)
    slice_ms = min(max(0, due - now), process.settings.slice_ms)
    timer = loop.call_later(slice_ms / 1000, wake, waiting)
    try:
        await active.waiters.wait_for(scope, waiting, pause)
    finally:
        timer.cancel()
        if waiting in watchers:
            watchers.remove(waiting)


def _pause(
    active: ActiveRun, step: str, spent: BudgetSpent, budget: SharedBudget, day: Period, due: int | None
) -> Pause:
    """The wait for the next day; for the budget of a tree, which has no days, for a person who raises it."""
    why = _reason(spent, budget, day)
    if day.name == TREE:
        return Pause("budget", step, due, why)
    until = datetime.fromtimestamp(day.end_ms / 1000, UTC)
    asks = f"run {active.run} waits until {until:%Y-%m-%d %H:%M} UTC: {why}"
    return Pause(SHARED_BUDGET, step, due, asks, budget=spent.budget)


def _period(name: str, budget: SharedBudget, now_ms: int) -> Period:
    """The period of a budget: the day of its zone, or the whole time of a tree of runs."""
    return Period(TREE, FOREVER_MS) if name.startswith(PREFIX) else day_of(budget.zone, now_ms)


async def _limits_changed(active: ActiveRun, tree: str, known: SharedBudget) -> bool:
    """True if the limits of the run at the top of a tree are others than those with which a call was refused."""
    if tree != active.run:
        await refresh_limits(active.process, tree)
    return tree_budgets_of(active).get(PREFIX + tree) != known


async def uses_now(journal: Journal, limits: DeclaredLimits, now_ms: int) -> dict[str, list[BudgetUse]]:
    """The counters of each shared budget on its present day."""
    days = {name: day_of(one.zone, now_ms).name for name, one in limits.budgets.items()}
    found = {(use.budget, use.limit): use for use in await journal.budget_uses(days)} if days else {}
    return {
        name: [found.get((name, counter)) or BudgetUse(name, day, counter) for counter in limits.budgets[name].counters]
        for name, day in days.items()
    }


def is_spent(budget: SharedBudget, uses: Iterable[BudgetUse]) -> bool:
    """True if a limit of the budget is reached by what was used."""
    return any((most := budget.most(use.limit)) is not None and use.used >= most for use in uses)


async def wake_waiting(process: Process) -> None:
    """Make the suspended runs due whose shared budgets have room, after other limits were declared."""
    newest, journal = process.queues.newest, process.journal
    if newest is None or not newest.budgeted:
        return
    limits, now = newest.limits, process.wall_ms()
    spent = {
        name for name, uses in (await uses_now(journal, limits, now)).items() if is_spent(limits.budgets[name], uses)
    }
    for run, waits in await waited_for(journal):
        if not waits <= spent and isinstance(claimed := await process.leases.claim(run), LeaseGranted):
            try:  # giving the lease back leaves a run that waits due, and a worker takes it up
                await journal.append(Write(claimed.lease, (), unchanged_listing(claimed.row, process.wall_ms())))
            except JournalError:
                process.leases.give_back(claimed.row)
                raise
            finally:
                process.leases.let_go(run)
            process.came_due.set()


async def waited_for(journal: Journal) -> list[tuple[str, set[str]]]:
    """The suspended runs that wait for shared budgets, and for which."""
    found = [
        (line.run, {wait.budget for wait in decode_waits(line.waits) if wait.kind == SHARED_BUDGET})
        for line in await journal.waiting("suspended")
        if _MARK in line.waits
    ]
    return [(run, waits) for run, waits in found if waits]
