"""Closing a transaction while its code, or its caller, is still at work, and what is let go of behind it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Key,
    Natural,
    NotSent,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import SCOPE
from beforehand.errors import RunSuspended
from beforehand.journal.port import HintRequest
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
STEADY = Key.forever(stores="all")


class Shop:
    """A tool that takes, for as long as `lasts` says, and one that puts back, in two tasks of its own."""

    def __init__(self, lab: Lab, **lasts: float) -> None:
        @tool(idempotency=STEADY, retry=Retry(attempts=5, elapsed=10 * HOUR, base=HOUR, cap=HOUR))
        async def take(item: str) -> str:
            _ = current_operation().key
            if item == "unavailable":
                raise NotSent("the office is closed")
            await asyncio.sleep(lasts.get("take", 0))
            lab.sent.append(f"take {item}")
            return item

        @take.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR))
        async def put_back(operation: Operation[str]) -> None:
            await asyncio.gather(asyncio.sleep(lasts.get("put_back", 0)), asyncio.sleep(0))
            lab.sent.append(f"put back {operation.result}")

        self.take = take


@virtual
async def test_a_transaction_that_ended_keeps_nothing_of_its_drivers(lab: Lab):
    """A long run does not grow with its transactions."""
    shop, kept = Shop(lab), list[Any]()

    @agent(run_id="r-{name}", tools=[shop.take])
    async def desk(run: Run, name: str) -> str:
        for reason in ("", "no"):
            try:
                async with run.transaction("t") as boundary:
                    await boundary.on_commit(shop.take, "pen")
                    await shop.take("book")
                    if reason:
                        boundary.abort(reason)
            except TransactionAborted:
                pass
        scope = SCOPE.get()
        assert scope is not None
        one = scope.active
        drivers, waiters = one.drivers, one.waiters
        kept.extend([drivers.tasks, drivers.operations, drivers.closing, one.log.changes])
        kept.extend([waiters.watchers, waiters.wakers, waiters.resting])
        return "done"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
    assert lab.sent == ["take book", "take pen", "take book", "put back book"]
    assert not [one for one in kept if one]


@virtual
async def test_tasks_of_a_compensation_are_no_branches_of_the_code(lab: Lab):
    """The branches that code begins later have the names that they have on replay, where nothing is compensated."""
    shop = Shop(lab)

    @agent(run_id="r-{name}", tools=[shop.take])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                await shop.take("pen")
                boundary.abort("no")
        except TransactionAborted:
            pass
        await run.gather(shop.take("a"), shop.take("b"))
        await run.wait_for("go")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert [one.step for one in lab.of("r-ann", r.AttemptStarted)][2:] == ["~1/take#1", "~2/take#1"]
        await app.service.signal("r-ann", "go")
        assert await app.run(desk, "ann") == "done"


@virtual
async def test_a_call_in_flight_is_not_driven_twice_when_its_transaction_is_called_off(lab: Lab):
    shop = Shop(lab, take=5)

    @agent(run_id="r-{name}", tools=[shop.take])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                call = asyncio.create_task(shop.take("pen"))
                await asyncio.sleep(1)
                boundary.abort("no")
        except TransactionAborted as gone:
            await asyncio.gather(call, return_exceptions=True)
            return str(gone.undone)
        return "never"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "('t/~1/take#1',)"
    assert lab.sent == ["take pen", "put back pen"]
    assert len(lab.of("r-ann", r.AttemptStarted)) == 2


@virtual
async def test_what_waits_for_its_retry_is_called_off_at_once(lab: Lab):
    shop, waited = Shop(lab), list[float]()

    @agent(run_id="r-{name}", tools=[shop.take])
    async def desk(run: Run, name: str) -> str:
        begun = lab.loop.time()
        try:
            async with run.transaction("t") as boundary:
                call = asyncio.create_task(shop.take("unavailable"))
                await asyncio.sleep(1)
                boundary.abort("no")
        except TransactionAborted:
            waited.append(lab.loop.time() - begun)
            await asyncio.gather(call, return_exceptions=True)
        return "done"

    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "done"
    assert waited == [1]


@virtual
async def test_a_body_that_ends_while_its_transaction_is_called_off_takes_that_end_in_its_turn(lab: Lab):
    shop, kept = Shop(lab, put_back=45), list[set[str]]()

    @agent(run_id="r-{name}", tools=[shop.take])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("t"):
                await shop.take("pen")
                await asyncio.sleep(30)
        except TransactionAborted as gone:
            lab.sent.append(gone.reason)
        scope = SCOPE.get()
        assert scope is not None
        kept.append(set(scope.active.history.operations))
        await shop.take("book")
        await run.wait_for("go")
        return "done"

    async with lab.app(desk, hold_ms=10**9) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=10)
        await app.service.call_off("r-ann", "t", by="eve", why="enough")
        with pytest.raises(RunSuspended, match="t is called off"):
            await handle.result()
        await app.service.signal("r-ann", "go")
        assert await app.run(desk, "ann") == "done"
    assert lab.sent == ["take pen", "put back pen", "enough", "take book"]
    assert kept == [set()]


@virtual
async def test_a_read_that_returns_as_the_run_stops_answers_no_code(lab: Lab):
    @tool(effect="read")
    async def look(item: str) -> str:
        lab.sent.append("look")
        stopping[0].break_off(RuntimeError("a bug elsewhere"))
        return item

    @agent(run_id="r-{name}", tools=[look])
    async def desk(run: Run, name: str) -> str:
        scope = SCOPE.get()
        assert scope is not None
        stopping.append(scope.active)
        lab.sent.append(await look("pen"))
        return "done"

    stopping: list[ActiveRun] = []
    async with lab.app(desk) as app:
        with pytest.raises(RuntimeError, match="a bug elsewhere"):
            await app.run(desk, "ann")
    assert (lab.sent, lab.of("r-ann", r.ReadRecorded)) == (["look"], [])


@virtual
async def test_a_call_that_ends_beside_its_transaction_is_settled_once(lab: Lab):
    """The breaker of its tool closes after its outcome is on record; the transaction may be over before that."""
    reserve, book = (_reservation(name, lasts) for name, lasts in (("reserve", 0), ("book", 0.01)))

    @agent(run_id="r-{name}", tools=[reserve, book])
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(TransactionAborted):
            async with run.transaction("t"):
                await run.gather(reserve("pen"), book("room"))
        await asyncio.sleep(10)
        return "done"

    async with lab.app(desk) as app:
        await app.engine.breakers.failed("book")

        async def slowly(request: HintRequest, commit: Commit) -> object:
            await asyncio.sleep(1)
            return await commit(request)

        intercept(lab.journal, HintRequest, slowly)  # as on a busy disk
        assert await app.run(desk, "ann") == "done"
    ends = [(one.step, one.status) for one in lab.of("r-ann", r.OperationSettled)]
    assert ends == [("t/~1/reserve#1", "failed"), ("t/~2/book#1", "failed")]


def _reservation(name: str, lasts: float) -> Any:
    """A tool that can be undone, and that refuses each call after `lasts` seconds."""

    @tool(name=name, idempotency=STEADY)
    async def refused(item: str) -> str:
        _ = current_operation().key
        await asyncio.sleep(lasts)
        raise Rejected(f"no {item} is left")

    @refused.compensate(restores=True)
    @tool(name=f"{name}_undone", idempotency=Natural(within=HOUR))
    async def undone(operation: Operation[str]) -> None: ...

    return refused
