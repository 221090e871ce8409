"""Undoing a run: without a slot of its queue, with a word for each effect, and with the runs below it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Natural, Operation, Run, RunSuspended, agent, current_operation, tool
from beforehand.errors import RunStopped
from beforehand.queues.call_limits import CallLimit
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.unit.engine.lab import Lab, virtual

ONE = {"desk": QueueLimits(concurrency=1)}
STEADY = Key.forever(stores="all")


class Desk:
    """An agent that pays or waits for an hour, and the tool that pays back."""

    def __init__(self, lab: Lab) -> None:
        @tool(idempotency=STEADY)
        async def pay(name: str) -> str:
            lab.sent.append(f"pay {name}")
            assert current_operation().key
            return name

        @pay.compensate(restores=True)
        @tool(idempotency=Natural(within=timedelta(hours=1), settle_window=timedelta(seconds=1)))
        async def refund(operation: Operation[str]) -> None:
            lab.sent.append(f"refund {operation.result}")

        @tool(effect="read", timeout=timedelta(hours=2))
        async def look() -> str:
            await asyncio.sleep(3600)
            return "seen"

        mail, book = others(lab)

        @agent(run_id="r-{name}", tools=[pay, look, mail, book])
        async def desk(run: Run, name: str) -> str:
            if name == "long":
                return await look()
            paid = await pay(name)
            if name == "mailed":
                await mail(name)
                raise ValueError("after the mail")
            if name == "booked":
                await book(name)
            return paid

        self.agent = desk


def others(lab: Lab) -> Any:
    """A tool that nothing compensates, and one whose outcome stays unknown."""

    @tool
    async def mail(name: str) -> None:
        lab.sent.append(f"mail {name}")

    @tool
    async def book(name: str) -> None:
        lab.sent.append(f"book {name}")
        raise TimeoutError("no answer")

    @book.compensate(restores=True)
    @tool(idempotency=Natural(within=timedelta(hours=1), settle_window=timedelta(seconds=1)))
    async def cancel(operation: Operation[None]) -> None:
        lab.sent.append("cancel")

    return mail, book


async def paid_beside_a_long_run(lab: Lab, app: Any, desk: Any) -> None:
    """A run of the queue has paid, and another one has the only slot."""
    await app.submit(desk, "ann", queue="desk")
    await lab.pass_time(seconds=20)
    await app.submit(desk, "long", queue="desk")
    await lab.pass_time(seconds=20)
    assert (lab.sent, (await app.service.row("r-long")).status) == (["pay ann"], "running")


@virtual
async def test_an_undo_needs_no_slot_of_the_queue(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk, recover=True, queues=DeclaredLimits(ONE)) as app:
        await paid_beside_a_long_run(lab, app, desk)
        async with asyncio.timeout(60):
            undone = await app.undo("r-ann", by="eve")
        assert (undone.waits, lab.sent) == ("", ["pay ann", "refund ann"])
        assert (await app.service.row("r-long")).status == "running"


@virtual
async def test_a_worker_without_a_free_slot_drives_an_undo_that_was_only_ordered(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk, recover=True, queues=DeclaredLimits(ONE)) as app:
        await paid_beside_a_long_run(lab, app, desk)
        await app.service.undo("r-ann", by="eve")
        await lab.pass_time(seconds=60)
        assert ((await app.service.row("r-ann")).status, lab.sent) == ("undone", ["pay ann", "refund ann"])


def states(undone: Any) -> dict[str, str]:
    return {effect.operation: effect.state for effect in undone.effects}


@virtual
async def test_a_stopped_run_of_which_an_effect_stands_stays_stopped_and_never_goes_on(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk) as app:
        with pytest.raises(ValueError, match="after the mail"):
            await app.run(desk, "mailed")
        for _ in range(2):
            undone = await app.undo("r-mailed", by="eve")
            assert states(undone) == {"r-mailed/mail#1": "stands", "r-mailed/pay#1": "undone"}
            row = await app.service.row("r-mailed")
            assert (row.status, row.reason, row.waits) == ("stopped", "undone by eve, but for 1 effect", b"[]")
            with pytest.raises(RunStopped) as stopped:
                await app.resume("r-mailed")
            assert stopped.value.reason == "undone"
    assert lab.sent == ["pay mailed", "mail mailed", "refund mailed"]


@virtual
async def test_a_person_is_asked_about_an_effect_whose_outcome_is_unknown(lab: Lab):
    desk = Desk(lab).agent
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "booked")
        await app.service.cancel("r-booked", by="bea")
        with pytest.raises(RunStopped):
            await app.run(desk, "booked")
        undone = await app.undo("r-booked", by="eve")
        assert states(undone) == {"r-booked/book#1": "asked", "r-booked/pay#1": "waits"}
        assert "it is not known whether book#1 happened" in undone.waits
        await app.service.resolve_transaction("r-booked", "", "accept", by="eve")
        assert states(await app.undo("r-booked", by="eve")) == {"r-booked/book#1": "stands", "r-booked/pay#1": "undone"}
    assert lab.sent == ["pay booked", "book booked", "refund booked"]


@virtual
async def test_an_undo_keeps_the_limits_of_its_tools(lab: Lab):
    """The refund waits for its rate, which another run has used up: not for a slot, and not sent before."""
    desk = Desk(lab).agent
    limits = DeclaredLimits(ONE, tools={"refund": CallLimit(rate="1/hour")})
    async with lab.app(desk, recover=True, queues=limits) as app:
        for name in ("ann", "bob"):
            await app.submit(desk, name, queue="desk")
        await lab.pass_time(seconds=30)
        assert (await app.undo("r-bob", by="eve")).waits == ""
        later = await app.undo("r-ann", by="eve")
        assert "the limit of tool refund is reached" in later.waits
        assert lab.sent[2:] == ["refund bob"]
        await lab.pass_time(minutes=61)
        assert lab.sent[2:] == ["refund bob", "refund ann"]
