"""Budgets that runs share and that limit effects or the cost of tools: for a day, and for a tree of runs."""

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from beforehand import (
    Conflict,
    DidNotHappen,
    Natural,
    Operation,
    Run,
    RunSuspended,
    TransactionAborted,
    Verdict,
    agent,
    tool,
)
from beforehand.errors import BudgetExceeded, OperationFailed, RunStopped
from beforehand.journal.cells import budget_uses
from beforehand.model import records as r
from beforehand.model.shared_use import PREFIX
from beforehand.policies import Budget, RunBudget
from tests.unit.engine.lab import DAYS, Lab, virtual
from tests.unit.engine.test_run_budgets import budget_of, paying
from tests.unit.engine.test_shared_budgets import check_sums, counted, limits


@virtual
async def test_runs_share_one_limit_of_effects_and_the_rest_wait_for_the_next_day(lab: Lab):
    desk = paying(lab, 1, 2)
    async with lab.app(desk, queues=limits(agent="desk", effects=3), recover=True, **DAYS) as app:
        assert await app.run(desk, "ann") == ["paid", "paid"]
        with pytest.raises(RunSuspended, match="the limit of effects of the budget support is reached") as waits:
            await app.run(desk, "bob")
        assert "3 of 3 used" in waits.value.message
        assert lab.sent == ["1", "2", "1"]
        assert counted(lab)["support", "effects"] == (3, 0)
        await lab.pass_time(days=1, minutes=2)
        assert (await app.engine.journal.runs(run="r-bob"))[0].status == "completed"
    assert lab.sent == ["1", "2", "1", "2"]
    assert counted(lab)["support", "effects"] == (4, 0)
    check_sums(lab)


@virtual
async def test_a_budget_that_stops_is_the_outcome_of_the_call_and_final(lab: Lab):
    desk = paying(lab, 1, 2)
    async with lab.app(desk, queues=limits(effects=1, then="stop")) as app:
        with pytest.raises(BudgetExceeded, match="the budget support is reached"):
            await app.run(desk, "ann")
        with pytest.raises(RunStopped):
            await app.run(desk, "ann")
    assert lab.sent == ["1"]
    check_sums(lab)


