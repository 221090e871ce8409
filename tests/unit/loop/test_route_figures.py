"""What a route reads of budgets, and the functions that it asks for."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from beforehand import Run, agent
from beforehand.errors import DecisionFailed, ModelError
from beforehand.loop import ModelReply, ModelRequest, Route, RouteModel
from beforehand.loop.route import RouteQuestion, choose
from beforehand.model import records as r
from beforehand.model.run_budget import BudgetLeft, BudgetState
from beforehand.model.usage import Usage
from beforehand.policies import Retry, RunBudget
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from beforehand.testing import run_virtual
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab
from tests.unit.loop.test_route import decisions

# --- budgets ----------------------------------------------------------------------------------------------------------


def saving(**more: object) -> tuple[Route, ScriptedModel, ScriptedModel]:
    big = ScriptedModel(ModelReply("big says", usage=Usage(300, 100)), name="big")
    small = ScriptedModel(ModelReply("small says", usage=Usage(30, 10)), name="small")
    return Route([big, RouteModel(small, below=0.5, **more)]), big, small


def spend(
    route: Route, budget: RunBudget | None, times: int, limits: DeclaredLimits | None = None
) -> list[r.DecisionRecorded]:
    @agent(run_id="spend-{text}", budget=budget)
    async def several(run: Run, text: str) -> str:
        async def ask(number: int) -> ModelReply:
            return await route.answer(ModelRequest(messages=()), lambda _text: None)

        for number in range(times):
            await run.decide(ask, number)
        return "done"

    async def run() -> list[r.Record]:
        async with Lab().app(several, queues=limits) as app:
            await app.run(several, "x")
            return [one async for _, one in app.service.reader.records("spend-x")]

    return decisions(run_virtual(run()))


def test_a_run_continues_on_the_cheaper_model_when_its_budget_is_nearly_spent():
    route, big, small = saving()
    found = spend(route, RunBudget(tokens=1000), 4)
    assert [one.model for one in found] == ["big", "big", "small", "small"]
    assert [one.why for one in found][1:3] == [
        "big is the first that can answer",
        "small is asked first below 0.5 of a budget: 0.2 of the tokens of the run remains",
    ]
    assert (len(big.asked), len(small.asked)) == (2, 2)


def test_what_a_call_reserves_itself_is_not_counted_as_spent():
    route, _, _ = saving()
    assert [one.model for one in spend(route, RunBudget(model_calls=4), 4)] == ["big", "big", "big", "small"]


def test_a_shared_budget_counts_for_all_its_runs():
    route, _, _ = saving()
    limits = DeclaredLimits(budgets={"desk": SharedBudget(agent="several", tokens=1000)})
    found = spend(route, None, 4, limits)
    assert [one.model for one in found] == ["big", "big", "small", "small"]
    assert found[2].why == "small is asked first below 0.5 of a budget: 0.2 of the tokens of the budget desk remains"


def test_without_a_budget_the_other_models_are_asked():
    route, _, small = saving()
    assert {one.model for one in spend(route, None, 3)} == {"big"}
    assert not small.asked


def test_a_limit_in_a_currency_is_one_of_those_that_remain():
    state = BudgetState(RunBudget(cost="1 EUR", tokens=1000), tokens=100, cost=800_000_000)
    assert [(round(one.share, 6), one.words) for one in state.left("x")] == [
        (0.9, "tokens of the run"), (0.2, "cost of the run"),
    ]  # fmt: skip


def test_of_two_thresholds_the_lower_one_that_is_reached_decides():
    table = Route([RouteModel("half", below=0.5), RouteModel("tenth", below=0.1), "big"])._table
    chosen = [choose(table, RouteQuestion(left=BudgetLeft(share, "x"))).chosen.shown for share in (0.6, 0.4, 0.05)]
    assert chosen == ["big", "half", "tenth"]


# --- any function -----------------------------------------------------------------------------------------------------


class Overloaded(Exception):
    """The error of another client library, with the status and the header of the service's answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


def decided(
    route: Route, asked: list[str], faults: dict[str, Exception], retry: Retry | None = None
) -> r.DecisionRecorded:
    async def complete(model: str, question: str) -> str:
        asked.append(model)
        if model in faults:
            raise faults[model]
        return f"{model} answers {question}"

    @agent(run_id="any-{text}")
    async def own(run: Run, text: str) -> str:
        async def answered(question: str) -> str:
            return await route.call(complete, question)

        return await run.options(retry=retry).decide(answered, text)

    async def run() -> list[r.Record]:
        async with Lab().app(own) as app:
            with contextlib.suppress(DecisionFailed, KeyError):
                assert await app.run(own, "x") == f"{asked[-1]} answers x"
            return [one async for _, one in app.service.reader.records("any-x")]

    return decisions(run_virtual(run()))[0]


@pytest.mark.parametrize(("status", "code"), [(429, "rate_limited"), (503, "unavailable"), (401, "unauthorized")])
def test_any_function_falls_back_by_the_class_of_the_error_of_its_own_client(status: int, code: str):
    asked: list[str] = []
    found = decided(Route(["big", "small"]), asked, {"big": Overloaded(status)})
    assert asked == ["big", "small"]
    assert (found.model, found.why) == ("small", f"big failed ({code}): Overloaded: status {status}")


def test_a_refused_request_and_a_bug_fall_back_only_where_that_is_declared():
    asked: list[str] = []
    found = decided(Route(["big", "small"]), asked, {"big": Overloaded(400)})
    assert (found.status, set(asked), found.code) == ("failed", {"big"}, "refused")
    asked.clear()
    found = decided(Route(["big", RouteModel("small", after=("refused",))]), asked, {"big": Overloaded(400)})
    assert (found.status, asked) == ("succeeded", ["big", "small"])
    asked.clear()
    assert decided(Route(["big", "small"]), asked, {"big": KeyError("a bug")}).status == "failed"
    assert asked == ["big"], "the run stops at once"


def test_a_route_is_called_without_a_run_and_raises_the_error_of_one_try():
    async def complete(model: str) -> str:
        if model == "big":
            raise Overloaded(503)
        return model

    route = Route(["big", "small"])
    with pytest.raises(ModelError, match="big: Overloaded: status 503"):
        asyncio.run(route.call(complete))
    needs = Route([RouteModel("big", can=()), "small"])
    assert asyncio.run(needs.call(complete, needs=("tools",))) == "small"
    short = Route([RouteModel("big", context=100), "small"])
    assert asyncio.run(short.call(complete, tokens=101)) == "small"
