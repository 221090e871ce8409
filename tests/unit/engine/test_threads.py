"""Synchronous tools run in threads, which cannot be stopped: they are waited for, heard late, and never doubled."""

import threading
from datetime import timedelta

import pytest

from beforehand import Ambiguous, Key, Run, agent, current_operation, tool
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_calls import SECOND, one_call


@virtual
async def test_a_sync_tool_runs_in_a_thread_and_holds_the_clock(lab: Lab):
    threads: list[str] = []

    @tool
    def send(to: str) -> str:
        threads.append(threading.current_thread().name)
        return f"{to} {current_operation().id}"

    async with lab.app(desk := one_call(send)) as app:
        assert await app.run(desk, "ann") == "ann r-ann/send#1"
    assert threads == ["beforehand-tool"]


@virtual
async def test_no_second_attempt_starts_while_the_thread_of_the_first_lives(lab: Lab):
    running = threading.Event()
    go_on = threading.Event()
    holds_the_clock = threading.Event()
    overlap: list[int] = []

    @tool(idempotency=Key.forever(), timeout=2 * SECOND)
    def send(to: str) -> str:
        at = current_operation()
        assert at.key
        if at.attempt == 1:
            running.set()
            with lab.loop.passing():
                go_on.wait(20)
            holds_the_clock.set()
            running.clear()
            raise Ambiguous("the first has ended without an answer")
        overlap.append(running.is_set())
        return "second"

    async with lab.app(desk := one_call(send), hold_ms=10**9) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(minutes=2)
        assert [s.number for s in lab.of("r-ann", r.AttemptStarted)] == [1]
        assert [e.over for e in lab.of("r-ann", r.AttemptEnded)] == [False]
        go_on.set()
        assert holds_the_clock.wait(20), "until then the clock would run on while the thread wakes up"
        assert await handle.result() == "second"
    assert overlap == [False]


@virtual
async def test_what_a_late_thread_returns_is_evidence(lab: Lab):
    go_on = threading.Event()

    @tool(timeout=2 * SECOND)
    def send(to: str) -> str:
        with lab.loop.passing():
            go_on.wait(20)
        return "it worked after all"

    async with lab.app(desk := one_call(send), hold_ms=10**9) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        go_on.set()
        await lab.until(lambda: any(entry.stream == "run/r-ann" for entry in lab.journal._ledger))
        assert await app.run(desk, "ann") == "it worked after all"
    assert [(report.end.kind, report.number) for report in lab.of("r-ann", r.LateReport)] == [("returned", 1)]


@virtual
async def test_what_a_late_thread_said_besides_comes_with_its_report(lab: Lab):
    go_on = threading.Event()

    @tool(timeout=2 * SECOND)
    def send(to: str) -> str:
        at = current_operation()
        with lab.loop.passing():
            go_on.wait(20)
        at.report("letters left", 3)
        return to

    async with lab.app(desk := one_call(send), hold_ms=10**9) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        go_on.set()
        await lab.until(lambda: any(entry.stream == "run/r-ann" for entry in lab.journal._ledger))
        assert await app.run(desk, "ann") == "ann"
    (late,) = lab.of("r-ann", r.LateReport)
    assert late.end.facts == (r.Reported("letters left", r.Raw(b"3")),)


@virtual
async def test_a_thread_that_outlives_its_run_instance_still_keeps_a_second_attempt_away(lab: Lab):
    go_on, holds_the_clock = threading.Event(), threading.Event()
    attempts: list[int] = []

    @tool(idempotency=Key.forever(), timeout=2 * SECOND)
    def send(to: str) -> str:
        at = current_operation()
        assert at.key
        attempts.append(at.attempt)
        if at.attempt == 1:
            with lab.loop.passing():
                go_on.wait(20)
            holds_the_clock.set()
            raise Ambiguous("no answer")
        return "second"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=10)
        await app.service.pause("r-ann", by="eve")
        with pytest.raises(RunSuspended):
            await handle.result()
        await app.service.unpause("r-ann", by="eve")
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=60)
        assert attempts == [1]
        go_on.set()
        await lab.until(holds_the_clock.is_set)
        assert await handle.result() == "second"
    assert attempts == [1, 2]


@virtual
async def test_a_call_that_is_abandoned_at_shutdown_is_known_to_be_open(lab: Lab):
    go_on = threading.Event()

    @tool(timeout=timedelta(minutes=5))
    def send(to: str) -> str:
        with lab.loop.passing():
            go_on.wait(20)
        return "it worked"

    async with lab.app(desk := one_call(send), grace_ms=1000) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=1)
        await app.service.pause("r-ann", by="eve")
        with pytest.raises(RunSuspended):
            await handle.result()
        assert [a.end for a in (await app.service.history("r-ann")).operations["send#1"].attempts] == [None]
        go_on.set()
        await lab.until(lambda: sum(entry.stream == "run/r-ann" for entry in lab.journal._ledger) == 2)
        await app.service.unpause("r-ann", by="eve")
        assert await app.run(desk, "ann") == "it worked"
