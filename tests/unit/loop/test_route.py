"""A route: which model is chosen and why, what is on record of it, and what a route refuses."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import Key, Run, agent, tool
from beforehand.errors import DecisionFailed, LoopStopped, ModelError, UsageError
from beforehand.inspect.prices import declared_prices
from beforehand.loop import Chat, ModelCall, ModelLoop, ModelPlanner, ModelReply, ModelRequest, Route, RouteModel, user
from beforehand.loop.model_health import ModelFailure
from beforehand.loop.route import RouteQuestion, choose
from beforehand.loop.route_table import ANY_OUTAGE
from beforehand.model import records as r
from beforehand.model.run_budget import BudgetLeft
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import Retry
from beforehand.testing import run_virtual
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab

CODES = ("unavailable", "rate_limited", "unauthorized", "refused", "too_long", "malformed", "refusal", "")


def models(*names: str) -> list[ScriptedModel]:
    return [ScriptedModel(f"{name} says", name=name) for name in names]


def outage(code: str = "unavailable", retry_after: float | None = None) -> ModelError:
    return ModelError("out of order", code=code, retry_after=retry_after)


@tool(idempotency=Key.forever())
async def refund(order_id: str) -> str:
    """Give the money of an order back."""
    return f"refunded {order_id}"


async def talk(loop: ModelLoop, *texts: str) -> tuple[list[object], list[list[r.Record]]]:
    """The results of the runs of one process, or their errors, and their records."""

    @agent(run_id="route-{text}", tools=[refund])
    async def support(run: Run, text: str) -> str:
        return await loop(run, text)

    results: list[object] = []
    async with Lab().app(support) as app:
        for text in texts:
            try:
                results.append(await app.run(support, text))
            except Exception as error:  # noqa: BLE001 - the test looks at it
                results.append(error)
        records = [[one async for _, one in app.service.reader.records(f"route-{text}")] for text in texts]
    return results, records


def told(loop: ModelLoop, text: str = "x") -> tuple[object, list[r.Record]]:
    (result,), (records,) = run_virtual(talk(loop, text))
    return result, records


def decisions(records: list[r.Record]) -> list[r.DecisionRecorded]:
    return [one for one in records if isinstance(one, r.DecisionRecorded)]


def tries(records: list[r.Record]) -> list[int]:
    return [one.number for one in records if isinstance(one, r.DecisionStarted)]


# --- the choice, over all tables and all that can be known ------------------------------------------------------------


@st.composite
def questions(draw: st.DrawFn) -> tuple[tuple[RouteModel, ...], RouteQuestion]:
    names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True))
    left = 1.0
    table: list[RouteModel] = []
    for name in names:
        share = draw(st.none() | st.floats(0.01, 0.4))
        share = share if share is not None and share <= left else None
        left -= share or 0
        table.append(
            RouteModel(
                ScriptedModel("x", name=name),
                can=tuple(draw(st.sets(st.sampled_from(["tools", "schema"])))),
                context=draw(st.sampled_from([0, 10, 100])),
                share=share,
                below=draw(st.none() | st.floats(0.01, 1)) if share is None else None,
                after=tuple(draw(st.sets(st.sampled_from(CODES[:-1])))),
            )
        )
    failure = st.builds(ModelFailure, st.sampled_from(names), st.sampled_from(CODES), st.just("it broke"))
    costs = st.dictionaries(
        st.sampled_from(names), st.builds(CallCost, st.decimals(0, 9, places=3), st.just("USD"), st.just("list"))
    )
    paused = draw(st.dictionaries(st.sampled_from(names), st.integers(1, 60_000)))
    outages = st.sampled_from(ANY_OUTAGE)
    known = RouteQuestion(
        needs=tuple(draw(st.sets(st.sampled_from(["tools", "schema"])))),
        tokens=draw(st.integers(0, 200)),
        draw=draw(st.none() | st.floats(0, 1, exclude_max=True)),
        costs=draw(st.just({}) | costs),
        paused={name: ModelFailure(name, draw(outages), "down", ms) for name, ms in paused.items()},
        failures=tuple(draw(st.lists(failure, max_size=4))),
        left=draw(st.none() | st.builds(BudgetLeft, st.floats(0, 1), st.just("tokens of the run"))),
    )
    return tuple(table), known


def can(one: RouteModel, known: RouteQuestion) -> bool:
    return set(known.needs) <= set(one.can) and not (one.context and known.tokens > one.context)


@given(questions())
def test_a_choice_is_able_healthy_and_reached_by_the_error_before_it(drawn):
    table, known = drawn
    if not any(can(one, known) for one in table):
        with pytest.raises(UsageError, match="no model of the route can answer") as refused:
            choose(table, known)
        assert all(one.shown in str(refused.value) for one in table)
        return
    choice = choose(table, known)
    assert choice == choose(table, known), "the choice follows from its arguments"
    assert can(choice.chosen, known)
    assert choice.why
    assert (choice.wait_ms > 0) == (choice.chosen.shown in known.paused)
    if known.failures and not choice.wait_ms:
        last = known.failures[-1]
        able = [one for one in table if can(one, known)]
        reached = [one for one in able if one.shown == last.model or last.code in one.after] or able
        assert choice.chosen in reached
        counts = {one.shown: sum(failure.model == one.shown for failure in known.failures) for one in table}
        others = [one for one in reached if one.shown not in known.paused]
        assert counts[choice.chosen.shown] == min(counts[one.shown] for one in others)


@given(questions())
def test_without_failures_budget_then_share_then_price_decide(drawn):
    table, known = drawn
    known = msgspec.structs.replace(known, failures=(), paused={})
    able = [one for one in table if can(one, known)]
    if not able:
        return
    choice, edges = choose(table, known), itertools.accumulate(one.share or 0 for one in table)
    saving = [one.below for one in able if known.left and one.below is not None and known.left.share < one.below]
    if saving:
        assert choice.chosen.below == min(saving)
        return
    pairs = zip(table, edges, strict=True)
    drawn_one = None if known.draw is None else next((one for one, edge in pairs if known.draw < edge), None)
    if drawn_one in able:
        assert choice.chosen == drawn_one
        return
    plain = [one for one in able if not one.special] or able
    priced = [known.costs[one.shown].amount for one in plain if one.shown in known.costs]
    assert choice.chosen in plain
    if priced:
        assert known.costs[choice.chosen.shown].amount == min(priced)
    else:
        assert choice.chosen == plain[0]


def test_shares_are_kept_over_many_runs_and_grow_without_moving_runs():
    def first(share: float, run: str) -> str:
        route = Route([RouteModel(models("new")[0], share=share), models("old")[0]])
        return _first_of(route, run)

    small = [first(0.05, f"run-{number}") for number in range(2000)]
    large = [first(0.2, f"run-{number}") for number in range(2000)]
    assert 60 <= small.count("new") <= 140
    assert 320 <= large.count("new") <= 480
    assert all(after == "new" for before, after in zip(small, large, strict=True) if before == "new")


def _first_of(route: Route, run: str) -> str:
    """The model that a run asks first, by the number that the route draws for it."""
    from beforehand.loop.route import _draw

    table = route._table
    return choose(table, RouteQuestion(draw=_draw(run, table))).chosen.shown


# --- what is on record ------------------------------------------------------------------------------------------------


def test_the_reason_is_on_record_with_the_answer():
    big, small = models("big", "small")
    result, records = told(ModelLoop(Route([big, small])))
    assert result == "big says"
    (found,) = decisions(records)
    assert (found.model, found.why) == ("big", "big is the first that can answer")
    assert not small.asked


def test_another_model_is_asked_after_an_outage_in_the_same_decision():
    first, second = ScriptedModel(outage(), name="big"), ScriptedModel("here", name="small")
    result, records = told(ModelLoop(Route([first, second])))
    assert (result, len(first.asked), tries(records)) == ("here", 1, [1, 2])
    (answered,) = decisions(records)
    assert (answered.step, answered.model) == ("turn/model#1", "small")
    assert answered.why.startswith("big failed (unavailable): out of order")


def test_no_model_is_waited_for_while_another_can_be_asked():
    first, second = ScriptedModel(outage("rate_limited", 120), name="big"), ScriptedModel("here", name="small")
    result, records = told(ModelLoop(Route([first, second])))
    assert result == "here"
    one, two = (record.at for record in records if isinstance(record, r.DecisionStarted))
    assert two - one < 1000
    second_route = Route([ScriptedModel([outage("rate_limited", 120), "ok"], name="big")])
    _, records = told(ModelLoop(second_route))
    one, two = (record.at for record in records if isinstance(record, r.DecisionStarted))
    assert two - one >= 120_000


@pytest.mark.parametrize(("error", "falls_back"), [(TimeoutError("slow"), True), (KeyError("a bug"), False)])
def test_an_error_of_another_client_is_an_outage_or_has_no_class(error: Exception, falls_back: bool):
    first, second = ScriptedModel(error), ScriptedModel("here", name="small")
    result, records = told(ModelLoop(Route([first, second])))
    assert (result == "here") is falls_back
    assert decisions(records)[0].code == ""


def test_a_model_is_not_asked_after_errors_that_it_does_not_name():
    first, second = ScriptedModel(outage("refused"), name="big"), ScriptedModel("here", name="small")
    result, _ = told(ModelLoop(Route([first, second])))
    assert isinstance(result, DecisionFailed)
    assert "big: out of order" in str(result)
    assert not second.asked
    result, _ = told(ModelLoop(Route([first, RouteModel(second, after=("refused",))])))
    assert result == "here"


def test_a_model_after_a_refusal():
    shy, bold = ScriptedModel(ModelReply("no", (), "refusal"), name="shy"), ScriptedModel("yes", name="bold")
    result, records = told(ModelLoop(Route([shy, RouteModel(bold, after=("refusal",))])))
    assert (result, decisions(records)[0].why) == ("yes", "shy failed (refusal): it refused to answer")
    result, _ = told(ModelLoop(Route([shy, bold])))
    assert isinstance(result, LoopStopped)
    assert result.code == "refusal"
    both = [RouteModel(one, after=("refusal",)) for one in (shy, ScriptedModel(ModelReply("no", (), "refusal")))]
    result, records = told(ModelLoop(Route(both)))
    assert isinstance(result, LoopStopped)
    assert tries(records) == [1, 2]


def test_a_call_over_its_time_is_followed_by_another_model():
    class Silent:
        name = "silent"

        async def answer(self, request, on_text):
            await asyncio.sleep(3600)

    loop = ModelLoop(Route([Silent(), *models("small")]), timeout=timedelta(seconds=7))
    result, records = told(loop)
    assert result == "small says"
    assert decisions(records)[0].why == "silent failed (unavailable): it did not answer within the time limit"


# --- health -----------------------------------------------------------------------------------------------------------


def test_a_model_that_fails_again_and_again_is_not_asked_until_its_breaker_closes():
    big, small = ScriptedModel(outage(), name="big"), ScriptedModel("here", name="small")
    (*_, late), records = run_virtual(talk(ModelLoop(Route([big, small])), *"abcdefgh"))
    assert late == "here"
    assert len(big.asked) == 5
    assert decisions(records[4])[0].why.startswith("big failed")
    assert decisions(records[5])[0].why.startswith("big is not asked for ")
    assert "(unavailable): out of order" in decisions(records[5])[0].why
    assert tries(records[5]) == [1]


def test_a_service_that_says_when_is_left_alone_by_all_runs_until_then():
    big = ScriptedModel([outage("rate_limited", 60), "big is back"], name="big")
    small = ScriptedModel("here", name="small")

    async def run() -> tuple[list[object], int]:
        route = Route([big, small])
        results, _ = await talk(ModelLoop(route), "a", "b", "c")
        asked = len(big.asked)
        await asyncio.sleep(61)
        (late,), _ = await talk(ModelLoop(route), "a")
        return [*results, late], asked

    assert run_virtual(run()) == (["here", "here", "here", "big is back"], 1)


def test_a_pause_of_all_models_asks_none_and_says_so():
    both = [ScriptedModel([outage("rate_limited", wait), "ok"], name=name) for name, wait in (("a", 90), ("b", 40))]
    result, records = told(ModelLoop(Route(both)))
    assert result == "ok"
    assert [len(one.asked) for one in both] == [1, 2], "the one that was paused for less time"
    one, two, three = (record.at for record in records if isinstance(record, r.DecisionStarted))
    assert two - one < 1000
    assert 40_000 <= three - two < 45_000


def test_a_pause_that_is_not_over_counts_as_a_call_that_used_nothing():
    big = ScriptedModel(outage("rate_limited", 60), name="big")
    (_, late), (_, records) = run_virtual(talk(ModelLoop(Route([big]), retry=Retry(attempts=1)), "a", "b"))
    assert isinstance(late, DecisionFailed)
    assert "no model of the route is asked now: big is not asked for" in str(late)
    assert (decisions(records)[0].refused, len(big.asked)) == (True, 1)


# --- needs, prices, shares --------------------------------------------------------------------------------------------


def test_a_question_goes_to_a_model_that_can():
    plain, able = models("plain", "able")
    result, records = told(ModelLoop(Route([RouteModel(plain, can=("schema",)), able])))
    assert (result, plain.asked) == ("able says", [])
    result, records = told(ModelLoop(Route([RouteModel(plain, context=20), able]), "word " * 50, tools=()))
    assert (result, plain.asked) == ("able says", [])
    assert decisions(records)[0].why == "able is the first that can answer"


def test_a_question_that_no_model_can_answer_fails_at_once_and_sends_nothing():
    plain, short = models("plain", "short")
    route = Route([RouteModel(plain, can=()), RouteModel(short, context=5)])
    result, records = told(ModelLoop(route, "Many words of instruction are longer than that."))
    assert isinstance(result, DecisionFailed)
    assert "no model of the route can answer this question: plain lacks 'tools'; short reads 5 tokens" in str(result)
    assert "RouteModel(model, can=(...), context=...)" in str(result)
    assert (tries(records), decisions(records)[0].refused) == ([1], True)
    assert not plain.asked
    assert not short.asked


PRICES = declared_prices(
    {"models": {"big": {"input": 3, "output": 15}, "small": {"input": "0.25", "output": 2}, "own*": {"input": 0, "output": 0}}},
    "prices.yaml",
)  # fmt: skip


def test_prices_choose_the_cheapest_that_can():
    big, small, own = models("big", "small", "own-7b")
    route = Route([big, small, RouteModel(own, can=("schema",))], prices=PRICES)
    result, records = told(ModelLoop(route))
    assert result == "small says"
    why = decisions(records)[0].why
    assert why.startswith("small is the cheapest that can answer: at most 0.008")
    assert why.endswith(" USD")


def test_a_planner_asks_a_route_too():
    first, second = ScriptedModel(outage(), name="big"), ScriptedModel('{"steps": []}', name="small")
    planner = ModelPlanner(Route([second, first]), [refund])
    assert asyncio.run(planner.run("refund A")).usage.model == "small"


def test_any_async_function_asks_a_route_for_its_run():
    new, old = models("new", "old")
    route = Route([RouteModel(new, share=0.5), old])

    @agent(run_id="any-{text}")
    async def own(run: Run, text: str) -> str:
        async def asked(request: ModelRequest) -> ModelReply:
            return await route.answer(request, lambda _text: None)

        return (await run.decide(asked, ModelRequest(messages=(user(text),)))).text

    async def run() -> list[str]:
        async with Lab().app(own) as app:
            return [await app.run(own, str(number)) for number in range(20)]

    results = run_virtual(run())
    assert set(results) == {"new says", "old says"}
    assert results == [f"{_first_of(route, f'any-{number}')} says" for number in range(20)]


def test_a_replay_keeps_the_choice_although_another_one_would_be_made_now():
    call = ModelCall("c", "refund", '{"order_id": "A"}')
    big = ScriptedModel([outage(), call], "done by big", name="big")
    small = ScriptedModel(call, "done by small", name="small")
    loops = [ModelLoop(Route([big, small])), ModelLoop(Route([RouteModel(big, share=1.0, can=()), small]))]
    asked: list[int] = []

    @agent(run_id="kept-{text}", tools=[refund])
    async def support(run: Run, text: str) -> str:
        chat = Chat(run, loops[0], text)
        await chat.perform((await chat.turn()).calls)
        if len(loops) > 1:
            loops.pop(0)
            asked.append(len(big.asked) + len(small.asked))
            raise RuntimeError("the code stops here")
        asked.append(len(big.asked) + len(small.asked))
        return (await chat.turn()).text

    async def run() -> tuple[str, list[r.DecisionRecorded]]:
        async with Lab().app(support) as app:
            with pytest.raises(RuntimeError):
                await app.run(support, "x")
            result = await app.resume("kept-x")
            records = [one async for _, one in app.service.reader.records("kept-x")]
            return result, decisions(records)

    result, found = run_virtual(run())
    assert (result, asked) == ("done by small", [2, 2])
    assert [(one.model, one.why) for one in found] == [
        ("small", "big failed (unavailable): out of order"),
        ("small", "small is the first that can answer"),
    ]


# --- what a caller passes ---------------------------------------------------------------------------------------------


A, B = models("a", "b")


@pytest.mark.parametrize(
    ("wrong", "said", "advice"),
    [
        (lambda: Route([]), "has no list of models", "Route([big, small])"),
        (lambda: Route("gpt-5"), "Route('gpt-5') has no list of models", "Route([big, small])"),
        (lambda: Route(A), "has no list of models", "Route([big, small])"),
        (lambda: ModelLoop(Route([A, "b"])), "'b' is not a model", "OpenAIChat('b')"),
        (lambda: Route([A, object()]), "is not a model: it has no name", "RouteModel(model, name='eu')"),
        (lambda: Route([ScriptedModel]), "is not a model", "OpenAIChat('MODEL')"),
        (lambda: Route([A, RouteModel(A)]), "names the model 'a' twice", "name='eu'"),
        (lambda: Route([RouteModel(A, name=7)]), "the name 7 of a model is not text", "name='eu'"),
        (lambda: Route([RouteModel(ScriptedModel("x", name=""))]), "it has no name", "name='eu'"),
        (lambda: Route([A], prices={"a": 3}), "prices={'a': 3} is not a list of prices", "declared_prices"),
        (lambda: Route([RouteModel(A, can=None)]), "can=None is not a tuple", "can=('tools',)"),
        (lambda: Route([RouteModel(A, can=("tool",))]), "a: can names 'tool'", "did you mean 'tools'?"),
        (lambda: Route([RouteModel(A, can="tools")]), "can='tools' is not a tuple", "can=('tools',)"),
        (lambda: Route([RouteModel(A, after=("outage",))]), "a: after names 'outage'", "choose from: unavailable"),
        (lambda: Route([RouteModel(A, context=-1)]), "context=-1 is not a number of tokens", "give 0"),
        (lambda: Route([RouteModel(A, share=0)]), "share=0 is not a part", "0.05"),
        (lambda: Route([RouteModel(A, share=float("nan"))]), "share=nan is not a part", "0.05"),
        (lambda: Route([RouteModel(A, share=5), B]), "share=5 is not a part", "0.05"),
        (lambda: Route([RouteModel(A, share=0.5), RouteModel(B, share=0.4)]), "add up to 0.9", "add up to 1"),
        (lambda: Route([RouteModel(A, share=0.7), RouteModel(B, share=0.7)]), "add up to 1.4", "add up to 1"),
        (lambda: Route([RouteModel(A, below=1.5), B]), "below=1.5 is not a part of a budget", "0.05"),
        (lambda: Route([RouteModel(A, below=True), B]), "below=True is not a part of a budget", "0.05"),
        (lambda: Route([RouteModel(A, below=0.2, share=0.2), B]), "a has both share= and below=", "one"),
        (lambda: Route([A, B], prices=PRICES), "no price is known of: a, b", "a free model is 0"),
    ],
)
def test_a_route_that_contradicts_itself_is_refused_when_it_is_made(wrong, said: str, advice: str):
    with pytest.raises(UsageError) as refused:
        wrong()
    assert said in str(refused.value)
    assert refused.value.known == "the model was not asked"
    assert advice in refused.value.next_step


def test_prices_in_two_currencies_cannot_be_compared():
    class Two:
        basis = "two"

        def cost(self, used: Usage, at_ms: int) -> CallCost:
            return CallCost(Decimal(1), "EUR" if used.model == "a" else "USD", "two")

    with pytest.raises(UsageError, match="are in EUR and USD"):
        Route([A, B], prices=Two())


def test_the_same_model_at_two_places_has_two_names():
    route = Route([RouteModel(A, name="eu"), RouteModel(A, name="us")])
    assert route.name == "route of eu, us"
