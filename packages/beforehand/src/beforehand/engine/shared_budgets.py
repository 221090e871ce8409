"""Budgets that runs share, on the side of one process: reserving for a call, waiting, and waking what waits.

The limit is not compared here. The record of the call carries charges (`model/shared_use.py`), and the journal compares
them in the transaction of that record (`charged` in `journal/cells.py`). A model call is charged to every
budget that covers its run, an effect to those that limit effects or the cost.

A run whose budget is spent waits in this process, or is suspended until the day or hour of the budget is over: then it
is due, like after any other wait. When other limits are declared, every process looks (`wake_waiting`): a run that is
suspended becomes due at once if its budgets have room. A suspension is refused where limits were declared since the
run was refused, so none falls between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.active_run.log import SharedLimits
from beforehand.engine.active_run.waiters import BUDGET
from beforehand.engine.suspension import BudgetRefusal
from beforehand.engine.tree_budgets import OwnedRun, read_limits, refresh_limits, tree_budgets_of
from beforehand.errors import BudgetSpent, LimitsChanged
from beforehand.journal.backend_rules import FOREVER_MS
from beforehand.journal.cells import BudgetUse, budget_uses
from beforehand.journal.port import JournalReads
from beforehand.model import records as r
from beforehand.model.decision.situation import SpentBudget
from beforehand.model.money import written_money
from beforehand.model.run_budget import BudgetLeft, is_effect, part_left, words_of
from beforehand.model.shared_use import PREFIX, TREE, SharedUse
from beforehand.model.system import is_system
from beforehand.model.waits import SHARED_BUDGET, decode_waits
from beforehand.queues.limits import SharedBudget
from beforehand.queues.zones import Period, day_of, hour_of

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.active_run.scopes import Scope
    from beforehand.engine.operation_driver import OperationDriver
    from beforehand.engine.process import Process
    from beforehand.model.operation import OperationState
    from beforehand.queues.limits import DeclaredLimits

_MARK: Final = f'"{SHARED_BUDGET}"'.encode()


def budgets_of(active: OwnedRun) -> Mapping[str, SharedBudget]:
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
    periods = {name: period_of(name, one, now).name for name, one in budgets.items()}
    stored = await budget_uses(active.process.journal, periods) if periods else []
    uses = {(use.budget, use.limit): use for use in stored}
    for name, limit in ((name, counter) for name, one in budgets.items() for counter in one.of_models):
        if (most := budgets[name].most(limit)) is None:
            continue
        use = uses.get((name, limit)) or BudgetUse(name, periods[name], limit)
        others = use.used + use.reserved - shared.reserved_by(step, (name, periods[name]), limit)
        found.append(BudgetLeft(part_left(most, others), f"{words_of(limit)} of the budget {name}"))
    return min(found, key=lambda one: one.share, default=None)


async def reserve(
    active: ActiveRun, started: r.DecisionStarted, wait: Callable[[BudgetRefusal], Awaitable[None]]
) -> str | None:
    """Record that a model is called, and what it reserves of the shared budgets that cover the run, in one commit.

    `wait` waits until a spent budget may have room. Empty once that is durable; the reason where a spent budget ends
    the call with an error. None where other branches have come to the limit of the run's own budget meanwhile, or have
    started the first child, so that the budgets are others.
    """
    queues = active.process.queues
    while True:
        budgets, newest, own = budgets_of(active), queues.newest, active.history.budget
        if not budgets:  # no limit is declared any more
            if own is not None and own.refusal(started.step, started.before):
                return None
            await active.log.append(started)
            return ""
        periods = {name: period_of(name, one, active.process.wall_ms()) for name, one in budgets.items()}
        made = replace(started, shared=_places(periods), **active.log.stamp())
        limits = SharedLimits(budgets, None if newest is None else newest.entry)
        try:
            async with active.log.reserving_turn:  # two branches at once would both find the last of the run's own
                current = budgets_of(active).keys() == budgets.keys()
                reserved = current and await active.log.reserve(made, limits)
        except LimitsChanged:
            await queues.refresh(active.process.journal)
        except BudgetSpent as spent:
            if (why := await _refused(active, spent, limits, periods[spent.budget])) is None:
                continue
            if why.budget.then == "stop":
                return why.reason
            await wait(why)
        else:
            active.check()
            return "" if reserved else None
        active.check()


# --- effects -------------------------------------------------------------------------------------------------------


class SharedCharge(msgspec.Struct, frozen=True):
    """The budgets that an operation is charged to from its next record on, and the limits that may refuse that."""

    periods: Mapping[str, Period]
    limits: SharedLimits

    @property
    def shared(self) -> tuple[tuple[str, str], ...]:
        """The budgets with their periods, as the record names them."""
        return _places(self.periods)


def may_be_shared(active: OwnedRun) -> bool:
    """True if budgets of several runs may limit the effects of this one. Mostly a look at three fields."""
    history, limits = active.history, active.process.queues.limits
    started = history.lifecycle.started
    if history.children is not None or (started is not None and started.parent is not None):
        return True
    return limits is not None and any(one.effects is not None or one.money for one in limits.budgets.values())


async def charge_for(driver: OperationDriver, operation: OperationState) -> SharedCharge | None:
    """The charge of an effect that begins now, or is held for a commit; None for one that counts already or nowhere.

    What serves another operation counts with its cost and is never refused, nor is what a person sends once more.
    """
    active, intent = driver.log, operation.intent
    if not driver.journaled or not may_be_shared(active) or is_effect(operation):
        return None
    await read_limits(active)
    budgets = {name: one for name, one in budgets_of(active).items() if _limits_effect(one, intent)}
    if not budgets or _is_in_another_currency(driver, budgets):
        return None
    newest, now = active.process.queues.newest, active.process.wall_ms()
    free = intent.serves or operation.approval.extra_attempt
    limits = SharedLimits({} if free else budgets, None if newest is None else newest.entry)
    return SharedCharge({name: period_of(name, one, now) for name, one in budgets.items()}, limits)


def is_current(driver: OperationDriver, charge: SharedCharge | None) -> bool:
    """True if the budgets that cover the effect are those of this charge: its run may have started its first child."""
    if charge is None:
        return True
    intent = driver.operation.intent
    return set(charge.periods) == {name for name, one in budgets_of(driver.log).items() if _limits_effect(one, intent)}


async def note_refusal(
    driver: OperationDriver, charge: SharedCharge | None, refusal: BudgetSpent | LimitsChanged
) -> None:
    """A budget has refused the effect: `decide` is asked again with that finding, or with other limits."""
    active = driver.log
    assert charge is not None, driver.id
    if isinstance(refusal, LimitsChanged):
        await active.process.queues.refresh(active.process.journal)
        return
    period = charge.periods[refusal.budget]
    found = await _refused(active, refusal, charge.limits, period)
    if found is not None:
        driver.found.refusal = found
        driver.found.spent = SpentBudget(found.reason, "stop" if found.budget.then == "stop" else "ask")


async def await_room(driver: OperationDriver, refusal: BudgetRefusal) -> None:
    """Wait until the budget that refused an effect may have room for it; the run may be suspended meanwhile."""
    process = driver.log.process
    due = refusal.look_again_at(process.wall_ms())
    pause = refusal.pause(driver.log.run, driver.step, due)
    await driver.rest(pause, _slice_s(process, due))
    driver.found.refusal = driver.found.spent = None


def _limits_effect(budget: SharedBudget, intent: r.Intent) -> bool:
    return budget.effects is not None or (bool(intent.price) and budget.cost is not None)


def _is_in_another_currency(driver: OperationDriver, budgets: Mapping[str, SharedBudget]) -> bool:
    """True if the tool states its cost in another currency than a budget has: `decide` then fails the operation."""
    tool, price = driver.operation.intent.tool, driver.operation.intent.price
    for name, money in ((name, one.money) for name, one in budgets.items() if price):
        if money is not None and written_money(price).currency != money.currency:
            driver.found.spent = SpentBudget.of_another_currency(tool, price, f"the budget {name}", money.currency)
            return True
    return False


# --- refusals and waits ----------------------------------------------------------------------------------------------


async def _refused(active: OwnedRun, spent: BudgetSpent, limits: SharedLimits, period: Period) -> BudgetRefusal | None:
    """The refusal; None if the limits of the run at the top of a tree are no longer those that were compared."""
    budget, tree = limits.budgets[spent.budget], spent.budget.removeprefix(PREFIX)
    if tree != spent.budget and await _limits_changed(active, tree, budget):
        return None
    return BudgetRefusal(spent, budget, period, None if period.name == TREE else limits.declared)


async def wait_for_room(scope: Scope, step: str, refusal: BudgetRefusal) -> None:
    """Let a branch wait until the period is over or limits are declared; for calls in flight, it asks again soon."""
    active, process = scope.active, scope.active.process
    due = refusal.look_again_at(process.wall_ms())
    pause, watchers = refusal.pause(active.run, step, due), active.waiters.watchers.setdefault(BUDGET, [])
    try:
        await active.waiters.wait_ms(scope, _slice_s(process, due) * 1000, pause, watchers.append)
    finally:
        watchers[:] = [waiting for waiting in watchers if not waiting.done()]


def _places(periods: Mapping[str, Period]) -> tuple[tuple[str, str], ...]:
    """The budgets with their periods, as a record names them."""
    return tuple((name, period.name) for name, period in periods.items())


def _slice_s(process: Process, due: int) -> float:
    """How long to wait before the next look, in seconds."""
    return min(max(0, due - process.wall_ms()), process.settings.slice_ms) / 1000


def period_of(name: str, budget: SharedBudget, now_ms: int) -> Period:
    """The period of a budget: the day or hour of its zone, or the whole time of a tree of runs."""
    if name.startswith(PREFIX):
        return Period(TREE, FOREVER_MS)
    return hour_of(budget.zone, now_ms) if budget.per == "hour" else day_of(budget.zone, now_ms)


async def _limits_changed(active: OwnedRun, tree: str, known: SharedBudget) -> bool:
    """True if the limits of the run at the top of a tree are others than those with which a call was refused."""
    if tree != active.run:
        await refresh_limits(active.process, tree)
    return tree_budgets_of(active).get(PREFIX + tree) != known


async def uses_now(journal: JournalReads, limits: DeclaredLimits, now_ms: int) -> dict[str, list[BudgetUse]]:
    """The counters of each shared budget in its present period."""
    periods = {name: period_of(name, one, now_ms).name for name, one in limits.budgets.items()}
    found = {(use.budget, use.limit): use for use in await budget_uses(journal, periods)} if periods else {}
    return {
        name: [found.get((name, limit)) or BudgetUse(name, period, limit) for limit in limits.budgets[name].counters]
        for name, period in periods.items()
    }


def is_spent(budget: SharedBudget, uses: Iterable[BudgetUse]) -> bool:
    """True if what was used permits no call that it limits: neither a model call nor an effect."""
    full = {use.limit: use.used >= most for use in uses if (most := budget.most(use.limit)) is not None}
    kinds = ([full[limit] for limit in limits if limit in full] for limits in (budget.of_models, ("effects",)))
    return all(any(kind) for kind in kinds if kind)


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
        if not waits <= spent:
            await process.leases.make_due(run)


async def waiting_by_budget(journal: JournalReads) -> Counter[str]:
    """How many runs wait for each budget that runs share."""
    return Counter(budget for _, budgets in await waited_for(journal) for budget in budgets)


async def waited_for(journal: JournalReads) -> list[tuple[str, set[str]]]:
    """The suspended runs that wait for shared budgets, and for which."""
    found = [
        (line.run, {wait.budget for wait in decode_waits(line.waits) if wait.kind == SHARED_BUDGET})
        for line in await journal.waiting("suspended")
        if _MARK in line.waits
    ]
    return [(run, waits) for run, waits in found if waits]
