"""Between the record of an attempt and its call much may come: `decide` is asked again, and what it stops is not sent.

The attempt is on record by then, so it ends as `not_sent`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import Interrupted, OperationFailed, RunStopped, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

LAG_S = 2.0


class Once:
    """Does something the first time that a point is reached."""

    def __init__(self, point: str, act: Callable[[], object] = lambda: None) -> None:
        self.point = point
        self.act = act

    def reached(self, point: str) -> None:
        if point == self.point:
            act, self.act = self.act, lambda: None
            act()


def slow_commit(lab: Lab) -> Once:
    """The journal answers late that the first attempt is stored."""
    return Once("before_intent", lambda: setattr(lab.processes[0], "lag_s", LAG_S))


def paying(lab: Lab, deadline: timedelta | None = None, **clauses: Any) -> Any:
    """An agent that pays once, and once more if it is interrupted."""

    @tool(**clauses)
    async def pay(cents: int) -> str:
        lab.sent.append(f"{cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[pay], deadline=deadline)
    async def desk(run: Run, name: str) -> str:
        try:
            return await pay(1)
        except Interrupted as message:
            return f"{await pay(2)} after: {message}"

    return desk


def attempts(lab: Lab) -> list[tuple[int, str]]:
    """The ends of all attempts on record, in order."""
    return [(one.number, one.end.kind) for one in lab.of("r-ann", r.AttemptEnded)]


async def while_recorded(lab: Lab) -> None:
    """Return while the journal has stored the attempt and has not answered yet."""
    await asyncio.sleep(LAG_S / 2)
    lab.processes[0].lag_s = 0
    assert lab.of("r-ann", r.AttemptStarted), "it is not stored yet"
    assert not lab.of("r-ann", r.AttemptEnded)


@virtual
async def test_a_cancel_stops_it(lab: Lab):
    desk = paying(lab)
    async with lab.app(desk, crash=slow_commit(lab)) as app:
        running = app.start(desk, "ann")
        await while_recorded(lab)
        await app.service.cancel("r-ann", by="eve")
        with pytest.raises(RunStopped, match="cancelled"):
            await running.result()
    assert lab.sent == []
    assert attempts(lab) == [(1, "not_sent")]
    assert [one.status for one in lab.of("r-ann", r.OperationSettled)] == ["cancelled"]


@virtual
async def test_a_message_stops_it_and_is_delivered_first(lab: Lab):
    desk = paying(lab)
    async with lab.app(desk, crash=slow_commit(lab)) as app:
        running = app.start(desk, "ann")
        await while_recorded(lab)
        await app.service.tell("r-ann", "wait", by="eve")
        assert "eve told run r-ann: wait" in await running.result()
    assert lab.sent == ["2"]
    assert attempts(lab) == [(1, "not_sent")]


@virtual
async def test_the_deadline_of_the_run_stops_it(lab: Lab):
    desk = paying(lab, deadline=timedelta(seconds=LAG_S / 2))
    async with lab.app(desk, crash=slow_commit(lab)) as app:
        with pytest.raises(OperationFailed, match="deadline"):
            await app.run(desk, "ann")
    assert lab.sent == []
    assert attempts(lab) == [(1, "not_sent")]


@pytest.mark.parametrize("clauses", [{}, {"idempotency": Key.forever()}, {"retry": Retry(attempts=1)}])
@virtual
async def test_a_pause_of_the_tool_delays_it_and_costs_no_attempt(lab: Lab, *, clauses: Any):
    crash = Once("after_intent")
    desk = paying(lab, **clauses)
    async with lab.app(desk, crash=crash) as app:
        crash.act = lambda: app.engine.pauses.update(pay="paused by eve")
        with pytest.raises(RunSuspended, match="paused"):
            await app.run(desk, "ann")
        assert lab.sent == []
        assert attempts(lab) == [(1, "not_sent")]
        app.engine.pauses.clear()
        assert await app.run(desk, "ann") == "paid"
    assert lab.sent == ["1"]


@virtual
async def test_a_process_that_shuts_down_sends_nothing_more(lab: Lab):
    crash = Once("after_intent")
    desk = paying(lab)
    async with lab.app(desk, crash=crash) as app:

        def drain() -> None:
            app.engine.active_runs["r-ann"].draining = True

        crash.act = drain
        running = app.start(desk, "ann")
        await lab.pass_time(seconds=1)
    with contextlib.suppress(RunSuspended):
        await running.result()
    assert lab.sent == []
    assert attempts(lab) == [(1, "not_sent")]
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "paid"
    assert lab.sent == ["1"]


@virtual
async def test_a_sealed_run_sends_nothing_more(lab: Lab):
    crash = Once("after_intent")
    desk = paying(lab)
    async with lab.app(desk, crash=crash) as app:
        crash.act = lambda: app.engine.active_runs["r-ann"].break_off(RuntimeError("a declaration"))
        with pytest.raises(RuntimeError, match="a declaration"):
            await app.run(desk, "ann")
    assert lab.sent == []
    assert attempts(lab) == [(1, "not_sent")]


@virtual
async def test_a_lease_that_ran_out_stops_it_and_the_next_owner_learns_so(lab: Lab):
    """The commit took longer than the lease: by then the run is another's, who learns that nothing was sent."""
    desk = paying(lab)
    crash = Once("before_intent", lambda: setattr(lab.processes[0], "lag_s", 60))
    async with lab.app(desk, crash=crash) as stale, lab.app(desk) as fresh:
        assert stale.engine._beating is not None
        stale.engine._beating.cancel()
        before = stale.start(desk, "ann")
        await lab.pass_time(seconds=30)
        lab.processes[0].lag_s = 0
        with pytest.raises(RunSuspended, match="may have landed"):
            await fresh.run(desk, "ann")
        assert lab.sent == []
        await asyncio.gather(before.result(), return_exceptions=True)
        with pytest.raises(RunStopped, match="it did not happen"):
            await fresh.run(desk, "ann")
    assert lab.sent == []
    assert [(one.number, one.end.kind) for one in lab.of("r-ann", r.LateReport)] == [(1, "not_sent")]


