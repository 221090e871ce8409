"""Durable time: sleeps, events and time limits survive the process, and end at the same point on replay."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended, UsageError
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


def slow_write(lab: Lab, seconds: int):
    @tool
    async def send(to: str) -> str:
        await lab.pass_time(seconds=seconds)
        lab.sent.append(to)
        return to

    return send


@virtual
async def test_a_short_sleep_keeps_the_process_and_a_long_one_does_not(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.sleep(timedelta(seconds=20))
        await run.sleep(timedelta(minutes=5))
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="run r-ann sleeps"):
            await app.run(desk, "ann")
        row = await app.service.row("r-ann")
        assert row.due_ms == lab.clock.wall_ms() + 300_000
        await lab.pass_time(minutes=5)
        assert await app.run(desk, "ann") == "done"
    assert [fired.step for fired in lab.of("r-ann", r.TimerFired)] == ["sleep#1", "sleep#2"]


@virtual
async def test_a_sleeping_run_is_driven_when_it_is_due(lab: Lab):
    send = slow_write(lab, 0)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.sleep(timedelta(hours=2))
        return await send(name)

    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=2, seconds=10)
        assert lab.sent == ["ann"]
        assert (await app.service.row("r-ann")).status == "completed"


@virtual
async def test_an_event_that_came_early_is_kept_and_each_is_taken_once(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[object]:
        await run.sleep(timedelta(minutes=5))
        return [await run.wait_for("paid", "17"), await run.wait_for("paid", "17")]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.signal("r-ann", "paid", key="17", payload={"cents": 1}, once="m1")
        again = await app.service.signal("r-ann", "paid", key="17", payload={"cents": 9}, once="m1")
        assert not again.fresh
        await app.service.signal("r-ann", "paid", key="18", payload="another order")
        await lab.pass_time(minutes=5)
        with pytest.raises(RunSuspended, match=r"waits for paid 17\.(.|\n)*beforehand signal r-ann paid --key 17$"):
            await app.run(desk, "ann")
        await app.service.signal("r-ann", "paid", key="17", payload={"cents": 2})
        assert await app.run(desk, "ann") == [{"cents": 1}, {"cents": 2}]


@virtual
async def test_an_event_wakes_a_run_that_is_being_driven(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> object:
        return await run.wait_for("go", timeout=timedelta(seconds=20))

    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=5)
        await app.service.signal("r-ann", "go", payload=3)
        assert await handle.result() == 3
        assert lab.loop.time() < 10


@virtual
async def test_an_event_that_does_not_come_in_time_is_a_timeout_live_and_on_replay(lab: Lab):
    told: list[str] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await run.wait_for("go", timeout=timedelta(minutes=2))
        except TimeoutError as error:
            told.append(str(error))
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(minutes=2)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.signal("r-ann", "go", payload="too late")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == ["no event 'go' came within 0:02:00"] * 2


@virtual
async def test_a_time_limit_ends_its_body_at_the_same_point_on_replay(lab: Lab):
    told: list[str] = []
    slow, fast = slow_write(lab, 10), slow_write(lab, 0)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            async with run.timeout(timedelta(seconds=3)):
                await slow.options(step="slow")(name)
                told.append("not reached")
        except TimeoutError as over:
            told.append(str(over))
        await fast.options(step="fast")("fallback")
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.sent == ["ann", "fallback"]
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == ["the time limit of 0:00:03 ended this part of run r-ann"] * 2
    assert lab.sent == ["ann", "fallback"]
    assert [left.step for left in lab.of("r-ann", r.CallerLeft)] == ["slow"]


@virtual
async def test_a_body_that_ends_in_time_is_not_limited_on_a_slow_replay(lab: Lab):
    told: list[str] = []
    send = slow_write(lab, 1)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        async with run.timeout(timedelta(seconds=3)):
            told.append(await send(name))
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == ["ann", "ann"]
    assert lab.sent == ["ann"]


@virtual
async def test_a_time_limit_that_is_over_while_the_run_is_suspended_ends_the_body(lab: Lab):
    told: list[object] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(timedelta(minutes=5)):
                await run.wait_for("go")
        except TimeoutError:
            return "over"
        return "went"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        row = await app.service.row("r-ann")
        told.append(row.due_ms)
        await lab.pass_time(minutes=5)
        assert await app.run(desk, "ann") == "over"
    assert told == [1_767_225_600_000 + 300_000]


@virtual
async def test_a_bare_asyncio_timeout_detaches_the_call_and_replays_as_it_was(lab: Lab):
    told: list[str] = []
    slow, fast = slow_write(lab, 10), slow_write(lab, 0)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            async with asyncio.timeout(3):
                told.append(await slow.options(step="slow")(name))
        except TimeoutError:
            told.append("over")
        except asyncio.CancelledError:
            told.append("over")
            asyncio.current_task().uncancel()
        await fast.options(step="fast")("fallback")
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.sent == ["ann", "fallback"]
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == ["over", "over"]
    assert lab.sent == ["ann", "fallback"]


@virtual
async def test_the_next_write_waits_for_a_detached_call(lab: Lab):
    order: list[str] = []
    slow, fast = slow_write(lab, 10), slow_write(lab, 0)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        task = asyncio.create_task(slow(name))
        await run.sleep(timedelta(seconds=1))
        task.cancel()
        await asyncio.wait({task})
        order.append(f"cancelled at {lab.loop.time():.0f}")
        await fast("after")
        order.append(f"sent at {lab.loop.time():.0f}")

    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert order == ["cancelled at 1", "sent at 10"]
    assert lab.sent == ["ann", "after"]


@virtual
async def test_durations_are_not_negative(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        past = timedelta(seconds=-1)
        with pytest.raises(UsageError, match="sleep"):
            await run.sleep(past)
        with pytest.raises(UsageError, match="wait_for"):
            await run.wait_for("go", timeout=past)
        with pytest.raises(UsageError, match="timeout"):
            async with run.timeout(past):
                pass

    async with lab.app(desk) as app:
        await app.run(desk, "ann")


@virtual
async def test_a_pause_of_the_system_clock_does_not_lose_a_timer(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.sleep(timedelta(seconds=10))
        return "done"

    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=1)
        lab.clock.skew_ms = -20_000
        assert await handle.result() == "done"
        assert lab.loop.time() >= 30
