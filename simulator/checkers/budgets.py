"""Budgets: no call begins at a limit, what is reserved is used or open, and what waits for a budget goes on.

The checker adds up the records by itself, in the order in which they became durable, and counts the calls at the model.
Effects it counts where they happen; that the counters of the journal are charged with what the records say of them, and
with nothing else, it compares with the fold of the product.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast
from zoneinfo import ZoneInfo

import msgspec

from beforehand.journal.cells import budget_uses
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.run_history import RunHistory
from beforehand.model.shared_use import PREFIX, TREE
from beforehand.model.usage import Usage
from beforehand.policies import RunBudget
from beforehand.testing.loop import Actor
from simulator.processes.budgeting import stopped_at_budget

if TYPE_CHECKING:
    from beforehand.journal.port import Journal
    from simulator.world import World

LIMITS: Final = 29
SUMS: Final = 30
GOES_ON: Final = 31
OF_MODELS: Final = ("tokens", "model_calls")
SOON_MS: Final = 10 * 60_000
"""So long after its budget was raised, a run has gone on."""
UNSEEN_MS: Final = 150_000
"""So long after the first budget was declared, a process may not have read it: one may stand still for two minutes."""
_ENDS: Final = (r.RunSuspendedRecord, r.RunStoppedRecord, r.RunCompleted, r.RunUndone)


class Call(msgspec.Struct, frozen=True):
    """A call that is under way: the tokens that it reserves, and the shared budgets, each with its period."""

    reserved: int
    shared: tuple[tuple[str, str], ...]


class Account(msgspec.Struct):
    """What one run may use, has used, and reserves."""

    limits: RunBudget | None
    agent: str
    tenant: str
    used: Counter[str] = msgspec.field(default_factory=Counter[str])
    raised: Counter[str] = msgspec.field(default_factory=Counter[str])
    open: dict[str, Call] = {}
    sharing: dict[str, Call] = {}
    """The calls that are open in the shared budgets: those of a run that stops are not, although it may go on."""
    unasked: Counter[str] = msgspec.field(default_factory=Counter[str])
    """The calls on record that the model has not received, by name. A process that was stopped makes its call late."""
    stops: int = 0
    raises: int = 0
    stopped: str = ""
    """Why it has stopped, if it has."""
    above: tuple[str, ...] = ()
    """The runs above it that have a budget."""
    begun: bool = False
    """Whether it has a child: from then on the runs below it share its budget."""

    def most(self, limit: str) -> int | None:
        """The limit with what people added."""
        most: int | None = None if self.limits is None else getattr(self.limits, limit)
        return None if most is None else most + self.raised[limit]

    def taken(self, limit: str) -> int:
        """What is used and reserved of a limit of models."""
        reserved = len(self.open) if limit == "model_calls" else sum(one.reserved for one in self.open.values())
        return self.used[limit] + reserved


class Budgets:
    """Every budget of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._on = bool(world.plan.budgets) or any(
            [one.budget for one in world.plan.submissions] + [one.limits.budgets for one in world.plan.declarations]
        )
        self._accounts: dict[str, Account] = {}
        self._shared: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        """What is used of each budget in each period, by limit."""
        self._effects: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        """The operations that are charged to each budget in each period."""
        self._histories: dict[str, RunHistory] = {}
        self._raising: dict[str, int] = {}
        """The runs whose budget was raised and that have not gone on, with the time since when."""

    # --- the model -------------------------------------------------------------------------------------------

    def begins(self, actor: Actor, run: str, name: str) -> None:
        """A model is called. Under a limit this very call is on record before that, with what it reserves."""
        account = self._accounts.get(run)
        if account is None or not actor.alive:
            return
        limited = any(account.most(name) is not None for name in OF_MODELS) or bool(
            account.above or (self._covering(account) and not self._unseen())
        )
        if limited and not account.unasked[name]:
            self._broken(SUMS, f"{name} of {run} calls the model, and this call is not on record")
        account.unasked[name] = max(0, account.unasked[name] - 1)  # under no limit the call may come before its record
        self._reached("a call under a limit" if limited else "a call under none")

    def refused(self, run: str, name: str) -> None:
        """The service refused a call: it counts nowhere, and may be made again."""
        if (account := self._accounts.get(run)) is not None:
            account.unasked[name] += 1

    # --- what became durable ---------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if not self._on:
            return
        if isinstance(record, r.RunStarted):
            self._begin(run, record)
        if (account := self._accounts.get(run)) is None:
            return
        self._charge_effects(run, record)
        match record:
            case r.DecisionStarted():
                self._settle(account, record.step, record.before)
                self._check_model_call(run, account, record)
                call = Call(record.reserved, record.shared)
                account.open[record.step] = call
                account.unasked[record.step.rpartition("/")[2]] += 1  # without the branch
                if record.shared:
                    account.sharing[record.step] = call
            case r.DecisionRecorded() | r.ReservationSettled():
                self._settle(account, record.step, record.usage)
            case r.AttemptStarted():
                self._check_effect(run, account, record)
                self._check_shared_effect(run, account, record)
            case r.BudgetRaised():
                account.raised.update(tokens=record.tokens, model_calls=record.model_calls, effects=record.effects)
                account.raises += 1
                if account.stopped == "budget":
                    self._raising[run] = self._world.now_ms()
                self._reached("raised")
            case _:
                self._of_run(run, account, record)

    def _begin(self, run: str, record: r.RunStarted) -> None:
        """A run begins. The runs above it are those of its parent, and that one if it has a budget."""
        above: tuple[str, ...] = ()
        if record.parent is not None:
            parent = self._accounts[record.parent.run]
            above = parent.above if parent.limits is None else (*parent.above, record.parent.run)
            if record.parent.budgets != above:
                self._broken(LIMITS, f"{run} shares the budgets of {record.parent.budgets}, and {above} are above it")
        self._accounts[run] = Account(record.budget, record.agent, record.tenant, above=above)

    def _begin_tree(self, run: str, account: Account) -> None:
        """The tree of a run counts what that has used and reserved before its first child."""
        if account.limits is None or account.begun:
            return
        account.begun, place = True, (PREFIX + run, TREE)
        self._shared[place].update({limit: account.used[limit] for limit in OF_MODELS})
        for step, call in account.open.items():
            known = account.sharing.get(step)
            account.sharing[step] = Call(call.reserved, (place,) if known is None else (*known.shared, place))
        known_here = self._world.checker.operations.items()
        self._effects[place].update(dict.fromkeys(name for name, one in known_here if one.run == run and one.attempts))
        self._reached("a tree")

    def _of_run(self, run: str, account: Account, record: r.Record) -> None:
        if isinstance(record, r.ChildStarted):
            self._begin_tree(run, account)
        if isinstance(record, r.Claimed):
            for step in list(account.open):
                self._reached("a lost call")
                self._settle(account, step, Usage())
        if isinstance(record, (r.Claimed, *_ENDS)):
            for step in list(account.sharing):
                self._settle_shared(account, step, Usage())
        if isinstance(record, (r.RunReopened, r.RunStoppedRecord)):
            self._raising.pop(run, None)
            account.stopped = record.reason if isinstance(record, r.RunStoppedRecord) else ""
        if account.stopped == "budget" and isinstance(record, r.RunStoppedRecord) and account.limits is not None:
            account.stops += 1
            self._reached("stopped")
            then = functools.partial(self._acknowledged, run, account.raises)
            stopped_at_budget(self._world, run, account.limits, account.stops, then)

    def _acknowledged(self, run: str, raises: int) -> None:
        """The command to raise a budget is accepted: it has an effect now, or soon."""
        account = self._accounts[run]
        if account.stopped == "budget" and account.raises == raises:
            self._raising[run] = self._world.now_ms()

    def _check_model_call(self, run: str, account: Account, record: r.DecisionStarted) -> None:
        """No limit is reached before this call: neither of the run, nor of what it shares."""
        for limit in OF_MODELS:
            most, taken = account.most(limit), account.taken(limit)
            if most is not None and taken >= most:
                self._broken(LIMITS, f"{run}/{record.step} asks a model, and {taken} of {most} {limit} are taken")
        trees, names = self._trees(run, account), {name for name, _ in record.shared}
        # A process that knew of no declared budget yet compares those of trees alone.
        covering = trees if self._unseen() and names <= trees else {*trees, *self._covering(account)}
        if names != covering:
            self._broken(LIMITS, f"{run}/{record.step} is charged to {record.shared}, and {covering} cover it")
            return
        for name, period in record.shared:
            if period != (day := self._period(name, record.at)):
                self._broken(LIMITS, f"{run}/{record.step} is charged to {name} for {period} on {day}")
            for limit in OF_MODELS:
                most, taken = self._most(name, limit), self._taken(name, period, limit)
                if most is not None and taken >= most:
                    what = f"{taken} of {most} {limit} of {name} are taken"
                    self._broken(LIMITS, f"{run}/{record.step} asks a model, and {what}")
            self._reached("a call under a shared limit")

    def _trees(self, run: str, account: Account) -> set[str]:
        """The budgets of the trees that the run is in."""
        tops = (*account.above, run) if account.begun else account.above
        return {PREFIX + top for top in tops}

    def _most(self, name: str, limit: str) -> int | None:
        """The limit of a shared budget, or of the run at the top of a tree. None: it has none, or is not declared."""
        if name.startswith(PREFIX):
            return self._accounts[name.removeprefix(PREFIX)].most(limit)
        declared = self._world.checker.queues.limits.budgets.get(name)
        return None if declared is None else declared.most(limit)

    def _period(self, name: str, at_ms: int) -> str:
        """The period of a budget at that wall clock."""
        if name.startswith(PREFIX):
            return TREE
        zone = ZoneInfo(self._world.checker.queues.limits.budgets[name].zone)
        return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).date().isoformat()

    def _covering(self, account: Account) -> set[str]:
        """The shared budgets that cover the run now."""
        budgets = self._world.checker.queues.limits.budgets
        return {name for name, one in budgets.items() if one.covers(account.agent, account.tenant)}

    def _unseen(self) -> bool:
        """Whether a process may not have read the declared limits yet."""
        return self._world.now_ms() - self._world.checker.queues.declared_ms < UNSEEN_MS

    def _check_effect(self, run: str, account: Account, record: r.AttemptStarted) -> None:
        """No effect begins where as many happened, or are under way, as may; its own counts for nothing."""
        most = account.most("effects")
        if most is None:
            return
        own = operation_id(run, record.step)
        checker = self._world.checker
        others = [(name, known) for name, known in checker.operations.items() if known.run == run and name != own]
        happened = sum(checker.happened_at_all(name) or known.state() == "running" for name, known in others)
        self._reached("an effect under a limit")
        if happened >= most:
            self._broken(LIMITS, f"{own} begins, and {happened} of {most} effects of its run happened or are under way")

    def _check_shared_effect(self, run: str, account: Account, record: r.AttemptStarted) -> None:
        """No effect begins where as many of those that share a budget happened, or are under way, as may."""
        own, names = operation_id(run, record.step), {name for name, _ in record.shared}
        trees = self._trees(run, account)
        covering = trees if self._unseen() and names <= trees else {*trees, *self._covering(account)}
        limited = {name for name in covering if self._most(name, "effects") is not None}
        if (names or record.number == 1) and names != limited:
            self._broken(LIMITS, f"{own} is charged to {record.shared}, and {limited} limit effects")
            return
        for place in [place for place, charged in self._effects.items() if record.shared and own in charged]:
            del self._effects[place][own]  # it was proven that nothing happened: another day counts it
        for place in record.shared:
            most = self._most(place[0], "effects")
            others = [name for name in self._effects[place] if name != own]
            if most is not None and (found := sum(map(self._happens, others))) >= most:
                self._broken(
                    LIMITS, f"{own} begins, and {found} of {most} effects of {place} happened or are under way"
                )
            self._effects[place][own] = None
            self._reached("an effect under a shared limit")
        if account.begun:  # the tree counts it whether it limits effects or not
            self._effects[PREFIX + run, TREE][own] = None

    def _happens(self, name: str) -> bool:
        checker = self._world.checker
        operation = checker.operations[name]
        return checker.happened_at_all(name) or (operation.state() == "running" and not operation.proved)

    def _may_happen(self, name: str) -> bool:
        """Whether it is not known that an effect did not happen: a person is asked, or a later attempt may come."""
        checker = self._world.checker
        return not checker.happened_at_all(name) and bool(checker.operations[name].state())

    def _charge_effects(self, run: str, record: r.Record) -> None:
        """Add up what a record charges for effects, by the fold of the product."""
        history = self._histories.setdefault(run, RunHistory(run))
        for charge in history.charges([record]):
            if charge.limit == "effects":
                self._shared[charge.budget, charge.period].update(effects=charge.used, reserved=charge.reserved)
        history.add(record)

    # --- sums ------------------------------------------------------------------------------------------------

    def _settle(self, account: Account, step: str, usage: Usage) -> None:
        self._settle_shared(account, step, usage)
        call = account.open.pop(step, None)
        if call is not None:
            account.used.update(_counted(usage, call.reserved))

    def _settle_shared(self, account: Account, step: str, usage: Usage) -> None:
        call = account.sharing.pop(step, None)
        for place in call.shared if call is not None else ():
            self._shared[place].update(_counted(usage, call.reserved if call is not None else 0))

    def _taken(self, name: str, period: str, limit: str) -> int:
        return self._shared[name, period][limit] + self._reserved(name, period, limit)

    def _reserved(self, name: str, period: str, limit: str) -> int:
        if limit == "effects":
            return self._shared[name, period]["reserved"]
        calls = [
            call for one in self._accounts.values() for call in one.sharing.values() if (name, period) in call.shared
        ]
        return len(calls) if limit == "model_calls" else sum(call.reserved for call in calls)

    async def restless(self) -> list[str]:
        """The runs that have to go on, because their budget was raised. Compares the counters of the journal, too."""
        if not self._on:
            return []
        await self._compare()
        now = self._world.now_ms()
        for run, since in self._raising.items():
            if now - since > SOON_MS and not self._world.checker.queues.behind(run, ()):
                self._broken(GOES_ON, f"the budget of {run} was raised at {since} ms, and it has not gone on")
        return [f"{run} has a higher budget" for run in self._raising]

    async def _compare(self) -> None:
        """The counters of the journal are what the records add up to."""
        for (name, period), used in list(self._shared.items()):
            for found in await budget_uses(cast("Journal", self._world.journal), {name: period}):
                right = used[found.limit], self._reserved(name, period, found.limit)
                if (found.used, found.reserved) != right:
                    what = f"used {found.used} and reserves {found.reserved}"
                    self._broken(SUMS, f"{found.limit} of {name} on {period}: {what}, and the records say {right}")

    async def at_the_end(self) -> None:
        """Everything is drained: nothing is reserved in shared budgets, and the product adds up each run alike."""
        if not self._on:
            return
        await self._compare()
        for name, period in self._shared:
            if self._reserved(name, period, "model_calls") or self._reserved(name, period, "effects"):
                self._broken(SUMS, f"{name} on {period} has reservations, and no call is under way")
        for place, charged in self._effects.items():
            happened = sum(map(self._world.checker.happened_at_all, charged))
            may = happened + sum(self._may_happen(name) for name in charged)
            if not happened <= (counted := self._shared[place]["effects"]) <= may:
                self._broken(SUMS, f"of {place} {happened} to {may} effects happened, and {counted} are counted")
        for run, account in self._accounts.items():
            history = RunHistory(run)
            for row in await self._world.journal.read(run, limit=100_000):
                history.add(decode(row.body))
            if history.budget is not None:
                right = tuple(account.used[limit] for limit in OF_MODELS)
                if (history.budget.tokens, history.budget.model_calls) != right:
                    what = f"{history.budget.tokens} tokens and {history.budget.model_calls} calls"
                    self._broken(SUMS, f"run {run} used {what}, and its records say {right}")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"budget: {what}"] += 1


def _counted(usage: Usage, reserved: int) -> Counter[str]:
    """What a call counts for: what it used, or what it had reserved where that is not known; one refused, nothing."""
    used = usage.input_tokens + usage.output_tokens
    if usage.refused and not used:
        return Counter()
    return Counter(tokens=used or reserved, model_calls=1)
