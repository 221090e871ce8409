"""Transactions, step by step: what is recorded, what waits for the disk, what is sent, what code receives, and when.

Each story is compared with its transcript in `stories`. When one changes on purpose, the failed test says where the
new transcript is: read what differs, and copy it there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from holdfast import (
    Ambiguous,
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
from holdfast.policies import Retry
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.transcripts import Transcript, bury

STEADY = Key.forever(stores="all")
HOUR = timedelta(hours=1)
SHORT, LONG = 30_000, 10**9  # milliseconds for which a run that waits is kept in memory


class Office:
    """Tools of every kind. `answers[name]` holds what their calls answer: raised, returned, or after so many seconds."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.log = lab, Transcript(lab)
        self.answers: dict[str, list[Any]] = {}
        self.stock = "three"
        self._inside()
        self._at_the_commit()
        self.tools = [self.take, self.reserve, self.pay, self.mail, self.look]

    async def does(self, name: str, detail: str) -> str:
        """Answer the next call of that name."""
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


Body = Callable[[Office, Run], Awaitable[str]]


class Story:
    """One agent in an office, and what happens to it from outside."""

    def __init__(self, lab: Lab, body: Body) -> None:
        self.lab, self.office = lab, Office(lab)

        @agent(run_id="r-{name}", tools=self.office.tools)
        async def desk(run: Run, name: str) -> str:
            told = await body(self.office, run)
            if self.stops:
                self.log.note("<", told)
                self.stops = False
                raise KeyError("a bug")
            return told

        self.stops = False
        self.desk, self.log = desk, self.office.log


async def _plain(story: Story, hold_ms: int = SHORT) -> None:
    async with story.lab.app(story.desk, hold_ms=hold_ms) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await story.log.tell(app.run(story.desk, "ann"))


Script = Callable[[Story], Awaitable[None]]


async def run_twice(story: Story) -> None:
    await _plain(story)


async def replay(story: Story) -> None:
    """Its code fails at the very end, and the run is reopened: everything comes from the record."""
    story.stops = True
    async with story.lab.app(story.desk, hold_ms=LONG) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await story.lab.pass_time(minutes=1)
        await story.log.tell(app.resume("r-ann", by="eve"))


async def told(story: Story) -> None:
    """A message arrives while its first call is under way, and again later."""
    async with story.lab.app(story.desk, hold_ms=LONG) as app:
        handle = app.start(story.desk, "ann")
        await story.lab.pass_time(seconds=3)
        await app.service.tell("r-ann", "hurry", by="eve")
        await story.log.tell(handle.result())
        await story.log.tell(app.run(story.desk, "ann"))


async def run_held(story: Story) -> None:
    await _plain(story, hold_ms=LONG)


async def resolve(story: Story, *words: Literal["retry", "accept"]) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        for word in words:
            await story.log.tell(app.run(story.desk, "ann"))
            await app.service.resolve_transaction("r-ann", "t", word, by="eve")
        await story.log.tell(app.run(story.desk, "ann"))


async def retry_then_accept(story: Story) -> None:
    await resolve(story, "retry", "accept")


async def accept(story: Story) -> None:
    await resolve(story, "accept")


async def undo(story: Story) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        undone = await app.undo("r-ann", by="eve", why="withdrawn")
        story.log.note("<", f"undone {undone.undone}, still standing {undone.still_standing}")


async def cancel(story: Story) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await app.service.cancel("r-ann", by="eve", why="too long")
        await story.log.tell(app.run(story.desk, "ann"))


async def call_off(story: Story) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await app.service.call_off("r-ann", "t", by="eve", why="enough")
        await story.lab.pass_time(hours=1)
        await story.log.tell(app.run(story.desk, "ann"))


async def call_off_live(story: Story) -> None:
    async with story.lab.app(story.desk, hold_ms=LONG) as app:
        handle = app.start(story.desk, "ann")
        await story.lab.pass_time(seconds=3)
        story.log.note("!", "eve calls it off")
        await app.service.call_off("r-ann", "t", by="eve", why="enough")
        await story.log.tell(handle.result())
        await story.log.tell(app.run(story.desk, "ann"))


async def crash_in_three_seconds(story: Story) -> None:
    app = story.lab.make(story.desk)
    await app.open()
    driving = asyncio.ensure_future(app.run(story.desk, "ann"))
    await story.lab.pass_time(seconds=3)
    story.log.note("!", "the process dies")
    await bury(story.lab, app, driving)
    async with story.lab.app(story.desk, hold_ms=LONG) as app:
        await story.log.tell(app.run(story.desk, "ann"))


