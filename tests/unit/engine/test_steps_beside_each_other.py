"""A step that waits for the journal is at work: another task of its body whose step is recorded meanwhile waits its turn.

Each body is driven live with a slow journal, and again from its record by another process: both times its code has to
receive the same in the same order.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Natural, Operation, Run, TransactionAborted, agent, current_operation, tool
from beforehand.errors import MustHold, RunSuspended, UsageError
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
STEADY = Key.forever(stores="all")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


class Office:
    """Tools that take a while: a read, a call with a compensation, and one that cannot be undone."""

    def __init__(self, lab: Lab, undoing_s: float = 0) -> None:
        @tool(effect="read")
        async def look(text: str, takes: float = 0) -> str:
            await asyncio.sleep(takes)
            return text

        @tool(idempotency=STEADY)
        async def book(text: str, takes: float = 0) -> str:
            _ = current_operation().key
            await asyncio.sleep(takes)
            lab.sent.append(text)
            return text

        @book.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR))
        async def unbook(operation: Operation[str]) -> None:
            await asyncio.sleep(undoing_s)
            lab.sent.append(f"no {operation.result}")

        @tool(idempotency=STEADY)
        async def mail(text: str, takes: float = 0) -> str:
            _ = current_operation().key
            await asyncio.sleep(takes)
            lab.sent.append(text)
            return text

        self.look, self.book, self.mail = look, book, mail
        self.tools = [look, book, mail]


@agent(name="kid")
async def kid(run: Run, name: str) -> str:
    return name


@agent(name="slow kid")
async def slow_kid(run: Run, name: str) -> str:
    await run.sleep(HOUR)
    return name


Body = Callable[[Run, list[Any], Office], Awaitable[object]]


async def told_twice(lab: Lab, body: Body, office: Office, *, signals: bool = False) -> list[Any]:
    """What code is told live, and by a replay an hour later."""
    told: list[list[Any]] = []

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> None:
        told.append([])
        await body(run, told[-1], office)
        await run.sleep(HOUR)

    async with lab.app(desk, kid, hold_ms=60_000) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        if signals:
            await lab.pass_time(seconds=2.5)
            await app.service.signal("r-ann", "news", payload="good")
        with pytest.raises(RunSuspended):
            await running
    await lab.pass_time(hours=1)
    async with lab.app(desk, kid) as app:
        await app.run(desk, "ann")
    assert told[0] == told[1]
    return told[0]


async def sleeps(run: Run, office: Office) -> None:
    await run.sleep(seconds(1))


async def receives(run: Run, office: Office) -> None:
    await run.wait_for("news", timeout=seconds(30))


async def runs_out(run: Run, office: Office) -> None:
    with pytest.raises(TimeoutError):
        await run.wait_for("no news", timeout=seconds(1))


async def starts(run: Run, office: Office) -> None:
    await run.start(kid, "kid")


async def commits(run: Run, office: Office) -> None:
    async with run.transaction("trip"):
        await office.book("flight")


async def reads_messages(run: Run, office: Office) -> None:
    await run.messages()


async def remembers(run: Run, office: Office) -> None:
    await run.memory("ann").recall()


WAITS = [sleeps, receives, runs_out, starts, commits, reads_messages, remembers]


@pytest.mark.parametrize("takes", [0.5, 1, 1.5, 2, 2.5, 3, 4, 5])
@pytest.mark.parametrize("wait", WAITS, ids=lambda one: one.__name__)
@virtual
async def test_a_step_that_waits_for_the_journal_is_at_work(
    lab: Lab, wait: Callable[[Run, Office], Awaitable[None]], takes: float
):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async def look() -> None:
            told.append(await office.look("seen", takes))

        async with run.task_group() as group:
            group.create_task(look())
            await wait(run, office)
            told.append("over")

    lab.lag_s = 1.0
    assert sorted(await told_twice(lab, body, Office(lab), signals=wait is receives)) == ["over", "seen"]


@virtual
async def test_a_body_that_awaits_its_tasks_after_a_step_is_suspended_all_the_same(lab: Lab):
    """Its last step ends after everything else has come to rest."""
    office = Office(lab)

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> None:
        async with run.task_group() as group:
            group.create_task(run.join(await run.start(slow_kid, "kid")))
            await office.book("flight", 5)

    async with lab.app(desk, slow_kid, hold_ms=1000) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=60)
        assert running.done()
        assert isinstance(running.exception(), RunSuspended)


# --- refusals that have no record ----------------------------------------------------------------------------------


@virtual
async def test_a_refusal_inside_a_limit_is_made_again_at_the_same_point(lab: Lab):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        try:
            async with run.transaction("trip"), run.timeout(seconds(5)):
                await run.gather(office.mail("not undoable"))
        except TransactionAborted as gone:
            told.append(gone.reason)
        told.append(await office.mail("after it"))

    told = await told_twice(lab, body, Office(lab))
    assert "cannot be undone" in told[0]
    assert told[1:] == ["after it"]
    assert lab.sent == ["after it"]


@virtual
async def test_a_refusal_that_code_handles_is_made_again_in_a_committed_transaction(lab: Lab):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async with run.transaction("trip") as trip:
            await office.book("flight")
            try:
                await office.mail("now")
            except MustHold as refused:
                told.append(refused.message)
                await trip.on_commit(office.mail, "later")

    assert len(await told_twice(lab, body, Office(lab))) == 1
    assert lab.sent == ["flight", "later"]


@virtual
async def test_a_child_that_is_refused_in_a_transaction_is_refused_again(lab: Lab):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async with run.transaction("trip"):
            await office.book("flight")
            try:
                await run.start(kid, "kid")
            except UsageError as refused:
                told.append(refused.message)
        told.append(await office.book("hotel"))

    told = await told_twice(lab, body, Office(lab))
    assert "inside a transaction" in told[0]
    assert told[1:] == ["hotel"]
