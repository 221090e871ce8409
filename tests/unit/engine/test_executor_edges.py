"""The edges of one operation's way: where its window begins, what a retry costs, who hears of a call that is left."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest

from beforehand import (
    Ambiguous,
    CannotTell,
    Deferred,
    DidNotHappen,
    Happened,
    Key,
    Natural,
    NotSent,
    Once,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.breaker import BUCKET, REFILL_PER_MS
from beforehand.errors import OperationFailed, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
AT_ONCE = Retry(attempts=3, elapsed=timedelta(hours=1), base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))


@pytest.mark.parametrize("ends", ["by its own word", "by its time limit"])
@virtual
async def test_a_settle_window_begins_when_the_call_has_ended(lab: Lab, ends: str):
    """The call takes longer than the window, and its effect lands within the window after its end."""
    landed: list[float] = []

    @tool(timeout=40 * SECOND)
    async def send(to: str) -> str:
        lab.sent.append(to)
        landed.append(lab.loop.time() + 65)
        await lab.pass_time(seconds=40 if ends == "by its own word" else 80)
        raise Ambiguous("no answer")

    @send.verify(settle_window=30 * SECOND, every=5 * SECOND)
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened("there") if landed and landed[0] <= lab.loop.time() else DidNotHappen("not there")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "there"
    assert lab.sent == ["ann"]


@virtual
async def test_every_retry_is_charged_to_the_budget_that_all_share(lab: Lab):
    """One call after another needs a second attempt: no breaker opens, and the bucket is empty in the end."""
    calls = int(BUCKET) + 10

    @tool(retry=AT_ONCE)
    async def send(number: int) -> str:
        if current_operation().attempt == 1:
            raise NotSent("busy")
        return "sent"

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        for number in range(calls):
            await send(number)
        return "all"

    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "all"
    refilled = (calls - BUCKET - 1) / REFILL_PER_MS / 1000
    assert refilled <= lab.loop.time() < refilled + 2


@virtual
async def test_a_first_attempt_under_a_key_that_was_used_before_ends_before_that_is_forgotten(lab: Lab):
    """A person released the business key; what takes it next sends the same outside key, whose time began before."""
    left: list[float] = []
    answers: list[Exception] = [Ambiguous("no answer")]

    @tool(idempotency=Key(ttl=10 * MINUTE), timeout=MINUTE, claim="invoice", retry=Retry(attempts=1))
    async def charge(invoice: str) -> str:
        lab.sent.append(current_operation().key)
        left.append(current_operation().seconds_left)
        if answers:
            raise answers.pop()
        return "charged"

    @agent(run_id="r-{name}", tools=[charge])
    async def desk(run: Run, name: str) -> str:
        return await charge("17")

    async with lab.app(desk, clock_error_ms=0) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/charge#1", "did_not_happen", by="eve")
        with pytest.raises(OperationFailed):
            await app.run(desk, "ann")
        await lab.pass_time(minutes=8, seconds=40)
        assert await app.run(desk, "bob") == "charged"
    assert len(set(lab.sent)) == 1
    assert [round(seconds) for seconds in left] == [60, 20]


class Hotel:
    """Rooms under business keys, in runs whose transactions are called off."""

    def __init__(self, lab: Lab, *, leaves: bool = True) -> None:
        self.keys: dict[str, list[str]] = {"book": [], "leave": []}

        @tool(idempotency=Key.forever(), claim="room", once=Once("room"))
        async def book(room: str) -> str:
            self.keys["book"].append(current_operation().key)
            lab.sent.append(f"book {room}")
            return room

        @book.compensate(restores=True)
        @tool(idempotency=Key.forever())
        async def leave(operation: Operation[str]) -> None:
            self.keys["leave"].append(current_operation().key)
            if not leaves:
                raise Rejected("it is occupied")
            lab.sent.append(f"leave {operation.result}")

        @agent(run_id="r-{name}", tools=[book])
        async def desk(run: Run, name: str) -> str:
            try:
                async with run.transaction("stay") as stay:
                    await book("12")
                    stay.abort("no")
            except TransactionAborted as gone:
                return str(gone.undone)
            return "booked"

        @agent(run_id="once-{name}", tools=[book])
        async def once(run: Run, name: str) -> str:
            return (await book.outcome("12")).reused

        self.desk, self.once = desk, once


@virtual
async def test_a_compensation_has_no_part_in_the_business_key(lab: Lab):
    """Two runs book the same room one after the other, and both are undone: each undoing is an effect of its own."""
    hotel = Hotel(lab)
    async with lab.app(hotel.desk) as app:
        for name in ("ann", "bob"):
            assert await app.run(hotel.desk, name) == "('stay/book#1',)"
    assert lab.sent == ["book 12", "leave 12", "book 12", "leave 12"]
    assert len({*hotel.keys["book"], *hotel.keys["leave"]}) == 4


@virtual
async def test_what_a_compensation_takes_over_from_what_it_undoes(lab: Lab):
    hotel = Hotel(lab)
    async with lab.app(hotel.desk) as app:
        await app.run(hotel.desk, "ann")
    forward = next(one.intent for one in lab.of("r-ann", r.AttemptStarted) if one.step == "stay/book#1")
    (plan,) = (one for one in lab.of("r-ann", r.OperationPlanned) if one.step == "stay/book#1/undo")
    digests = {record.digest for record in lab.of("r-ann", r.ContractStored)}
    assert (plan.intent.tool, plan.intent.contract in digests - {forward.contract}) == ("leave", True)
    assert (plan.intent.arguments, plan.intent.digest) == (forward.arguments, forward.digest)
    assert (plan.intent.compensates, plan.intent.confirms, plan.intent.origin) == ("stay/book#1", "", "code")
    assert (forward.claim, forward.generation, forward.outside, bool(forward.words)) == ("12", 1, 1, True)
    assert (plan.intent.claim, plan.intent.generation, plan.intent.outside, plan.intent.words) == ("", 0, 0, "")
    assert {bytes(plan.intent.observed), bytes(plan.intent.expected)} == {bytes(r.NOTHING)}
    assert plan.intent.hold == ""


@virtual
async def test_a_held_effect_is_confirmed_and_undone_under_names_of_its_own(lab: Lab):
    """What it relied on, expects and waits for is its own: nothing of that is asked of what confirms it."""
    seen: list[str] = []

    @tool(idempotency=Key.forever())
    async def reserve(seat: str) -> str:
        _ = current_operation().key
        return seat

    @reserve.observe
    async def free(operation: Operation[str]) -> str:
        return "free"

    @reserve.expect
    def taken(seat: str) -> str:
        return seat

    @reserve.verify(settle_window=0 * SECOND)
    async def there(operation: Operation[str]) -> Verdict[str]:
        return Happened(operation.arguments["seat"])

    @reserve.compensate(restores=True)
    @tool(idempotency=Natural())
    async def release(operation: Operation[str]) -> None:
        seen.append("released")

    @reserve.confirm
    @tool(idempotency=Natural())
    async def take(operation: Operation[str]) -> str:
        seen.append(f"{operation.id} under {current_operation().step}")
        return operation.result

    @agent(run_id="r-{name}", tools=[reserve])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("t"):
            return await reserve("12A")

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "12A"
    (plan,) = lab.of("r-ann", r.OperationPlanned)[-1:]
    assert plan.step == "t/reserve#1/confirm"
    assert {bytes(plan.intent.observed), bytes(plan.intent.expected)} == {bytes(r.NOTHING)}
    assert (plan.intent.confirms, plan.intent.compensates) == ("t/reserve#1", "")
    assert lab.of("r-ann", r.CompensationLinked) == []
    assert seen == ["r-ann/t/reserve#1 under t/reserve#1/confirm"]


@virtual
async def test_what_left_at_a_commit_is_undone_at_once(lab: Lab):
    """A model chose it and it was held: what undoes it is neither."""

    @tool(idempotency=Key.forever())
    async def mail(to: str) -> str:
        _ = current_operation().key
        lab.sent.append(f"mail {to}")
        return to

    @mail.compensate
    @tool(idempotency=Key.forever(), once=Once("to", then="block"))
    async def correct(operation: Operation[str], to: str) -> None:
        _ = current_operation().key
        lab.sent.append(f"correct {to}")

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("t") as boundary:
            await boundary.on_commit(mail, "ann@example.com")
        await run.call("mail", {"to": "bob@example.com"})
        return "sent"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "sent"
        undone = await app.undo("r-ann", by="ann")
    assert undone.undone == ("t/mail#1", "mail#1")
    assert lab.sent[2:] == ["correct bob@example.com", "correct ann@example.com"]
    plans = [one.intent for one in lab.of("r-ann", r.OperationPlanned) if one.intent.compensates]
    assert [(plan.origin, plan.hold) for plan in plans] == [("code", ""), ("code", "")]


@virtual
async def test_an_effect_whose_compensation_failed_still_holds_its_business_key(lab: Lab):
    """It stands: another run reuses it, and does not do it once more."""
    hotel = Hotel(lab, leaves=False)
    async with lab.app(hotel.desk, hotel.once) as app:
        with pytest.raises(RunSuspended, match="partly undone"):
            await app.run(hotel.desk, "ann")
        assert await app.run(hotel.once, "bob") == "r-ann/stay/book#1"
    assert lab.sent == ["book 12"]


@virtual
async def test_a_success_that_cannot_be_read_back_says_so(lab: Lab):
    @tool
    async def send(to: str) -> str:
        return "sent"

    @send.expect
    def to_be_there(to: str) -> str:
        return to

    @send.verify(settle_window=SECOND, every=SECOND, deadline=5 * SECOND)
    async def find(operation: Operation[str]) -> Verdict[str]:
        return CannotTell("the folder is shut")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "sent"
    (settled,) = lab.of("r-ann", r.OperationSettled)
    assert (settled.unverified, settled.basis.by) == (True, "returned")


@virtual
async def test_a_read_is_never_answered_later(lab: Lab):
    @tool(effect="read", retry=Retry(attempts=1))
    async def look(name: str) -> str:
        raise Deferred("they will call", within=timedelta(hours=1), key="K-1")

    @agent(run_id="r-{name}", tools=[look])
    async def desk(run: Run, name: str) -> str:
        return (await look.outcome(name)).status

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "failed"
    assert lab.of("r-ann", r.OperationDeferred) == []


@virtual
async def test_a_late_refusal_of_a_second_send_proves_nothing_about_the_first(lab: Lab):
    """The call was given up and still runs; in it a client library had sent once before."""

    @tool(timeout=5 * SECOND)
    async def send(to: str) -> str:
        for _ in range(2):
            current_operation().check_send()
        with contextlib.suppress(asyncio.CancelledError):
            await lab.pass_time(seconds=60)
        await lab.pass_time(seconds=10)
        raise ConnectionRefusedError

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(seconds=60)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert [report.end.kind for report in lab.of("r-ann", r.LateReport)] == ["ambiguous"]


@virtual
async def test_nothing_goes_on_while_the_code_of_a_run_that_ends_is_cleaning_up(lab: Lab):
    read: list[float] = []

    @tool
    async def send(to: str) -> str:
        raise Ambiguous("no answer")

    @send.verify(settle_window=None, every=SECOND / 10, deadline=10 * MINUTE)
    async def find(operation: Operation[str]) -> Verdict[str]:
        read.append(lab.loop.time())
        return CannotTell("not yet")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        call = asyncio.create_task(send(name))
        await asyncio.sleep(1)
        call.cancel()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(2)
        return "never"

    async with lab.app(desk, hold_ms=10**9, grace_ms=5_000) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=10)
        assert len(read) > 50
        await app.service.pause("r-ann", by="eve")
        with pytest.raises(RunSuspended):
            await handle.result()
        assert lab.loop.time() - read[-1] > 1.5


@virtual
async def test_redacted_arguments_that_come_after_the_driver_began_to_wait_for_them_are_sent(lab: Lab):
    """After a restart the driver of a retry is there first, and only the code has the arguments."""
    busy = [True]

    @tool(redact=["card"], idempotency=Key.forever(), retry=Retry(attempts=5, elapsed=timedelta(days=3)))
    async def pay(card: str) -> str:
        _ = current_operation().key
        if busy:
            raise NotSent("later", retry_after=7200)
        lab.sent.append(card)
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        await asyncio.sleep(5)  # what the code does before it comes back to its call
        return await pay("4111")

    await lab.until_suspended(desk, "ann")
    busy.clear()
    await lab.pass_time(hours=3)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "paid"
    assert lab.sent == ["4111"]
