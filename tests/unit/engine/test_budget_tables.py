"""Shared budgets as tables: what a spent one never stops, whom a raise wakes, and what counts from the first child on."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Natural,
    NotSent,
    Operation,
    Run,
    RunSuspended,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.shared_budgets import is_spent, uses_now, waiting_by_budget
from beforehand.engine.tree_budgets import tree_budget
from beforehand.errors import BudgetExceeded
from beforehand.journal.cells import BudgetUse, budget_uses
from beforehand.model.money import BILLION
from beforehand.model.shared_use import PREFIX, TREE
from beforehand.policies import Budget, Retry, RunBudget
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_run_budgets import budget_of
from tests.unit.engine.test_shared_budgets import check_sums, counted, limits

HOUR = timedelta(hours=1)

# --- what serves another effect --------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["wait", "stop"])
@pytest.mark.parametrize("spent", [{"effects": 1}, {"cost": "0.40 EUR"}, {"effects": 1, "cost": "0.40 EUR"}], ids=str)
@pytest.mark.parametrize("price", ["", "0.10 EUR"])
@pytest.mark.parametrize("ends", ["abort", "commit"])
@virtual
async def test_a_spent_budget_stops_no_call_that_ends_an_earlier_effect(
    lab: Lab, then: Any, spent: dict[str, Any], price: str, ends: str
):
    """A compensation and a confirmation are sent, and count with their cost."""
    serves = {"idempotency": Natural(within=HOUR), "budget": Budget(call=price) if price else Budget()}

    @tool(budget=Budget(call="0.40 EUR"))
    async def reserve(name: str) -> str:
        lab.sent.append("reserve")
        return name

    @reserve.confirm(expires=HOUR)
    @tool(**serves)
    async def confirm(operation: Operation[str]) -> None:
        lab.sent.append("confirm")

    @reserve.compensate(restores=True)
    @tool(**serves)
    async def cancel(operation: Operation[str]) -> None:
        lab.sent.append("cancel")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with contextlib.suppress(TransactionAborted):
            async with run.transaction("trip") as trip:
                await reserve(name)
                if ends == "abort":
                    trip.abort("too late")
        return name

    async with lab.app(desk, queues=limits(**spent, then=then)) as app:
        assert await app.run(desk, "ann") == "ann"
    assert lab.sent == ["reserve", "cancel" if ends == "abort" else "confirm"]
    if "cost" in spent:
        assert counted(lab)["support", "cost EUR"] == (500_000_000 if price else 400_000_000, 0)
    if "effects" in spent:
        assert counted(lab)["support", "effects"] == (1, 0)
    check_sums(lab)


@pytest.mark.parametrize("shared", [True, False])
@virtual
async def test_one_call_costs_its_price_once_however_many_parts_of_it_are_pending(lab: Lab, shared: bool):
    @tool(idempotency=Natural(within=HOUR), budget=Budget(call="0.40 EUR"))
    async def send(name: str) -> str:
        for part in "ab":
            current_operation().pending(part, within=HOUR, key=part)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return (await send.outcome(name)).result

    own = None if shared else RunBudget(cost="9 EUR")
    async with lab.app(desk, queues=limits(cost="9 EUR") if shared else None) as app:
        with pytest.raises(RunSuspended, match="accepted, answer later: a"):
            await app.run(desk, "ann", budget=own)
        if shared:
            assert counted(lab)["support", "cost EUR"] == (400_000_000, 0)
        else:
            assert (await budget_of(app)).calling == 0
            assert (await budget_of(app)).cost == 400_000_000
    check_sums(lab)


# --- raises ----------------------------------------------------------------------------------------------------------


def reply(tokens: int, *, refused: bool = False) -> dict[str, Any]:
    return {"text": "yes", "usage": {"input_tokens": tokens, "output_tokens": 0, "refused": refused}}


def working(lab: Lab, measure: str):
    """An agent whose call counts one unit of a measure; that of the run `slow` lasts 40 seconds, and then counts nothing."""

    async def ask(name: str) -> dict[str, Any]:
        lab.sent.append(name)
        await asyncio.sleep(40 if name == "slow" else 0)
        return reply(0 if name == "slow" else 1000, refused=name == "slow")

    @tool(idempotency=Natural(), retry=Retry(attempts=1), budget=Budget(call="1 EUR"))
    async def work(name: str) -> str:
        lab.sent.append(name)
        await asyncio.sleep(40 if name == "slow" else 0)
        if name == "slow":
            raise NotSent("busy")
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if measure in {"effects", "cost"}:
            return (await work.outcome(name)).status
        await run.decide(ask, name)
        return "asked"

    return desk


MEASURES = {"model_calls": lambda n: n, "effects": lambda n: n, "cost": lambda n: f"{n} EUR"}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("in_flight", [True, False])
@pytest.mark.parametrize(
    ("declared", "wakes"),
    [(3, True), (2, True), (None, True), (1, False), (0, False)],
    ids=["far up", "up", "withdrawn", "as before", "down"],
)
@virtual
async def test_a_raise_wakes_whom_it_leaves_room_whatever_is_in_flight(
    lab: Lab, measure: str, in_flight: bool, declared: int | None, wakes: bool
):
    desk, of = working(lab, measure), MEASURES[measure]

    async def declare(app: Any, most: int | None) -> None:
        found = (
            DeclaredLimits() if most is None else DeclaredLimits(budgets={"all": SharedBudget(**{measure: of(most)})})
        )
        await app.engine.queues.declare(app.engine.journal, found)

    async with lab.app(desk, recover=True) as app:
        await declare(app, 9)
        if in_flight:
            app.start(desk, "slow")
            await lab.pass_time(seconds=1)
        await app.run(desk, "first")
        await declare(app, 1)
        with pytest.raises(RunSuspended, match="is reached"):
            await app.run(desk, "waits")
        await declare(app, declared)
        await lab.pass_time(minutes=2)
        (line,) = await lab.journal.runs(run="r-waits")
        assert line.status == ("completed" if wakes else "suspended")
    check_sums(lab)


def both(lab: Lab):
    """An agent that asks, or pays, or does both beside each other, as the name of its run says."""

    async def model(name: str) -> dict[str, Any]:
        lab.sent.append(f"ask {name}")
        return reply(1)

    @tool(idempotency=Natural())
    async def pay(name: str) -> str:
        lab.sent.append(f"pay {name}")
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        async def ask() -> None:
            await run.decide(model, name)

        await run.gather(*([ask()] if "asks" in name else []), *([pay(name)] if "pays" in name else []))

    return desk


@pytest.mark.parametrize("waits", ["asks", "pays", "asks+pays"])
@pytest.mark.parametrize("raised", ["asks", "pays", "asks+pays", "none"])
@pytest.mark.parametrize("budgets", [1, 2], ids=["one budget", "two budgets"])
@virtual
async def test_a_raise_wakes_what_waits_for_it_whatever_else_is_spent(lab: Lab, waits: str, raised: str, budgets: int):
    """Model calls and effects have a limit each, in one budget or in two, and both are spent."""
    desk = both(lab)

    def declared(asks: int, pays: int) -> DeclaredLimits:
        if budgets == 1:
            return DeclaredLimits(budgets={"all": SharedBudget(model_calls=asks, effects=pays)})
        return DeclaredLimits(budgets={"one": SharedBudget(model_calls=asks), "two": SharedBudget(effects=pays)})

    async with lab.app(desk, recover=True, queues=declared(1, 1)) as app:
        await app.run(desk, "first-asks+pays")
        with pytest.raises(RunSuspended, match="is reached"):
            await app.run(desk, waits)
        limits = declared(1 + ("asks" in raised), 1 + ("pays" in raised))
        await app.engine.queues.declare(app.engine.journal, limits)
        await lab.pass_time(minutes=2)
        (line,) = await lab.journal.runs(run=f"r-{waits}")
    done = {one.partition(" ")[0] for one in lab.sent[2:]}
    wanted = {"asks": "ask", "pays": "pay"}
    assert done == {does for one, does in wanted.items() if one in raised and one in waits}
    assert (line.status == "completed") == (len(done) == len([one for one in wanted if one in waits]))
    check_sums(lab)


# --- the end of a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["fails", "returns", "is cancelled", "is suspended", "is taken over"])
@virtual
async def test_a_call_in_flight_keeps_nothing_reserved_however_its_run_ends(lab: Lab, ends: str):
    """It counts as used once, and the rest of the day is for others."""

    async def ask(name: str) -> dict[str, Any]:
        lab.sent.append(name)
        await asyncio.sleep(3600 if name == "slow" else 0)
        return reply(1)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        asked = asyncio.create_task(run.decide(ask, name))
        await asyncio.sleep(1)
        if ends == "fails" and name == "slow":
            raise ValueError("no more")
        if ends == "returns":
            return name
        if ends == "is suspended":
            asked.cancel()
            await run.sleep(timedelta(hours=5))
        await asked
        return name

    async with lab.app(desk, queues=limits(model_calls=2, tokens=10**6)) as app:
        task = app.start(desk, "slow")
        await lab.pass_time(seconds=3)
        if ends == "is cancelled":
            await app.service.cancel("r-slow", by="eve")
            await lab.pass_time(seconds=20)
        if ends == "is taken over":
            await lab.bury(app, lab.processes[-1])
    if ends == "is taken over":
        async with lab.app(desk, recover=True):
            await lab.pass_time(seconds=30)
    del task
    assert counted(lab)["support", "model_calls"] == (2 if ends == "is taken over" else 1, 0)
    assert all(not reserved for _, reserved in counted(lab).values())
    check_sums(lab)


# --- the first child -------------------------------------------------------------------------------------------------


@virtual
async def test_calls_that_waited_for_their_turn_while_the_first_child_started_are_compared_with_the_tree(lab: Lab):
    """Ten branches reserve one after the other, under a budget of all; meanwhile a child takes what the tree has left."""

    async def ask(name: str) -> dict[str, Any]:
        lab.sent.append(name)
        return reply(1)

    async def asks(run: Run, name: str) -> int:
        with contextlib.suppress(BudgetExceeded):
            await run.options(step=name).decide(ask, name)
            return 1
        return 0

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> int:
        return sum([await asks(run, f"{name} {number}") for number in range(12)])

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> int:
        async def child() -> int:
            return await run.join(await run.start(leaf, "leaf"))

        return sum(await run.gather(child(), *(asks(run, f"root {number}") for number in range(10))))

    declared = DeclaredLimits(budgets={"all": SharedBudget(model_calls=100)})
    lab.lag_s = 3.0
    async with lab.app(root, leaf, queues=declared) as app:
        lab.lag_s = 0.0
        async with lab.app(root, leaf, recover=True, poll_ms=100):
            made = await app.run(root, "ann", budget=RunBudget(model_calls=12, then="stop"))
    assert made == len(lab.sent) == 12
    assert any(name.startswith("leaf") for name in lab.sent)
    uses = {use.limit: use.used for use in await budget_uses(lab.journal, {f"{PREFIX}tree-ann": TREE})}
    assert uses["model_calls"] == 12
    check_sums(lab)


# --- what is shown of a budget, and when it is spent -------------------------------------------------------------------

FULL: list[tuple[dict[str, Any], dict[str, int], bool]] = [
    ({"tokens": 10}, {"tokens": 9}, False),
    ({"tokens": 10}, {"tokens": 10}, True),
    ({"tokens": 10}, {"tokens": 11}, True),
    ({"tokens": 0}, {}, True),
    ({"tokens": 0, "model_calls": 9}, {}, True),  # a limit of 0 is one, too
    ({"tokens": 9, "effects": 0}, {"tokens": 9}, True),
    ({"tokens": 9, "effects": 0}, {}, False),
    ({"tokens": 10}, {"model_calls": 99}, False),  # it is counted, and has no limit
    ({"tokens": 10, "model_calls": 2}, {"tokens": 10, "model_calls": 1}, True),  # no model can be called any more
    ({"tokens": 10, "model_calls": 2}, {"tokens": 9, "model_calls": 2}, True),
    ({"cost": "2 EUR"}, {"cost EUR": 2 * BILLION - 1}, False),
    ({"cost": "2 EUR"}, {"cost EUR": 2 * BILLION}, True),
    ({"effects": 1}, {"effects": 0}, False),
    ({"effects": 1}, {"effects": 1}, True),
    ({"tokens": 10, "effects": 1}, {"tokens": 10}, False),  # effects have room
    ({"tokens": 10, "effects": 1}, {"effects": 1}, False),  # calls of models have room
    ({"tokens": 10, "effects": 1}, {"tokens": 10, "effects": 1}, True),
    ({"cost": "2 EUR", "effects": 1}, {"cost EUR": 2 * BILLION, "effects": 1}, True),
]


@pytest.mark.parametrize(("given", "used", "spent"), FULL, ids=str)
@pytest.mark.parametrize("reserved", [0, 10**12])
def test_a_budget_is_spent_once_it_has_no_room_for_any_call_that_it_limits(
    given: dict[str, Any], used: dict[str, int], spent: bool, reserved: int
):
    """What calls in flight have reserved may be given back, so it makes no budget spent."""
    budget = SharedBudget(**given)
    uses = [BudgetUse("all", "2026-01-01", name, used.get(name, 0), reserved) for name in budget.counters]
    assert is_spent(budget, uses) == spent


@pytest.mark.parametrize("then", ["ask", "stop"])
@pytest.mark.parametrize(
    "limits_of_run",
    [{"tokens": 1}, {"model_calls": 2}, {"effects": 3}, {"cost": "4 EUR"}, {"cost": "4 EUR", "unpriced": "0.50 EUR"}],
    ids=str,
)
def test_a_tree_of_runs_has_the_limits_of_the_run_at_its_top_and_no_others(limits_of_run: dict[str, Any], then: Any):
    budget = tree_budget(RunBudget(**limits_of_run, then=then))
    assert budget == SharedBudget(**limits_of_run, then="stop" if then == "stop" else "wait")


@virtual
async def test_every_counter_of_a_budget_is_shown_for_its_own_day_whether_it_was_used_or_not(lab: Lab):
    """It is half past eleven at night in London: in Berlin another day has begun."""

    @tool(idempotency=Natural())
    async def pay(name: str) -> str:
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        await pay(name)

    declared = DeclaredLimits(
        budgets={
            "london": SharedBudget(effects=1, zone="Europe/London"),
            "berlin": SharedBudget(effects=9, tokens=5, cost="1 EUR", zone="Europe/Berlin"),
            "no effects": SharedBudget(model_calls=1),
            "of another agent": SharedBudget(agent="clerk", effects=1),
        }
    )
    await lab.pass_time(hours=23, minutes=30)
    async with lab.app(desk, queues=declared) as app:
        assert await uses_now(lab.journal, DeclaredLimits(), lab.clock.wall_ms()) == {}
        await app.run(desk, "ann")
        for name in ("bob", "cat"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
        shown = await uses_now(lab.journal, declared, lab.clock.wall_ms())
        waiting = await waiting_by_budget(lab.journal)
    both = {name: {use.limit: (use.period, use.used, use.reserved) for use in uses} for name, uses in shown.items()}
    none, of_berlin = ("2026-01-01", 0, 0), ("2026-01-02", 0, 0)
    assert both == {
        "london": {"tokens": none, "model_calls": none, "effects": ("2026-01-01", 1, 0)},
        "berlin": {
            "tokens": of_berlin, "model_calls": of_berlin, "cost EUR": of_berlin, "effects": ("2026-01-02", 1, 0),
        },
        "no effects": {"tokens": none, "model_calls": none},
        "of another agent": {"tokens": none, "model_calls": none, "effects": none},
    }  # fmt: skip
    assert all(use.budget == name for name, uses in shown.items() for use in uses)
    assert dict(waiting) == {"london": 2}
