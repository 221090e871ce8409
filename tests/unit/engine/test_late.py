"""News that comes late: reports against final outcomes, orders that no longer apply, callers that left early."""

import asyncio
import threading
from datetime import timedelta

import msgspec
import pytest

from beforehand import CannotTell, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.errors import RunSuspended, UsageError
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from tests.unit.engine.lab import Lab, virtual

SECOND = timedelta(seconds=1)


@virtual
async def test_a_late_success_against_a_persons_no_is_a_contradiction(lab: Lab):
    go_on = threading.Event()

    @tool(timeout=2 * SECOND)
    def send(to: str) -> str:
        with lab.loop.passing():
            go_on.wait(20)
        return "it worked after all"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        pause = asyncio.create_task(run.sleep(timedelta(seconds=25)))
        outcome = await send.outcome(name)
        await pause
        return outcome.status

    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=5)
        await app.service.resolve("r-ann/send#1", "did_not_happen", by="eve")
        await lab.pass_time(seconds=1)
        go_on.set()
        await lab.until(lambda: bool(lab.of("r-ann", r.Contradicted)))
        assert await handle.result() == "failed"
        operation = (await app.service.history("r-ann")).operations["send#1"]
    assert operation.status == "failed"
    assert operation.links.contradicted == ("attempt 1 reported late: returned",)


@virtual
async def test_a_report_or_a_word_that_no_longer_fits_is_recorded_as_refused(lab: Lab):
    @tool
    async def send(to: str) -> str:
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        sent = await send(name)
        await run.wait_for("go")
        return sent

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        for step in ("send#1", "send#9"):
            record = r.Resolved(step=step, word="happened", by="eve", attempts=1)
            body = msgspec.json.encode(Command("resolve", "eve", record=record))
            await lab.journal.commit(Post(command_stream("r-ann"), "", body))
        await app.service.signal("r-ann", "go")
        assert await app.run(desk, "ann") == "ann"
    refusals = [applied.refused for applied in lab.of("r-ann", r.CommandApplied)]
    assert refusals == ["send#1 is succeeded", "send#9 is not in this run"]


@pytest.mark.parametrize(("number", "token"), [(1, 9), (2, 0)])
@virtual
async def test_a_report_about_an_attempt_that_another_owner_made_proves_nothing(lab: Lab, number: int, token: int):
    """Seed 4808: a process that slept had made its own first attempt, which was never recorded, and reports on it."""

    @tool(timeout=2 * SECOND)
    async def send(to: str) -> str:
        lab.sent.append(to)
        await asyncio.sleep(3600)
        return to

    @send.verify(settle_window=SECOND * 90)
    async def find(operation: Operation[str]) -> Verdict[str]:
        return CannotTell("not yet")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        app.start(desk, "ann")
        await lab.pass_time(seconds=3)
        record = r.LateReport(step="send#1", number=number, end=r.End("not_sent", "held back"), token=token)
        await lab.journal.commit(Post(command_stream("r-ann"), "", written(Command(record=record))))
        await lab.pass_time(seconds=30)
    assert lab.sent == ["ann"], "it is not called again"
    (refused,) = lab.of("r-ann", r.CommandApplied)
    assert refused.refused == f"attempt {number} of send#1 was made by another owner"


@virtual
async def test_what_was_never_attempted_cannot_have_happened(lab: Lab):
    @tool(idempotency=Key.forever(), claim="order")
    async def charge(order: str) -> str:
        assert current_operation().key
        raise ConnectionResetError("gone")

    @agent(run_id="{name}")
    async def desk(run: Run, name: str) -> str:
        return await charge("17")

    async with lab.app(desk, claim_wait_ms=1000) as app:
        app.start(desk, "a")
        await lab.pass_time(seconds=5)
        with pytest.raises(RunSuspended):
            await app.run(desk, "b")
        with pytest.raises(UsageError, match="it cannot have happened through this run"):
            await app.service.resolve("b/charge#1", "happened", by="eve")
        await app.service.cancel("a", by="eve")
        await app.service.cancel("b", by="eve")


