"""The budget of a run is that of its whole tree: compared in one place, over processes and crashes, and never copied."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Natural, NotSent, Run, agent, tool
from beforehand.errors import BudgetExceeded, ChildStopped, DecisionFailed, RunStopped
from beforehand.inspect.fork import fork
from beforehand.journal.cells import BudgetUse, budget_uses
from beforehand.model import records as r
from beforehand.model.shared_use import PREFIX, TREE
from beforehand.policies import Budget, Retry, RunBudget
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from tests.unit.engine.lab import Lab, charges_in, virtual
from tests.unit.engine.test_money_budgets import priced
from tests.unit.engine.test_run_budgets import model_of

RUN = "tree-ann"


class Tree:
    """A run that asks once, then starts two children, each of which asks five times."""

    def __init__(self, lab: Lab, *used: int | None, handled: bool = False) -> None:
        ask = model_of(lab, *used)

        @agent(name="leaf")
        async def leaf(run: Run, name: str) -> int:
            asked = 0
            try:
                for number in range(5):
                    await run.decide(ask, f"{name}{number}")
                    asked += 1
            except BudgetExceeded:
                if not handled:
                    raise
            return asked

        @agent(name="root", run_id="tree-{name}")
        async def root(run: Run, name: str) -> list[int]:
            await run.decide(ask, "root")
            both = [await run.start(leaf, one) for one in "ab"]
            return list(await run.gather(*(run.join(one) for one in both)))

        self.root, self.leaf = root, leaf


async def counted(lab: Lab) -> dict[str, tuple[int, int]]:
    """What the journal counted; it is the sum over the records of all runs."""
    lab.journal._settle()
    sums: dict[str, list[int]] = {}
    for run in lab.journal._runs:
        for charge in charges_in(run, lab.records(run)):
            one = sums.setdefault(charge.limit, [0, 0])
            one[0] += charge.used
            one[1] += charge.reserved
    uses: list[BudgetUse] = await budget_uses(lab.journal, {PREFIX + RUN: TREE})
    found = {use.limit: (use.used, use.reserved) for use in uses}
    assert found == {limit: (used, reserved) for limit, (used, reserved) in sums.items()}
    return found


@virtual
async def test_the_children_of_a_run_share_its_limit_of_calls(lab: Lab):
    tree = Tree(lab, handled=True)
    async with lab.app(tree.root, tree.leaf, recover=True) as app:
        found = await app.run(tree.root, "ann", budget=RunBudget(model_calls=6, then="stop"))
        assert sum(found) == 5
        assert (await counted(lab))["model_calls"] == (6, 0)
    assert len(lab.sent) == 6


@virtual
async def test_two_processes_that_drive_two_children_do_not_pass_the_limit_of_tokens(lab: Lab):
    """The counter is compared in the commit of the call, so what one process read before does not count."""
    tree = Tree(lab, *([10] * 20), handled=True)
    lab.lag_s = 0.01
    async with lab.app(tree.root, tree.leaf, recover=True) as one, lab.app(tree.root, tree.leaf, recover=True):
        found = await one.run(tree.root, "ann", budget=RunBudget(tokens=50, then="stop"))
        used, reserved = (await counted(lab))["tokens"]
    assert reserved == 0
    assert sum(found) + 1 == len(lab.sent)
    assert 50 <= used <= 50 + 10  # what was in flight when the limit was reached


@virtual
async def test_a_person_raises_the_limit_at_the_top_and_the_tree_continues(lab: Lab):
    tree = Tree(lab)
    async with lab.app(tree.root, tree.leaf, recover=True) as app:
        driving = asyncio.ensure_future(app.run(tree.root, "ann", budget=RunBudget(model_calls=4)))
        await lab.pass_time(minutes=1)
        rows = {row.run: row for row in await app.service.runs()}
        stopped = [run for run, row in rows.items() if row.status == "stopped"]
        assert stopped
        assert set(stopped) <= {f"{RUN}~leaf.1", f"{RUN}~leaf.2"}
        assert f"beforehand budget {RUN} --raise" in rows[stopped[0]].reason
        assert not driving.done()
        assert len(lab.sent) == 4
        await app.service.raise_budget(RUN, {"model_calls": 20}, by="eve")
        assert await driving == [5, 5]
        assert (await counted(lab))["model_calls"] == (11, 0)


@virtual
async def test_a_child_that_its_tree_stopped_and_a_person_cancels_ends_the_join(lab: Lab):
    tree = Tree(lab)
    async with lab.app(tree.root, tree.leaf, recover=True) as app:
        driving = asyncio.ensure_future(app.run(tree.root, "ann", budget=RunBudget(model_calls=4)))
        await lab.pass_time(minutes=1)
        for row in await app.service.runs():
            if row.status == "stopped":
                await app.service.cancel(row.run, by="eve")
        with pytest.raises((ChildStopped, RunStopped), match="cancelled"):
            await driving


@virtual
async def test_a_child_has_its_own_limits_beside_those_of_its_tree(lab: Lab):
    ask = model_of(lab)

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> int:
        asked = 0
        try:
            while True:
                await run.decide(ask, f"{asked}")
                asked += 1
        except BudgetExceeded:
            return asked

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> list[int]:
        own = [await run.start(leaf, "a", budget=RunBudget(model_calls=2, then="stop"))]
        first = await run.join(own[0])
        return [first, await run.join(await run.start(leaf, "b"))]

    async with lab.app(root, leaf, recover=True) as app:
        assert await app.run(root, "ann", budget=RunBudget(model_calls=5, then="stop")) == [2, 3]


@pytest.mark.parametrize("unpriced", [None, "0.05 EUR"])
@virtual
async def test_a_call_without_a_price_counts_in_the_tree_as_its_budget_declares(lab: Lab, unpriced: str | None):
    ask = model_of(lab)

    async def asked(run: Run) -> str:
        try:
            await run.decide(ask, "whatever")
        except DecisionFailed as refused:
            return "is not known" if "is not known" in refused.message else refused.message
        return "asked"

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> str:
        return await asked(run)

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> list[str]:
        before = await asked(run)
        child = await run.join(await run.start(leaf, "a"))
        return [before, child, await asked(run)]

    async with lab.app(root, leaf, recover=True, prices=priced()) as app:
        found = await app.run(root, "ann", budget=RunBudget(cost="1 EUR", unpriced=unpriced))
        assert found == ["is not known" if unpriced is None else "asked"] * 3
        assert (await counted(lab)).get("cost EUR", (0, 0)) == (0 if unpriced is None else 150_000_000, 0)


@pytest.mark.parametrize(("top", "middle"), [(3, 9), (9, 3)], ids=["the top has less", "the middle has less"])
@virtual
async def test_the_limits_of_every_run_above_hold_not_only_those_of_the_nearest(lab: Lab, top: int, middle: int):
    ask = model_of(lab)

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> int:
        asked = 0
        try:
            while True:
                await run.decide(ask, f"{asked}")
                asked += 1
        except BudgetExceeded:
            return asked

    @agent(name="between")
    async def between(run: Run, name: str) -> int:
        return await run.join(await run.start(leaf, name))

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> int:
        return await run.join(await run.start(between, name, budget=RunBudget(model_calls=middle, then="stop")))

    async with lab.app(root, between, leaf, recover=True) as app:
        assert await app.run(root, "ann", budget=RunBudget(model_calls=top, then="stop")) == 3
        assert uses(lab)[PREFIX + RUN, "model_calls"] == (3, 0)


def answering(wait: Callable[[], Awaitable[object]]) -> Callable[[str], Awaitable[dict[str, Any]]]:
    """A model that answers once that wait is over, and states that it used seven tokens."""

    async def ask(question: str) -> dict[str, Any]:
        await wait()
        return {"answer": question, "usage": {"input_tokens": 3, "output_tokens": 4}}

    return ask


@pytest.mark.parametrize(("lands", "effects"), [(True, (1, 0)), (False, (0, 0))], ids=["it happens", "it does not"])
@virtual
async def test_what_is_in_flight_when_the_first_child_starts_is_settled_by_its_end(
    lab: Lab, lands: bool, effects: tuple[int, int]
):
    """It is reserved meanwhile: neither lost to the tree, nor counted for ever."""
    answered, seen = asyncio.Event(), dict[str, tuple[int, int]]()

    ask = answering(answered.wait)

    @tool(idempotency=Natural(), budget=Budget(call="2 EUR"), retry=Retry())
    async def pay() -> str:
        await answered.wait()
        if not lands:
            raise NotSent("no")
        return "paid"

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> str:
        seen.update(await counted(lab))
        answered.set()
        return name

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> None:
        async def child() -> str:
            await asyncio.sleep(1)
            return await run.join(await run.start(leaf, "a"))

        await run.gather(run.decide(ask, "how much?"), pay.outcome(), child())

    async with lab.app(root, leaf, recover=True) as app:
        await app.run(root, "ann", budget=RunBudget(tokens=10_000, effects=5, cost="9 EUR", unpriced="0.05 EUR"))
    assert (seen["model_calls"], seen["effects"], seen["cost EUR"]) == ((0, 1), (0, 1), (0, 2_050_000_000))
    assert seen["tokens"][1] > 0
    left = await counted(lab)
    assert (left["model_calls"], left["tokens"], left["effects"]) == ((1, 0), (7, 0), effects)
    assert left["cost EUR"] == (2_050_000_000 if lands else 50_000_000, 0)


@virtual
async def test_a_call_in_flight_at_the_first_child_is_settled_in_declared_budgets_too(lab: Lab):
    """Although the budget of the run is in no currency, the declared one is."""

    ask = answering(lambda: asyncio.sleep(5))

    root, leaf = root_with(run_beside=lambda run: [run.options(model="large").decide(ask, "?")])
    declared = DeclaredLimits(budgets={"support": SharedBudget(cost="9 EUR")})
    async with lab.app(root, leaf, recover=True, queues=declared, prices=priced()) as app:
        await app.run(root, "ann", budget=RunBudget(model_calls=100))
    assert uses(lab)["support", "cost EUR"] == (7_000_000, 0)


def root_with(run_beside: Callable[[Run], list[Awaitable[Any]]], seconds: float = 1) -> tuple[Any, Any]:
    """A run that starts its first child after a while, beside these."""

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> str:
        return name

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> None:
        async def child() -> str:
            await asyncio.sleep(seconds)
            return await run.join(await run.start(leaf, "a"))

        await run.gather(child(), *run_beside(run))

    return root, leaf


def uses(lab: Lab) -> dict[tuple[str, str], tuple[int, int]]:
    lab.journal._settle()
    return {(use.budget, use.limit): (use.used, use.reserved) for use in lab.uses()}


@virtual
async def test_a_call_that_waited_for_the_runs_own_budget_is_compared_with_its_tree(lab: Lab):
    """The first child started meanwhile, and what the call shares was not known before its wait."""
    ask = model_of(lab)

    async def asks(run: Run) -> None:
        await run.decide(ask, "1")
        await run.decide(ask, "2")

    root, leaf = root_with(lambda run: [asks(run), asyncio.sleep(100)])
    async with lab.app(root, leaf, recover=True) as app:
        driving = asyncio.ensure_future(app.run(root, "ann", budget=RunBudget(model_calls=1)))
        await asyncio.sleep(5)
        await app.service.raise_budget(RUN, {"model_calls": 20}, by="eve")
        await driving
        assert (await counted(lab))["model_calls"] == (2, 0)
    named = [record.shared for record in lab.records(RUN) if isinstance(record, r.DecisionStarted)]
    assert named == [(), ((PREFIX + RUN, TREE),)]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.06, 0.11])
@virtual
async def test_what_was_prepared_before_the_first_child_and_recorded_after_it_counts_in_the_tree(
    lab: Lab, declared: bool, claims: bool, seconds: float
):
    ask = answering(lambda: asyncio.sleep(5))

    clause: dict[str, Any] = {"claim": "number"} if claims else {}

    @tool(idempotency=Natural(), **clause)
    async def pay(number: int) -> str:
        await asyncio.sleep(3)
        return "paid"

    async def later(run: Run, number: int) -> None:
        await asyncio.sleep(number * 0.015)
        await (pay(number) if number % 2 else run.decide(ask, str(number)))

    root, leaf = root_with(lambda run: [later(run, number) for number in range(12)], seconds)
    lab.lag_s = 0.05
    budgets = DeclaredLimits(budgets={"support": SharedBudget(effects=1000, model_calls=1000)} if declared else {})
    async with lab.app(root, leaf, recover=True, queues=budgets) as app:
        await app.run(root, "ann", budget=RunBudget(effects=100, model_calls=100))
    found = uses(lab)
    assert (found[PREFIX + RUN, "effects"], found[PREFIX + RUN, "model_calls"]) == ((6, 0), (6, 0))


@virtual
async def test_an_effect_that_is_contradicted_after_the_first_child_counts_in_the_tree(lab: Lab):
    landed = asyncio.Event()

    @tool(timeout=timedelta(seconds=2))
    async def pay() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await landed.wait()
        return "paid"

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> str:
        return name

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> None:
        await pay.outcome()
        await run.join(await run.start(leaf, "a"))
        await run.sleep(timedelta(seconds=600))

    async with lab.app(root, leaf, recover=True) as app:
        driving = asyncio.ensure_future(app.run(root, "ann", budget=RunBudget(effects=5)))
        await asyncio.sleep(30)
        await app.service.resolve("tree-ann/pay#1", "did_not_happen", by="eve", evidence="no")
        await asyncio.sleep(30)
        assert uses(lab).get((PREFIX + RUN, "effects"), (0, 0)) == (0, 0)
        landed.set()
        await asyncio.sleep(30)
        assert uses(lab)[PREFIX + RUN, "effects"] == (1, 0)
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)


@virtual
async def test_a_fork_begins_a_tree_of_its_own(lab: Lab):
    """With what it inherits, counted once: what was in flight before the fork is not charged a second time."""

    ask = answering(lambda: asyncio.sleep(1 if lab.changed else 100))

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> str:
        return name

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> None:
        async def children() -> None:
            for child in "ab":
                await asyncio.sleep(1)
                await run.join(await run.start(leaf, child))

        await run.gather(run.decide(ask, "?"), children())

    async with lab.app(root, leaf, recover=True) as app:
        await app.run(root, "ann", budget=RunBudget(model_calls=100))
        await fork(app.engine, RUN, "~2/start:leaf#2", "again", "eve")
        lab.changed = True
        await app.resume("again")
        own = (await app.service.history("again")).budget
    assert own is not None
    assert uses(lab)[f"{PREFIX}again", "model_calls"] == (own.model_calls, 0) == (2, 0)
