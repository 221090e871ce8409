"""Calls without an answer in an aborted transaction: read, sent again under their key, or asked about beside the rest."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Ambiguous,
    Beforehand,
    DidNotHappen,
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
from beforehand.engine.environment import POINTS
from beforehand.errors import RunStopped, RunSuspended, UsageError
from beforehand.inspect.explain import Explanation, explain
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.people.items import items
from beforehand.policies import Retry
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt

STEADY = Key.forever(stores="all")
SECOND = timedelta(seconds=1)


class Airline:
    """A service that dedupes on keys. Each of `lost` is the number of further answers of a call that are lost."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.lost: dict[str, int] = {}
        self.booked: dict[str, str] = {}
        self.requests: list[str] = []

    async def call(self, name: str, key: str = "", seconds: float = 1) -> str:
        self.requests.append(name)
        await asyncio.sleep(seconds)
        if not key or key not in self.booked:
            self.booked[key] = f"{name}-{len(self.booked)}"
            self.lab.sent.append(name)
        if self.lost.get(name, 0) > 0:
            self.lost[name] -= 1
            raise Ambiguous("the answer was lost")
        return self.booked[key]


def flight(airline: Airline, *, keyed: bool, absent_safe: bool) -> Any:
    once: dict[str, Any] = {"idempotency": STEADY, "retry": Retry(attempts=4)} if keyed else {}

    @tool(**once)
    async def fly(city: str) -> str:
        return await airline.call("fly", current_operation().key if keyed else "")

    @tool(idempotency=STEADY)
    async def unfly(operation: Operation[str], city: str) -> None:
        await airline.call("unfly", current_operation().key)

    fly.compensate(restores=True, absent_safe=absent_safe)(unfly)
    return fly


def trip(lab: Lab, *, keyed: bool = True, absent_safe: bool = False, restores: bool = True) -> tuple[Any, Airline]:
    """An agent that books a seat, then a flight beside a hotel that may be full."""
    airline = Airline(lab)
    fly = flight(airline, keyed=keyed, absent_safe=absent_safe)

    @tool(idempotency=STEADY)
    async def seat(city: str) -> str:
        return await airline.call("seat", current_operation().key)

    @seat.compensate(restores=True)
    @tool(idempotency=Natural(within=timedelta(hours=1)))
    async def unseat(operation: Operation[str], city: str) -> None:
        await airline.call("unseat")

    @tool(idempotency=STEADY)
    async def view(city: str) -> str:
        return await airline.call("fly", current_operation().key)

    @tool(idempotency=STEADY)
    async def stay(city: str) -> str:
        await asyncio.sleep(0.5)
        if city == "full":
            raise Rejected("no room")
        return await airline.call("stay", current_operation().key)

    @stay.compensate(restores=True)
    @tool(idempotency=STEADY)
    async def unstay(operation: Operation[str], city: str) -> None:
        await airline.call("unstay", current_operation().key)

    @agent(run_id="trip-{city}", tools=[seat, fly, view, stay])
    async def book(run: Run, city: str) -> str:
        flies = fly if restores else view.options(hold=False)
        try:
            async with run.transaction("trip"):
                await seat(city)
                await run.gather(flies(city), stay(city))
        except TransactionAborted as gone:
            return f"undone {sorted(gone.undone)}, standing {sorted(gone.still_standing)}"
        return "booked"

    return book, airline


async def explained(app: Beforehand, operation: str) -> Explanation:
    return await explain(app.service.reader, operation, Now("b", 0, EPOCH_MS, 0))


@virtual
async def test_a_keyed_call_is_sent_again_and_compensated_without_a_person(lab: Lab):
    book, airline = trip(lab)
    airline.lost = {"fly": 1}
    async with lab.app(book) as app:
        assert await app.run(book, "full") == "undone ['trip/seat#1', 'trip/~1/fly#1'], standing []"
    assert airline.requests == ["seat", "fly", "fly", "unfly", "unseat"]
    assert lab.of("trip-full", r.TransactionParked) == []


@virtual
async def test_a_person_is_asked_once_its_attempts_are_used_up_and_the_others_are_compensated(lab: Lab):
    book, airline = trip(lab)
    airline.lost = {"fly": 99}
    async with lab.app(book) as app:
        with pytest.raises(RunSuspended, match="trip/~1/fly#1"):
            await app.run(book, "full")
        assert (airline.requests.count("fly"), lab.sent) == (4, ["seat", "fly", "unseat"])
        (parked,) = lab.of("trip-full", r.TransactionParked)
        assert (parked.stuck, parked.undone) == (("trip/~1/fly#1",), ("trip/seat#1",))
        why = await explained(app, "trip-full/trip/~1/fly#1")
        assert why.retry.answer == "yes"
        assert why.next_step[0] == "beforehand transaction trip-full/trip --retry --by NAME"
        airline.lost = {}
        await app.service.resolve_transaction("trip-full", "trip", "retry", by="ann")
        assert await app.resume("trip-full") == "undone ['trip/seat#1', 'trip/~1/fly#1'], standing []"
    assert lab.sent == ["seat", "fly", "unseat", "unfly"]


