"""`run.facts` and the production loop: journaled, the same on replay, and small."""

import ast
import asyncio
import inspect
from datetime import timedelta

import pytest

from beforehand import Deferred, Key, Rejected, Run, agent, current_operation, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import RunSuspended, StaleFacts, UsageError
from beforehand.knowledge import production_loop
from beforehand.model import records as r
from beforehand.observation import Guess, Stakes
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_what_is_cheap_to_ask_is_asked_and_replay_remembers_the_rest(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[object]:
        guess = Guess(lab.clock.wall_ms(), 0.95, "calendar")
        origin = await run.facts.ask_or_infer("origin", "From where?", guess=guess)
        airport = await run.facts.ask_or_infer(
            "airport", "Which airport?", guess=Guess("JFK", 0.5, "history"), stakes=Stakes(asking=1, error=5)
        )
        return [origin.inferred, origin.value, airport.inferred, airport.value]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="Which airport"):
            await app.run(desk, "ann")
        guessed = lab.clock.wall_ms()
        await lab.pass_time(hours=1)
        await app.service.answer("r-ann/ask#1", "LGA", by="bea")
        assert await app.run(desk, "ann") == [True, guessed, False, "LGA"]


@virtual
async def test_a_fact_that_is_too_old_has_to_be_read_again(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[bool]:
        await run.facts.learn("fare", 300, source="search")
        young = await run.facts.fresh("fare", timedelta(minutes=1))
        await run.sleep(timedelta(seconds=20))
        await run.sleep(timedelta(seconds=50))
        old = await run.facts.fresh("fare", timedelta(minutes=1))
        return [young is not None, old is not None, await run.facts.fresh("hotel", timedelta(days=1)) is None]

    async with lab.app(desk, recover=True) as app:
        try:
            result = await app.run(desk, "ann")
        except RunSuspended:
            await lab.pass_time(minutes=2)
            result = await app.run(desk, "ann")
    assert result == [True, False, True]


@virtual
async def test_where_nobody_answers_in_time_the_guess_is_taken_and_says_so(lab: Lab):
    hasty = Stakes(asking=1, error=9, within=timedelta(minutes=5))

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[object]:
        guessed = await run.facts.ask_or_infer("airport", "Which?", guess=Guess("JFK", 0.5, "history"), stakes=hasty)
        try:
            await run.facts.ask_or_infer("day", "When?", stakes=hasty)
        except TimeoutError:
            return [guessed.value, guessed.inferred, guessed.source, run.facts.get("day")]
        return []

    told = ["JFK", True, "history; no answer came in time", None]
    async with lab.app(desk, hold_ms=3_600_000) as app:
        assert await app.run(desk, "ann") == told
        assert await app.run(desk, "ann") == told


@virtual
async def test_a_fact_that_cannot_be_recorded_is_refused(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        refused: list[str] = []
        for bad, value, sure in (("a/b", 1, 1.0), ("", 1, 1.0), ("x", object(), 1.0), ("x", 1, 7.0)):
            try:
                await run.facts.learn(bad, value, source="test", confidence=sure)
            except UsageError as error:
                refused.append(error.message)
        return [*refused, *run.facts.values()]

    async with lab.app(desk) as app:
        refused = await app.run(desk, "ann")
    assert [text.split(" ")[0] for text in refused] == ["'a/b'", "''", "the", "the"]


def test_the_production_loop_fits_on_a_page():
    tree = ast.parse(inspect.getsource(production_loop))
    loop = next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "ProductionLoop")
    assert loop.end_lineno is not None
    assert loop.end_lineno - loop.lineno + 1 <= 60


@virtual
async def test_what_a_tool_changed_besides_is_known_with_its_source_and_age_and_on_replay(lab: Lab):
    @tool(idempotency=Key.forever())
    async def order(sku: str) -> str:
        current_operation().report(f"stock of {sku}", 3)
        await asyncio.sleep(40)
        return "O-1"

    @tool(effect="read")
    async def fares() -> int:
        current_operation().report("fares", 200)
        return 200

    seen: list[object] = []

    @agent(run_id="r-{name}", tools=[order, fares])
    async def desk(run: Run, name: str) -> object:
        outcome = await order.outcome("A-1")
        await fares()
        stock, fare = run.facts.get("stock of A-1"), run.facts.get("fares")
        assert stock is not None
        assert fare is not None
        seen.append((stock, fare, outcome.facts))
        return await run.ask("Go on?")

    async with lab.app(desk) as app:
        began = lab.clock.wall_ms()
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.answer("r-ann/ask#1", "yes", by="bea")
        assert await app.run(desk, "ann") == "yes"
    first, again = seen
    assert first == again
    stock, fare, told = first
    assert (stock.value, stock.source, stock.operation, stock.inferred) == (3, "order", "r-ann/order#1", False)
    assert stock.at_ms == began, "a fact is as old as the beginning of the call that said it"
    assert (fare.value, fare.source, fare.at_ms) == (200, "fares", began + 40_000)
    assert told == {"stock of A-1": 3}


@virtual
async def test_a_report_corrects_what_was_inferred_and_says_what_relied_on_it(lab: Lab):
    @tool
    async def sell(sku: str) -> str:
        current_operation().report("stock", 0)
        raise Rejected("sold out")

    @agent(run_id="r-{name}", tools=[sell])
    async def desk(run: Run, name: str) -> object:
        await run.facts.learn("stock", 5, source="the catalogue")
        await run.facts.learn("ships today", value=True, source="a guess", inferred_from=["stock"])
        run.facts.rely("promise", "ships today")
        run.facts.executed("promise")
        refused = await sell.outcome("A-1")
        (correction,) = run.facts.corrections
        return [refused.status, correction.invalidated, correction.executed, run.facts.values()]

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == ["failed", ["ships today"], ["promise"], {"stock": 0}]


@virtual
async def test_a_decision_may_demand_that_what_it_stands_on_is_fresh(lab: Lab):
    asked: list[int] = []

    async def choose(fare: int) -> str:
        asked.append(fare)
        return "book"

    @tool(effect="read")
    async def fares() -> int:
        current_operation().report("fare", 100 + len(asked))
        return 0

    @agent(run_id="r-{name}", tools=[fares])
    async def desk(run: Run, name: str) -> list[str]:
        young = run.options(fresh={"fare": timedelta(minutes=5)})
        said: list[str] = []
        for pause in (0, 0, 10):
            await run.sleep(timedelta(minutes=pause))
            try:
                fare = run.facts.get("fare")
                said.append(await young.decide(choose, 0 if fare is None else fare.value))
            except StaleFacts as stale:
                said.append(str(stale.names))
                await fares()
        return said

    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == ["('fare',)", "book", "('fare',)"]
    assert asked == [100]


@virtual
async def test_what_a_held_effect_reports_is_known_after_the_commit_also_on_replay(lab: Lab):
    @tool(idempotency=Key.forever())
    async def mail(to: str) -> str:
        current_operation().report("mails left", 7)
        return "sent"

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> list[object]:
        async with run.transaction("mailing") as mailing:
            await mailing.on_commit(mail, name)
            before = run.facts.get("mails left")
        after = run.facts.get("mails left")
        return [before, after and after.value, await run.ask("Go on?")]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.answer("r-ann/ask#1", "yes", by="bea")
        assert await app.run(desk, "ann") == [None, 7, "yes"]


@virtual
async def test_what_an_accepted_call_reported_is_known_when_its_answer_came_and_a_model_hears_it_at_once(lab: Lab):
    @tool(idempotency=Key.forever())
    async def refund(order: str) -> str:
        current_operation().report("under way", current_operation().key[:3])
        raise Deferred(key=f"bank-{order}")

    heard: list[object] = []

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> list[object]:
        told = await run.call("refund", {"order": "A"})
        first = run.facts.get("under way")
        heard.append((told.facts, first))
        await refund("B")
        second = run.facts.get("under way")
        assert second is not None
        return [told.status, second.operation]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("bank-A", ArrivedAnswer("m1", result=r.Raw(b'"R-1"')))
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("bank-B", ArrivedAnswer("m2", result=r.Raw(b'"R-2"')))
        assert await app.run(desk, "ann") == ["pending", "r-ann/refund#2"]
    assert len(heard) == 3
    assert heard[0] == heard[1] == heard[2]
    facts, fact = heard[0]
    assert facts == {"under way": "bh-"}
    assert fact.operation == "r-ann/refund#1"
