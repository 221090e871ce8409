"""Every journal call may fail: nothing is sent unrecorded, nothing acknowledged is lost, and the rerun completes.

The n-th call fails, for every n, before or after its work was done; then the disk is well again.
"""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Ambiguous,
    Beforehand,
    DidNotHappen,
    Happened,
    Key,
    Operation,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import BeforehandError, JournalUnavailable, OperationFailed, RecordRefused, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

RUN = "r-ann"


class World:
    """A payment service with keys, a mailbox that can be searched, and a warehouse with neither."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.payments: dict[str, str] = {}
        self.mail: list[str] = []
        self.stock: list[str] = []
        self.unrecorded: list[str] = []

    def check(self, step: str) -> None:
        """At the moment of an effect its attempt must be durable."""
        found = self.lab.journal._runs.get(RUN)
        durable = b"".join(row.body for row in found.rows) if found else b""
        if f'"step":"{step}"'.encode() not in durable:
            self.unrecorded.append(step)


def refund_desk(lab: Lab, world: World, *, flaky: bool = False):
    @tool(idempotency=Key.forever(), claim="order")
    async def refund(order: str) -> str:
        at = current_operation()
        world.check(at.step)
        world.payments.setdefault(at.key, order)
        if flaky and at.attempt == 1:
            raise TimeoutError("no answer")
        return f"refund of {order}"

    @tool
    async def send(to: str) -> str:
        at = current_operation()
        world.check(at.step)
        world.mail.append(at.marker)
        if flaky and at.attempt == 1:
            raise Ambiguous("no answer")
        return at.marker

    @send.verify(settle_window=timedelta(0))
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened(operation.marker) if operation.marker in world.mail else DidNotHappen()

    @tool
    async def restock(sku: str) -> None:
        at = current_operation()
        world.check(at.step)
        world.stock.append(at.step)

    @tool(effect="read")
    async def look(order: str) -> int:
        return 5

    async def rule(order: str) -> str:
        return order.upper()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        ruling = await run.decide(rule, name)
        await look(name)
        await run.now()
        refunded, _ = await run.gather(refund(ruling), send(name))
        await run.sleep(timedelta(seconds=1))
        await restock("sku")
        return refunded

    return desk


async def drive_through(lab: Lab, world: World, desk: Any) -> str:
    """Open apps and run the agent, answering what a person is asked, until it completes."""
    for _ in range(12):
        app = lab.make(desk)
        try:
            await app.open()
        except JournalUnavailable:
            continue
        try:
            return await app.run(desk, "ann")
        except RunSuspended:
            await _answer(world, app)
        except BeforehandError:
            pass
        finally:
            await lab.exit(app)
    raise AssertionError(lab.records(RUN))


async def _answer(world: World, app: Beforehand) -> None:
    """A person looks at the world and says what is true of each open question."""
    history = await app.service.history(RUN)
    for step, operation in history.operations.items():
        if operation.phase == "unknown":
            word = "happened" if step in world.stock else "retry"
            await app.service.resolve(f"{RUN}/{step}", word, by="eve")


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("flaky", [False, True], ids=["calm", "flaky"])
@pytest.mark.parametrize("lag_s", [0.0, 0.01], ids=["at once", "lagging"])
@virtual
async def test_whichever_journal_call_fails_each_effect_happens_once(lab: Lab, stored: bool, flaky: bool, lag_s: float):
    nothing_failed = False
    for n in range(1, 200):
        alone = Lab()
        alone.lag_s = lag_s
        world = World(alone)
        desk = refund_desk(alone, world, flaky=flaky)
        alone.journal.fail_next(n, stored=stored)
        assert await drive_through(alone, world, desk) == "refund of ANN"
        assert world.unrecorded == []
        assert (len(world.payments), len(world.mail), len(world.stock)) == (1, 1, 1), n
        assert isinstance(alone.records(RUN)[-1], r.RunCompleted)
        if alone.journal._faults:
            nothing_failed = True
            break
    assert nothing_failed, "the loop ended before it reached a run in which nothing failed"


@virtual
async def test_an_outcome_that_was_acknowledged_is_never_lost(lab: Lab):
    told: list[str] = []

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        for number in range(5):
            told.append(await send(f"{name}{number}"))
        return "done"

    for n in range(3, 40):
        alone = Lab()
        lab.sent, told = [], []
        alone.journal.fail_next(n)
        app = alone.make(desk)
        try:
            await app.open()
            await app.run(desk, "ann")
        except BeforehandError:
            pass
        acknowledged = list(told)
        await app.aclose()
        history = {settled.step for settled in alone.of(RUN, r.OperationSettled)}
        assert len(history) >= len(acknowledged)
        if alone.journal._faults:
            return
    raise AssertionError("no run without a failure")


@virtual
async def test_a_journal_that_fails_while_nothing_runs_is_only_reported(lab: Lab, caplog: pytest.LogCaptureFixture):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return name

    async with lab.app(desk) as app:
        for n in range(1, 20):
            lab.journal.fail_next(n)
        while lab.journal._faults:
            await lab.pass_time(seconds=1)
        assert await app.run(desk, "ann") == "ann"
    assert "the lease could not be renewed" in caplog.text
    assert "could not look for commands" in caplog.text


@virtual
async def test_an_app_that_cannot_open_its_journal_says_so_and_may_try_again(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return name

    app = lab.make(desk)
    lab.journal.fail_next(1)
    with pytest.raises(JournalUnavailable):
        await app.open()
    await app.open()
    assert await app.run(desk, "ann") == "ann"
    await app.aclose()


@virtual
async def test_an_outcome_that_cannot_be_recorded_is_told_to_nobody(lab: Lab):
    told: list[str] = []

    @tool
    async def send(to: str) -> str:
        lab.journal.fail_next(1)
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            told.append(await send(name))
        except OperationFailed:
            told.append("failed")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(BeforehandError):
            await app.run(desk, "ann")
    assert told == []
    assert lab.sent == ["ann"]


@virtual
async def test_a_lease_that_lapsed_is_renewed_before_the_next_attempt(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await asyncio.sleep(60)
        return await send(name)

    async with lab.app(desk, lease_ms=15_000) as app:
        app.engine._beating.cancel()
        assert await app.run(desk, "ann") == "ann"
        worker = lab.journal._workers["w1"]
        assert worker[1] > 60_000


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@virtual
async def test_the_same_process_may_go_on_once_the_disk_is_well_again(lab: Lab, stored: bool):
    for n in range(2, 200):
        alone = Lab()
        world = World(alone)
        desk = refund_desk(alone, world)
        async with alone.app(desk) as app:
            alone.journal.fail_next(n, stored=stored)
            for _ in range(8):
                try:
                    assert await app.run(desk, "ann") == "refund of ANN"
                    break
                except RunSuspended:
                    await _answer(world, app)
                except BeforehandError:
                    await alone.pass_time(seconds=2)
            else:
                raise AssertionError((n, alone.records(RUN)))
        assert world.unrecorded == []
        assert (len(world.payments), len(world.mail), len(world.stock)) == (1, 1, 1), n
        if alone.journal._faults:
            return
    raise AssertionError("no run without a failure")


@virtual
async def test_agent_code_cannot_swallow_a_journal_that_fails(lab: Lab):
    caught: list[str] = []

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        lab.journal.fail_next(1)
        try:
            return await send(name)
        except Exception as error:  # noqa: BLE001 - the point: this error never comes here
            caught.append(str(error))
            return await send("fallback")

    async with lab.app(desk) as app:
        with pytest.raises(JournalUnavailable):
            await app.run(desk, "ann")
    assert caught == []
    assert lab.sent == []


@virtual
async def test_an_attempt_that_the_journal_refused_is_in_no_history(lab: Lab):
    @tool
    async def send(to: str) -> None:
        lab.sent.append(to)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        lab.journal.fail_next(1, RecordRefused("this record does not fit"))
        await send(name)
        return "sent"

    async with lab.app(desk) as app:
        with pytest.raises(RecordRefused):
            await app.run(desk, "ann")
        assert lab.sent == []
        (stopped,) = lab.of(RUN, r.RunStoppedRecord)
        assert (stopped.reason, stopped.open) == ("error", ())
        assert (await app.service.row(RUN)).status == "stopped"
        assert lab.of(RUN, r.AttemptStarted) == []


@virtual
async def test_agent_code_may_go_another_way_after_a_refused_record(lab: Lab):
    @tool
    async def send(to: str) -> None:
        lab.sent.append(to)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        lab.journal.fail_next(1, RecordRefused("this record does not fit"))
        try:
            await send(name)
        except RecordRefused:
            await send("fallback")
        return "sent"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "sent"
    assert lab.sent == ["fallback"]
    assert [attempt.step for attempt in lab.of(RUN, r.AttemptStarted)] == ["send#2"]
    assert len(lab.of(RUN, r.ContractStored)) == 1, "it came with the first attempt that was stored"


async def refused_after_an_attempt(lab: Lab, n: int) -> list[tuple[int, int]]:
    """How many attempts the history has, and how many were sent, where the n-th call after a first one is refused."""
    refused: list[tuple[int, int]] = []
    apps: list[Beforehand] = []

    @tool(idempotency=Key.forever())
    async def pay(cents: int) -> None:
        lab.sent.append(current_operation().key)
        if len(lab.sent) == 1:
            lab.journal.fail_next(n, RecordRefused("this record does not fit"))
            raise TimeoutError("no answer")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await pay(1)
        except RecordRefused:
            history = apps[0].engine.active_runs[RUN].history
            refused.append((len(history.operations["pay#1"].attempts), len(lab.sent)))
            raise

    app = lab.make(desk)
    apps.append(app)
    await app.open()
    with contextlib.suppress(BeforehandError):
        await app.run(desk, "ann")
    await app.aclose()
    return refused


@virtual
async def test_a_refused_retry_leaves_the_attempts_that_are_on_record(lab: Lab):
    found = [one for n in range(1, 12) for one in await refused_after_an_attempt(Lab(), n)]
    assert (1, 1) in found
    assert (2, 1) not in found
