"""What is left of the budgets of a run, and calls whose budgets are others than when they asked for room."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest

from beforehand import Natural, Run, RunSuspended, agent, tool
from beforehand.agent.decision_call import DecisionCall
from beforehand.errors import BudgetExceeded
from beforehand.model import records as r
from beforehand.model.run_budget import BudgetLeft, BudgetState
from beforehand.policies import Budget, RunBudget
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_shared_budgets import check_sums, counted, limits

# --- the part that is left -------------------------------------------------------------------------------------------

LEFT: dict[str, tuple[dict[str, Any] | None, dict[str, dict[str, Any]], BudgetLeft | None]] = {
    "no budget": (None, {}, None),
    "none of models": ({"effects": 1}, {"all": {"effects": 1}}, None),
    "of another agent": (None, {"all": {"agent": "clerk", "tokens": 11}}, None),
    "its own": ({"tokens": 40}, {}, BudgetLeft(0.75, "tokens of the run")),
    "a shared one": (None, {"all": {"tokens": 40}}, BudgetLeft(0.75, "tokens of the budget all")),
    "its own is less": ({"tokens": 20}, {"all": {"tokens": 40}}, BudgetLeft(0.5, "tokens of the run")),
    "a shared one is less": ({"tokens": 40}, {"all": {"tokens": 20}}, BudgetLeft(0.5, "tokens of the budget all")),
    "the second is less": (
        None, {"a": {"tokens": 40}, "b": {"model_calls": 2}}, BudgetLeft(0.5, "model calls of the budget b"),
    ),
    "the first is less": (
        None, {"a": {"model_calls": 2}, "b": {"tokens": 40}}, BudgetLeft(0.5, "model calls of the budget a"),
    ),
    "two limits of one": (
        None, {"all": {"tokens": 40, "model_calls": 5, "effects": 1}}, BudgetLeft(0.75, "tokens of the budget all"),
    ),
}  # fmt: skip


def shown(lab: Lab, seen: list[BudgetLeft | None]) -> Any:
    """An agent that asks twice, and notes before each answer what is left of its budgets."""

    async def ask(question: str) -> dict[str, Any]:
        call = DecisionCall.current()
        assert call is not None
        seen.append(await call.budget_left())
        lab.sent.append(question)
        return {"text": question, "usage": {"input_tokens": 10, "output_tokens": 0}}

    @agent(name="desk", run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        for question in "12":
            await run.decide(ask, question)

    return desk


@pytest.mark.parametrize("which", LEFT)
@virtual
async def test_the_limit_of_which_the_least_is_left_is_told_to_the_model_that_is_called(lab: Lab, which: str):
    """Ten tokens and one call were used. What the call that asks has reserved itself is left to it."""
    own, shared, expected = LEFT[which]
    seen: list[BudgetLeft | None] = []
    declared = DeclaredLimits(budgets={name: SharedBudget(**one) for name, one in shared.items()})
    desk = shown(lab, seen)
    async with lab.app(desk, queues=declared) as app:
        await app.run(desk, "ann", budget=None if own is None else RunBudget(**own))
    first, second = seen
    assert second == expected
    assert (first is None) == (expected is None)
    assert first is None or first.share == 1.0


@virtual
async def test_what_is_left_counts_calls_of_other_runs_and_only_those_of_this_day(lab: Lab):
    seen: list[BudgetLeft | None] = []
    desk = shown(lab, seen)

    async def slow(question: str) -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"text": question, "usage": {"input_tokens": 10, "output_tokens": 0}}

    @agent(run_id="o-{name}")
    async def other(run: Run, name: str) -> None:
        await run.decide(slow, name)

    async with lab.app(desk, other, queues=limits(model_calls=8)) as app:
        app.start(other, "one")
        await lab.pass_time(seconds=5)
        await app.run(desk, "ann")
        await lab.pass_time(minutes=5)
        await app.run(desk, "bob")
    await lab.pass_time(days=1)
    async with lab.app(desk, other, queues=limits(model_calls=8)) as app:
        await app.run(desk, "cat")
    assert [one.share for one in seen if one is not None] == [7 / 8, 6 / 8, 5 / 8, 4 / 8, 1.0, 7 / 8]


@virtual
async def test_what_is_left_of_a_tree_is_told_to_each_run_of_it(lab: Lab):
    """The limits of every run above count, and what all of them used."""
    seen: list[BudgetLeft | None] = []

    async def ask(question: str) -> dict[str, Any]:
        call = DecisionCall.current()
        assert call is not None
        seen.append(await call.budget_left())
        return {"text": question, "usage": {"input_tokens": 10, "output_tokens": 0}}

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> None:
        await run.decide(ask, name)

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> None:
        await run.decide(ask, "before")
        await run.join(await run.start(leaf, "a", budget=RunBudget(tokens=1000)))
        await run.decide(ask, "after")

    async with lab.app(root, leaf, recover=True) as app:
        await app.run(root, "ann", budget=RunBudget(model_calls=4))
    assert [one.share for one in seen if one is not None] == [1.0, 0.75, 0.5]


# --- limits that are declared while a call asks for room -------------------------------------------------------------


def overlapping(lab: Lab, tokens: int, seconds: float) -> Any:
    """An agent whose first call lasts so long and uses so many tokens, and whose second begins at the tenth second."""

    async def ask(name: str) -> dict[str, Any]:
        lab.sent.append(name)
        await asyncio.sleep(seconds if name == "first" else 0)
        return {"text": name, "usage": {"input_tokens": tokens if name == "first" else 1, "output_tokens": 0}}

    @agent(name="desk", run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[bool]:
        async def asks(which: str, after: float) -> bool:
            await asyncio.sleep(after)
            with contextlib.suppress(BudgetExceeded):
                await run.options(step=which).decide(ask, which)
                return True
            return False

        return list(await run.gather(asks("first", 0), asks("second", 10)))

    return desk


def check_own_limit(lab: Lab, run: str, own: RunBudget) -> None:
    """The invariant: no call is on record that began while the limits of its run were reached."""
    state = BudgetState(own)
    for record in lab.records(run):
        if isinstance(record, r.DecisionStarted):
            assert not state.refusal(record.step, record.before), record.step
        state.take(record)


@pytest.mark.parametrize("tokens", [50, 100])
@pytest.mark.parametrize("ends_ms", range(40, 240, 20))
@virtual
async def test_the_own_limit_of_a_run_holds_for_a_call_whose_shared_budget_is_withdrawn_meanwhile(
    lab: Lab, tokens: int, ends_ms: int
):
    """The process hears of it when its record is refused. Another call of the run may then have used up the limit."""
    own = RunBudget(tokens=100, then="stop")
    desk = overlapping(lab, tokens, 9.9 + ends_ms / 1000)
    lab.lag_s = 0.05
    async with lab.app(desk, queues=limits(model_calls=100), poll_ms=10**6) as app:
        running = asyncio.create_task(app.run(desk, "ann", budget=own))
        await lab.pass_time(seconds=5)
        async with lab.app(queues=DeclaredLimits()):
            made = await running
    check_own_limit(lab, "r-ann", own)
    assert made[0]
    assert made[1] or tokens == 100
    assert lab.sent == [name for name, made_it in zip(("first", "second"), made, strict=True) if made_it]
    assert len(lab.of("r-ann", r.DecisionStarted)) == len(lab.sent)
    assert [one.shared != () for one in lab.of("r-ann", r.DecisionStarted)] == [True, False][: len(lab.sent)]
    assert counted(lab)["support", "model_calls"] == (1, 0)
    check_sums(lab)


@pytest.mark.parametrize("then", ["wait", "stop"])
@virtual
async def test_a_call_in_a_withdrawn_budget_is_on_record_before_it_is_sent(lab: Lab, then: Literal["wait", "stop"]):
    seen: list[int] = []

    async def ask(name: str) -> str:
        seen.append(sum(isinstance(one, r.DecisionStarted) for one in lab.durable("r-ann")))
        return name

    @agent(name="desk", run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        for question in "123":
            await run.sleep(timedelta(seconds=10))
            await run.decide(ask, question)

    async with lab.app(desk, queues=limits(model_calls=2, then=then), poll_ms=10**6) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=25)
        async with lab.app(queues=DeclaredLimits()):
            await running
    assert seen == [1, 2, 3]
    assert counted(lab)["support", "model_calls"] == (2, 0)
    check_sums(lab)


@pytest.mark.parametrize("most", [None, 0, 5])
@virtual
async def test_an_effect_is_compared_with_the_limits_that_another_process_has_declared_meanwhile(
    lab: Lab, most: int | None
):
    """Its process reads them once its record was refused, without waiting for its next look."""

    @tool(idempotency=Natural())
    async def pay(name: str) -> str:
        lab.sent.append(name)
        return name

    @agent(name="desk", run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.sleep(timedelta(seconds=10))
        return await pay(name)

    lab.lag_s = 0.05
    declared = DeclaredLimits() if most is None else limits(effects=most, then="stop")
    async with lab.app(desk, queues=limits(effects=2), poll_ms=10**6) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=5)
        async with lab.app(queues=declared), asyncio.timeout(60):
            with pytest.raises(BudgetExceeded) if most == 0 else contextlib.nullcontext():
                await running
    assert lab.sent == ["ann"] * (most != 0)
    assert sum(used for used, _ in counted(lab).values()) == (most == 5)
    check_sums(lab)


# --- which budgets limit an effect -----------------------------------------------------------------------------------


@pytest.mark.parametrize("price", ["", "1 EUR"])
@pytest.mark.parametrize(
    ("budget", "charges"),
    [
        ({"tokens": 0}, lambda price: {}),
        ({"model_calls": 0, "tokens": 0}, lambda price: {}),
        ({"effects": 1}, lambda price: {"effects": 1} | ({"cost EUR": 10**9} if price else {})),
        ({"cost": "1 EUR"}, lambda price: {"effects": 1, "cost EUR": 10**9} if price else {}),
        ({"effects": 1, "cost": "1 EUR"}, lambda price: {"effects": 1} | ({"cost EUR": 10**9} if price else {})),
    ],
    ids=["tokens", "calls", "effects", "cost", "effects and cost"],
)
@virtual
async def test_an_effect_is_charged_to_the_budgets_that_limit_it_and_to_no_others(
    lab: Lab, budget: dict[str, Any], charges: Callable[[str], dict[str, int]], price: str
):
    @tool(idempotency=Natural(), budget=Budget(call=price) if price else Budget())
    async def pay(name: str) -> str:
        lab.sent.append(name)
        return name

    @agent(name="desk", run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    expected = charges(price)
    budgets = {"support": SharedBudget(**budget), "of models": SharedBudget(tokens=0), "far": SharedBudget(effects=9)}
    async with lab.app(desk, queues=DeclaredLimits(budgets=budgets)) as app:
        assert await app.run(desk, "ann") == "ann"
        assert {limit: used for (name, limit), (used, _) in counted(lab).items() if name == "support"} == expected
        assert {name for name, _ in counted(lab)} == {"far", *["support"] * bool(expected)}
        for name in ("bob", "cat"):
            with pytest.raises(RunSuspended) if expected else contextlib.nullcontext():
                await app.run(desk, name)
    assert lab.sent == ["ann"] if expected else ["ann", "bob", "cat"]
    check_sums(lab)


# --- whom other limits wake ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "wakes"),
    [
        ({"one": 1, "two": 1}, []),
        ({"one": 2, "two": 1}, ["r-one"]),
        ({"one": 1, "two": 2}, ["r-two"]),
        ({"two": 1}, ["r-one"]),
        ({"one": 1}, ["r-two"]),
        ({"one": 2, "two": 2}, ["r-one", "r-two"]),
    ],
    ids=str,
)
@virtual
async def test_other_limits_touch_only_the_runs_whose_budget_has_room(
    lab: Lab, declared: dict[str, int], wakes: list[str]
):
    """A run that would be refused again is not even claimed: nothing is added to its records."""
    one, two = (asking_twice(lab, name) for name in ("one", "two"))
    of = {name: {"agent": name} for name in ("one", "two")}

    def budgets(most: dict[str, int]) -> DeclaredLimits:
        return DeclaredLimits(budgets={name: SharedBudget(**of[name], model_calls=n) for name, n in most.items()})

    async with lab.app(one, two, queues=budgets({"one": 1, "two": 1}), recover=True) as app:
        for each in (one, two):
            with pytest.raises(RunSuspended):
                await app.run(each, each.name)
        before = {line.run: (line.token, len(lab.records(line.run))) for line in await lab.journal.runs()}
        await app.engine.queues.declare(app.engine.journal, budgets(declared))
        await lab.pass_time(minutes=1)
        after = {line.run: (line.token, len(lab.records(line.run))) for line in await lab.journal.runs()}
    assert [run for run in sorted(after) if after[run] != before.get(run)] == wakes
    check_sums(lab)


def asking_twice(lab: Lab, name: str) -> Any:
    """An agent of this name that asks twice."""

    async def ask(question: str) -> str:
        lab.sent.append(f"{name} {question}")
        return question

    @agent(name=name, run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        for question in "12":
            await run.decide(ask, question)

    return desk
