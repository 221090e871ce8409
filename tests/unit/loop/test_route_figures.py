"""What a route measures and reads: how fast models answer, and what remains of budgets. Each figure is on record."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest

from holdfast import Run, agent
from holdfast.errors import DecisionFailed, ModelError
from holdfast.loop import ModelLoop, ModelReply, ModelRequest, Route, RouteModel
from holdfast.loop.model_health import MEASURED_FOR_S, ModelHealth
from holdfast.loop.route import RouteQuestion, choose
from holdfast.model import records as r
from holdfast.model.run_budget import BudgetLeft, BudgetState
from holdfast.model.usage import Usage
from holdfast.policies import Retry, RunBudget
from holdfast.queues.limits import DeclaredLimits, SharedBudget
from holdfast.testing import run_virtual
from holdfast.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab
from tests.unit.loop.test_route import decisions, talk

USED = Usage(10, 5)


class Timed:
    """A model that takes some seconds, and counts its calls."""

    def __init__(self, name: str, *seconds: float, usage: Usage = USED) -> None:
        self.name = name
        self.calls = 0
        self._seconds = seconds
        self._usage = usage

    async def answer(self, request: ModelRequest, on_text: object) -> ModelReply:
        self.calls += 1
        await asyncio.sleep(self._seconds[min(self.calls, len(self._seconds)) - 1])
        return ModelReply(f"{self.name} says", usage=self._usage)


def reasons(route: Route, *texts: str) -> list[str]:
    _, records = run_virtual(talk(ModelLoop(route), *texts))
    return [decisions(one)[0].why for one in records]


# --- time -------------------------------------------------------------------------------------------------------------


def test_the_fastest_is_asked_once_all_are_measured_and_the_figures_are_on_record():
    route = Route([Timed("a", 4), Timed("b", 1), Timed("c", 2)], fastest=True)
    assert reasons(route, *"vwxyz") == [
        "a is asked to measure how fast it answers",
        "b is asked to measure how fast it answers",
        "c is asked to measure how fast it answers",
        *["b is the fastest that can answer: 1 s, a 4 s, c 2 s"] * 2,
    ]


def test_a_model_over_the_bound_comes_after_those_within_it():
    slow, quick = Timed("slow", 9), Timed("quick", 1)
    route = Route([slow, quick], within=timedelta(seconds=5))
    assert reasons(route, *"xyz") == [
        "slow is the first that can answer",
        *["quick is the first that can answer; slow takes 9 s, more than 5 s"] * 2,
    ]
    assert (
        reasons(Route([Timed("only", 9)], within=timedelta(seconds=5)), *"xy")[1] == "only is the first that can answer"
    )


def test_one_call_measures_a_slow_model_again_after_a_while_however_many_run_at_once():
    slow, quick = Timed("slow", 9, 1), Timed("quick", 1)
    loop = ModelLoop(Route([slow, quick], within=timedelta(seconds=5)))

    async def run() -> list[int]:
        asked: list[int] = []
        await talk(loop, "a")
        await talk(loop, "b")
        asked.append(slow.calls)
        await asyncio.sleep(MEASURED_FOR_S + 10)

        @agent(run_id="many-{text}")
        async def many(run: Run, text: str) -> str:
            return await loop(run, text)

        async with Lab().app(many) as app:
            await asyncio.gather(*(app.run(many, str(number)) for number in range(20)))
        asked.append(slow.calls)
        await talk(loop, "c")
        return [*asked, slow.calls]

    assert run_virtual(run()) == [1, 2, 3], "the new time counts alone"


def test_a_call_that_was_cut_by_its_time_limit_is_a_measured_time():
    loop = ModelLoop(
        Route([Timed("slow", 60), Timed("quick", 1)], within=timedelta(seconds=5)), timeout=timedelta(seconds=7)
    )
    _, records = run_virtual(talk(loop, "x", "y"))
    assert decisions(records[0])[0].why.startswith("slow failed (unavailable)")
    assert decisions(records[1])[0].why == "quick is the first that can answer; slow takes 7 s, more than 5 s"


def test_an_average_follows_the_newest_answers_and_a_clock_that_began_anew_forgets():
    health = ModelHealth()
    for seconds in (1, 1, 5):
        health.took("a", seconds, 100)
    assert health.seconds(100) == {"a": 2.0}
    assert health.seconds(100 + MEASURED_FOR_S + 1) == {}
    assert health.seconds(3) == {}
    health.forget()
    assert health.seconds(100) == {}


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
            with contextlib.suppress(DecisionFailed):
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
    assert set(asked) == {"big"}


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
