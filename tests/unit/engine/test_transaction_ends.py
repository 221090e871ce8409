"""Transactions that cannot end by themselves, that a person ends, that are cancelled, reopened or undone."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Ambiguous,
    Key,
    Natural,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import RunStopped, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
STEADY = Key.forever(stores="all")


@dataclass
class Shop:
    """A shop whose every answer a test may set: `answers[name]` are raised or returned, one per call."""

    lab: Lab

    def __post_init__(self) -> None:
        self.answers: dict[str, list[Any]] = {}
        self.keys: list[str] = []

    def does(self, name: str, detail: str = "") -> str:
        queue = self.answers.get(name, [])
        answer = queue.pop(0) if queue else f"{name}!"
        if isinstance(answer, Exception) and not isinstance(answer, Ambiguous):
            raise answer
        self.lab.sent.append(f"{name} {detail}".strip())
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


def shop(lab: Lab, *, absent_safe: bool = False) -> Any:
    """An agent that takes, pays and writes inside one transaction, and its shop."""
    world = Shop(lab)

    @tool(idempotency=STEADY)
    async def take(item: str) -> str:
        world.keys.append(current_operation().key)
        return world.does("take", item)

    @take.compensate(restores=True, absent_safe=absent_safe)
    @tool(idempotency=Natural(within=HOUR), retry=Retry(attempts=1))
    async def put_back(operation: Operation[str], item: str) -> None:
        world.does("put back", item)

    @tool
    async def pay(cents: int) -> str:
        return world.does("pay", str(cents))

    @pay.compensate(restores=True, absent_safe=absent_safe)
    @tool(idempotency=Natural(within=HOUR))
    async def refund(operation: Operation[str], cents: int) -> None:
        world.does("refund", str(cents))

    @tool(idempotency=STEADY)
    async def mail(text: str) -> str:
        _ = current_operation().key
        return world.does("mail", text)

    @tool
    async def ship(item: str) -> str:
        return world.does("ship", item)

    @agent(run_id="order-{given}", tools=[take, pay, mail, ship])
    async def order(run: Run, given: str) -> str:
        async with run.transaction("order") as boundary:
            await take("book")
            await pay(500)
            held = await boundary.on_commit(mail, "thanks")
            shipped = await boundary.on_commit(ship, "book")
            if given == "no":
                boundary.abort("the customer left")
        return f"{held.result} {shipped.result}"

    order.world = world  # type: ignore[attr-defined]  # the test reads it back
    return order, world


@virtual
async def test_a_compensation_that_fails_parks_and_a_person_has_it_tried_again(lab: Lab):
    order, world = shop(lab)
    world.answers["put back"] = [Rejected("the shelf is full")]
    async with lab.app(order) as app:
        with pytest.raises(RunSuspended, match="beforehand transaction order-no/order --retry"):
            await app.run(order, "no")
        assert lab.sent == ["take book", "pay 500", "refund 500"]
        parked = lab.of("order-no", r.TransactionParked)[0]
        assert parked.undone == ("order/pay#1",)
        assert parked.still_standing == parked.stuck == ("order/take#1",)
        assert "the shelf is full" in parked.why
        await app.service.resolve_transaction("order-no", "order", "retry", by="ann")
        with pytest.raises(TransactionAborted) as gone:
            await app.resume("order-no")
    assert lab.sent[-1] == "put back book"
    assert gone.value.undone == ("order/take#1", "order/pay#1")
    assert gone.value.reason == "the customer left"


@virtual
async def test_a_person_may_let_it_stand(lab: Lab):
    order, world = shop(lab)
    world.answers["put back"] = [Rejected("the shelf is full")]
    async with lab.app(order) as app:
        with pytest.raises(RunSuspended):
            await app.run(order, "no")
        await app.service.resolve_transaction("order-no", "order", "accept", by="ann", why="by hand")
        with pytest.raises(TransactionAborted) as gone:
            await app.resume("order-no")
        with pytest.raises(UsageError, match="only a parked transaction"):
            await app.service.resolve_transaction("order-no", "order", "retry", by="bob")
    assert gone.value.still_standing == ("order/take#1",)


@virtual
async def test_what_is_unknown_is_not_compensated_blindly(lab: Lab):
    order, world = shop(lab)
    world.answers["pay"] = [Ambiguous("timeout")]
    async with lab.app(order) as app:
        with pytest.raises(RunSuspended, match="order/pay#1"):
            await app.run(order, "no")
        await app.service.call_off("order-no", "order", by="ann", why="enough")
        with pytest.raises(RunSuspended):
            await app.resume("order-no")
        assert lab.sent == ["take book", "pay 500", "put back book"]  # the others do not wait for that person
        await app.service.resolve("order-no/order/pay#1", "happened", by="ann", result="p-1")
        with pytest.raises(TransactionAborted) as gone:
            await app.resume("order-no")
    assert lab.sent == ["take book", "pay 500", "put back book", "refund 500"]
    assert gone.value.reason == "enough"


@virtual
async def test_what_is_unknown_is_compensated_where_that_is_harmless(lab: Lab):
    order, world = shop(lab, absent_safe=True)
    world.answers["pay"] = [Ambiguous("timeout")]
    async with lab.app(order) as app:
        with pytest.raises(RunSuspended):
            await app.run(order, "no")
        await app.service.call_off("order-no", "order", by="ann", why="enough")
        with pytest.raises(TransactionAborted):
            await app.resume("order-no")
    assert lab.sent == ["take book", "pay 500", "refund 500", "put back book"]


@virtual
async def test_the_pivot_leaves_first_and_its_refusal_turns_everything_back(lab: Lab):
    order, world = shop(lab)
    world.answers["ship"] = [Rejected("no address")]
    async with lab.app(order) as app:
        with pytest.raises(TransactionAborted, match="no address"):
            await app.run(order, "go")
    assert lab.sent == ["take book", "pay 500", "refund 500", "put back book"]


@virtual
async def test_after_the_pivot_a_refusal_parks_as_partly_committed(lab: Lab):
    order, world = shop(lab)
    world.answers["mail"] = [Rejected("mailbox full")]
    async with lab.app(order) as app:
        with pytest.raises(RunSuspended, match="partly committed"):
            await app.run(order, "go")
        assert lab.sent == ["take book", "pay 500", "ship book"]
        await app.service.resolve_transaction("order-go", "order", "accept", by="ann")
        with pytest.raises(Rejected, match="mailbox full"):
            await app.resume("order-go")  # the code reads the result of what did not leave
    assert lab.sent == ["take book", "pay 500", "ship book"]


@virtual
async def test_two_effects_that_cannot_be_repeated_are_refused_at_the_commit(lab: Lab):
    @tool
    async def ship(item: str) -> str:
        lab.sent.append(f"ship {item}")
        return item

    @agent(run_id="t-{given}", tools=[ship])
    async def twice(run: Run, given: str) -> str:
        async with run.transaction("t", pivot="best effort" if given == "bold" else "one") as boundary:
            await boundary.on_commit(ship, "a")
            await boundary.on_commit(ship, "b")
        return "shipped"

    async with lab.app(twice) as app:
        with pytest.raises(TransactionAborted, match="more than one held effect cannot be repeated"):
            await app.run(twice, "shy")
        assert lab.sent == []
        assert await app.run(twice, "bold") == "shipped"
    assert lab.sent == ["ship a", "ship b"]


@virtual
async def test_a_cancelled_run_calls_its_transaction_off_first(lab: Lab):
    order, _ = shop(lab)

    @agent(run_id="wait-{given}", tools=order.tools)
    async def waiting(run: Run, given: str) -> str:
        async with run.transaction("order"):
            await order.tools[0]("book")
            await run.wait_for("payment")
        return "paid"

    async with lab.app(waiting) as app:
        with pytest.raises(RunSuspended):
            await app.run(waiting, "x")
        assert lab.sent == ["take book"]  # suspending unwinds the body, and calls nothing off
        await app.service.cancel("wait-x", by="ann", why="too long")
        with pytest.raises(RunStopped, match="cancelled"):
            await app.run(waiting, "x")
    assert lab.sent == ["take book", "put back book"]
    assert [one.transaction for one in lab.of("wait-x", r.TransactionAbortedRecord)] == ["order"]


@virtual
async def test_a_reopened_run_begins_a_called_off_transaction_anew(lab: Lab):
    order, world = shop(lab)
    world.answers["pay"] = [Rejected("declined")]
    async with lab.app(order) as app:
        with pytest.raises(TransactionAborted):
            await app.run(order, "go")
        assert lab.sent == ["take book", "put back book"]
        assert await app.resume("order-go") == "mail! ship!"
    assert lab.sent == ["take book", "put back book", "take book", "pay 500", "ship book", "mail thanks"]
    assert len(set(world.keys)) == 2  # a new step has a new key
    assert lab.of("order-go", r.TransactionCommitted)[0].transaction == "order~2"


@virtual
async def test_a_finished_run_is_undone_in_reverse_order(lab: Lab):
    order, _ = shop(lab)
    async with lab.app(order) as app:
        assert await app.run(order, "go") == "mail! ship!"
        undone = await app.undo("order-go", by="ann", why="withdrawn")
        assert await app.undo("order-go", by="ann") == undone, "ordered again, nothing more is done"
        row = await app.service.row("order-go")
        assert (row.status, row.reason) == ("completed", "undone by ann, but for 2 effects")
    assert lab.sent[4:] == ["refund 500", "put back book"]
    assert undone.undone == ("order/take#1", "order/pay#1")
    assert undone.still_standing == ("order/mail#1", "order/ship#1")


@virtual
async def test_an_error_that_replay_does_not_raise_again_changes_nothing(lab: Lab):
    """The body raised once because of something outside the record; it is not run again as if it had not."""
    order, _ = shop(lab)
    mood = {"bad": True}

    @agent(run_id="moody-{given}", tools=order.tools)
    async def moody(run: Run, given: str) -> str:
        try:
            async with run.transaction("order"):
                await order.tools[0]("book")
                if mood["bad"]:
                    raise OSError("an environment that was there once")
                await order.tools[1](900)
        except TransactionAborted as gone:
            await run.wait_for("later")
            return gone.reason
        return "went on"

    async with lab.app(moody) as app:
        with pytest.raises(RunSuspended):
            await app.run(moody, "x")
        mood["bad"] = False
        await app.service.signal("moody-x", "later")
        assert await app.resume("moody-x") == "OSError: an environment that was there once"
    assert lab.sent == ["take book", "put back book"]


@virtual
async def test_a_time_limit_around_a_body_calls_it_off(lab: Lab):
    order, _ = shop(lab)

    @agent(run_id="slow-{given}", tools=order.tools)
    async def slow(run: Run, given: str) -> str:
        try:
            async with run.timeout(timedelta(seconds=5)), run.transaction("order"):
                await order.tools[0]("book")
                await asyncio.sleep(60)
        except TransactionAborted as gone:
            return f"{gone.undone}"
        return "in time"

    async with lab.app(slow) as app:
        assert await app.run(slow, "x") == "('order/take#1',)"
    assert lab.sent == ["take book", "put back book"]


@virtual
async def test_a_seat_is_not_released_while_its_confirmation_is_on_its_way(lab: Lab):
    """One confirmation is refused while the other one is under way: what that did is known before anything is undone."""
    under_way, go_on = asyncio.Event(), asyncio.Event()

    @tool(idempotency=STEADY)
    async def reserve(seat: str) -> str:
        _ = current_operation().key
        return seat

    @reserve.confirm(expires=HOUR)
    @tool(idempotency=STEADY)
    async def take(operation: Operation[str]) -> None:
        _ = current_operation().key
        if operation.result == "lost":
            await under_way.wait()
            raise Rejected("it was given away")
        under_way.set()
        await go_on.wait()
        lab.sent.append(f"took {operation.result}")

    @reserve.compensate(restores=True)
    @tool(idempotency=STEADY)
    async def release(operation: Operation[str]) -> None:
        _ = current_operation().key
        lab.sent.append(f"released {operation.result}, confirmed: {operation.confirmed}")

    @agent(run_id="r-{given}", tools=[reserve])
    async def seats(run: Run, given: str) -> str:
        async with run.transaction("seats"):
            await reserve("12A")
            await reserve(given)
        return "flown"

    async with lab.app(seats) as app:
        handle = app.start(seats, "lost")
        await lab.until(lambda: any(one.step.endswith("#2/confirm") for one in lab.of("r-lost", r.OperationSettled)))
        await lab.pass_time(seconds=5)
        assert lab.sent == []
        go_on.set()
        with pytest.raises(TransactionAborted, match="it was given away"):
            await handle.result()
    assert lab.sent == ["took 12A", "released lost, confirmed: False", "released 12A, confirmed: True"]
