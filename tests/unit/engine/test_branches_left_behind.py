"""Branches that are not awaited: when a run ends or rests, no task of it goes on behind its back."""

import asyncio
import contextlib
import gc
from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


def slow_write(lab: Lab):
    @tool
    async def send(to: str) -> str:
        await lab.pass_time(seconds=5)
        lab.sent.append(to)
        return to

    return send


def loose_tasks() -> set[str]:
    return {task.get_coro().__qualname__.rpartition(".")[2] for task in asyncio.all_tasks()}


@virtual
async def test_a_write_that_a_branch_left_in_flight_is_settled_before_the_run_ends(lab: Lab):
    send = slow_write(lab)
    kept: list[object] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def left() -> None:
            await send(name)
            await send("never")

        kept.append(asyncio.create_task(left()))
        await run.sleep(timedelta(seconds=1))
        return "done"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
        assert lab.sent == ["ann"]
        assert "left" not in loose_tasks()
        history = await app.service.history("r-ann")
    assert {step: operation.status for step, operation in history.operations.items()} == {"~1/send#1": "succeeded"}
    assert isinstance(lab.records("r-ann")[-1], r.RunCompleted)


@virtual
async def test_no_task_of_a_suspended_run_is_left(lab: Lab):
    kept: list[object] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        async def listener() -> None:
            await run.wait_for("never")

        kept.append(asyncio.create_task(listener()))
        await run.wait_for("go")

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await asyncio.sleep(0)
        assert "listener" not in loose_tasks()


@virtual
async def test_a_run_that_a_bug_stops_leaves_no_task(lab: Lab):
    send = slow_write(lab)
    kept: list[object] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        kept.append(asyncio.create_task(send(name)))
        await run.sleep(timedelta(seconds=1))
        raise KeyError("a bug")

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        assert lab.sent == ["ann"]
        history = await app.service.history("r-ann")
    assert history.operations["~1/send#1"].status == "succeeded"


@virtual
async def test_a_branch_left_behind_replays_after_a_crash(lab: Lab):
    send = slow_write(lab)
    kept: list[object] = []
    fixed: list[bool] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def left() -> None:
            await send(name)

        kept.append(asyncio.create_task(left()))
        await run.sleep(timedelta(seconds=8))
        if not fixed:
            raise KeyError("a bug")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        fixed.append(True)
        assert await app.resume("r-ann") == "done"
    assert lab.sent == ["ann"]


@virtual
async def test_a_run_rests_inside_a_named_branch_and_below_it(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with run.branch("outer"):
            first = await run.wait_for("a")
            with run.branch("inner"):
                second, third = await run.gather(run.wait_for("b"), run.wait_for("c"))
        return f"{first}{second}{third}"

    async with lab.app(desk) as app:
        for event in "abc":
            with pytest.raises(RunSuspended):
                await app.run(desk, "ann")
            await app.service.signal("r-ann", event, payload=event)
        assert await app.run(desk, "ann") == "abc"


@virtual
async def test_a_task_that_outlives_its_branch_still_counts(lab: Lab):
    send = slow_write(lab)
    kept: list[object] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def grandchild() -> None:
            await send(name)

        async def child() -> None:
            kept.append(asyncio.create_task(grandchild()))

        await run.gather(child())
        await run.wait_for("go")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.sent == ["ann"]
        await app.service.signal("r-ann", "go")
        assert await app.run(desk, "ann") == "done"
    assert lab.sent == ["ann"]


@virtual
async def test_branches_that_fail_together_are_reported_once(lab: Lab, caplog: pytest.LogCaptureFixture):
    gc.collect()  # as below
    caplog.clear()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def fails(number: int) -> None:
            try:
                await run.sleep(timedelta(seconds=min(number, 1)))
            finally:
                raise ValueError(f"branch {number}")

        with pytest.raises(ValueError, match="branch 0"):
            await run.gather(fails(0), fails(0), fails(2))
        return "done"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
    gc.collect()
    assert caplog.text == ""


@virtual
async def test_nothing_is_reported_as_forgotten_when_a_run_is_torn_down(lab: Lab, caplog: pytest.LogCaptureFixture):
    gc.collect()  # what earlier tests left behind belongs to them
    caplog.clear()
    send = slow_write(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await run.gather(run.wait_for("a"), run.wait_for("b"))
        finally:
            await send("cleanup")

    await lab.until_suspended(desk, "ann")
    gc.collect()
    assert lab.sent == []
    assert caplog.text == ""


@virtual
async def test_what_is_accepted_after_its_caller_has_left_is_told_to_no_one(lab: Lab):
    """A model called it, its branch was cut off, and only then the service said that it answers later."""

    @tool
    async def book(room: str) -> str:
        await lab.pass_time(seconds=5)
        raise Deferred("they will call", within=timedelta(days=1), key="B-7")

    @tool(effect="read")
    async def look(room: str) -> str:
        return "free"

    @agent(run_id="r-{name}", tools=[book, look])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(timedelta(seconds=1)):
                await run.call("book", {"room": name})
        except TimeoutError:
            await run.sleep(timedelta(seconds=10))
        return await look(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=r.Raw(b'"room 12"')))
        assert await app.run(desk, "ann") == "free"


@pytest.mark.parametrize("limit_s", range(1, 12))
@virtual
async def test_a_caller_that_leaves_at_any_moment_sends_a_deferred_call_once(lab: Lab, limit_s: int):
    """Between the answer of a call and its record the journal is asked: a task that is cancelled there is followed by
    another, which files the answer that is known and does not call again."""

    @tool
    async def apply(name: str) -> str:
        lab.sent.append(name)
        raise Deferred("accepted", within=timedelta(hours=1), key="n-1")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(timedelta(seconds=limit_s)):
                await apply(name)
        except TimeoutError:
            await run.sleep(timedelta(seconds=60))
        return "done"

    lab.lag_s = 1.0
    async with lab.app(desk, recover=True) as app:
        with contextlib.suppress(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(seconds=30)
    assert lab.sent in (["ann"], [])
    assert len(lab.of("r-ann", r.OperationDeferred)) == len(lab.sent)