@virtual
async def test_its_caller_is_cancelled_and_then_the_run(lab: Lab):
    """The task that goes on for a cancelled caller asks again as well."""

    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(f"{cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAG_S / 4):
                await pay(1)
        await asyncio.sleep(LAG_S)

    async with lab.app(desk, crash=slow_commit(lab)) as app:
        running = app.start(desk, "ann")
        await while_recorded(lab)
        await app.service.cancel("r-ann", by="eve")
        with pytest.raises(RunStopped):
            await running.result()
    assert lab.sent == []
    assert attempts(lab) == [(1, "not_sent")]


@virtual
async def test_a_retry_is_asked_about_again_too(lab: Lab):
    """A further attempt has its token of the shared bucket already: that alone does not stop it."""
    failing = [ConnectionRefusedError(), ConnectionRefusedError()]

    @tool
    async def pay(cents: int) -> str:
        if failing:
            raise failing.pop()
        lab.sent.append(f"{cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(1)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "paid"
    assert attempts(lab) == [(1, "not_sent"), (2, "not_sent")]


@virtual
async def test_an_approval_that_is_used_by_the_attempt_covers_it_still(lab: Lab):
    desk = paying(lab, gate="true")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="may pay"):
            await app.run(desk, "ann")
        await app.service.approve("r-ann/pay#1", by="eve")
        assert await app.run(desk, "ann") == "paid"
    assert lab.sent == ["1"]
    assert attempts(lab) == []


@virtual
async def test_a_persons_order_for_one_more_attempt_outlives_one_that_was_withheld(lab: Lab):
    crash = Once("after_intent")

    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(f"{cents}")
        if len(lab.sent) == 1:
            raise ConnectionResetError("the line went dead")
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(1)

    async with lab.app(desk, crash=crash) as app:
        with pytest.raises(RunSuspended, match="may have landed"):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/pay#1", "retry", by="eve", evidence="not there")
        crash.point, crash.act = "after_intent", lambda: app.engine.pauses.update(pay="paused by eve")
        with pytest.raises(RunSuspended, match="paused"):
            await app.run(desk, "ann")
        app.engine.pauses.clear()
        assert await app.run(desk, "ann") == "paid"
    assert lab.sent == ["1", "1"]


@pytest.mark.parametrize("recorded", [False, True], ids=["before its record", "after its record"])
@virtual
async def test_the_answer_of_an_earlier_call_comes_before_the_next_attempt(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, *, recorded: bool
):
    """A call that was given up ends, and its report waits for the lock of commands until the retry was decided."""
    over = asyncio.Event()

    @tool(idempotency=Key.forever(), timeout=timedelta(seconds=1), retry=Retry(attempts=3, base=timedelta(seconds=5)))
    async def pay(cents: int) -> str:
        lab.sent.append(current_operation().key)
        with contextlib.suppress(asyncio.CancelledError):
            await over.wait()
        await over.wait()
        return f"paid {len(lab.sent)}"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(1)

    second = Once("before_intent")
    async with lab.app(desk, crash=second) as app:
        running = app.start(desk, "ann")
        await lab.pass_time(seconds=2)
        active = app.engine.active_runs["r-ann"]
        await active.log.command_lock.acquire()
        retried = app.engine.breakers.retried

        async def answered_meanwhile(name: str) -> None:
            await retried(name)
            active.log.command_lock.release()
            await asyncio.sleep(0.1)

        def answered_while_recorded() -> None:
            active.log.command_lock.release()
            lab.processes[0].lag_s = LAG_S

        if recorded:
            second.act = answered_while_recorded
        else:
            monkeypatch.setattr(app.engine.breakers, "retried", answered_meanwhile)
        over.set()
        assert await running.result() == "paid 1"
    assert len(lab.sent) == 1
    assert [one.end.kind for one in lab.of("r-ann", r.LateReport)] == ["returned"]
    assert attempts(lab) == [(1, "ambiguous"), *([(2, "not_sent")] if recorded else [])]
