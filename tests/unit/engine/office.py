"""An office with tools of every kind, whose answers a test may set, and agents that use them in transactions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from beforehand import Key, Natural, Operation, Run, TransactionAborted, current_operation, tool
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab
from tests.unit.engine.transcripts import Transcript

STEADY = Key.forever(stores="all")
HOUR = timedelta(hours=1)


class Office:
    """Tools of every kind. `answers[name]` holds what their calls answer: raised, returned, or after so many seconds."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.log = lab, Transcript(lab)
        self.answers: dict[str, list[Any]] = {}
        self.stock = "three"
        self._inside()
        self._with_a_catch()
        self._at_the_commit()
        self.tools = [self.take, self.reserve, self.pay, self.mail, self.look, self.book, self.parcel]

    async def does(self, name: str, detail: str) -> str:
        """Answer the next call of that name, in a task of its own, as client libraries do."""
        return await asyncio.create_task(self._does(name, detail))

    async def _does(self, name: str, detail: str) -> str:
        answer = self.answers[name].pop(0) if self.answers.get(name) else f"{name}!"
        while isinstance(answer, float):
            self.log.note("!", f"{name} {detail} goes on for {answer} s")
            await self.lab.pass_time(seconds=answer)
            answer = self.answers[name].pop(0) if self.answers[name] else f"{name}!"
        self.log.note("!", f"{name} {detail} {answer if isinstance(answer, str) else type(answer).__name__}")
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    def _inside(self) -> None:
        @tool(idempotency=STEADY)
        async def take(item: str) -> str:
            _ = current_operation().key
            return await self.does("take", item)

        @take.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR), retry=Retry(attempts=1))
        async def put_back(operation: Operation[str], item: str) -> None:
            await self.does("put back", item)

        @tool(idempotency=STEADY)
        async def reserve(seat: str) -> str:
            _ = current_operation().key
            return await self.does("reserve", seat)

        @reserve.confirm(expires=HOUR)
        @tool(idempotency=Natural(within=HOUR))
        async def confirm(operation: Operation[str], seat: str) -> None:
            await self.does("confirm", seat)

        @reserve.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR))
        async def release(operation: Operation[str], seat: str) -> None:
            await self.does("release", f"{seat} confirmed={operation.confirmed}")

        @tool(effect="read")
        async def look(item: str) -> str:
            return await self.does("look", item)

        self.take, self.reserve, self.look = take, reserve, look

    def _with_a_catch(self) -> None:
        @tool(idempotency=STEADY, retry=Retry(attempts=3, elapsed=10 * HOUR, base=HOUR, cap=HOUR))
        async def parcel(item: str) -> str:
            _ = current_operation().key
            return await self.does("parcel", item)

        @parcel.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR))
        async def fetch_back(operation: Operation[str]) -> None:
            await self.does("fetch back", "the parcel")

        @tool
        async def book(room: str) -> str:
            return await self.does("book", room)

        @book.compensate(restores=True, absent_safe=True)
        @tool(idempotency=STEADY)
        async def give_back(operation: Operation[str], room: str) -> None:
            _ = current_operation().key
            await self.does("give back", room)

        self.book, self.parcel = book, parcel

    def _at_the_commit(self) -> None:
        @tool
        async def pay(cents: int) -> str:
            return await self.does("pay", str(cents))

        @pay.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR))
        async def refund(operation: Operation[str], cents: int) -> None:
            await self.does("refund", str(cents))

        @tool(idempotency=STEADY)
        async def mail(text: str) -> str:
            _ = current_operation().key
            return await self.does("mail", text)

        @mail.observe
        async def stock(operation: Operation[str]) -> str:
            return self.stock

        self.pay, self.mail = pay, mail


async def order(office: Office, run: Run) -> str:
    """Everything at once: an effect, a reservation, a read, and two that leave at the commit."""
    async with run.transaction("t") as boundary:
        await office.take("book")
        await office.reserve("12A")
        await office.look("shelf")
        mailed = await boundary.on_commit(office.mail, "thanks")
        paid = await boundary.on_commit(office.pay, 500)
    return f"{mailed.result} {paid.result}"


async def refused(office: Office, run: Run) -> str:
    """Two branches, and then the body calls it off."""
    try:
        async with run.transaction("t") as boundary:
            await office.take("pen")
            await run.gather(office.take("book"), office.reserve("12A"))
            await boundary.on_commit(office.pay, 500)
            boundary.abort("the customer left")
    except TransactionAborted as gone:
        return f"{gone.transaction}: {gone.reason}, undone {gone.undone}, still standing {gone.still_standing}"
    return "never"


