"""What a call says after it was given up: its run goes on at once, and a contradiction opens a review."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run, agent, current_operation, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


def slow(lab: Lab) -> Any:
    """An agent whose call is given up after 5 seconds, and returns 10 seconds later."""

    @tool(timeout=timedelta(seconds=5))
    async def send(to: str) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await lab.pass_time(seconds=60)
        await lab.pass_time(seconds=10)
        return "sent"

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        pause = asyncio.create_task(run.sleep(timedelta(seconds=25)))
        outcome = await send.outcome(name)
        at = lab.loop.time()
        await pause
        return f"{outcome.status} at {at:.0f}"

    return desk


@virtual
async def test_a_late_return_lets_its_run_go_on_at_once(lab: Lab):
    desk = slow(lab)
    async with lab.app(desk, slice_ms=10**8, poll_ms=10**8) as app:
        assert await app.run(desk, "ann") == "succeeded at 15"


@virtual
async def test_a_late_return_against_a_persons_word_opens_a_review(lab: Lab):
    desk = slow(lab)
    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=8)
        await app.service.resolve("r-ann/send#1", "did_not_happen", by="eve")
        assert (await handle.result()).startswith("failed")
        await lab.pass_time(seconds=20)
        assert len(await app.service.reader.contradictions()) == 1


@virtual
async def test_what_a_call_said_is_part_of_its_late_return(lab: Lab):
    @tool(timeout=timedelta(seconds=5))
    async def send(to: str) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await lab.pass_time(seconds=60)
        await lab.pass_time(seconds=10)
        current_operation().report("receipt", "R-1")
        current_operation().pending("seat", within=timedelta(hours=1), key="seat-1")
        return "sent"

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> list[str]:
        pause = asyncio.create_task(run.sleep(timedelta(seconds=25)))
        outcome = await send.outcome(name)
        await pause
        return [outcome.status, *outcome.pending]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="seat-1"):
            await app.run(desk, "ann")
        await app.service.deliver("seat-1", ArrivedAnswer("m1", result=r.Raw(b'"12A"')))
        assert await app.run(desk, "ann") == ["succeeded", "seat"]
    report = lab.of("r-ann", r.LateReport)[0]
    assert [one.name for one in report.end.facts] == ["receipt"]
