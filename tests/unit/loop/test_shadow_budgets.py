"""Shadow calls under budgets: reserved before and settled after, skipped without room, and no reason to ask a person."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import Holdfast, Run, RunSuspended, agent
from holdfast.agent.decision_call import DecisionCall
from holdfast.errors import ModelError, RunStopped
from holdfast.inspect.costs import costs
from holdfast.inspect.prices import Prices, declared_prices
from holdfast.inspect.shadows import compare_shadows
from holdfast.journal.entry_codec import values_in
from holdfast.loop import Route, RouteModel
from holdfast.model import records as r
from holdfast.model.run_history import RunHistory
from holdfast.model.shadow_calls import ANSWERS, CALLS, ShadowAnswered, ShadowAsked
from holdfast.model.usage import Usage
from holdfast.policies import RunBudget
from holdfast.queues.call_limits import ModelLimit
from holdfast.queues.limits import DeclaredLimits, SharedBudget
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_money_budgets import priced
from tests.unit.engine.test_run_budgets import budget_of
from tests.unit.engine.test_shared_budgets import check_sums, counted
from tests.unit.engine.test_tree_budgets import counted as charged

CALL = "ruled#1 cheap"


class Scripted:
    """Models behind a route: what each call of a model uses, or raises, after so many seconds."""

    def __init__(self, **calls: tuple[float, int | Exception | None]) -> None:
        self.asked: list[str] = []
        self._calls = calls

    async def __call__(self, model: str, question: str) -> dict[str, Any]:
        self.asked.append(model)
        seconds, used = self._calls[model]
        await asyncio.sleep(seconds)
        if isinstance(used, Exception):
            raise used
        usage = {} if used is None else {"usage": {"input_tokens": used, "output_tokens": 0}}
        return {"text": f"{model} says", **usage}


def ruling(models: Scripted, *, calls: int = 1, waits: bool = False):
    """An agent that asks a model in turn, each time beside a shadow; in the end it waits for an event, or not."""
    route = Route(["large", RouteModel("cheap", shadow=1)])

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def ruled(question: str) -> dict[str, Any]:
            return await route.call(models, question)

        for number in range(calls):
            await run.options(model="large").decide(ruled, f"{name} {number}")
        return await run.wait_for("go", name) if waits else "done"

    return desk


async def ended(app: Holdfast) -> list[ShadowAnswered]:
    return await values_in(app.engine.journal, ANSWERS, ShadowAnswered)


@virtual
async def test_a_shadow_call_counts_in_the_budget_of_its_run(lab: Lab):
    desk = ruling(models := Scripted(large=(1, 100), cheap=(2, 30)), calls=3)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann", budget=RunBudget(tokens=1000)) == "done"
        await lab.pass_time(minutes=1)
        budget = await budget_of(app)
    assert sorted(models.asked) == ["cheap"] * 3 + ["large"] * 3
    started = lab.of("r-ann", r.ShadowStarted)
    assert [one.step for one in started] == [f"ruled#{number} cheap" for number in (1, 2, 3)]
    assert [one.usage.input_tokens for one in lab.of("r-ann", r.ReservationSettled)] == [30, 30]
    assert (budget.tokens, budget.model_calls) == (360, 5), "the last one was under way when its run completed"
    assert set(budget.open) == {"ruled#3 cheap"}
    assert budget.open["ruled#3 cheap"].tokens == 100, "as much as the largest call"


@virtual
async def test_a_shadow_call_is_durable_in_the_run_before_the_model_is_asked(lab: Lab):
    seen: list[bool] = []

    class Looks(Scripted):
        async def __call__(self, model: str, question: str) -> dict[str, Any]:
            if model == "cheap":
                seen.append(any(isinstance(one, r.ShadowStarted) for one in lab.durable("r-ann")))
            return await super().__call__(model, question)

    desk = ruling(Looks(large=(1, 10), cheap=(0, 10)))
    async with lab.app(desk) as app:
        await app.run(desk, "ann", budget=RunBudget(model_calls=5))
    assert seen == [True]


@virtual
async def test_a_shadow_call_without_room_is_skipped_on_record_and_never_made_up_for(lab: Lab):
    desk = ruling(models := Scripted(large=(1, 100), cheap=(0, 30)), waits=True)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann", budget=RunBudget(model_calls=1))
        await app.service.raise_budget("r-ann", {"model_calls": 5}, by="eve")
        await app.service.signal("r-ann", "go", key="ann", payload="on")
        assert await app.run(desk, "ann") == "on"
        (one,) = await ended(app)
        (pair,) = await compare_shadows(app.service.reader, Prices())
        report = await costs(app.service.reader, Prices(), "agent")
        budget = await budget_of(app)
    assert models.asked == ["large"]
    assert (one.code, one.usage) == ("budget_exceeded", Usage(refused=True))
    assert one.reason == "the limit of model calls is reached: 0 of 1 used, 1 reserved"
    assert (pair.calls, pair.failed) == (1, {"budget_exceeded": 1})
    assert {line.name for line in report.lines} == {"desk"}, "a call that was not made is not counted"
    assert (budget.model_calls, budget.open) == (1, {})


@virtual
async def test_a_call_waits_for_a_shadow_that_reserved_the_rest_before_a_person_is_asked(lab: Lab):
    """The shadow was refused, so it used nothing: the run goes on by itself."""
    refused = ModelError("no", code="refused")
    desk = ruling(models := Scripted(large=(1, 100), cheap=(40, refused)), calls=2)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann", budget=RunBudget(model_calls=2)) == "done"
        assert (await budget_of(app)).model_calls == 2
    assert models.asked == ["large", "cheap", "large"]


@virtual
async def test_a_run_at_its_limit_stops_once_no_shadow_can_give_room(lab: Lab):
    desk = ruling(models := Scripted(large=(1, 100), cheap=(40, 30)), calls=2)
    async with lab.app(desk) as app:
        with pytest.raises(RunStopped, match="2 of 2 used") as stopped:
            await app.run(desk, "ann", budget=RunBudget(model_calls=2))
        assert stopped.value.reason == "budget"
    assert models.asked == ["large", "cheap"]


@virtual
async def test_a_shadow_call_counts_its_cost_and_that_is_on_record(lab: Lab):
    desk = ruling(Scripted(large=(9, 100), cheap=(1, 30)))
    models = {"large": {"input": 1000, "output": 1000}, "cheap": {"input": 500, "output": 500}}
    prices = Prices(declared_prices({"currency": "EUR", "models": models}, "prices.yaml"))
    async with lab.app(desk, prices=prices) as app:
        await app.run(desk, "ann", budget=RunBudget(cost="1 EUR"))
        (one,) = await ended(app)
        budget = await budget_of(app)
        report = await costs(app.service.reader, Prices(), "model")
    assert one.price is not None
    assert one.price.amount == Decimal("0.015")
    assert budget.cost == 115_000_000
    assert {line.name: line.cost["EUR"] for line in report.lines}["cheap (shadow)"] == Decimal("0.015")


@virtual
async def test_a_shadow_whose_price_is_not_known_is_skipped_and_the_run_goes_on(lab: Lab):
    desk = ruling(models := Scripted(large=(1, 100), cheap=(1, 30)))
    async with lab.app(desk, prices=Prices(priced())) as app:
        assert await app.run(desk, "ann", budget=RunBudget(cost="1 EUR")) == "done"
        (one,) = await ended(app)
    assert models.asked == ["large"]
    assert one.code == "price_unknown"
    assert "the price of the model 'cheap' is not known" in one.reason


@virtual
async def test_a_shadow_call_counts_in_shared_budgets_and_is_skipped_at_their_limit(lab: Lab):
    """It waits for no other day: the runs go on."""
    desk = ruling(models := Scripted(large=(2, 100), cheap=(1, 30)))
    limits = DeclaredLimits(budgets={"support": SharedBudget(agent="desk", model_calls=3)})
    async with lab.app(desk, queues=limits) as app:
        for name in ("ann", "bob"):
            assert await app.run(desk, name) == "done"
        first, last = await ended(app)
        assert counted(lab)["support", "model_calls"] == (3, 0)
        assert counted(lab)["support", "tokens"] == (230, 0)
    assert models.asked == ["large", "cheap", "large"]
    assert (first.code, last.run, last.code) == ("", "r-bob", "budget_exceeded")
    assert "the budget support is reached" in last.reason
    check_sums(lab)


@virtual
async def test_a_shadow_under_way_is_charged_to_the_tree_that_begins_and_those_of_children_are(lab: Lab):
    models = Scripted(large=(1, 100), cheap=(5, 30))
    leaf, route = ruling(models), Route(["large", RouteModel("cheap", shadow=1)])

    @agent(name="root", run_id="tree-{name}")
    async def root(run: Run, name: str) -> str:
        async def ruled(question: str) -> dict[str, Any]:
            return await route.call(models, question)

        await run.decide(ruled, name)
        child = await run.start(leaf, "x")
        reserved.update(await charged(lab))
        await run.sleep(timedelta(seconds=20))
        return await run.join(child)

    reserved: dict[str, tuple[int, int]] = {}
    async with lab.app(root, leaf, recover=True) as app:
        assert await app.run(root, "ann", budget=RunBudget(model_calls=3)) == "done"
        assert reserved["model_calls"] == (1, 1)
        assert (await charged(lab))["model_calls"] == (3, 0)
        assert [one.code for one in await ended(app)] == ["budget_exceeded", ""]
    assert models.asked == ["large", "cheap", "large"]


@virtual
async def test_a_lost_shadow_call_counts_what_it_had_reserved(lab: Lab):
    desk = ruling(models := Scripted(large=(1, 100), cheap=(3600, 30)), waits=True)
    limits = DeclaredLimits(budgets={"support": SharedBudget(agent="desk", model_calls=5)})
    async with lab.app(desk, queues=limits) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann", budget=RunBudget(model_calls=5))
        assert set((await budget_of(app)).open) == {CALL}
    async with lab.app(desk, queues=limits) as app:
        await app.service.signal("r-ann", "go", key="ann", payload="on")
        assert await app.run(desk, "ann") == "on"
        budget = await budget_of(app)
        asked = await values_in(app.engine.journal, CALLS, ShadowAsked)
        assert (len(asked), await ended(app)) == (1, [])
        assert counted(lab)["support", "model_calls"] == (2, 0)
    assert (budget.model_calls, budget.open, budget.unknown) == (2, {}, 1)
    assert models.asked == ["large", "cheap"]
    check_sums(lab)


@virtual
async def test_a_shadow_that_comes_to_reserve_after_its_run_is_not_asked(lab: Lab):
    class Holds(Scripted):
        async def __call__(self, model: str, question: str) -> dict[str, Any]:
            call = DecisionCall.current()
            if model == "large" and call is not None:
                held.append(call.active.log.reserving_turn)
                await held[0].acquire()
            return await super().__call__(model, question)

    held: list[asyncio.Lock] = []
    desk = ruling(models := Holds(large=(0, 100), cheap=(0, 30)))
    limits = DeclaredLimits(budgets={"support": SharedBudget(agent="desk", tokens=250)})
    async with lab.app(desk, queues=limits) as app:
        assert await app.run(desk, "ann") == "done"
        held[0].release()
        await lab.pass_time(seconds=1)
        (one,) = await ended(app)
    assert (models.asked, one.code) == (["large"], "run_ended")
    check_sums(lab)


@virtual
async def test_a_run_that_is_cancelled_settles_the_shadow_that_it_ends(lab: Lab):
    desk = ruling(models := Scripted(large=(3600, 100), cheap=(3600, 30)))
    limits = DeclaredLimits(budgets={"support": SharedBudget(agent="desk", model_calls=5)})
    async with lab.app(desk, queues=limits) as app:
        task = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=5)
        assert counted(lab)["support", "model_calls"] == (0, 2)
        await app.service.cancel("r-ann", by="anna")
        await asyncio.wait({task}, timeout=timedelta(minutes=1).total_seconds())
        task.exception()
        await lab.pass_time(seconds=5)
        assert counted(lab)["support", "model_calls"] == (2, 0)
    assert len(models.asked) == 2
    check_sums(lab)


def test_a_shadow_that_ends_after_a_failed_decision_leaves_it_to_be_asked_again():
    """The decision is asked anew when its run is reopened, although a record that names its branch came after it."""
    history = RunHistory("r-ann")
    for record in (
        r.RunStarted(agent="desk", input=r.Raw(b'"ann"'), digest="d", version="", budget=RunBudget(model_calls=9)),
        r.DecisionStarted(step="ruled#1", function="ruled"),
        r.ShadowStarted(step=CALL),
        r.DecisionRecorded(step="ruled#1", function="ruled", digest="d", status="failed", reason="no"),
        r.ReservationSettled(step=CALL),
        r.RunStoppedRecord(reason="error", error="DecisionFailed"),
        r.RunReopened(by="eve"),
    ):
        history.add(record)
    assert "ruled#1" not in history.steps.answers


# --- limits of the model ----------------------------------------------------------------------------------------------


@virtual
async def test_the_limit_of_its_model_covers_a_shadow_which_waits_for_no_permit(lab: Lab):
    desk = ruling(models := Scripted(large=(1, 100), cheap=(10, 30)), calls=2)
    limits = DeclaredLimits(models={"cheap": ModelLimit(at_once=1)})
    async with lab.app(desk, queues=limits) as app:
        assert await app.run(desk, "ann") == "done"
        (use,) = await app.engine.journal.permits()
        assert [one.operation for one in use.permits] == [f"r-ann/{CALL}"]
        await lab.pass_time(seconds=20)
        assert [len(use.permits) for use in await app.engine.journal.permits()] in ([], [0])
        assert await app.run(desk, "bob") == "done"
        await lab.pass_time(seconds=20)
        told = await ended(app)
        (pair,) = await compare_shadows(app.service.reader, Prices())
    assert models.asked.count("cheap") == 2
    assert sorted(one.code for one in told) == ["", "", "limit_reached", "limit_reached"]
    assert pair.failed == {"limit_reached": 2}
    skipped = next(one for one in told if one.code)
    assert (skipped.reason, skipped.usage) == ("the limit of model cheap is reached", Usage(refused=True))


@virtual
async def test_the_time_that_a_service_asks_of_a_shadow_holds_for_all_calls_of_its_model(lab: Lab):
    refused = ModelError("slowly", code="rate_limited", retry_after=600)
    desk = ruling(Scripted(large=(1, 100), cheap=(0, refused)))
    other = ruling(models := Scripted(large=(1, 100), cheap=(0, 30)))
    limits = DeclaredLimits(models={"cheap": ModelLimit(rate="1000/second")})
    async with lab.app(desk, queues=limits) as app:
        assert await app.run(desk, "ann") == "done"
    async with lab.app(other, queues=limits) as app:
        assert await app.run(other, "bob") == "done"
        await lab.pass_time(minutes=11)
        assert await app.run(other, "cat") == "done"
        await lab.pass_time(seconds=1)
        assert [one.code for one in await ended(app)] == ["rate_limited", "limit_reached", ""]
    assert models.asked.count("cheap") == 1
