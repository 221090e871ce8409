"""The budget of a run is that of its whole tree: compared in one place, over processes and crashes, and never copied."""

import asyncio
from typing import Any

import pytest

from holdfast import Natural, NotSent, Run, agent, tool
from holdfast.errors import BudgetExceeded, ChildStopped, RunStopped
from holdfast.journal.port import BudgetUse
from holdfast.model.shared_use import PREFIX, TREE
from holdfast.policies import Budget, RunBudget
from tests.unit.engine.lab import Lab, charges_in, virtual
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
    uses: list[BudgetUse] = await lab.journal.budget_uses({PREFIX + RUN: TREE})
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
        assert f"holdfast budget {RUN} --raise" in rows[stopped[0]].reason
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


@pytest.mark.parametrize(("lands", "effects"), [(True, (1, 0)), (False, (0, 0))], ids=["it happens", "it does not"])
@virtual
async def test_what_is_in_flight_when_the_first_child_starts_is_settled_by_its_end(
    lab: Lab, lands: bool, effects: tuple[int, int]
):
    """It is reserved meanwhile: neither lost to the tree, nor counted for ever."""
    answered, seen = asyncio.Event(), dict[str, tuple[int, int]]()

    async def ask(question: str) -> dict[str, Any]:
        await answered.wait()
        return {"answer": question, "usage": {"input_tokens": 3, "output_tokens": 4}}

    @tool(idempotency=Natural(), budget=Budget(call="2 EUR"))
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
