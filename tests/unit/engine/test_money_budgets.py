"""Budgets in a currency: a call reserves and settles its cost, exactly, and a price that is not known is not zero."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from beforehand import (
    Beforehand,
    DidNotHappen,
    Natural,
    NotSent,
    Operation,
    Run,
    RunSuspended,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import (
    BudgetExceeded,
    ContractError,
    DecisionFailed,
    ModelError,
    OperationFailed,
    RunStopped,
    UsageError,
)  # fmt: skip
from beforehand.inspect.costs import CostLine, costs
from beforehand.inspect.prices import DeclaredPrices, Prices, declared_prices
from beforehand.inspect.reader import JournalReader
from beforehand.model import records as r
from beforehand.model.money import BILLION, amount_of
from beforehand.model.run_budget import BudgetState
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import Budget, Retry, RunBudget
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt
from tests.unit.engine.test_shared_budgets import check_sums, counted


def priced(currency: str = "EUR", each: float = 1000, version: str = "1", model: str = "large") -> DeclaredPrices:
    """A list in which a token of one model costs a thousandth of `each`, or a free model."""
    models = {model: {"input": each, "output": each}, "free": {"input": 0, "output": 0}}
    return declared_prices({"version": version, "currency": currency, "models": models}, "prices.yaml")


def asking(lab: Lab, *used: int | Exception | None, model: str | tuple[str, ...] = "large", calls: int = 4):
    """An agent that asks a model in turn. Its calls use these tokens, or fail; None states nothing."""
    left = list(used)

    async def ask(question: str) -> dict[str, Any]:
        lab.sent.append(question)
        tokens = left.pop(0) if left else 100
        if isinstance(tokens, Exception):
            raise tokens
        named = model if isinstance(model, str) else (model or ("large",))[-1]
        usage = {"input_tokens": tokens, "output_tokens": 0, "model": named}
        return {"text": question} | ({} if tokens is None else {"usage": usage})

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        for number in range(calls):
            await run.options(model=model).decide(ask, f"{name} {number}")
        return calls

    return desk


async def budget_of(app: Beforehand, run: str = "r-ann") -> BudgetState:
    budget = (await app.service.history(run)).budget
    assert budget is not None
    return budget


async def summed(app: Beforehand, prices: DeclaredPrices | None = None) -> CostLine:
    """What `beforehand costs` finds in the journal."""
    return (await costs(JournalReader(app.engine.journal, app.engine.identity), Prices(prices), "agent")).total


@virtual
async def test_calls_are_settled_by_their_cost_and_the_last_one_may_exceed_the_limit(lab: Lab):
    desk = asking(lab, 100, 7, 2_500)
    async with lab.app(desk, prices=priced()) as app:
        with pytest.raises(RunStopped, match=r"the limit of cost is reached: 2\.607 of 2\.50 EUR used") as stopped:
            await app.run(desk, "ann", budget=RunBudget(cost="2.50 EUR"))
        assert stopped.value.reason == "budget"
        budget = await budget_of(app)
        total = await summed(app)
    assert (budget.cost, budget.open) == (2_607_000_000, {})
    assert total.cost == {"EUR": Decimal("2.607")} == {"EUR": amount_of(budget.cost)}


@virtual
async def test_the_basis_is_on_record_and_a_later_list_of_prices_changes_nothing(lab: Lab):
    desk = asking(lab, 100, 100)
    async with lab.app(desk, prices=priced()) as app:
        with pytest.raises(RunStopped):
            await app.run(desk, "ann", budget=RunBudget(cost="0.20 EUR"))
        first = lab.of("r-ann", r.DecisionStarted)[0]
        assert first.price == CallCost(Decimal("0.004"), "EUR", "prices.yaml (1)")
        assert lab.of("r-ann", r.DecisionRecorded)[0].price == CallCost(Decimal("0.10"), "EUR", "prices.yaml (1)")
    later = priced(each=9_000, version="2")
    async with lab.app(desk, prices=later) as app:
        assert (await budget_of(app)).cost == 200_000_000
        assert (await summed(app, later)).cost == {"EUR": Decimal("0.20")}
        await app.service.raise_budget("r-ann", {"cost": "0.50 EUR"}, by="eve")
        with pytest.raises(RunStopped):
            await app.resume("r-ann")
        assert (await budget_of(app)).cost == 200_000_000 + 900_000_000
        assert lab.of("r-ann", r.DecisionRecorded)[-1].price.basis == "prices.yaml (2)"
        assert (await summed(app, later)).cost == {"EUR": Decimal("1.10")}


@virtual
async def test_a_model_without_a_price_is_not_asked_until_the_list_has_it(lab: Lab):
    desk = asking(lab, calls=2)
    for prices, says in (
        (None, "the price of the model 'large' is not known, and the budget of the run limits the cost to 1.00 EUR"),
        (priced(model="small"), "the price of the model 'large' is not known"),
        (priced("USD"), r"'large' is in USD \(prices.yaml \(1\)\) and is not converted"),
    ):
        async with lab.app(desk, prices=Prices(prices)) as app:
            begun = bool(lab.records("r-ann"))
            going = app.resume("r-ann") if begun else app.run(desk, "ann", budget=RunBudget(cost="1 EUR"))
            with pytest.raises(DecisionFailed, match=says):
                await going
    assert lab.sent == []
    assert lab.of("r-ann", r.RunStoppedRecord)[-1].reason == "error"
    async with lab.app(desk, prices=priced()) as app:
        assert await app.resume("r-ann") == 2
        assert (await summed(app)).calls == (await budget_of(app)).model_calls == 2


@virtual
async def test_a_function_without_a_name_of_its_model_counts_as_declared_or_not_at_all(lab: Lab):
    desk = asking(lab, None, 3, model=("large", "unlisted"), calls=2)
    async with lab.app(desk, prices=priced()) as app:
        with pytest.raises(DecisionFailed, match="'unlisted' is not known"):
            await app.run(desk, "ann", budget=RunBudget(cost="1 EUR"))
        assert await app.run(desk, "bob", budget=RunBudget(cost="1 EUR", unpriced="0.05 EUR")) == 2
        budget, total = await budget_of(app, "r-bob"), await summed(app)
    assert (budget.cost, budget.unpriced, budget.assumed) == (100_000_000, 2, 100_000_000)
    assert lab.of("r-bob", r.DecisionStarted)[0].price.basis == "declared by the budget"
    assert (total.cost, total.unknown) == ({}, 2), "what is not known is beside the sums, never zero in them"


@virtual
async def test_a_call_that_reserved_as_declared_is_settled_by_its_price_if_its_answer_has_one(lab: Lab):
    desk = asking(lab, 100, 7, model=(), calls=2)
    async with lab.app(desk, prices=priced()) as app:
        assert await app.run(desk, "ann", budget=RunBudget(cost="1 EUR", unpriced="0.05 EUR")) == 2
        budget, total = await budget_of(app), await summed(app)
    assert (budget.cost, budget.unpriced) == (107_000_000, 0)
    assert total.cost == {"EUR": Decimal("0.107")}


@virtual
async def test_what_a_call_did_not_state_counts_as_it_was_reserved(lab: Lab):
    desk = asking(lab, 50, None, 10, calls=3)
    async with lab.app(desk, prices=priced()) as app:
        await app.run(desk, "ann", budget=RunBudget(cost="1 EUR"))
        budget, total = await budget_of(app), await summed(app)
    assert (budget.cost, budget.assumed, budget.unpriced) == (110_000_000, 50_000_000, 1)
    assert {"EUR": amount_of(budget.cost - budget.assumed)} == total.cost
    assert total.unknown == budget.unpriced


@pytest.mark.parametrize(
    "stated",
    [
        *({"input_tokens": count, "output_tokens": 5} for count in (10**30, -5, "many", 1.5)),
        {"output_tokens": 500},
        {"input_tokens": 500},
    ],
)
@virtual
async def test_a_count_that_is_missing_or_cannot_be_read_leaves_the_reservation(lab: Lab, stated: dict[str, Any]):
    async def ask(question: str) -> dict[str, Any]:
        return {"usage": {**stated, "model": "large"}}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        await run.options(model="large").decide(ask, "question" * 10)

    async with lab.app(desk, prices=priced()) as app:
        await app.run(desk, "ann", budget=RunBudget(cost="1 EUR", tokens=10_000))
        budget, total = await budget_of(app), await summed(app)
    (began,) = lab.of("r-ann", r.DecisionStarted)
    assert began.price is not None
    assert (budget.tokens, amount_of(budget.cost)) == (began.reserved, began.price.amount)
    assert (budget.unknown, total.unknown, total.uncounted, total.cost) == (1, 1, 1, {})
    check_sums(lab)


@virtual
async def test_retries_and_refused_requests_agree_with_the_costs(lab: Lab):
    reply = type("Reply", (), {"usage": {"input_tokens": 30, "output_tokens": 0, "model": "large"}})()
    used = ModelError("malformed", code="malformed")
    used.reply = reply
    desk = asking(lab, used, ModelError("busy", code="rate_limited"), OSError("gone"), 20, calls=1)
    async with lab.app(desk, prices=priced()) as app:
        await app.run(desk, "ann", budget=RunBudget(cost="1 EUR"))
        budget, total = await budget_of(app), await summed(app)
    assert len(lab.sent) == 4
    assert budget.open == {}
    assert total.cost == {"EUR": amount_of(budget.cost - budget.assumed)} == {"EUR": Decimal("0.05")}
    assert total.unknown == budget.unpriced


@virtual
async def test_a_free_model_is_asked_and_costs_nothing_and_is_not_asked_at_a_limit(lab: Lab):
    desk = asking(lab, model="free", calls=2)
    async with lab.app(
        desk, prices=priced(), queues=DeclaredLimits(budgets={"all": SharedBudget(cost="1 EUR")})
    ) as app:
        assert await app.run(desk, "ann", budget=RunBudget(cost="0.01 EUR")) == 2
        assert (await budget_of(app)).cost == 0
        with pytest.raises(RunStopped):
            await app.run(desk, "bob", budget=RunBudget(cost="0 EUR"))
    limits = DeclaredLimits(budgets={"all": SharedBudget(cost="0 EUR", then="stop")})
    async with lab.app(desk, prices=priced(), queues=limits) as app:
        with pytest.raises(BudgetExceeded, match="the limit of cost of the budget all is reached"):
            await app.run(desk, "cid")
    assert len(lab.sent) == 2
    check_sums(lab)


@virtual
async def test_runs_share_a_limit_in_a_currency_that_is_the_sum_over_their_records(lab: Lab):
    desk = asking(lab, 100, 100, 150, calls=3)
    limits = DeclaredLimits(budgets={"support": SharedBudget(agent="desk", cost="0.30 EUR", tokens=10_000)})
    async with lab.app(desk, prices=priced(), queues=limits) as app:
        assert await app.run(desk, "ann") == 3
        with pytest.raises(RunSuspended, match="the limit of cost of the budget support is reached") as waits:
            await app.run(desk, "bob")
        assert "0.35 of 0.30 EUR used" in waits.value.message
        assert (await summed(app)).cost == {"EUR": Decimal("0.35")}
    assert counted(lab)["support", "cost EUR"] == (350_000_000, 0)
    check_sums(lab)
    raised = DeclaredLimits(budgets={"support": SharedBudget(agent="desk", cost="0.90 EUR")})
    async with lab.app(desk, prices=priced(), queues=raised, recover=True) as app:
        await lab.pass_time(minutes=1)
        assert (await app.engine.journal.runs(run="r-bob"))[0].status == "completed"
    check_sums(lab)


@virtual
async def test_calls_at_once_stop_at_what_is_used_and_reserved(lab: Lab):
    gate = asyncio.Event()
    begun: list[int] = []

    async def ask(question: int) -> dict[str, Any]:
        begun.append(question)
        await gate.wait()
        return {"usage": {"input_tokens": 100, "output_tokens": 0, "model": "large"}}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return len(await run.gather(*(run.options(model="large").decide(ask, number) for number in range(20))))

    async with lab.app(desk, prices=priced()) as app:
        running = app.start(desk, "ann", budget=RunBudget(cost="0.01 EUR"))
        await lab.pass_time(seconds=1)
        in_flight = len(begun)
        reserved = sum((one.price.amount for one in lab.of("r-ann", r.DecisionStarted)), Decimal(0))
        assert reserved - lab.of("r-ann", r.DecisionStarted)[-1].price.amount < Decimal("0.01") <= reserved
        gate.set()
        with pytest.raises(RunStopped, match=r"of 0\.01 EUR used"):
            await running.result()
        used = (await budget_of(app)).cost
    assert used == in_flight * BILLION // 10, "only the calls in flight exceed the limit"


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("measure", [{"cost": "1 EUR"}, {"tokens": 1000}], ids=str)
@pytest.mark.parametrize(
    ("before", "begin"), [((100,), 9), ((300, 10), 3), ((10, 300), 3), ((100, 900), 0), ((), 20)], ids=str
)
@virtual
async def test_calls_at_once_reserve_as_much_as_the_largest_one_before(
    lab: Lab, before: tuple[int, ...], begin: int, measure: dict[str, Any], shared: bool
):
    """What a question alone says of its answer is little: so many calls begin as there is room for."""
    begun: list[str] = []

    async def ask(question: str) -> dict[str, Any]:
        tokens = 0
        if question in map(str, before):
            tokens = int(question)
        else:
            begun.append(question)
            await asyncio.sleep(3600)
        return {"usage": {"input_tokens": 1, "output_tokens": tokens, "model": "large"}}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        asking = run.options(model="large")
        for tokens in before:
            await asking.decide(ask, str(tokens))
        await run.gather(*(asking.decide(ask, "abcdefghijklmnopqrst"[number]) for number in range(20)))

    declared = DeclaredLimits(budgets={"all": SharedBudget(**measure)}) if shared else None
    prices = declared_prices({"models": {"large": {"input": 1, "output": 1000}}, "currency": "EUR"}, "prices.yaml")
    async with lab.app(desk, prices=prices, queues=declared) as app:
        app.start(desk, "ann", budget=None if shared else RunBudget(**measure))
        await lab.pass_time(seconds=0.9)
        assert len(begun) == begin


@virtual
async def test_a_run_without_a_budget_in_a_currency_never_asks_for_a_price(lab: Lab):
    class Asked:
        basis = "never"

        def cost(self, used: Usage, at_ms: int) -> CallCost | None:
            raise AssertionError

    desk = asking(lab)
    limits = DeclaredLimits(budgets={"all": SharedBudget(tokens=10_000)})
    async with lab.app(desk, prices=Asked(), queues=limits) as app:
        assert await app.run(desk, "ann") == 4
        assert await app.run(desk, "bob", budget=RunBudget(tokens=10_000)) == 4
    assert all(one.price is None for one in lab.of("r-bob", r.DecisionStarted))


@virtual
async def test_a_list_that_fails_or_answers_nonsense_knows_nothing_and_loses_no_answer(lab: Lab):
    class Odd:
        basis = "odd"

        def __init__(self, *answers: Any) -> None:
            self.answers = list(answers)

        def cost(self, used: Usage, at_ms: int) -> CallCost | None:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return CallCost(answer, "EUR", self.basis)

    for number, odd in enumerate((Decimal("NaN"), Decimal(-1), Decimal("Infinity"), ValueError("broken"))):
        desk = asking(lab, 10, calls=1)
        async with lab.app(desk, prices=Odd(odd)) as app:
            with pytest.raises(DecisionFailed, match="is not known"):
                await app.run(desk, f"before-{number}", budget=RunBudget(cost="1 EUR"))
        async with lab.app(desk, prices=Odd(Decimal("0.25"), odd, odd)) as app:
            assert await app.run(desk, f"after-{number}", budget=RunBudget(cost="1 EUR")) == 1
            budget = await budget_of(app, f"r-after-{number}")
        assert (budget.cost, budget.unpriced) == (BILLION // 4, 1)


@virtual
async def test_budgets_in_two_currencies_refuse_the_call_by_name(lab: Lab):
    desk = asking(lab)
    async with lab.app(
        desk, prices=priced(), queues=DeclaredLimits(budgets={"all": SharedBudget(cost="1 USD")})
    ) as app:
        with pytest.raises(DecisionFailed, match="budget of the run is in EUR and the budget all in USD"):
            await app.run(desk, "ann", budget=RunBudget(cost="1 EUR"))
    assert lab.sent == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cost": "-1 EUR"}, "cost: -1 EUR is below zero"),
        ({"cost": "NaN EUR"}, "cost: 'NaN EUR' is not an amount and its currency"),
        ({"cost": "1e3 EUR"}, "cost: '1e3 EUR' is not an amount"),
        ({"cost": "2.50"}, "cost: '2.50' is not an amount and its currency, such as '2.50 EUR'"),
        ({"cost": 2.5}, "cost: '2.5' is not text"),
        ({"cost": ["2.50 EUR"]}, "is not text"),
        ({"cost": "2.50 EURO"}, "cost: 'EURO' is not an ISO 4217 code; did you mean EUR?"),
        ({"cost": "2 EUR 3 USD"}, "is not an amount"),
        ({"cost": "1000000000.01 EUR"}, "is above 1,000,000,000 EUR"),
        ({"cost": f"{10**39} EUR"}, "is above 1,000,000,000 EUR"),
        ({"cost": "0.0000000001 EUR"}, "is finer than a billionth"),
        ({"unpriced": "1 EUR", "tokens": 5}, "cost is missing"),
        ({"cost": "1 EUR", "unpriced": "1 USD"}, "a budget has one currency, and these are EUR and USD"),
    ],
)
def test_an_amount_that_cannot_be_is_named(given: dict[str, Any], says: str):
    with pytest.raises(ValueError, match=r"cost|unpriced") as refused:
        RunBudget(**given)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("amount", "says"),
    [
        ("1 USD", "another currency"),
        ("0 EUR", "raises nothing"),
        ("1000000000 EUR", "too much"),
        (5, "cost=5"),
        ("x", "cost=x"),
    ],
)
def test_a_limit_is_raised_in_its_own_currency_only(amount: Any, says: str):
    @virtual
    async def story(lab: Lab) -> None:
        desk = asking(lab, calls=2)
        async with lab.app(desk, prices=priced()) as app:
            with pytest.raises(RunStopped):
                await app.run(desk, "ann", budget=RunBudget(cost="0.01 EUR"))
            with pytest.raises(UsageError, match=says):
                await app.service.raise_budget("r-ann", {"cost": amount}, by="eve")
            assert lab.of("r-ann", r.BudgetRaised) == []

    story()


@virtual
async def test_a_price_list_that_is_none_is_named_before_anything_starts(lab: Lab):
    with pytest.raises(UsageError, match="is not a list of prices"):
        lab.make(prices=5)


# --- tools that declare what a call costs -----------------------------------------------------------------------------


def looking(lab: Lab, *ends: Exception | float | None, price: str = "0.40 EUR", calls: int = 3):
    """An agent that calls a tool with a price. Its calls fail, report what they cost, or report nothing."""
    left = list(ends)

    @tool(idempotency=Natural(), budget=Budget(call=price), retry=Retry(attempts=3))
    async def look_up(number: int) -> str:
        lab.sent.append(f"look up {number}")
        end = left.pop(0) if left else None
        if isinstance(end, Exception):
            raise end
        if end is not None:
            current_operation().spend(end)
        return "found"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        for number in range(calls):
            await look_up(number)
        return calls

    return desk


@virtual
async def test_a_tool_that_declares_its_cost_is_not_called_beyond_the_limit(lab: Lab):
    desk = looking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunStopped, match=r"the limit of cost is reached: 0\.80 of 0\.50 EUR used") as stopped:
            await app.run(desk, "ann", budget=RunBudget(cost="0.50 EUR"))
        assert stopped.value.reason == "budget"
        budget = await budget_of(app)
        assert (budget.cost, budget.calling) == (800_000_000, 0)
        assert (await summed(app)).cost == {"EUR": Decimal("0.80")}
        await app.service.raise_budget("r-ann", {"cost": "1 EUR"}, by="eve")
        assert await app.resume("r-ann") == 3
        assert (await summed(app)).cost == {"EUR": amount_of((await budget_of(app)).cost)} == {"EUR": Decimal("1.20")}
    assert len(lab.sent) == 3


@virtual
async def test_a_call_that_reports_that_it_was_free_costs_nothing(lab: Lab):
    desk = looking(lab, 0, 0.0, 0)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann", budget=RunBudget(cost="0.50 EUR")) == 3
        assert (await budget_of(app)).cost == 0
        assert not any((await summed(app)).cost.values())


@virtual
async def test_an_attempt_is_settled_by_what_it_reported_and_costs_nothing_if_nothing_was_sent(lab: Lab):
    desk = looking(lab, NotSent("down"), 0.1, 0.2, TimeoutError("slow"))
    async with lab.app(desk) as app:
        await app.run(desk, "ann", budget=RunBudget(cost="9 EUR"))
        budget, total = await budget_of(app), await summed(app)
    assert len(lab.sent) == 5
    assert (budget.cost, budget.calling) == (100_000_000 + 200_000_000 + 2 * 400_000_000, 0)
    assert total.cost == {"EUR": amount_of(budget.cost)}


@virtual
async def test_an_attempt_that_had_no_effect_counts_with_its_cost_before_the_next_one(lab: Lab):
    @tool(budget=Budget(call="0.40 EUR"), retry=Retry(attempts=3))
    async def look_up(number: int) -> str:
        lab.sent.append(f"look up {number}")
        raise TimeoutError("slow")

    @look_up.verify(settle_window=timedelta(0))
    async def looked_up(operation: Operation[str], number: int) -> Verdict[str]:
        return DidNotHappen()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await look_up(1)

    async with lab.app(desk) as app:
        with pytest.raises(RunStopped, match=r"the limit of cost is reached: 0\.40 of 0\.30 EUR used"):
            await app.run(desk, "ann", budget=RunBudget(cost="0.30 EUR"))
        assert len(lab.sent) == 1
        await app.service.raise_budget("r-ann", {"cost": "0.30 EUR"}, by="eve")
        with pytest.raises(RunStopped, match=r"0\.80 of 0\.60 EUR used"):
            await app.resume("r-ann")
    assert len(lab.sent) == 2


@virtual
async def test_calls_at_once_of_a_tool_reserve_before_they_are_sent(lab: Lab):
    gate = asyncio.Event()

    @tool(budget=Budget(call="0.40 EUR"))
    async def look_up(number: int) -> str:
        lab.sent.append(str(number))
        await gate.wait()
        return "found"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return len(await run.gather(*(look_up(number) for number in range(6))))

    async with lab.app(desk) as app:
        running = app.start(desk, "ann", budget=RunBudget(cost="1 EUR"))
        await lab.pass_time(seconds=1)
        assert len(lab.sent) == 3, "0.80 is reserved by two calls, so a third one begins and no fourth"
        gate.set()
        with pytest.raises(RunStopped):
            await running.result()
        assert (await budget_of(app)).cost == 1_200_000_000
    assert len(lab.sent) == 3


@virtual
async def test_a_budget_that_stops_raises_and_a_tool_in_another_currency_is_never_called(lab: Lab):
    desk = looking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(BudgetExceeded, match="the limit of cost is reached"):
            await app.run(desk, "ann", budget=RunBudget(cost="0.10 EUR", then="stop"))
        assert len(lab.sent) == 1
        with pytest.raises(
            OperationFailed, match=r"a call costs 0\.40 EUR, and the budget of the run is in USD"
        ) as refused:
            await app.run(desk, "bob", budget=RunBudget(cost="9 USD"))
        assert refused.value.outcome is not None
        assert refused.value.outcome.code == "price_unknown"
    assert len(lab.sent) == 1


@pytest.mark.parametrize(
    ("point", "calls"), [("after_intent", 2), ("before_send", 2), ("after_send", 2), ("before_outcome", 2)]
)
def test_a_killed_call_of_a_tool_counts_as_it_was_reserved(point: str, calls: int):
    @virtual
    async def story(lab: Lab) -> None:
        desk = looking(lab, calls=1)
        app = lab.make(desk, crash=(crash := DiesAt(point, 1)))
        crash.process = lab.processes[-1]
        await app.open()
        running = asyncio.create_task(app.run(desk, "ann", budget=RunBudget(cost="9 EUR")))
        await asyncio.sleep(1)
        running.cancel()
        async with lab.app(desk) as again:
            await again.resume("r-ann")
            budget = await budget_of(again)
            assert (budget.cost, budget.calling) == (calls * 400_000_000, 0)
            assert budget.cost >= len(lab.sent) * 400_000_000
            assert (await summed(again)).cost == {"EUR": amount_of(budget.cost)}

    story()


def test_a_cost_of_a_call_that_cannot_be_is_named():
    with pytest.raises(ValueError, match="call: 'free' is not an amount and its currency"):
        Budget(call="free")
    with pytest.raises(ContractError, match="reads reserve nothing"):

        @tool(effect="read", budget=Budget(call="1 EUR"))
        async def look() -> str:
            return "seen"
