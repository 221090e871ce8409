"""Shadow calls: a further model is asked beside decisions. Its answer is recorded, compared, and never used."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import Run, agent
from holdfast.errors import DecisionFailed, RunSuspended
from holdfast.inspect.costs import CostReport, costs
from holdfast.inspect.prices import Prices, declared_prices
from holdfast.inspect.shadows import ShadowComparison, compare_shadows
from holdfast.journal.entry_codec import values_in
from holdfast.loop import ModelCall, ModelLoop, ModelReply, ModelRequest, Route, RouteModel
from holdfast.loop.route import MOST_SHADOWS
from holdfast.model.shadow_calls import ANSWERS, CALLS, ShadowAnswered, ShadowAsked, agreement
from holdfast.model.usage import Usage
from holdfast.testing import run_virtual
from holdfast.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab
from tests.unit.loop.test_route import outage, refund
from tests.unit.loop.test_route_figures import Timed

CALL = ModelCall("c1", "refund", '{"order_id": "A"}')
PRICES = declared_prices(
    {"models": {"big": {"input": 3, "output": 15}, "cheap": {"input": 1, "output": 2}}}, "my prices"
)


def big(*answers: Any) -> ScriptedModel:
    return ScriptedModel(*(answers or ("big says",)), name="big")


def shadowed(shadow: object, *answers: Any, share: float = 1, **more: Any) -> ModelLoop:
    return ModelLoop(Route([big(*answers), RouteModel(shadow, shadow=share)], **more))


class Seen:
    """The entries of shadow calls after some runs, and the comparison."""

    asked: list[ShadowAsked]
    costs: CostReport
    answered: list[ShadowAnswered]
    compared: list[ShadowComparison]


async def talked(loop: ModelLoop, *texts: str, wait: float = 60) -> Seen:
    """What is on record after these runs, one after the other, and some time after the last."""

    @agent(run_id="shadow-{text}", tools=[refund])
    async def support(run: Run, text: str) -> str:
        return await loop(run, text)

    found = Seen()
    async with Lab().app(support) as app:
        for text in texts:
            await app.run(support, text)
        await asyncio.sleep(wait)
        reader = app.service.reader
        found.asked = await values_in(reader.journal, CALLS, ShadowAsked)
        found.answered = await values_in(reader.journal, ANSWERS, ShadowAnswered)
        found.compared = await compare_shadows(reader, Prices(PRICES))
        found.costs = await costs(reader, Prices(PRICES), "agent")
    return found


def seen(loop: ModelLoop, *texts: str, wait: float = 60) -> Seen:
    return run_virtual(talked(loop, *texts, wait=wait))


def test_a_shadow_is_asked_beside_each_turn_and_its_answer_is_recorded_and_never_used():
    cheap = ScriptedModel(*[ModelReply("cheap says", usage=Usage(20, 4))] * 2, name="cheap")
    used = (ModelReply("", (CALL,), "calls", Usage(100, 10)), ModelReply("done", usage=Usage(200, 10)))
    found = seen(shadowed(cheap, *used), "x")
    assert [(one.step, one.model, one.agent) for one in found.asked] == [
        ("turn/model#1", "cheap", "support"), ("turn#2/model#1", "cheap", "support"),
    ]  # fmt: skip
    assert [(one.usage.input_tokens, one.usage.model, one.code) for one in found.answered] == [(20, "cheap", "")] * 2
    assert all(b"cheap says" in bytes(one.answer) for one in found.answered)
    (pair,) = found.compared
    assert (pair.model, pair.shadow_model, pair.calls) == ("big", "cheap", 2)
    assert pair.agreement == {"differ": 1, "words": 1}
    assert pair.differing == ["shadow-x/turn/model#1"]
    assert (pair.used.tokens, pair.shadow.tokens) == (320, 48)
    assert pair.used.cost == {"USD": Decimal("0.0012")}
    assert pair.shadow.cost == {"USD": Decimal("0.000056")}


def test_a_shadow_answers_no_question_even_where_it_is_listed_first_and_the_others_fail():
    cheap = ScriptedModel("cheap says", name="cheap")
    failing = ScriptedModel(outage("refused"), name="big")
    with pytest.raises(DecisionFailed, match="big: out of order"):
        seen(ModelLoop(Route([RouteModel(cheap, shadow=1, after=("refused",)), failing])), "x")
    assert len(cheap.asked) == 1, "beside the first try only"


def test_a_shadow_counts_in_the_costs_under_its_own_name():
    found = seen(shadowed(ScriptedModel(ModelReply("hm", usage=Usage(20, 4)), name="cheap")), "x")
    lines = {line.name: (line.calls, line.tokens) for line in found.costs.lines}
    assert lines["cheap (shadow)"] == (1, 24)
    assert set(lines) == {"support", "cheap (shadow)"}


def test_a_slow_shadow_delays_no_run_and_is_recorded_after_it():
    slow = Timed("cheap", 30)
    loop = shadowed(slow)

    async def run() -> tuple[float, Seen]:
        began = asyncio.get_running_loop().time()
        task = asyncio.create_task(talked(loop, "x", wait=40))
        found = await task
        return asyncio.get_running_loop().time() - began, found

    took, found = run_virtual(run())
    assert took < 45, "the run itself took no time"
    assert [one.ms for one in found.answered] == [30_000]
    assert found.compared[0].shadow_ms == 30_000


@pytest.mark.parametrize("fault", [outage(), KeyError("a bug"), ModelReply("", stop="end")])
def test_a_shadow_that_fails_fails_no_run(fault: Any):
    found = seen(shadowed(ScriptedModel(fault, name="cheap")), "x")
    (one,) = found.answered
    assert bytes(one.answer) == b"null"
    assert one.reason
    assert found.compared[0].failed == {one.code or "other": 1}


def test_a_shadow_has_the_time_limit_of_the_decision():
    loop = ModelLoop(Route([big(), RouteModel(Timed("cheap", 900), shadow=1)]), timeout=timedelta(seconds=7))
    (one,) = seen(loop, "x").answered
    assert (one.ms, one.code) == (7000, "unavailable")


def test_a_shadow_whose_breaker_is_open_is_not_asked():
    cheap = ScriptedModel(outage("rate_limited", 60), name="cheap")
    found = seen(shadowed(cheap), *"abc", wait=1)
    assert (len(cheap.asked), len(found.asked)) == (1, 1)


def test_only_a_share_of_the_decisions_is_shadowed_the_same_on_every_machine():
    def drawn() -> list[str]:
        cheap = ScriptedModel("hm", name="cheap")
        return [one.run for one in seen(shadowed(cheap, share=0.3), *map(str, range(40)), wait=1).asked]

    assert drawn() == drawn()
    assert 4 <= len(drawn()) <= 22


def test_a_shadow_that_cannot_answer_the_question_is_not_asked():
    plain = ScriptedModel("hm", name="cheap")
    route = Route([big(), RouteModel(plain, shadow=1, can=("schema",))])
    assert not seen(ModelLoop(route), "x").asked


def test_no_more_shadows_than_a_bound_are_in_flight():
    slow = Timed("cheap", 10_000)
    loop = shadowed(slow)

    @agent(run_id="many-{text}")
    async def many(run: Run, text: str) -> str:
        return await loop(run, text)

    async def run() -> None:
        async with Lab().app(many) as app:
            await asyncio.gather(*(app.run(many, str(number)) for number in range(MOST_SHADOWS + 10)))
            await asyncio.sleep(1)

    run_virtual(run())
    assert slow.calls == MOST_SHADOWS


def test_a_run_that_is_cancelled_ends_its_shadow():
    slow, ended = Timed("cheap", 60), list[str]()
    stuck = Timed("big", 3600)

    class Watched:
        name = "cheap"

        async def answer(self, request: ModelRequest, on_text: object) -> ModelReply:
            try:
                return await slow.answer(request, on_text)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    loop = ModelLoop(Route([stuck, RouteModel(Watched(), shadow=1)]))

    @agent(run_id="cancelled-{text}")
    async def support(run: Run, text: str) -> str:
        return await loop(run, text)

    async def run() -> ShadowComparison:
        async with Lab().app(support) as app:
            task = asyncio.create_task(app.run(support, "x"))
            await asyncio.sleep(1)
            await app.service.cancel("cancelled-x", by="anna")
            await asyncio.wait({task}, timeout=30)
            task.exception()
            await asyncio.sleep(1)
            assert ended == ["cancelled"]
            (pair,) = await compare_shadows(app.service.reader, Prices(PRICES))
            return pair

    pair = run_virtual(run())
    assert (pair.model, pair.calls, pair.unanswered) == ("?", 1, 1)


def test_a_replay_asks_no_shadow_and_a_second_process_asks_none_again():
    """The process dies in the shadow call, and the run waits: its next owner replays the turn."""
    slow = Timed("cheap", 3600)
    loop = shadowed(slow)

    @agent(run_id="again-{text}")
    async def support(run: Run, text: str) -> str:
        said = await loop(run, text)
        return f"{said} {await run.wait_for('go', text)}"

    async def run() -> tuple[str, list[ShadowAsked], list[ShadowAnswered]]:
        lab = Lab()
        async with lab.app(support) as app:
            with pytest.raises(RunSuspended):
                await app.run(support, "x")
        async with lab.app(support) as app:
            await app.service.signal("again-x", "go", key="x", payload="on")
            result = await app.run(support, "x")
            journal = app.service.reader.journal
            return (
                result,
                await values_in(journal, CALLS, ShadowAsked),
                await values_in(journal, ANSWERS, ShadowAnswered),
            )

    result, asked, answered = run_virtual(run())
    assert result == "big says on"
    assert (slow.calls, len(asked), answered) == (1, 1, [])


def test_any_function_has_shadows():
    route = Route(["big", RouteModel("cheap", shadow=1)])

    @agent(run_id="any-{text}")
    async def own(run: Run, text: str) -> str:
        async def complete(model: str, question: str) -> dict[str, str]:
            return {"rule": "pay" if model == "big" else "refuse"}

        async def ruled(question: str) -> dict[str, str]:
            return await route.call(complete, question)

        return (await run.decide(ruled, text))["rule"]

    async def run() -> tuple[str, ShadowComparison]:
        async with Lab().app(own) as app:
            result = await app.run(own, "x")
            await asyncio.sleep(1)
            (pair,) = await compare_shadows(app.service.reader, Prices())
            return result, pair

    result, pair = run_virtual(run())
    assert (result, pair.model, pair.shadow_model, pair.agreement) == ("pay", "big", "cheap", {"words": 1})
    assert pair.shadow.uncounted == 1


PYDANTIC = {"parts": [{"part_kind": "tool-call", "tool_name": "pay", "args": {"what": "A", "cents": 5}}]}
LANGCHAIN = {
    "messages": [
        {
            "data": {
                "tool_calls": [{"name": "pay", "args": {"cents": 5, "what": "A"}, "id": "1"}],
                "additional_kwargs": {"tool_calls": [{"function": {"name": "pay", "arguments": "{}"}}]},
            }
        }
    ]
}
OPENAI = {"output": [{"type": "function_call", "name": "pay", "arguments": '{"what": "A", "cents": 5}'}]}
READY = {"calls": [{"id": "7", "tool": "pay", "arguments": '{"cents":5,"what":"A"}'}], "stop": "calls"}


@pytest.mark.parametrize("one", [PYDANTIC, LANGCHAIN, OPENAI, READY])
@pytest.mark.parametrize("other", [PYDANTIC, LANGCHAIN, OPENAI, READY])
def test_the_calls_of_every_host_are_compared(one: Any, other: Any):
    assert agreement(one, other) == "same"


def test_agreement_is_about_tools_then_arguments_then_words():
    other = {"calls": [{"id": "1", "tool": "pay", "arguments": '{"what": "B"}'}]}
    assert agreement(READY, other) == "arguments"
    assert (
        agreement({"calls": [{"id": "1", "tool": "pay"}]}, {"calls": [{"id": "2", "tool": "pay", "arguments": ""}]})
        == "same"
    )
    assert agreement(READY, {"calls": [*READY["calls"], *READY["calls"]]}) == "differ"
    assert agreement(READY, {"text": "no"}) == "differ"
    assert (
        agreement({"text": "it is  on its way"}, {"text": "it is on its way", "usage": {"input_tokens": 3}}) == "same"
    )
    assert agreement({"text": "yes"}, {"text": "no"}) == "words"
    assert agreement(READY, {"calls": [{"id": "1", "tool": "pay", "arguments": "{not json"}]}) == "arguments"
