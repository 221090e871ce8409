"""A run that another process took over: what the former owner still knows about its calls reaches the new one."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Ambiguous, Key, Natural, Run, agent, current_operation, tool
from beforehand.errors import OperationFailed, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

MINUTE = timedelta(minutes=1)


@virtual
async def test_how_the_call_of_a_lost_run_ended_reaches_the_one_who_has_it(lab: Lab):
    """Another process took the run over; the call in this one is left by its caller, and returns all the same."""

    @tool(timeout=5 * MINUTE)
    async def send(to: str) -> str:
        lab.sent.append(to)
        await lab.pass_time(seconds=90)
        return "sent"

    @tool
    async def note(text: str) -> str:
        return text

    @agent(run_id="r-{name}", tools=[send, note])
    async def desk(run: Run, name: str) -> str:
        call = asyncio.create_task(send(name))
        await asyncio.sleep(60)
        call.cancel()
        await asyncio.wait({call})
        return await note("what was left has an outcome")

    async with lab.app(desk) as stale, lab.app(desk) as fresh:
        assert stale.engine._beating is not None
        stale.engine._beating.cancel()
        before = stale.start(desk, "ann")
        await lab.pass_time(seconds=30)
        with contextlib.suppress(RunSuspended):
            await fresh.run(desk, "ann")
        await lab.pass_time(seconds=90)
        assert await fresh.run(desk, "ann") == "what was left has an outcome"
        await asyncio.gather(before.result(), return_exceptions=True)
    assert lab.sent == ["ann"]
    assert [(report.number, report.end.kind) for report in lab.of("r-ann", r.LateReport)] == [(1, "returned")]


@pytest.mark.parametrize("clauses", [{}, {"idempotency": Key.forever(), "claim": "to"}], ids=["plain", "business key"])
@virtual
async def test_a_call_that_returns_to_a_former_owner_is_known_to_the_new_one(lab: Lab, clauses: dict[str, Any]):
    """It cannot record the outcome any more, and says how the call ended."""

    @tool(timeout=5 * MINUTE, **clauses)
    async def send(to: str) -> str:
        lab.sent.append(f"{to} {current_operation().key[-4:]}")
        await lab.pass_time(seconds=90 if len(lab.sent) == 1 else 200)
        return "sent"

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as stale, lab.app(desk) as fresh:
        assert stale.engine._beating is not None
        stale.engine._beating.cancel()
        before = stale.start(desk, "ann")
        await lab.pass_time(seconds=30)
        after = fresh.start(desk, "ann")
        await lab.pass_time(seconds=90)
        reports = lab.of("r-ann", r.LateReport)
        await asyncio.gather(before.result(), after.result(), return_exceptions=True)
        assert await fresh.run(desk, "ann") == "sent"
    assert [(report.number, report.end.kind) for report in reports] == [(1, "returned")]
    assert len(set(lab.sent)) == 1


@virtual
async def test_a_call_that_was_never_begun_is_known_not_to_have_been_sent(lab: Lab):
    """The run was lost, and its caller left, while the intent was on its way to the journal."""

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return "sent"

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        lab.processes[0].lag_s = 20
        call = asyncio.create_task(send(name))
        await asyncio.sleep(10)
        call.cancel()
        await asyncio.wait({call})
        return await send("bob")

    async with lab.app(desk, lease_ms=3_000, margin_ms=500) as stale, lab.app(desk, lease_ms=3_000) as fresh:
        assert stale.engine._beating is not None
        stale.engine._beating.cancel()
        before = stale.start(desk, "ann")
        await lab.pass_time(seconds=6)
        with contextlib.suppress(RunSuspended):
            await fresh.run(desk, "ann")
        await lab.pass_time(minutes=5)
        with contextlib.suppress(RunSuspended, OperationFailed):
            await fresh.run(desk, "ann")
        await asyncio.gather(before.result(), return_exceptions=True)
    reports = [one for one in lab.of("r-ann", r.LateReport) if one.step == "~1/send#1"]
    assert [(report.number, report.end.kind) for report in reports] == [(1, "not_sent")]
    assert "ann" not in lab.sent


@virtual
async def test_the_result_is_that_of_the_attempt_which_returned(lab: Lab):
    """The new owner has tried again meanwhile, and got no answer."""

    @tool(
        timeout=5 * MINUTE, idempotency=Natural(within=60 * MINUTE), retry=Retry(attempts=50, base=MINUTE, cap=MINUTE)
    )
    async def send(to: str) -> str:
        lab.sent.append(to)
        if current_operation().attempt > 1:
            raise Ambiguous("no answer")
        await lab.pass_time(seconds=90)
        return "the first one"

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as stale, lab.app(desk, hold_ms=10**9) as fresh:
        assert stale.engine._beating is not None
        stale.engine._beating.cancel()
        before = stale.start(desk, "ann")
        await lab.pass_time(seconds=30)
        assert await fresh.run(desk, "ann") == "the first one"
        await asyncio.gather(before.result(), return_exceptions=True)
    assert len(lab.sent) > 1