@virtual
async def test_a_call_that_nothing_compensates_is_not_sent_again(lab: Lab):
    book, airline = trip(lab, restores=False)
    airline.lost = {"fly": 1}
    async with lab.app(book) as app:
        with pytest.raises(RunSuspended, match="trip/~1/view#1"):
            await app.run(book, "full")
        why = await explained(app, "trip-full/trip/~1/view#1")
        assert (why.retry.answer, why.retry.because) == (
            "no",
            "the transaction was called off, so nothing more is sent for it",
        )
        assert not any("--retry" in line for line in why.next_step)
        with pytest.raises(UsageError, match="not sent again"):
            await app.service.resolve("trip-full/trip/~1/view#1", "same_key", by="ann")
        with pytest.raises(UsageError, match="nothing of trip-full/trip can be retried") as refused:
            await app.service.resolve_transaction("trip-full", "trip", "retry", by="ann")
        assert "--happened" in refused.value.next_step
        await app.service.resolve("trip-full/trip/~1/view#1", "retry", by="ann", evidence="looked")
        assert await app.resume("trip-full") == "undone ['trip/seat#1'], standing []"
    assert airline.requests == ["seat", "fly", "unseat"]
    assert lab.of("trip-full", r.Resolved)[-1].word == "did_not_happen"


@virtual
async def test_that_it_did_not_happen_and_is_retried_sends_it_under_its_key(lab: Lab):
    book, airline = trip(lab)
    airline.lost = {"fly": 4}
    async with lab.app(book) as app:
        with pytest.raises(RunSuspended):
            await app.run(book, "full")
        await app.service.resolve("trip-full/trip/~1/fly#1", "retry", by="ann", evidence="looked")
        assert await app.resume("trip-full") == "undone ['trip/seat#1', 'trip/~1/fly#1'], standing []"
    assert lab.sent == ["seat", "fly", "unseat", "unfly"]


@virtual
async def test_after_a_cancel_only_a_persons_order_sends_it_and_the_others_are_compensated(lab: Lab):
    book, airline = trip(lab)
    airline.lost = {"fly": 1}
    async with lab.app(book) as app:
        running = asyncio.create_task(app.run(book, "free"))
        await asyncio.sleep(1.8)  # the flight is being booked
        await app.service.cancel("trip-free", by="ann", why="enough")
        with pytest.raises((RunSuspended, RunStopped)):
            await running
        assert airline.requests.count("fly") == 1
        assert "unseat" in lab.sent
        assert "unstay" in lab.sent
        assert "unfly" not in lab.sent
        await app.service.resolve_transaction("trip-free", "trip", "retry", by="ann")
        with pytest.raises(RunStopped):
            await app.resume("trip-free")
    assert lab.sent[-1] == "unfly"
    assert lab.sent.count("fly") == 1


@virtual
async def test_an_unknown_effect_is_compensated_without_a_person_where_absence_is_harmless(lab: Lab):
    book, airline = trip(lab, keyed=False, absent_safe=True)
    airline.lost = {"fly": 1}
    async with lab.app(book) as app:
        assert await app.run(book, "full") == "undone ['trip/seat#1', 'trip/~1/fly#1'], standing []"
        assert airline.requests == ["seat", "fly", "unfly", "unseat"]
        why = await explained(app, "trip-full/trip/~1/fly#1")
        assert (why.status, why.move) == ("unknown", "nothing")
        assert why.rule == "compensated, whether it happened or not"
        assert why.next_step == ["beforehand show trip-full"]
        assert await items(app.service.reader) == []
    assert lab.of("trip-full", r.TransactionParked) == []


@virtual
async def test_what_can_be_read_is_read_before_it_is_sent_again(lab: Lab):
    airline = Airline(lab)
    airline.lost = {"fly": 1}
    read: list[str] = []

    @tool(idempotency=STEADY)
    async def fly(city: str) -> str:
        return await airline.call("fly", current_operation().key)

    @fly.verify(settle_window=SECOND, every=SECOND, deadline=5 * SECOND)
    async def look(operation: Operation[str]) -> Verdict[str]:
        read.append(operation.id)
        return Happened("fly-0") if airline.booked else DidNotHappen()

    @fly.compensate(restores=True)
    @tool(idempotency=STEADY)
    async def unfly(operation: Operation[str], city: str) -> None:
        await airline.call(f"unfly {operation.result}", current_operation().key)

    @tool(retry=Retry(attempts=1))
    async def stay(city: str) -> str:
        await asyncio.sleep(0.5)
        raise Rejected("no room")

    @agent(run_id="trip-{city}", tools=[fly, stay])
    async def book(run: Run, city: str) -> str:
        try:
            async with run.transaction("trip"):
                await run.gather(fly(city), stay.options(hold=False)(city))
        except TransactionAborted as gone:
            return f"undone {sorted(gone.undone)}, standing {sorted(gone.still_standing)}"
        return "booked"

    async with lab.app(book) as app:
        assert await app.run(book, "full") == "undone ['trip/~1/fly#1'], standing []"
    assert len(read) == 1
    assert airline.requests == ["fly", "unfly fly-0"]


@pytest.mark.parametrize("nth", [2, 4, 6, 8])
@pytest.mark.parametrize("point", POINTS)
@virtual
async def test_wherever_a_process_dies_each_effect_happens_once_and_is_compensated_without_a_person(
    lab: Lab, point: str, nth: int
):
    book, airline = trip(lab)
    airline.lost = {"fly": 1}
    crash = DiesAt(point, nth)
    app = lab.make(book, crash=crash)
    process = crash.process = lab.processes[-1]
    await app.open()
    handle = app.start(book, "full")
    await lab.pass_time(seconds=30)
    if process.dead:
        await lab.bury(app, process)
    else:
        assert await handle.result() == "undone ['trip/seat#1', 'trip/~1/fly#1'], standing []"
        await app.aclose()
    async with lab.app(book) as app:
        assert await app.run(book, "full") == "undone ['trip/seat#1', 'trip/~1/fly#1'], standing []"
    assert lab.of("trip-full", r.TransactionParked) == []
    assert [lab.sent.count(name) for name in ("seat", "fly", "unfly")] == [1, 1, 1]
