"""Agent code that catches what is raised to end it: other runs go on, it is left where it is, and the app closes."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunStopped, RunSuspended
from tests.unit.engine.lab import Lab, virtual

Swallows = Callable[..., Coroutine[Any, Any, None]]


async def in_a_loop(run: Run, step: Callable[[], Awaitable[object]]) -> None:
    ended = False
    while True:
        try:
            await (step() if ended else run.wait_for("never"))
        except BaseException:  # noqa: BLE001 - the fault under test
            ended = True


async def in_a_finally(run: Run, step: Callable[[], Awaitable[object]]) -> None:
    try:
        await run.wait_for("never")
    finally:
        while True:
            try:
                await step()
            except BaseException:  # noqa: BLE001 - the fault under test
                continue


async def in_a_branch(run: Run, step: Callable[[], Awaitable[object]]) -> None:
    await run.gather(run.wait_for("never"), in_a_loop(run, step))


async def in_a_task(run: Run, step: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(in_a_loop(run, step))


async def without_a_step(run: Run, step: Callable[[], Awaitable[object]]) -> None:
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(3600)


STEPS = ("write", "read", "now", "decide", "call", "sleep", "ask", "transaction", "timeout", "messages")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("swallows", [in_a_loop, in_a_finally, in_a_branch, in_a_task, without_a_step])
@virtual
async def test_code_that_swallows_its_end_stops_no_other_run(
    lab: Lab, caplog: pytest.LogCaptureFixture, swallows: Swallows, step: str
):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    @tool(effect="read")
    async def look() -> int:
        return 1

    async def rule() -> int:
        return 1

    async def transacts(run: Run) -> None:
        async with run.transaction("all"):
            await run.now()

    async def limited(run: Run) -> None:
        async with run.timeout(timedelta(hours=1)):
            await run.now()

    @agent(run_id="bad-{name}", tools=[send, look])
    async def bad(run: Run, name: str) -> None:
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "write": lambda: send(name), "read": look, "now": run.now, "decide": lambda: run.decide(rule),
            "call": lambda: run.call("look", {}), "sleep": lambda: run.sleep(timedelta(seconds=1)),
            "ask": lambda: run.ask("?"), "transaction": lambda: transacts(run), "timeout": lambda: limited(run),
            "messages": run.messages,
        }  # fmt: skip
        await swallows(run, steps[step])

    @agent(run_id="good-{name}", tools=[send])
    async def good(run: Run, name: str) -> str:
        await run.sleep(timedelta(seconds=90))
        return await send(name)

    async with lab.app(bad, good, hold_ms=10**8, grace_ms=5000, poll_ms=500) as app:
        driving = app.start(bad, "ann")
        other = app.start(good, "bob")
        await lab.pass_time(seconds=1)
        if swallows is without_a_step:
            await app.service.cancel("bad-ann", by="eve")
        assert await other.result() == "bob"
        with pytest.raises((RunStopped, RunSuspended)):
            await driving.result()
    (said,) = {record.getMessage() for record in caplog.records if record.levelno == logging.WARNING}
    assert re.search(rf"{re.escape(__file__)}:\d+ in \w+,", said)
    assert "bad-ann" in said
    assert lab.sent[-1] == "bob"
