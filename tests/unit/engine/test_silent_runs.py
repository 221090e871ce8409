"""A run whose code waits for something that never comes is named in the log, with the line at which it waits."""

import asyncio
import logging
from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from tests.unit.engine.lab import Lab, virtual


@tool
async def send(to: str) -> str:
    return to


@agent(run_id="r-{name}")
async def stuck(run: Run, name: str) -> str:
    await send(name)
    if name == "sleeps":
        await run.sleep(timedelta(hours=1))
    else:
        await asyncio.sleep(3600)  # outside the runtime's sight
    return await send("done")


@pytest.mark.parametrize(("name", "named"), [("hangs", True), ("sleeps", False)])
@virtual
async def test_code_that_makes_no_step_is_named_once(
    lab: Lab, caplog: pytest.LogCaptureFixture, name: str, *, named: bool
):
    caplog.set_level(logging.WARNING, "beforehand")
    async with lab.app(stuck, silent_ms=600_000, hold_ms=4_000_000) as app:
        running = app.start(stuck, name)
        await lab.pass_time(minutes=9)
        assert not caplog.messages
        await lab.pass_time(minutes=40)
        (said,) = caplog.messages or [""]
        assert ("r-hangs: its code has made no step for 6" in said) is named
        assert ("test_silent_runs.py" in said and "in stuck" in said) is named
        await lab.pass_time(minutes=20)
        assert await running.result() == "done"
