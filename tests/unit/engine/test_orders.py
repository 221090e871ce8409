"""Orders from outside: cancel, pause and unpause, of a run or a tool; and deadlines."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Key, NotSent, Run, agent, current_operation, tool
from beforehand.errors import DecisionFailed, OperationCancelled, OperationFailed, RunStopped, RunSuspended, UnknownRun
from beforehand.model import records as r
from beforehand.policies import Retry
from beforehand.queues.call_limits import ModelLimit
from beforehand.queues.limits import DeclaredLimits
from tests.unit.engine.lab import Lab, virtual


def two_steps(lab: Lab, **settings: object):
    """Two slow writes with a pause between them."""

    @tool
    async def send(to: str) -> str:
        await lab.pass_time(seconds=2)
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}", **settings)
    async def desk(run: Run, name: str) -> str:
        await send("first")
        await run.sleep(timedelta(seconds=10))
        return await send("second")

    return desk


@virtual
async def test_cancel_ends_the_run_between_operations_and_lets_the_open_call_end(lab: Lab):
    desk = two_steps(lab)
    async with lab.app(desk) as app:
        handle = app.start(desk, "x")
        await lab.pass_time(seconds=1)
        await app.service.cancel("r-x", by="eve", why="wrong customer")
        with pytest.raises(RunStopped, match="cancelled") as stopped:
            await handle.result()
        assert (stopped.value.reason, "wrong customer" in str(stopped.value)) == ("cancelled", True)
        assert lab.sent == ["first"]
        assert [o.status for o in (await app.service.history("r-x")).operations.values()] == ["succeeded"]


@virtual
async def test_a_cancelled_run_may_be_reopened(lab: Lab):
    desk = two_steps(lab)
    async with lab.app(desk) as app:
        handle = app.start(desk, "x")
        await lab.pass_time(seconds=5)
        await app.service.cancel("r-x", by="eve")
        with pytest.raises(RunStopped):
            await handle.result()
        assert await app.resume("r-x") == "second"
    assert lab.sent == ["first", "second"]


@virtual
async def test_cancel_of_an_idle_run_is_applied_when_it_is_driven_next(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.sleep(timedelta(hours=1))
        return await send(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        applied = await app.service.cancel("r-x", by="eve")
        assert applied.at_once
        with pytest.raises(RunStopped):
            await app.run(desk, "x")
    assert lab.sent == []


@virtual
async def test_what_was_never_sent_is_cancelled_with_the_run(lab: Lab):
    told: list[str] = []

    @tool(retry=Retry(attempts=50, elapsed=timedelta(days=1)))
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise NotSent("busy", retry_after=20)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return await send(name)
        except OperationCancelled as gone:
            told.append(gone.message)
            raise

    async with lab.app(desk) as app:
        handle = app.start(desk, "x")
        await lab.pass_time(seconds=5)
        await app.service.cancel("r-x", by="eve")
        with pytest.raises(RunStopped):
            await handle.result()
        assert lab.sent == ["x"]


@virtual
async def test_pause_suspends_and_unpause_lets_the_run_go_on(lab: Lab):
    desk = two_steps(lab)
    async with lab.app(desk) as app:
        handle = app.start(desk, "x")
        await lab.pass_time(seconds=5)
        await app.service.pause("r-x", by="eve")
        with pytest.raises(RunSuspended, match="paused by eve"):
            await handle.result()
        with pytest.raises(RunSuspended, match="beforehand unpause r-x"):
            await app.run(desk, "x")
        assert lab.sent == ["first"]
        assert (await app.service.row("r-x")).status == "suspended"
        await app.service.unpause("r-x", by="eve")
        assert await app.run(desk, "x") == "second"
    assert lab.sent == ["first", "second"]


@virtual
async def test_a_paused_tool_sends_nothing_and_fails_nothing(lab: Lab):
    desk = two_steps(lab)
    async with lab.app(desk) as app:
        await app.service.pause_tool("send", by="eve", why="the warehouse moves")
        with pytest.raises(RunSuspended, match=r"the warehouse moves.*beforehand unpause --tool send"):
            await app.run(desk, "x")
        assert lab.sent == []
        await app.service.unpause_tool("send", by="eve")
        assert await app.run(desk, "x") == "second"


@virtual
async def test_an_unpaused_tool_wakes_a_run_that_is_still_driven(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        async def clock() -> str:
            await run.sleep(timedelta(seconds=25))
            return "rang"

        return list(await run.gather(send(name), clock()))

    async with lab.app(desk) as app, lab.app(desk) as other:
        await app.service.pause_tool("send", by="eve")
        handle = app.start(desk, "x")
        await lab.pass_time(seconds=2)
        assert lab.sent == []
        await other.service.unpause_tool("send", by="eve")
        await lab.pass_time(seconds=10)
        assert lab.sent == ["x"]
        assert await handle.result() == ["x", "rang"]


@virtual
async def test_a_run_that_was_suspended_for_a_paused_tool_goes_on_by_itself_and_no_other_one_is_woken(lab: Lab):
    desk = two_steps(lab)

    @agent(run_id="w-{name}")
    async def waits(run: Run, name: str) -> None:
        await run.wait_for("news")

    async with lab.app(desk, waits, recover=True, poll_ms=1000, recover_every_ms=1000) as app:
        await app.service.pause_tool("send", by="eve")
        for one in (desk, waits):
            with pytest.raises(RunSuspended):
                await app.run(one, "x")
        async with lab.app() as other:
            await other.service.unpause_tool("send", by="eve")
        await lab.pass_time(seconds=30)
        assert {row.run: row.status for row in await lab.journal.runs()} == {"r-x": "completed", "w-x": "suspended"}
        assert len(lab.of("w-x", r.Claimed)) == 1
    assert lab.sent == ["first", "second"]


@virtual
async def test_after_its_deadline_a_run_sends_nothing_more(lab: Lab):
    desk = two_steps(lab, deadline=timedelta(seconds=5))
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="the deadline passed"):
            await app.run(desk, "x")
    assert lab.sent == ["first"]


@virtual
async def test_after_its_deadline_a_run_asks_no_model_and_tells_the_same_on_replay(lab: Lab):
    asked: list[float] = []

    async def model(_question: str) -> str:
        asked.append(lab.loop.time())
        await asyncio.sleep(2)
        return "go on"

    @agent(run_id="r-{name}", deadline=timedelta(seconds=5))
    async def desk(run: Run, name: str) -> str:
        try:
            while True:
                await run.decide(model, name)
        except DecisionFailed as failed:
            told = str(failed)
        await run.sleep(timedelta(hours=1))
        return told

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        assert len(asked) == 3
        await lab.pass_time(hours=2)
        assert "the deadline passed" in await app.resume("r-x")
    assert len(asked) == 3


@virtual
async def test_a_model_for_which_a_run_waited_past_its_deadline_is_not_asked(lab: Lab):
    asked: list[str] = []

    async def model(question: str) -> str:
        asked.append(question)
        return question

    @agent(run_id="r-{name}", deadline=timedelta(seconds=5))
    async def desk(run: Run, name: str) -> str:
        ask = run.options(model="big").decide
        return await ask(model, "one") + await ask(model, "two")

    limits = DeclaredLimits(models={"big": ModelLimit(rate="1/hour")})
    async with lab.app(desk, hold_ms=10**9, queues=limits) as app:
        with pytest.raises(DecisionFailed, match="the deadline passed"):
            await app.run(desk, "x")
    assert asked == ["one"]


@virtual
async def test_a_key_is_the_same_for_every_attempt_and_seconds_left_count_down(lab: Lab):
    seen: list[tuple[str, str, int, float]] = []

    @tool(idempotency=Key.forever(), timeout=timedelta(seconds=10))
    async def send(to: str) -> str:
        at = current_operation()
        await lab.pass_time(seconds=4)
        at.check_send()
        seen.append((at.key, at.marker, at.attempt, at.seconds_left))
        if len(seen) == 1:
            raise ConnectionResetError("gone")
        return at.id

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "r-x/send#1"
    assert [(attempt, left) for _, _, attempt, left in seen] == [(1, 6.0), (2, 6.0)]
    assert len({key for key, *_ in seen}) == 1
    assert seen[0][1] == f"{seen[0][0]}@beforehand.invalid"


@virtual
async def test_orders_for_a_run_that_does_not_exist_are_refused(lab: Lab):
    desk = two_steps(lab)
    async with lab.app(desk) as app:
        for order in (app.service.cancel, app.service.pause, app.service.unpause):
            with pytest.raises(UnknownRun):
                await order("nobody", by="eve")
        with pytest.raises(UnknownRun):
            await app.service.signal("nobody", "go")
        with pytest.raises(UnknownRun):
            await app.drive("nobody")


@virtual
async def test_a_cancel_of_an_ended_run_changes_nothing(lab: Lab):
    desk = two_steps(lab)
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "second"
        await app.service.cancel("r-x", by="eve")
        assert await app.run(desk, "x") == "second"
        assert (await app.service.row("r-x")).status == "completed"
    assert len(lab.of("r-x", r.RunCompleted)) == 1


@virtual
async def test_resuming_a_stopped_run_reads_its_history_once(lab: Lab):
    @tool
    async def put(what: str) -> str:
        lab.sent.append(what)
        return what

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        done = [await put(str(number)) for number in range(3)]
        if not lab.changed:
            raise ValueError("boom")
        return "".join(done)

    async with lab.app(desk) as app:
        with pytest.raises(ValueError, match="boom"):
            await app.run(desk, "x")
        lab.changed = True
        read, asked = lab.journal.read, []

        async def counting(run: str, after: int = 0, limit: int = 1000):
            asked.append(after)
            return await read(run, after, limit)

        lab.journal.read = counting
        assert await app.resume("r-x", by="anna") == "012"
        assert asked == [0]
    assert lab.sent == ["0", "1", "2"]
    assert [record.by for record in lab.of("r-x", r.RunReopened)] == ["anna"]


@virtual
async def test_a_reopened_run_whose_process_dies_is_abandoned_and_not_stopped(lab: Lab):
    @tool(effect="read")
    async def look(what: str) -> str:
        await lab.pass_time(seconds=20)
        return what

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if not lab.changed:
            raise ValueError("boom")
        return await look(name)

    app = lab.make(desk)
    process = lab.processes[-1]
    await app.open()
    with pytest.raises(ValueError, match="boom"):
        await app.run(desk, "x")
    lab.changed = True
    resuming = asyncio.ensure_future(app.resume("r-x"))
    await lab.pass_time(seconds=1)
    await lab.bury(app, process)
    assert resuming.done()
    assert [row.run for row in await lab.journal.runs(wakeable=True)] == ["r-x"]
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "x"
