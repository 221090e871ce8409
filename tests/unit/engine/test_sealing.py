"""A run instance that is torn down is sealed first: code that unwinds can do nothing."""

from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended, Sealed
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_cleanup_that_would_send_does_nothing_when_the_run_is_suspended(lab: Lab):
    cleaned: list[str] = []

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        if to == "ann":
            raise ConnectionResetError("dead")
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await send(name)
        except BaseException as end:
            cleaned.append(type(end).__name__)
            try:
                await send("from except")
            except Exception:  # noqa: BLE001 - the point: Sealed is not an Exception
                cleaned.append("swallowed")
            raise
        finally:
            await send("from finally")

    await lab.until_suspended(desk, "ann")
    assert lab.sent == ["ann"]
    assert cleaned == ["CancelledError"]
    assert [started.step for started in lab.of("r-ann", r.AttemptStarted)] == ["send#1"]


@virtual
async def test_every_door_of_a_sealed_run_is_closed(lab: Lab):
    tried: list[str] = []

    @tool(effect="read")
    async def look() -> int:
        lab.sent.append("look")
        return 1

    async def rule() -> int:
        lab.sent.append("rule")
        return 1

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        doors = {
            "read": look,
            "decide": lambda: run.decide(rule),
            "now": run.now,
            "sleep": lambda: run.sleep(timedelta(seconds=1)),
            "wait_for": lambda: run.wait_for("event"),
            "call": lambda: run.call("look", {}),
        }
        try:
            await run.wait_for("never")
        finally:
            for door, opened in doors.items():
                try:
                    await opened()
                except Sealed:
                    tried.append(door)
            try:
                async with run.timeout(timedelta(seconds=1)):
                    tried.append("inside")
            except Sealed:
                tried.append("timeout")

    await lab.until_suspended(desk, "ann")
    assert tried == ["read", "decide", "now", "sleep", "wait_for", "call", "timeout"]
    assert lab.sent == []


@virtual
async def test_shutting_down_seals_lets_the_call_end_and_records_it(lab: Lab):
    @tool
    async def send(to: str) -> str:
        await lab.pass_time(seconds=5)
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return await send(name)
        finally:
            await send("cleanup")

    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=1)
    with pytest.raises(RunSuspended, match="the process shuts down"):
        await handle.result()
    assert lab.sent == ["ann"]
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "ann"
    assert lab.sent == ["ann", "cleanup"]
