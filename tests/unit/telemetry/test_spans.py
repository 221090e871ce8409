"""Spans as tables: which record begins and ends each, and a wall clock that is set back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from beforehand import Run, RunSuspended, agent, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred
from beforehand.model import records as r
from beforehand.telemetry.spans import RunSpans
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_deferred import DAY, booking, result
from tests.unit.telemetry.tracing import Traced, text


@pytest.mark.parametrize(("began", "ended", "shown"), [(1000, 1500, 1500), (1000, 1000, 1000), (1000, 400, 1000)])
def test_a_span_never_ends_before_it_begins(began: int, ended: int, shown: int):
    spans = RunSpans("r-ann")
    spans.add(r.DecisionStarted(step="ask#1", function="ask", at=began, up=0))
    (span,) = spans.add(r.DecisionStarted(step="ask#1", function="ask", number=2, at=ended, up=0))
    assert (span.start_ms, span.end_ms) == (began, shown)


@virtual
async def test_a_call_that_is_answered_later_is_an_attempt_and_a_wait(lab: Lab):
    desk, traced = booking(lab), Traced()
    async with lab.app(desk, telemetry=traced.follower()) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    await lab.pass_time(hours=3)
    async with lab.app(desk, telemetry=traced.follower()) as app:
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert await app.run(desk, "ann") == "room 12"
    attempt, wait = traced.one("execute_tool book"), traced.one("wait book")
    assert attempt.end_time - attempt.start_time < 10**9
    assert (wait.end_time - wait.start_time) // 10**9 == 3 * 3600
    assert (text(attempt, "beforehand.attempt.end"), text(wait, "beforehand.reason")) == ("deferred", "deferred")


@virtual
async def test_a_call_of_which_a_model_is_told_that_it_is_pending_waits_until_it_is_answered(lab: Lab):
    """The model goes on at once, and the call waits on."""

    @tool
    async def book(room: str) -> str:
        raise Deferred("the hotel confirms by mail", within=DAY, key="B-7")

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        told = await run.call("book", {"room": name})
        await run.sleep(timedelta(hours=2))
        return told.status

    traced = Traced()
    async with lab.app(desk, telemetry=traced.follower()) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert traced.spans("wait book") == []
        await lab.pass_time(hours=3)
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert await app.run(desk, "ann") == "pending"
    wait = traced.one("wait book")
    assert (wait.end_time - wait.start_time) // 10**9 == 3 * 3600
