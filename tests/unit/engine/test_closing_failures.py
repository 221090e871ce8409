"""A run is not recorded as undone or cancelled before its transactions are closed, whatever fails on the way."""

from typing import Any

import pytest

from beforehand import Beforehand, Key, Operation, Run, TransactionAborted, agent, current_operation, tool
from beforehand.engine import executor, transactions
from beforehand.engine.invoke import invoke
from beforehand.engine.operation_driver import OperationDriver
from beforehand.errors import BeforehandError, JournalError, RunStopped
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

STALE = {"lease_ms": 6000, "margin_ms": 5900, "poll_ms": 1000}  # the lease is never fresh when something is sent
BOOKED = ["book", "cancel"]


def booking(lab: Lab, *, waits: bool) -> Any:
    """An agent that books in a transaction, and then waits in it or ends."""

    @tool(idempotency=Key.forever())
    async def book(what: str) -> str:
        _ = current_operation().key
        lab.sent.append("book")
        return what

    @book.compensate(restores=True)
    @tool(idempotency=Key.forever())
    async def cancel(operation: Operation[str]) -> None:
        _ = current_operation().key
        lab.sent.append("cancel")

    @agent(run_id="trip-{name}")
    async def trip(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await book("room")
            if waits:
                await run.wait_for("confirmed")
        return "booked"

    return trip


async def ordered(app: Beforehand, *, undo: bool) -> None:
    """Undo or cancel the run, and see it through."""
    if undo:
        await app.undo("trip-ann", by="ann")
        return
    with pytest.raises(RunStopped, match="cancelled"):
        await cancelled(app)


async def cancelled(app: Beforehand) -> None:
    await app.service.cancel("trip-ann", by="ann")
    await app.resume("trip-ann")


async def begun(lab: Lab, app: Beforehand, trip: Any, *, undo: bool) -> None:
    if undo:
        await app.run(trip, "ann")
    else:
        with pytest.raises(BeforehandError):
            await app.run(trip, "ann")
    assert lab.sent == ["book"]


def ends(lab: Lab) -> tuple[int, int]:
    """How often the run was recorded as undone or cancelled, and how often its transaction as called off."""
    over = [one for one in lab.of("trip-ann", r.RunStoppedRecord) if one.reason == "cancelled"]
    over += lab.of("trip-ann", r.RunUndone)
    return len(over), len(lab.of("trip-ann", r.TransactionAbortedRecord))


@pytest.mark.parametrize("undo", [True, False], ids=["undo", "cancel"])
@virtual
async def test_a_lease_that_is_renewed_first_stops_no_compensation(lab: Lab, undo: bool):
    trip = booking(lab, waits=not undo)
    async with lab.app(trip, **STALE) as app:
        await begun(lab, app, trip, undo=undo)
        await lab.pass_time(seconds=1.5)
        await ordered(app, undo=undo)
    assert lab.sent == BOOKED
    assert ends(lab) == (1, 1)


@pytest.mark.parametrize("undo", [True, False], ids=["undo", "cancel"])
@virtual
async def test_a_boundary_whose_task_failed_stops_the_run_with_that_error(
    lab: Lab, undo: bool, monkeypatch: pytest.MonkeyPatch
):
    trip = booking(lab, waits=not undo)

    def broken(*given: Any) -> Any:
        raise ZeroDivisionError("a bug in the runtime")

    async with lab.app(trip) as app:
        await begun(lab, app, trip, undo=undo)
        with monkeypatch.context() as patched:
            patched.setattr(transactions, "close", broken)
            with pytest.raises(ZeroDivisionError):
                await (app.undo("trip-ann", by="ann") if undo else cancelled(app))
        assert ends(lab) == (0, 0)
        stopped = lab.of("trip-ann", r.RunStoppedRecord)[-1]
        assert (stopped.reason, "a bug in the runtime" in stopped.error) == ("error", True)
        if undo:
            await app.undo("trip-ann", by="ann")
        else:
            with pytest.raises(TransactionAborted):  # reopened by a person: its code goes on, after the closing
                await app.resume("trip-ann")
    assert lab.sent == BOOKED
    assert ends(lab) == (int(undo), 1)


@pytest.mark.parametrize("undo", [True, False], ids=["undo", "cancel"])
def test_whichever_journal_call_fails_the_run_ends_after_its_transaction(undo: bool):
    @virtual
    async def failing_at(lab: Lab, n: int) -> bool:
        trip = booking(lab, waits=not undo)
        async with lab.app(trip, poll_ms=1000) as app:
            await begun(lab, app, trip, undo=undo)
            lab.journal.fail_next(n)
            failed = False
            try:
                await ordered(app, undo=undo)
            except (JournalError, pytest.fail.Exception):
                failed = True
            over, closed = ends(lab)
            assert over <= closed, "recorded as over before its transaction was"
            lab.journal.fail_next(0)
            await lab.pass_time(minutes=1)
        async with lab.app(trip, poll_ms=1000) as app:
            if ends(lab)[0] == 0:
                await ordered(app, undo=undo)
        assert (lab.sent, ends(lab)) == (BOOKED, (1, 1))
        verdicts.append(failed)
        return failed

    verdicts: list[bool] = []
    for n in range(1, 60):
        failing_at(n=n)
    assert any(verdicts)
    assert not verdicts[-1], "more journal calls than were tried"


def calling_off(lab: Lab, *, catches: bool) -> Any:
    """An agent whose transaction is called off, and which goes on with another plan whatever it is told."""

    @tool(idempotency=Key.forever())
    async def book(what: str) -> str:
        _ = current_operation().key
        lab.sent.append(what)
        return what

    @book.compensate(restores=True)
    @tool(idempotency=Key.forever())
    async def cancel(operation: Operation[str]) -> None:
        _ = current_operation().key
        lab.sent.append(f"cancel {operation.arguments['what']}")

    @agent(run_id="trip-{name}")
    async def trip(run: Run, name: str) -> str:
        try:
            async with run.transaction("trip") as boundary:
                await book("room")
                boundary.abort("too dear")
        except TransactionAborted as gone:
            return f"called off: {gone.reason}"
        except Exception:
            if not catches:
                raise
        return await book("tent")

    return trip


@pytest.mark.parametrize("catches", [False, True], ids=["raises", "catches"])
@pytest.mark.parametrize("where", ["the boundary", "the compensation"])
@virtual
async def test_an_error_of_the_runtime_at_the_end_of_a_transaction_is_not_for_agent_code(
    lab: Lab, where: str, catches: bool, monkeypatch: pytest.MonkeyPatch
):
    """It is not recorded, so code that catches it would go another way than after the repair."""
    trip = calling_off(lab, catches=catches)

    def broken(*given: Any) -> Any:
        raise ZeroDivisionError("a bug in the runtime")

    async def broken_call(flight: OperationDriver, started: r.AttemptStarted) -> Any:
        return broken() if flight.operation.intent.serves else await invoke(flight, started)

    async with lab.app(trip) as app:
        with monkeypatch.context() as patched:
            if where == "the boundary":
                patched.setattr(transactions, "close", broken)
            else:
                patched.setattr(executor, "invoke", broken_call)
            with pytest.raises(ZeroDivisionError):
                await app.run(trip, "ann")
        assert lab.of("trip-ann", r.RunStoppedRecord)[-1].reason == "error"
        assert lab.sent == ["room"]
        assert await app.resume("trip-ann") == "called off: too dear"
    assert lab.sent == ["room", "cancel room"]
