"""The edges of a driver: what it waits for before it goes on, whom it wakes, and who receives what it cannot handle."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Ambiguous,
    Happened,
    Key,
    Natural,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import JournalUnavailable, RecordRefused, RunSuspended, UsageError
from beforehand.inspect.fork import fork
from beforehand.journal.port import Write
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.model.waits import decode_waits
from beforehand.people.loaded_item import load_item
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.transcripts import bury

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
STEADY = Key.forever(stores="all")


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("tenths", range(5, 60, 5))
@virtual
async def test_a_caller_that_leaves_while_the_ledger_is_asked_leaves_one_record(lab: Lab, tenths: int, times: int):
    """The record of a held effect, with its business key, is on its way when another task goes on with the effect.

    Cancelled a second time, the caller does not wait for the ledger either.
    """

    @tool(idempotency=STEADY, claim="to")
    async def mail(to: str) -> str:
        lab.sent.append(current_operation().key)
        return to

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("t") as boundary:
            call = asyncio.create_task(boundary.on_commit(mail, name))
            await asyncio.sleep(tenths / 10)
            for _ in range(times):
                call.cancel()
                await asyncio.sleep(0.1)
            await asyncio.wait({call})
        return "done"

    lab.lag_s = 1.0
    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "done"
    planned = lab.of("r-ann", r.OperationPlanned)
    assert len(lab.of("r-ann", r.OperationHeld)) == len(lab.sent) == len(planned)


@pytest.mark.parametrize("tenths", range(5, 40, 5))
@virtual
async def test_what_was_left_and_then_refused_by_the_ledger_stands_in_no_way(
    lab: Lab, tenths: int, caplog: pytest.LogCaptureFixture
):
    """Two runs take one business key; in the second one the caller leaves, and then makes another write."""
    gc.collect()  # what earlier tests left behind is not this one's
    caplog.clear()
    lab.lag_s = 1.0

    @tool(idempotency=STEADY, claim="order")
    async def charge(order: str) -> str:
        lab.sent.append(current_operation().key)
        return order

    @agent(run_id="{name}", tools=[charge])
    async def desk(run: Run, name: str) -> str:
        task = asyncio.create_task(charge("17"))
        if name == "b":
            await asyncio.sleep(tenths / 10)
            task.cancel()
        await asyncio.wait({task})
        return await charge(f"of {name}")

    async with lab.app(desk, hold_ms=10**9) as app:
        answers = await asyncio.gather(app.run(desk, "a"), app.run(desk, "b"))
    assert answers == ["of a", "of b"]
    assert len(lab.sent) == len(set(lab.sent)) == 3
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert [len(lab.of(run, r.ContractStored)) for run in ("a", "b")] == [1, 1], "recovery judges by what was promised"
    assert [one.step for one in lab.of("b", r.CallerLeft)] == ["~1/charge#1"]


@virtual
async def test_a_fork_asks_before_it_does_again_what_was_done(lab: Lab):
    @tool(idempotency=STEADY)
    async def send(to: str) -> str:
        lab.sent.append(current_operation().key)
        return to

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "ann"
        await fork(app.engine, "r-ann", "send#1", "r-again", "eve")
        with pytest.raises(RunSuspended, match="send#1"):
            await app.resume("r-again")
    assert len(lab.sent) == 1


class Breaks:
    """A bug of the runtime itself, at a place of its own and as long as it is there."""

    def __init__(self, point: str) -> None:
        self.point, self.here = point, False

    def reached(self, point: str) -> None:
        if self.here and point == self.point:
            raise RuntimeError(f"a bug at {point}")


@pytest.mark.parametrize(
    ("what", "point"),
    [
        ("an unknown write", "before_verify"),
        ("an unknown write", "before_outcome"),
        ("a write of a dead process", "before_verify"),
        ("a compensation", "before_intent"),
        ("a compensation", "before_outcome"),
        ("the end of a transaction", "before_closing"),
    ],
)
@virtual
async def test_what_a_driver_cannot_handle_stops_the_run_whatever_its_code_catches(  # noqa: C901 - an agent, three tools
    lab: Lab, what: str, point: str
):
    """It ends the run in the open, and nothing is sent twice for it. Code would catch what no record holds."""
    breaks = Breaks(point)

    @tool
    async def send(to: str) -> str:
        lab.sent.append(f"send {to}")
        if what == "an unknown write":
            raise Ambiguous("no answer")
        if what == "a write of a dead process":
            await asyncio.sleep(5)
        return to

    @send.verify(settle_window=SECOND)
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened("found")

    @send.compensate(restores=True)
    @tool(idempotency=Natural(within=HOUR))
    async def take_back(operation: Operation[str]) -> None:
        lab.sent.append("take back")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        if "write" in what:
            breaks.here = breaks.here or what == "an unknown write"
            try:
                return await send(name)
            except Exception:  # noqa: BLE001 - as much agent code does
                return "caught"
        try:
            async with run.transaction("t") as boundary:
                await send(name)
                await asyncio.sleep(0)
                asyncio.get_running_loop().call_soon(arm)
                boundary.abort("no")
        except TransactionAborted as gone:
            return str(gone.undone)
        except Exception:  # noqa: BLE001 - as above
            return "caught"
        return "never"

    def arm() -> None:
        breaks.here = True

    if what == "a write of a dead process":
        await _dies(lab, desk)
        breaks.here = True
    async with lab.app(desk, crash=breaks, hold_ms=10**9) as app:
        with pytest.raises(RuntimeError, match=f"a bug at {point}"):
            await app.run(desk, "ann")
    assert lab.sent.count("send ann") == 1


@virtual
async def test_what_no_caller_waits_for_ends_the_run_as_well(lab: Lab):
    """Its caller was cancelled, and code inside a transaction catches everything: the run does not complete."""
    breaks, caught = Breaks("before_outcome"), list[BaseException]()

    @tool(idempotency=STEADY)
    async def send(to: str) -> str:
        lab.sent.append(current_operation().key)
        await asyncio.sleep(5)
        return to

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        call = asyncio.create_task(send(name))
        await asyncio.sleep(1)
        call.cancel()
        await asyncio.wait({call})
        try:
            async with run.transaction("t") as boundary:
                await asyncio.sleep(10)
                boundary.abort("no")
        except Exception as error:  # noqa: BLE001 - code that goes on whatever happens
            caught.append(error)
        return "done"

    async with lab.app(desk, crash=breaks, hold_ms=10**9) as app:
        breaks.here = True
        with pytest.raises(RuntimeError, match="a bug at before_outcome"):
            await app.run(desk, "ann")
        assert caught == []
        assert lab.of("r-ann", r.RunStoppedRecord)[-1].open == ("~1/send#1",)
        breaks.here = False
        assert await app.resume("r-ann", by="eve") == "done"
    assert len(set(lab.sent)) == 1
    assert [type(one) for one in caught] == [TransactionAborted]


@pytest.mark.parametrize("refused", [False, True], ids=["unavailable", "refused"])
@virtual
async def test_code_does_not_receive_what_the_journal_answered_to_a_driver(lab: Lab, refused: bool):
    """The end of a transaction is not recorded: its code cannot take that for an end, and the next drive records it."""
    desk, caught = returns(lab)
    error = RecordRefused("too large") if refused else JournalUnavailable("the disk is gone", next_step="wait")
    async with lab.app(desk) as app:
        with fails_at(lab, r.TransactionAbortedRecord, error), pytest.raises(type(error)):
            await app.run(desk, "ann")
        assert (caught, (await app.service.row("r-ann")).status) == ([], "stopped" if refused else "running")
        assert await app.resume("r-ann", by="eve") == "done"
    assert lab.sent == ["put back"]
    assert [type(one) for one in caught] == [TransactionAborted]


def returns(lab: Lab) -> tuple[Any, list[BaseException]]:
    """An agent that takes and puts back, and goes on whatever its transaction raises; and what that was."""
    caught: list[BaseException] = []

    @tool(idempotency=STEADY)
    async def take(item: str) -> str:
        _ = current_operation().key
        return item

    @take.compensate(restores=True)
    @tool(idempotency=Natural(within=HOUR))
    async def put_back(operation: Operation[str]) -> None:
        lab.sent.append("put back")

    @agent(run_id="r-{name}", tools=[take])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                await take("pen")
                boundary.abort("no")
        except Exception as error:  # noqa: BLE001 - code that goes on whatever happens
            caught.append(error)
        return "done"

    return desk, caught


@contextlib.contextmanager
def fails_at(lab: Lab, kind: type, error: Exception) -> Generator[None]:
    """The journal answers with `error` where a record of this kind is to be stored."""
    process = lab.processes[-1]

    async def failing(write: Write, commit: Commit) -> None:
        if any(isinstance(decode(row.body), kind) for row in write.rows):
            raise error
        await commit(write)

    as_before = intercept(process, Write, failing)
    try:
        yield
    finally:
        as_before()


async def _dies(lab: Lab, desk: Any) -> None:
    """A process dies while it drives the run."""
    async with lab.app(desk) as app:
        driving = asyncio.ensure_future(app.run(desk, "ann"))
        await asyncio.sleep(1)
        await bury(lab, app, driving)


@virtual
async def test_a_parked_transaction_is_asked_about_once_for_each_reason(lab: Lab):
    """Looking again asks nothing new; what fails for another reason after a retry is another question."""
    answers: list[Exception] = [Rejected("the shelf is full"), Rejected("the shelf is gone")]

    @tool(idempotency=STEADY)
    async def take(item: str) -> str:
        _ = current_operation().key
        return item

    @take.compensate(restores=True)
    @tool(idempotency=Natural(within=HOUR))
    async def put_back(operation: Operation[str]) -> None:
        if answers:
            raise answers.pop(0)
        lab.sent.append("put back")

    @agent(run_id="r-{name}", tools=[take])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("t") as boundary:
            await take("pen")
            await take("book")
            boundary.abort("no")
        return "never"

    async with lab.app(desk) as app:
        for _ in range(3):
            with pytest.raises(RunSuspended, match=r"partly undone: t/take#2/undo is failed: .*the shelf is full"):
                await app.run(desk, "ann")
        await app.service.resolve_transaction("r-ann", "t", "retry", by="eve")
        for _ in range(2):
            with pytest.raises(RunSuspended, match=r"partly undone: t/take#2/undo#2 is failed: .*the shelf is gone"):
                await app.run(desk, "ann")
        parked = lab.of("r-ann", r.TransactionParked)
        with pytest.raises(UsageError, match="does not say what was shown"):
            await app.service.resolve_transaction("r-ann", "t", "accept", by="eve")
        shown = (await load_item(app.service.reader, "r-ann/t")).digest
        (listed,) = decode_waits((await app.service.row("r-ann")).waits)
        assert listed.shown == shown
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await app.service.resolve_transaction("r-ann", "t", "accept", by="eve", shown="f" * 12)
        await app.service.resolve_transaction("r-ann", "t", "accept", by="eve", shown=shown)
        with pytest.raises(TransactionAborted) as gone:
            await app.run(desk, "ann")
    assert [(one.stuck, one.undone, one.still_standing) for one in parked] == [
        (("t/take#2",), (), ("t/take#1", "t/take#2"))
    ] * 2
    assert len({one.until for one in parked} | {0}) == 2
    assert (gone.value.undone, gone.value.still_standing) == (("t/take#1",), ("t/take#2",))
    assert lab.sent == ["put back"]