async def nested(office: Office, run: Run) -> str:
    """One inner part commits, one is called off; the outer one goes on."""
    async with run.transaction("outer"):
        async with run.transaction("first") as first:
            await office.take("book")
            await first.on_commit(office.mail, "thanks")
        try:
            async with run.transaction("second"):
                await office.take("pen")
                await office.look("shelf")
                raise ValueError("a bug")
        except TransactionAborted as gone:
            office.log.note("<", f"{gone.transaction}: {gone.reason}")
        await office.reserve("12A")
    return "done"


async def waiting(office: Office, run: Run) -> str:
    """The run rests in the middle of its transaction."""
    async with run.transaction("t"):
        await office.take("book")
        await run.sleep(HOUR)
        await office.take("pen")
    return "done"


async def stays(office: Office, run: Run) -> str:
    """Two rooms in a transaction that is called off; the run goes on for an hour."""
    try:
        async with run.transaction("t"):
            await run.gather(office.book("7"), office.book("8"))
            raise ValueError("a bug")
    except TransactionAborted as gone:
        office.log.note("<", f"{gone.reason}, undone {gone.undone}, still standing {gone.still_standing}")
    await run.sleep(HOUR)
    await office.take("key")
    return "done"


async def inner_stays(office: Office, run: Run) -> str:
    """The same in an inner part, and the outer one commits after the hour."""
    async with run.transaction("outer") as outer:
        try:
            async with run.transaction("t"):
                await office.book("7")
        except TransactionAborted as gone:
            office.log.note("<", f"{gone.reason}, undone {gone.undone}, still standing {gone.still_standing}")
        await run.sleep(HOUR)
        await outer.on_commit(office.mail, "thanks")
    return "done"


async def side_by_side(office: Office, run: Run) -> str:
    """Two transactions that have nothing to do with each other."""

    async def one(name: str) -> str:
        async with run.transaction(name) as boundary:
            await office.take(name)
            held = await boundary.on_commit(office.mail, name)
        return held.result

    return " ".join(await run.gather(one("a"), one("b")))


async def two_parts(office: Office, run: Run) -> str:
    """Two transactions side by side, in one that is around both."""

    async def part(name: str, item: str) -> str:
        try:
            async with run.transaction(name) as inner:
                await office.take(item)
                await inner.on_commit(office.mail, item)
        except TransactionAborted as gone:
            office.log.note("<", f"{gone.transaction}: {gone.reason}")
            raise
        office.log.note("<", f"{name} ends")
        return item

    async with run.transaction("outer"):
        return " ".join(await run.gather(part("a", "book"), part("b", "pen")))


async def alone(office: Office, run: Run) -> str:
    """Writes and reads in no transaction, in branches, under limits of time."""
    said: list[str] = []
    await office.take("cup")
    try:
        async with run.timeout(timedelta(seconds=8)):
            said.append(str(await run.gather(office.take("book"), office.look("shelf"))))
    except TimeoutError:
        said.append("too late")
    said.append((await office.take.outcome("pen")).status)
    said.append((await office.pay.options(hold=False).outcome(700)).status)
    return ", ".join(said)


async def impatient(office: Office, run: Run) -> str:
    """Calls that their callers leave, inside a transaction and outside, and a long rest afterwards."""
    try:
        async with run.timeout(timedelta(seconds=4)):
            await office.take("cup")
    except TimeoutError:
        pass
    try:
        async with run.transaction("t"):
            async with run.timeout(timedelta(seconds=4)):
                await office.parcel("book")
            await office.take("pen")
    except TransactionAborted as gone:
        office.log.note("<", f"{gone.reason}, undone {gone.undone}, still standing {gone.still_standing}")
    await run.sleep(HOUR)
    return "done"


async def one_by_one(office: Office, run: Run) -> str:
    """Two transactions, one after the other; the code goes on after the first was called off."""
    for name in ("t", "u"):
        try:
            async with run.transaction(name) as boundary:
                await office.take(name)
                await boundary.on_commit(office.mail, name)
                await office.reserve(name)
        except TransactionAborted as gone:
            office.log.note("<", f"{gone.transaction}: {gone.reason}")
    return "done"


async def held_inside(office: Office, run: Run) -> str:
    """An effect is held in an inner part, and the run may be told something before that part ends."""
    async with run.transaction("outer"):
        async with run.transaction("inner") as inner:
            await inner.on_commit(office.mail, "thanks")
            await office.look("shelf")
        office.log.note("<", "the inner part ended")
    return "done"