@virtual
async def test_higher_limits_wake_a_run_that_waits_for_effects(lab: Lab):
    desk = paying(lab, 1, 2)
    async with lab.app(desk, queues=limits(effects=1)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    async with lab.app(desk, recover=True) as worker:
        async with lab.app(desk, queues=limits(effects=1, agent="desk")):
            await lab.pass_time(minutes=1)
        assert (await worker.engine.journal.runs(run="r-ann"))[0].status == "suspended", "it is spent all the same"
        async with lab.app(desk, queues=limits(effects=2)):
            await lab.pass_time(minutes=1)
        assert (await worker.engine.journal.runs(run="r-ann"))[0].status == "completed"
    check_sums(lab)


@virtual
async def test_an_effect_that_is_proven_not_to_have_happened_leaves_its_place_to_another(lab: Lab):
    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(str(cents))
        if cents == 1:
            raise ConnectionRefusedError
        return "paid"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            await pay(1)
        except OperationFailed:
            return await pay(2)
        raise AssertionError

    async with lab.app(desk, queues=limits(effects=1, then="stop")) as app:
        assert await app.run(desk, "ann") == "paid"
    assert counted(lab)["support", "effects"] == (1, 0)
    check_sums(lab)


@virtual
async def test_an_effect_in_flight_is_reserved_and_a_run_that_it_alone_keeps_waiting_asks_again(lab: Lab):
    @tool(idempotency=Natural())
    async def pay(name: str) -> str:
        lab.sent.append(name)
        await asyncio.sleep(5)
        if name == "ann":
            raise ConnectionRefusedError
        return "paid"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    async with lab.app(desk, queues=limits(effects=1)) as app:
        first = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        assert counted(lab)["support", "effects"] == (0, 1)
        second = asyncio.ensure_future(app.run(desk, "bob"))
        await lab.pass_time(seconds=2)
        assert lab.sent == ["ann"]
        assert not second.done()
        assert await second == "paid"
        first.cancel()


@virtual
async def test_held_effects_count_an_abort_gives_them_back_and_a_commit_is_not_stopped(lab: Lab):
    @tool
    async def mail(to: str) -> str:
        lab.sent.append(f"mail {to}")
        return "sent"

    @tool
    async def book(name: str) -> str:
        lab.sent.append(f"book {name}")
        return name

    @book.compensate(restores=True)
    @tool(idempotency=Natural(within=timedelta(hours=1)))
    async def unbook(operation: Operation[str], name: str) -> None:
        lab.sent.append(f"unbook {name}")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await run.on_commit(mail, name)
            await book(name)
            if name == "ann":
                await book("once more")
        return name

    async with lab.app(desk, queues=limits(effects=2, then="stop")) as app:
        with pytest.raises(TransactionAborted, match="the budget support is reached"):
            await app.run(desk, "ann")
        assert lab.sent == ["book ann", "unbook ann"]
        assert counted(lab)["support", "effects"] == (1, 0), "the booking that was undone; the mail was never sent"
    async with lab.app(desk, queues=limits(effects=3, then="stop")) as app:
        assert await app.run(desk, "bob") == "bob"
    assert lab.sent[2:] == ["book bob", "mail bob"]
    assert counted(lab)["support", "effects"] == (3, 0)
    check_sums(lab)


@virtual
async def test_branches_that_begin_effects_at_once_share_what_is_left(lab: Lab):
    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(str(cents))
        return "paid"

    async def one(cents: int) -> str:
        try:
            return await pay(cents)
        except BudgetExceeded:
            return "refused"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return list(await run.gather(*(one(cents) for cents in range(6))))

    lab.lag_s = 0.01
    async with lab.app(desk, queues=limits(effects=4, then="stop")) as app:
        assert sorted(await app.run(desk, "ann")) == ["paid"] * 4 + ["refused"] * 2
        assert sorted(await app.run(desk, "bob")) == ["refused"] * 6
    assert len(lab.sent) == 4
    check_sums(lab)


@pytest.mark.parametrize("then", ["wait", "stop"])
@virtual
async def test_what_a_person_orders_to_send_is_sent_though_the_budget_is_spent(lab: Lab, then: Literal["wait", "stop"]):
    @tool
    async def reserve(seat: str) -> str:
        lab.sent.append(seat)
        return seat

    @reserve.verify(settle_window=timedelta(0), check_first=True)
    async def find(operation: Operation[str], seat: str) -> Verdict[str]:
        return Conflict("the seat is taken") if seat == "4A" else DidNotHappen()

    @agent(run_id="r-{seat}")
    async def desk(run: Run, seat: str) -> str:
        return await reserve(seat)

    async with lab.app(desk, queues=limits(effects=1, then=then), recover=True) as app:
        with pytest.raises(RunSuspended, match="the seat is taken"):
            await app.run(desk, "4A")
        await app.run(desk, "5B")
        await app.service.resolve("r-4A/reserve#1", "retry", by="eve", evidence="it is free now")
        await lab.pass_time(minutes=1)
        assert (await app.engine.journal.runs(run="r-4A"))[0].status == "completed"
    assert lab.sent == ["5B", "4A"]
    assert counted(lab)["support", "effects"] == (2, 0)
    check_sums(lab)


# --- the cost of tools -----------------------------------------------------------------------------------------------


def reporting(lab: Lab, price: str):
    """An agent that buys two reports. Its tool declares what a call costs."""

    @tool(idempotency=Natural(), budget=Budget(call=price))
    async def report(name: str) -> str:
        lab.sent.append(name)
        return "good"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return len([await report(f"{name}{number}") for number in range(2)])

    return desk


@virtual
async def test_runs_share_a_limit_of_the_cost_of_their_tools(lab: Lab):
    desk = reporting(lab, "0.40 EUR")
    async with lab.app(desk, queues=limits(cost="1 EUR", then="stop")) as app:
        assert await app.run(desk, "ann") == 2
        with pytest.raises(BudgetExceeded, match="the limit of cost of the budget support is reached"):
            await app.run(desk, "bob")
    assert lab.sent == ["ann0", "ann1", "bob0"]
    assert counted(lab)["support", "cost EUR"] == (1_200_000_000, 0)
    check_sums(lab)


@virtual
async def test_a_tool_in_another_currency_than_a_shared_budget_is_not_called(lab: Lab):
    desk = reporting(lab, "0.40 USD")
    async with lab.app(desk, queues=limits(cost="1 EUR")) as app:
        with pytest.raises(OperationFailed, match="USD, and the budget support is in EUR: amounts are not converted"):
            await app.run(desk, "ann")
    assert lab.sent == []


# --- a tree of runs --------------------------------------------------------------------------------------------------


class Payers:
    """A run that pays once, then starts two children, each of which pays four times."""

    def __init__(self, lab: Lab, price: str = "", *, handled: bool = True) -> None:
        @tool(idempotency=Natural(), budget=Budget(call=price) if price else Budget())
        async def pay(name: str) -> str:
            lab.sent.append(name)
            return "paid"

        @agent(name="leaf")
        async def leaf(run: Run, name: str) -> int:
            paid = 0
            try:
                for number in range(4):
                    await pay(f"{name}{number}")
                    paid += 1
            except BudgetExceeded:
                if not handled:
                    raise
            return paid

        @agent(name="root", run_id="tree-{name}")
        async def root(run: Run, name: str) -> list[int]:
            await pay("root")
            both = [await run.start(leaf, one) for one in "ab"]
            return list(await run.gather(*(run.join(one) for one in both)))

        self.root, self.leaf = root, leaf


async def of_tree(lab: Lab) -> dict[str, tuple[int, int]]:
    check_sums(lab)
    return {
        use.limit: (use.used, use.reserved) for use in await budget_uses(lab.journal, {f"{PREFIX}tree-ann": "tree"})
    }


@virtual
async def test_the_children_of_a_run_share_its_limit_of_effects(lab: Lab):
    tree = Payers(lab)
    lab.lag_s = 0.01
    async with lab.app(tree.root, tree.leaf, recover=True) as app, lab.app(tree.root, tree.leaf, recover=True):
        assert sum(await app.run(tree.root, "ann", budget=RunBudget(effects=6, then="stop"))) == 5
        assert (await of_tree(lab))["effects"] == (6, 0)
    assert len(lab.sent) == 6


@virtual
async def test_a_person_raises_the_effects_of_a_tree_and_all_of_it_continues(lab: Lab):
    tree = Payers(lab, handled=False)
    async with lab.app(tree.root, tree.leaf, recover=True) as app:
        driving = asyncio.ensure_future(app.run(tree.root, "ann", budget=RunBudget(effects=4)))
        await lab.pass_time(minutes=1)
        rows = {row.run: row for row in await app.service.runs()}
        stopped = [run for run, row in rows.items() if row.status == "stopped"]
        assert stopped
        assert "beforehand budget tree-ann --raise" in rows[stopped[0]].reason
        assert len(lab.sent) == 4
        await app.service.raise_budget("tree-ann", {"effects": 20}, by="eve")
        assert await driving == [4, 4]
        assert (await of_tree(lab))["effects"] == (9, 0)


@virtual
async def test_the_children_of_a_run_share_its_limit_of_the_cost(lab: Lab):
    tree = Payers(lab, "0.50 EUR")
    async with lab.app(tree.root, tree.leaf, recover=True) as app:
        assert sum(await app.run(tree.root, "ann", budget=RunBudget(cost="2 EUR", then="stop"))) == 3
        assert (await of_tree(lab))["cost EUR"] == (2_000_000_000, 0)
        assert (await budget_of(app, "tree-ann")).cost == 500_000_000
    assert len(lab.sent) == 4


@virtual
async def test_a_refused_reservation_of_a_tree_harms_no_other_record_of_its_run(lab: Lab):
    """Nothing is declared for queues here: other records must not be chained on to one that may be refused."""

    @tool
    async def pay(name: str) -> str:
        await asyncio.sleep(0.001)
        lab.sent.append(name)
        return "paid"

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> int:
        async def one(number: int) -> int:
            refused = 0
            for step in range(5):
                try:
                    await pay(f"{number} {step}")
                except BudgetExceeded:
                    refused += 1
                await run.random()
            return refused

        return sum(await run.gather(*(one(number) for number in range(4))))

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> int:
        return await run.join(await run.start(leaf, "a"))

    lab.lag_s = 0.01
    async with lab.app(root, leaf, recover=True) as app:
        assert await app.run(root, "ann", budget=RunBudget(effects=7, then="stop")) == 13
    assert len(lab.sent) == 7
    check_sums(lab)


@virtual
async def test_branches_at_once_do_not_both_begin_the_last_effect_of_their_own_run(lab: Lab):
    """An attempt under a shared budget is in the history once it is stored, so the second one is decided anew then."""

    @tool
    async def pay(name: str) -> str:
        lab.sent.append(name)
        return "paid"

    @agent(run_id="r-{name}", budget=RunBudget(effects=1, then="stop"))
    async def desk(run: Run, name: str) -> int:
        async def one(number: int) -> bool:
            try:
                return await pay(f"{name} {number}") == "paid"
            except BudgetExceeded:
                return False

        return sum(await run.gather(*(one(number) for number in range(3))))

    lab.lag_s = 0.01
    async with lab.app(desk, queues=limits(effects=9)) as app:
        assert await app.run(desk, "ann") == 1
    assert len(lab.of("r-ann", r.AttemptStarted)) == len(lab.sent) == 1
    check_sums(lab)
