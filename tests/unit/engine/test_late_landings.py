"""Effects that turn out otherwise after their transaction was called off: it is raised again, and never silently."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Conflict,
    Happened,
    Key,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import JournalUnavailable, RunSuspended
from beforehand.inspect.explain import explain
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.people.answering import answer
from beforehand.people.answers import CompensateAnswer
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual

SECOND = timedelta(seconds=1)
STEADY = Key.forever(stores="all")


@dataclass
class Hotel:
    """A hotel that answers a booking only when it is let go, which may be long after the caller gave up."""

    lab: Lab
    answer: threading.Event = field(default_factory=threading.Event)
    refusals: list[Exception] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)

    def book(self, room: str) -> str:
        with self.lab.loop.passing():
            self.answer.wait(20)
        self.lab.sent.append(f"book {room}")
        return room


def seats(world: Hotel) -> Any:
    """A reservation that is confirmed or released."""

    @tool(idempotency=STEADY)
    async def reserve(seat: str) -> str:
        return current_operation().key and seat

    @reserve.compensate(restores=True)
    @tool(idempotency=STEADY)
    async def release(operation: Operation[str]) -> None:
        world.confirmed.append(f"released {current_operation().key}")

    @reserve.confirm(expires=timedelta(hours=1))
    @tool(idempotency=STEADY)
    async def confirm(operation: Operation[str]) -> None:
        world.confirmed.append(current_operation().key and operation.step)

    return reserve


def hotel(lab: Lab, *, absent_safe: bool = False) -> Any:
    """An agent whose booking may land late, alone or in an inner transaction; it goes on for a minute."""
    world = Hotel(lab)

    @tool(timeout=2 * SECOND)
    def book(room: str) -> str:
        return world.book(room)

    @book.compensate(restores=True, absent_safe=absent_safe)
    @tool(idempotency=STEADY)
    async def give_back(operation: Operation[str], room: str) -> None:
        if world.refusals:
            raise world.refusals.pop()
        lab.sent.append(f"give back {room} {current_operation().key[-4:]}")

    reserve = seats(world)

    async def part(run: Run, room: str) -> str:
        try:
            async with run.transaction("part") as inner:
                outcome = await book.outcome(room)
                inner.abort(f"the booking is {outcome.status}")
        except TransactionAborted as error:
            return f"undone {len(error.undone)}, standing {len(error.still_standing)}"
        return "never"

    @agent(run_id="{shape}", tools=[book, reserve])
    async def stay(run: Run, shape: str) -> str:
        pause = asyncio.create_task(run.sleep(timedelta(seconds=25)))
        if shape == "nested":
            async with run.transaction("trip"):
                await reserve("12A")
                said = await part(run, "7")
                await pause
        else:
            said = await part(run, "7")
            await pause
        if shape == "long":
            await run.sleep(timedelta(seconds=25))
        return said

    return stay, world


async def fails_then_lands(lab: Lab, app: Any, world: Hotel, step: str) -> None:
    """A person says that the booking never happened; its transaction is called off; then it lands."""
    await lab.pass_time(seconds=5)
    await app.service.resolve(step, "did_not_happen", by="eve")
    await lab.pass_time(seconds=2)
    world.answer.set()
    await lab.until(lambda: bool(lab.of(step.partition("/")[0], r.Contradicted)))


@virtual
async def test_what_lands_after_its_transaction_was_called_off_is_compensated_then(lab: Lab):
    stay, world = hotel(lab)
    async with lab.app(stay) as app:
        handle = app.start(stay, "flat")
        await fails_then_lands(lab, app, world, "flat/part/book#1")
        assert await handle.result() == "undone 0, standing 0"
        (boundary,) = (await app.service.history("flat")).boundaries.by_name.values()
    assert [line[:9] for line in lab.sent] == ["book 7", "give back"]
    assert (boundary.phase, boundary.undone) == ("aborted", ("part/book#1",))
    assert "news came about part/book#1" in lab.of("flat", r.TransactionParked)[0].why


@virtual
async def test_what_lands_late_in_an_inner_part_is_compensated_before_the_outer_one_commits(lab: Lab):
    stay, world = hotel(lab)
    async with lab.app(stay) as app:
        handle = app.start(stay, "nested")
        await fails_then_lands(lab, app, world, "nested/trip/part/book#1")
        assert await handle.result() == "undone 0, standing 0"
        transactions = (await app.service.history("nested")).boundaries.by_name
    assert [line[:9] for line in lab.sent] == ["book 7", "give back"]
    assert {one.name: one.phase for one in transactions.values()} == {"trip": "committed", "trip/part": "aborted"}


@virtual
async def test_a_reservation_is_confirmed_once_after_a_compensation_was_tried_again(lab: Lab):
    """The outer transaction commits after a person had the compensation of the inner part tried again."""
    stay, world = hotel(lab)
    world.refusals.append(Rejected("the desk is closed"))
    async with lab.app(stay) as app:
        handle = app.start(stay, "nested")
        await fails_then_lands(lab, app, world, "nested/trip/part/book#1")
        with pytest.raises(RunSuspended, match=r"trip/part/book#1/undo is failed: .*the desk is closed"):
            await handle.result()
        await app.service.resolve_transaction("nested", "trip", "retry", by="eve")
        assert await app.resume("nested") == "undone 0, standing 0"
    assert world.confirmed == ["trip/reserve#1"]
    assert [one.step for one in lab.of("nested", r.OperationPlanned)] == [
        "trip/part/book#1/undo", "trip/part/book#1/undo#2", "trip/reserve#1/confirm",
    ]  # fmt: skip


@virtual
async def test_what_landed_after_its_compensation_is_shown_to_a_person(lab: Lab):
    """Whether the compensation met the effect is not known: it may have come before it, and changed nothing."""
    stay, world = hotel(lab, absent_safe=True)
    async with lab.app(stay) as app:
        with pytest.raises(RunSuspended):
            await app.run(stay, "flat")
        await app.service.call_off("flat", "part", by="eve", why="enough")
        handle = app.start(stay, "flat")
        await lab.until(lambda: any(line.startswith("give back") for line in lab.sent))
        await lab.until(lambda: bool(lab.of("flat", r.TransactionAbortedRecord)))
        await app.service.resolve("flat/part/book#1", "happened", by="bob", result="7")
        with pytest.raises(RunSuspended, match="turned out otherwise after part/book#1/undo had been begun"):
            await handle.result()
        parked = lab.of("flat", r.TransactionParked)[-1]
        assert (parked.undone, parked.still_standing) == ((), ("part/book#1",))
        await app.service.resolve_transaction("flat", "part", "retry", by="eve")
        assert await app.resume("flat") == "undone 1, standing 0"
        world.answer.set()
    keys = [line[-4:] for line in lab.sent if line.startswith("give back")]
    assert len(keys) == len(set(keys)) == 2
    assert lab.of("flat", r.TransactionAbortedRecord)[-1].undone == ("part/book#1",)


async def compensated_unknown(lab: Lab, app: Any, stay: Any, name: str) -> Any:
    """The transaction is called off, and its unknown booking compensated, which asks no person."""
    with pytest.raises(RunSuspended):
        await app.run(stay, name)
    await app.service.call_off(name, "part", by="eve", why="enough")
    handle = app.start(stay, name)
    await lab.until(lambda: bool(lab.of(name, r.TransactionAbortedRecord)))
    await lab.pass_time(seconds=1)  # after which the listing is current
    assert await items(app.service.reader) == []
    return handle


@virtual
async def test_a_report_that_an_effect_compensated_unknown_happened_parks_its_transaction(lab: Lab):
    stay, world = hotel(lab, absent_safe=True)
    async with lab.app(stay) as app:
        handle = await compensated_unknown(lab, app, stay, "long")
        world.answer.set()
        await lab.until(lambda: not app.engine.calls.open)
        with pytest.raises(RunSuspended, match="turned out otherwise after part/book#1/undo had been begun"):
            await handle.result()
        parked = lab.of("long", r.TransactionParked)[-1]
        assert (parked.undone, parked.still_standing) == ((), ("part/book#1",))
        assert {one.item for one in await items(app.service.reader)} == {"long/part", "long/part/book#1"}
        await app.service.resolve_transaction("long", "part", "retry", by="eve")
        assert await app.resume("long") == "undone 1, standing 0"
    assert len({line for line in lab.sent if line.startswith("give back")}) == 2


@virtual
async def test_a_report_that_comes_when_the_run_has_ended_opens_a_review(lab: Lab):
    stay, world = hotel(lab, absent_safe=True)
    async with lab.app(stay, recover=True) as app:
        handle = await compensated_unknown(lab, app, stay, "flat")
        assert await handle.result() == "undone 1, standing 0"
        world.answer.set()
        await lab.until(lambda: not app.engine.calls.open)
        await lab.pass_time(seconds=20)
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item) == ("review", "flat/part/book#1")
        assert item.asks == "it is recorded as unknown, and was contradicted: attempt 1 reported late: returned"
        assert (await dossier(app.service, item.item)).open
        why = await explain(app.service.reader, item.item, Now("b", 0, EPOCH_MS, 0))
        assert "beforehand resolve flat/part/book#1 --happened --evidence TEXT --by NAME" in why.next_step
        await answer(app.service, item.item, CompensateAnswer("the hotel says so"), by="eve")
        undone = await app.undo("flat", by="eve")
        assert "part/book#1 turned out otherwise" in undone.waits
        await app.service.resolve_transaction("flat", "", "retry", by="eve")
        await app.undo("flat", by="eve")
        assert await items(app.service.reader) == []
    assert len({line for line in lab.sent if line.startswith("give back")}) == 2


@virtual
async def test_what_is_found_after_its_compensation_is_shown_although_another_attempt_was_ordered(lab: Lab):
    """A person asked for one more attempt, which a transaction that was called off does not make: it is read back."""
    there: list[str] = []

    @tool
    async def book(room: str) -> str:
        raise ConnectionResetError("gone")

    @book.verify(settle_window=SECOND, deadline=timedelta(hours=1))
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened(there[0]) if there else Conflict("somebody else is in there")

    @book.compensate(restores=True, absent_safe=True)
    @tool(idempotency=STEADY)
    async def give_back(operation: Operation[str], room: str) -> None:
        lab.sent.append(f"give back {room} {current_operation().key[-4:]}")

    @agent(run_id="{name}", tools=[book])
    async def stay(run: Run, name: str) -> str:
        try:
            async with run.transaction("part"):
                await book("7")
        except TransactionAborted as error:
            return f"undone {len(error.undone)}, standing {len(error.still_standing)}"
        return "never"

    async with lab.app(stay, slow_verify_ms=10**9) as app:
        with pytest.raises(RunSuspended):
            await app.run(stay, "flat")
        await app.service.call_off("flat", "part", by="eve", why="enough")
        with pytest.raises(RunSuspended):
            await app.resume("flat")
        assert lab.of("flat", r.TransactionAbortedRecord)[-1].undone == ("part/book#1",)
        there.append("7")
        await app.service.resolve("flat/part/book#1", "retry", by="bob")
        with pytest.raises(RunSuspended, match="turned out otherwise after part/book#1/undo had been begun"):
            await app.resume("flat")
        parked = lab.of("flat", r.TransactionParked)[-1]
        assert (parked.undone, parked.still_standing) == ((), ("part/book#1",))
        await app.service.resolve_transaction("flat", "part", "retry", by="eve")
        assert await app.resume("flat") == "undone 1, standing 0"
    assert len(set(lab.sent)) == len(lab.sent) == 2


@virtual
async def test_a_journal_that_fails_while_a_transaction_is_raised_again_ends_the_drive(lab: Lab):
    """The run does not complete beside an effect that nothing compensates; the next drive compensates it."""
    stay, world = hotel(lab)

    async def read(*_: object) -> object:
        raise JournalUnavailable("the disk is gone", next_step="wait")

    async with lab.app(stay) as app:
        handle = app.start(stay, "flat")
        await lab.pass_time(seconds=3)
        lab.loop.call_later(6, vars(lab.processes[-1]).update, {"read": read})
        await fails_then_lands(lab, app, world, "flat/part/book#1")
        with pytest.raises(JournalUnavailable):
            await handle.result()
        del vars(lab.processes[-1])["read"]
        assert not lab.of("flat", r.RunCompleted) + lab.of("flat", r.RunStoppedRecord)
    async with lab.app(stay) as app:
        assert await app.resume("flat") == "undone 0, standing 0"
    assert [line[:9] for line in lab.sent] == ["book 7", "give back"]


def two_rooms(lab: Lab) -> Any:
    """An agent with two transactions side by side: a letter that cannot be undone, and a booking that is unknown."""

    @tool(idempotency=STEADY)
    async def mail(to: str) -> str:
        return current_operation().key and to

    @tool
    async def book(room: str) -> str:
        raise ConnectionResetError("gone")

    @book.verify(settle_window=SECOND, deadline=timedelta(hours=1))
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Conflict("another guest is in there")

    @book.compensate(restores=True, absent_safe=True)
    @tool(idempotency=STEADY)
    async def give_back(operation: Operation[str], room: str) -> None:
        lab.sent.append(f"give back {room} {current_operation().key[-4:]}")

    @agent(run_id="{name}", tools=[book, mail])
    async def stay(run: Run, name: str) -> str:
        async def part(room: str) -> None:
            with contextlib.suppress(TransactionAborted):
                async with run.transaction(room):
                    await mail.options(hold=False)(room)
                    await book(room)

        await run.gather(part("a"), part("b"))
        await run.wait_for("go")
        return "done"

    return stay


@virtual
async def test_each_transaction_that_is_raised_again_shows_its_own_news_and_its_first_end(lab: Lab):
    """What stood after its first end is in every later word about it, although code was told of that end before."""
    stay, parts = two_rooms(lab), ("~1/a", "~2/b")

    async def suspends() -> None:
        with pytest.raises(RunSuspended):
            await app.run(stay, "trip")

    async with lab.app(stay, slow_verify_ms=10**9) as app:
        await suspends()
        for part in parts:
            await app.service.call_off("trip", part, by="eve", why="enough")
        await suspends()
        first = {one.transaction: one for one in lab.of("trip", r.TransactionAbortedRecord)}
        for part in parts:
            await app.service.resolve(f"trip/{part}/book#1", "happened", by="bob", result="taken")
        await suspends()
        for part in parts:
            await app.service.resolve_transaction("trip", part, "retry", by="eve")
        await app.service.signal("trip", "go")
        assert await app.run(stay, "trip") == "done"
    last = {one.transaction: one for one in lab.of("trip", r.TransactionAbortedRecord)}
    parked = lab.of("trip", r.TransactionParked)
    for part in parts:
        booked, mailed = (f"{part}/book#1",), (f"{part}/mail#1",)
        raised, asked = [one for one in parked if one.transaction == part]
        assert raised.why.endswith(f"news came about {part}/book#1")
        assert raised.stuck == asked.stuck == booked
        for end in (first[part], raised, last[part]):
            assert (end.undone, end.still_standing) == (booked, mailed)
        assert (asked.undone, asked.still_standing) == ((), (*mailed, *booked))
    assert len(set(lab.sent)) == len(lab.sent) == 4