@virtual
async def test_a_caller_that_leaves_while_its_intent_is_being_recorded(lab: Lab):
    lab.lag_s = 1.0

    @tool(idempotency=Key.forever(), claim="order")
    async def charge(order: str) -> str:
        lab.sent.append(current_operation().key)
        return order

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        task = asyncio.create_task(charge(name))
        await asyncio.sleep(float(name))
        task.cancel()
        await asyncio.wait({task})
        return "left"

    async with lab.app(desk) as app:
        for seconds in ("0.5", "1.5", "2.5", "3.5"):
            assert await app.run(desk, seconds) == "left"
            history = await app.service.history(f"r-{seconds}")
            statuses = {operation.status for operation in history.operations.values()}
            assert statuses <= {"succeeded"}
    assert len(lab.sent) == len(set(lab.sent))


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5])
@virtual
async def test_two_branches_that_take_one_claim_while_a_caller_leaves(lab: Lab, seconds: float):
    lab.lag_s = 1.0

    @tool(idempotency=Key.forever(), claim="order")
    async def charge(order: str) -> str:
        lab.sent.append(current_operation().key)
        return order

    @agent(run_id="{name}")
    async def desk(run: Run, name: str) -> str:
        task = asyncio.create_task(charge("17"))
        if name == "b":
            await asyncio.sleep(seconds)
            task.cancel()
        await asyncio.wait({task})
        return name

    async with lab.app(desk) as app:
        await asyncio.gather(app.run(desk, "a"), app.run(desk, "b"))
        history = await app.service.history("b")
    assert len(lab.sent) == 1
    assert {operation.status for operation in history.operations.values()} <= {"cancelled"}


@virtual
async def test_a_run_that_is_paused_while_the_world_is_read_back(lab: Lab):
    read: list[str] = []

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise ConnectionResetError("gone")

    @send.verify(settle_window=SECOND, timeout=timedelta(hours=1))
    async def find(operation: Operation[str]) -> Verdict[str]:
        read.append("began")
        try:
            await lab.pass_time(minutes=30)
        finally:
            read.append("ended")
        return CannotTell()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=5)
        await app.service.pause("r-ann", by="eve")
        with pytest.raises(RunSuspended, match="paused by eve"):
            await handle.result()
    assert read == ["began", "ended"]
    assert lab.sent == ["ann"]


@virtual
async def test_a_verifier_in_a_thread_may_end_after_its_time(lab: Lab):
    go_on = threading.Event()

    @tool
    async def send(to: str) -> str:
        raise ConnectionResetError("gone")

    @send.verify(settle_window=SECOND, timeout=SECOND, deadline=SECOND)
    def find(operation: Operation[str]) -> Verdict[str]:
        with lab.loop.passing():
            go_on.wait(20)
        raise OSError("late and loud")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, slow_verify_ms=10**9) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        go_on.set()
        await lab.pass_time(seconds=1)


@virtual
async def test_a_caller_that_left_is_cancelled_by_us_on_replay_where_nobody_else_does(lab: Lab):
    told: list[str] = []

    @tool
    async def send(to: str) -> str:
        await lab.pass_time(seconds=5)
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        task = asyncio.create_task(send(name))
        if not lab.changed:
            await asyncio.sleep(1)
            task.cancel()
        await asyncio.wait({task})
        told.append("cancelled" if task.cancelled() else "went on")
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        lab.changed = True
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == ["cancelled", "cancelled"]
    assert lab.sent == ["ann"]


@virtual
async def test_a_long_history_is_read_page_by_page(lab: Lab):
    @tool(effect="read")
    async def look(number: int) -> int:
        lab.sent.append("look")
        return number

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        total = 0
        for number in range(1100):
            total += await look(number)
        if not lab.changed:
            raise KeyError("a bug")
        return total

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        lab.changed = True
        assert await app.resume("r-ann") == sum(range(1100))
    assert len(lab.sent) == 1100


@virtual
async def test_news_about_a_run_that_has_ended_is_recorded_without_anybody_asking(lab: Lab):
    go_on, gone = threading.Event(), threading.Event()

    @tool(timeout=2 * SECOND)
    def send(to: str) -> str:
        with lab.loop.passing():
            go_on.wait(20)
        gone.set()
        return "it worked after all"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return (await send.outcome(name)).status

    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "did_not_happen", by="eve")
        assert await app.run(desk, "ann") == "failed"
        await lab.pass_time(seconds=1)
        go_on.set()
        await lab.until(gone.is_set)
        await lab.pass_time(seconds=20)
        assert (await app.service.row("r-ann")).status == "completed"
        operation = (await app.service.history("r-ann")).operations["send#1"]
    assert operation.links.contradicted == ("attempt 1 reported late: returned",)


@virtual
async def test_a_call_that_outlives_its_drive_and_returns_is_not_made_again(lab: Lab):
    """Its report is refused under the lease that was given back, so it comes by the ledger: it is read before a retry."""

    @tool(idempotency=Key.forever())
    async def pay(name: str) -> str:
        lab.sent.append(current_operation().key)
        await lab.pass_time(seconds=20)
        return f"paid {name}"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    async with lab.app(desk, poll_ms=1000) as app:
        first = app.start(desk, "ann")
        await lab.pass_time(seconds=3)
        await app.service.pause("r-ann", by="eve", why="a look")
        with pytest.raises(RunSuspended):
            await first.result()
        await app.service.unpause("r-ann", by="eve")
        assert await app.run(desk, "ann") == "paid ann"
    assert len(lab.sent) == len(lab.of("r-ann", r.AttemptStarted)) == 1