STORIES: Final[dict[str, tuple[Body, Script, dict[str, list[Any]]]]] = {
    "commit": (order, run_twice, {}),
    "commit with retries": (order, run_held, {
        "take": [NotSent("busy"), Ambiguous("cut")], "confirm": [Ambiguous("cut")], "pay": [NotSent("busy")],
        "mail": [NotSent("busy")], "look": [NotSent("busy")],
    }),
    "calls that take long": (order, run_held, {
        "take": [40.0], "reserve": [20.0], "confirm": [30.0], "pay": [20.0], "mail": [20.0],
    }),
    "called off": (refused, run_twice, {}),
    "called off slowly": (refused, run_held, {"put back": [20.0], "release": [30.0, NotSent("busy")], "take": [5.0]}),
    "called off, and a call is unknown": (refused, run_twice, {"release": [Rejected("never booked")]}),
    "a confirmation is refused": (order, run_twice, {"confirm": [Rejected("given away", code="E7")]}),
    "the pivot is unknown": (order, run_twice, {"pay": [Ambiguous("cut")]}),
    "the pivot is refused": (order, run_twice, {"pay": [Rejected("no money")]}),
    "a compensation fails": (refused, retry_then_accept, {"put back": [Rejected("shelf full"), Rejected("shelf gone")]}),
    "a compensation fails once": (refused, accept, {"put back": [Rejected("shelf full")]}),
    "partly committed": (order, accept, {"mail": [Rejected("mailbox full")]}),
    "partly committed, retried": (order, retry_then_accept, {"mail": [Rejected("mailbox full"), Rejected("again")]}),
    "nested": (nested, run_twice, {}),
    "nested, and refused outside": (nested, run_twice, {"reserve": [Rejected("full")]}),
    "nested, and refused later": (nested, run_held, {"confirm": [10.0, Rejected("full")]}),
    "undone": (order, undo, {}),
    "undone, nested": (nested, undo, {}),
    "cancelled": (waiting, cancel, {}),
    "called off while it rests": (waiting, call_off, {}),
    "called off while it sleeps": (waiting, call_off_live, {"put back": [10.0]}),
    "called off in a call": (order, call_off_live, {"take": [20.0]}),
    "called off in a read": (order, call_off_live, {"look": [20.0]}),
    "called off at the commit": (order, call_off_live, {"confirm": [20.0]}),
    "replayed": (order, replay, {}),
    "replayed, called off": (refused, replay, {}),
    "replayed, nested": (nested, replay, {}),
    "replayed, two parts": (two_parts, replay, {"take": [3.0, "first", 1.0, "second"]}),
    "two parts, one refused": (two_parts, run_twice, {"take": [3.0, "taken", Rejected("gone")]}),
    "two parts, called off at the commit": (two_parts, replay, {"mail": [Rejected("mailbox full"), Rejected("again")]}),
    "one by one": (one_by_one, replay, {"reserve": [Rejected("full")]}),
    "one by one, refused at the commit": (one_by_one, replay, {"confirm": ["yes", Rejected("full")]}),
    "one by one, told": (one_by_one, told, {"reserve": ["yes", 9.0]}),
    "told before the commit": (order, told, {"look": [9.0]}),
    "told before the commit, nested": (nested, told, {"take": [9.0]}),
    "told before an empty commit": (waiting, told, {}),
    "told while it is being undone": (refused, told, {"put back": [9.0]}),
    "alone": (alone, replay, {}),
    "alone, and slow": (alone, replay, {"take": ["cup!", 20.0, "book!"]}),
    "alone, and the read is slow": (alone, replay, {"look": [20.0]}),
    "alone, and refused": (alone, replay, {"take": ["cup!", "book!", Rejected("gone", code="E7")], "pay": [Rejected("no")]}),
    "alone, and unknown": (alone, run_twice, {"pay": [Ambiguous("cut")]}),
    "alone, told": (alone, told, {"take": ["cup!", 5.0]}),
    "alone, a crash": (alone, crash_in_three_seconds, {"take": ["cup!", 20.0]}),
    "alone, a crash in a read": (alone, crash_in_three_seconds, {"look": [20.0]}),
    "a crash inside": (order, crash_in_three_seconds, {"reserve": [20.0]}),
    "a crash in a confirmation": (order, crash_in_three_seconds, {"confirm": [20.0]}),
    "a crash in a held effect": (order, crash_in_three_seconds, {"mail": [20.0]}),
    "a crash in the pivot": (order, crash_in_three_seconds, {"pay": [20.0]}),
    "a crash in a compensation": (refused, crash_in_three_seconds, {"put back": [20.0]}),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
@virtual
async def test_a_story_is_recorded_as_its_transcript_says(lab: Lab, name: str, tmp_path: Path):
    body, script, answers = STORIES[name]
    story = Story(lab, body)
    story.office.answers = {tool: list(queue) for tool, queue in answers.items()}
    await script(story)
    story.log.compare(re.sub(r"\W+", "_", name), tmp_path)
