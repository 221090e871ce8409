"""Held effects: from the promise to the commit that lets them leave, whichever process drives them and whatever happens between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Natural, Operation, Run, TransactionAborted, agent, current_operation, tool
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

STEADY = Key.forever(stores="all")
HOUR = timedelta(hours=1)


@dataclass
class Parcel:
    """A desk that takes a book, ships it and writes a mail about it at the commit."""

    lab: Lab
    stock: list[str] = field(default_factory=lambda: ["three"])
    hangs: set[str] = field(default_factory=set[str])
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def does(self, what: str) -> str:
        self.lab.sent.append(what)
        self.begun.set()
        if what in self.hangs:
            await asyncio.get_running_loop().create_future()
        return f"{what}!"


def parcel(lab: Lab) -> tuple[Any, Parcel]:
    desk = Parcel(lab)

    @tool(idempotency=STEADY)
    async def take(item: str) -> str:
        _ = current_operation().key
        return await desk.does("take")

    @take.compensate(restores=True)
    @tool(idempotency=Natural(within=HOUR))
    async def put_back(operation: Operation[str]) -> None:
        await desk.does("put back")

    @tool(idempotency=STEADY)
    async def ship(item: str) -> str:
        _ = current_operation().key
        return await desk.does("ship")

    @tool(idempotency=STEADY)
    async def mail(text: str) -> str:
        _ = current_operation().key
        return await desk.does("mail")

    @mail.observe
    async def stock(operation: Operation[str]) -> str:
        return desk.stock[0]

    @agent(run_id="order-{given}", tools=[take, ship, mail])
    async def order(run: Run, given: str) -> str:
        async with run.transaction("order") as boundary:
            await take("book")
            shipped = await boundary.on_commit(ship, "book")
            mailed = await boundary.on_commit(mail, "thanks")
        return f"{shipped.result} {mailed.result}"

    return order, desk


@virtual
async def test_nothing_turns_back_after_a_crash_while_a_held_effect_may_have_been_sent(lab: Lab):
    """What the second one relies on changed while the process was gone: by then the first one had left."""
    order, desk = parcel(lab)
    desk.hangs = {"ship"}
    app = lab.make(order)
    await app.open()
    driving = asyncio.ensure_future(app.run(order, "x"))
    while "ship" not in lab.sent:
        desk.begun.clear()
        await desk.begun.wait()
    await lab.bury(app, lab.processes[-1])
    await asyncio.gather(driving, return_exceptions=True)
    desk.stock[0], desk.hangs = "none", set()
    async with lab.app(order) as app:
        with pytest.raises(RunSuspended, match="partly committed"):
            await app.resume("order-x")
    assert lab.of("order-x", r.TransactionAborting) == []
    assert lab.sent == ["take", "ship", "ship"]  # under one key


@virtual
async def test_what_changed_before_anything_left_turns_it_back(lab: Lab):
    order, desk = parcel(lab)

    @agent(run_id="slow-{given}", tools=order.tools)
    async def slow(run: Run, given: str) -> str:
        async with run.transaction("order") as boundary:
            await order.tools[0]("book")
            await boundary.on_commit(order.tools[1], "book")
            await boundary.on_commit(order.tools[2], "thanks")
            desk.stock[0] = "none"
        return "sent"

    async with lab.app(slow) as app:
        with pytest.raises(TransactionAborted, match=r"what order/mail#1 relies on is changed"):
            await app.run(slow, "x")
    assert lab.sent == ["take", "put back"]


@dataclass
class Cut:
    """A desk whose caller leaves a held payment while a person is asked about it."""

    lab: Lab

    def agent(self, *, write_after: bool) -> Any:
        lab = self.lab

        @tool(idempotency=STEADY, gate="true")
        async def pay(cents: int) -> str:
            _ = current_operation().key
            lab.sent.append(f"pay {cents}")
            return "paid"

        @tool(idempotency=STEADY)
        async def mail(text: str) -> str:
            _ = current_operation().key
            lab.sent.append(f"mail {text}")
            return "sent"

        @agent(run_id="r-{given}", tools=[pay, mail])
        async def desk(run: Run, given: str) -> str:
            async with run.transaction("t") as boundary:
                try:
                    async with run.timeout(timedelta(seconds=1)):
                        await boundary.on_commit(pay, 500)
                except TimeoutError:
                    pass
                if write_after:
                    await mail.options(hold=False)("while it waits")
                await boundary.on_commit(mail, "thanks")
            await mail("bye")
            return "done"

        return desk


@pytest.mark.parametrize("write_after", [False, True], ids=["nothing else", "a write after it"])
@virtual
async def test_a_commit_waits_for_the_answer_about_what_it_would_send(lab: Lab, *, write_after: bool):
    """The caller gave up waiting for the answer and left; the effect is part of the commit all the same."""
    desk = Cut(lab).agent(write_after=write_after)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        assert lab.sent == []
        await app.service.approve("r-x/t/pay#1", by="ann")
        assert await app.resume("r-x") == "done"
    meanwhile = ["mail while it waits"] if write_after else []
    assert lab.sent == [*meanwhile, "pay 500", "mail thanks", "mail bye"]


@virtual
async def test_a_no_to_what_a_commit_would_send_turns_it_back(lab: Lab):
    desk = Cut(lab).agent(write_after=False)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await app.service.decline("r-x/t/pay#1", by="ann", why="too much")
        with pytest.raises(TransactionAborted, match="too much"):
            await app.resume("r-x")
    assert lab.sent == []
