"""Transactions: what stands together or is compensated together, and what a crash at any boundary leaves of that."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from beforehand import Key, Natural, Operation, Rejected, Run, TransactionAborted, agent, current_operation, tool
from beforehand.errors import MustHold, UsageError
from beforehand.testing.world import World
from tests.draws import explore, of_the_day, pick


@dataclass
class Booking:
    code: str


@tool(idempotency=Key.forever())
async def book_flight(city: str) -> Booking:
    return Booking(f"F-{current_operation().key[-4:]}")


@book_flight.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def cancel_flight(operation: Operation[Booking]) -> None:
    assert operation.result.code.startswith("F-")


@tool(idempotency=Key.forever(stores="all"))
async def book_hotel(city: str, nights: int) -> Booking:
    _ = current_operation().key
    if city == "full":
        raise Rejected("no room")
    return Booking("H1")


@book_hotel.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def cancel_hotel(operation: Operation[Booking], city: str) -> None:
    assert operation.arguments["city"] == city


@tool(idempotency=Key.forever())
async def send_email(to: str, text: str) -> str:
    return f"mail-{current_operation().key[-2:]}"


TOOLS = [book_flight, book_hotel, send_email]


@agent(run_id="trip-{given}", tools=TOOLS)
async def book_trip(run: Run, given: str) -> str:
    try:
        async with run.transaction("book trip") as booking:
            flight = await book_flight(given)
            mail = await booking.on_commit(send_email, "ann@example.com", flight.code)
            await book_hotel(given, 2)
            if given == "bug":
                raise KeyError("a bug")
            if given == "enough":
                booking.abort("enough")
    except TransactionAborted as gone:
        return f"not booked: {gone.reason}; undone {gone.undone}; standing {gone.still_standing}"
    return f"{flight.code}, {mail.result}"


def test_a_committed_transaction_sends_what_it_held_last(world: World):
    ran = world.run(book_trip, "rome")
    assert ran.effects == ["book_flight", "book_hotel", "send_email"]
    assert ran.result is not None
    assert "mail-" in ran.result


def test_a_refused_step_undoes_what_landed_and_sends_nothing(world: World):
    ran = world.run(book_trip, "full")
    assert ran.effects == ["book_flight", "cancel_flight"]
    assert ran.result == "not booked: Rejected: no room.; undone ('book-trip/book_flight#1',); standing ()"


def test_compensations_run_in_reverse_order_of_start(world: World):
    ran = world.run(book_trip, "bug")
    assert ran.effects == ["book_flight", "book_hotel", "cancel_hotel", "cancel_flight"]
    assert "KeyError" in str(ran.result)
    assert world.run(book_trip, "enough").effects == ran.effects


@pytest.mark.parametrize(
    "given", ["full", *(pytest.param(given, marks=pytest.mark.deep) for given in ("rome", "bug", "enough"))]
)
def test_a_crash_at_any_boundary_changes_nothing(world: World, given: str):
    found = world.explore(book_trip, given)
    assert found.boundaries > 15


def test_an_irreversible_effect_has_to_be_held(world: World):
    @agent(run_id="x-{given}", tools=TOOLS)
    async def careless(run: Run, given: str) -> str:
        async with run.transaction("t"):
            await send_email("a@example.com", given)
        return "sent"

    ran = world.run(careless, "hello")
    assert isinstance(ran.error, TransactionAborted)
    assert isinstance(ran.error.__cause__, MustHold)
    assert "on_commit(send_email, ...)" in str(ran.error.__cause__)
    assert "hold=False" in str(ran.error.__cause__)
    assert ran.effects == []


@pytest.mark.deeper
def test_hold_false_sends_at_once_and_stands(world: World):
    @agent(run_id="x-{given}", tools=TOOLS)
    async def bold(run: Run, given: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                await send_email.options(hold=False)("a@example.com", given)
                boundary.abort("no")
        except TransactionAborted as gone:
            return f"{gone.undone} {gone.still_standing}"
        return ""

    ran = world.run(bold, "hello")
    assert ran.effects == ["send_email"]
    assert ran.result == "() ('t/send_email#1',)"
    explore(world, bold, "hello")


def test_a_promise_has_no_result_before_the_commit(world: World):
    @agent(run_id="x-{given}", tools=TOOLS)
    async def eager(run: Run, given: str) -> str:
        async with run.transaction("t") as boundary:
            mail = await boundary.on_commit(send_email, "a@example.com", given)
            with pytest.raises(UsageError, match="held until t commits"):
                _ = mail.result
            with pytest.raises(UsageError, match="cannot be awaited"):
                await mail
        return mail.result

    assert world.run(eager, "hello").effects == ["send_email"]


def test_outside_a_boundary_on_commit_means_now(world: World):
    @agent(run_id="x-{given}", tools=TOOLS)
    async def now(run: Run, given: str) -> str:
        return (await run.on_commit(send_email, "a@example.com", given)).result

    ran = world.run(now, "hello")
    assert ran.effects == ["send_email"]
    assert str(ran.result).startswith("mail-")


@pytest.mark.slow
@pytest.mark.deeper
def test_an_inner_failure_undoes_the_inner_part_only(world: World):
    @agent(run_id="x-{given}", tools=TOOLS)
    async def nested(run: Run, given: str) -> str:
        async with run.transaction("outer") as outer:
            flight = await book_flight("rome")
            try:
                async with run.transaction("inner") as inner:
                    await inner.on_commit(send_email, "a@example.com", "inner")
                    await book_hotel("rome", 1)
                    inner.abort("no hotel")
            except TransactionAborted:
                pass
            async with run.transaction("inner") as again:
                await book_hotel("oslo", 1)
                mail = await again.on_commit(send_email, "a@example.com", "inner 2")
            if given == "fail":
                outer.abort("all of it")
        return flight.code + mail.result

    ran = world.run(nested, "go")
    assert ran.effects == ["book_flight", "book_hotel", "cancel_hotel", "book_hotel", "send_email"]
    failed = world.run(nested, "fail")
    assert failed.effects == [
        "book_flight",
        "book_hotel",
        "cancel_hotel",
        "book_hotel",
        "cancel_hotel",
        "cancel_flight",
    ]
    for given in pick(["go", "fail"], [of_the_day(["go", "fail"])]):
        world.explore(nested, given)


@pytest.mark.deeper
@pytest.mark.slow
def test_branches_of_one_transaction_are_compensated(world: World):
    @agent(run_id="x-{given}", tools=TOOLS)
    async def branches(run: Run, given: str) -> str:
        try:
            async with run.transaction("t"):
                await run.gather(book_flight("rome"), book_hotel("rome", 1), book_hotel("oslo", 1))
                await book_hotel("full", 1)
        except TransactionAborted as gone:
            return str(len(gone.undone))
        return "booked"

    ran = world.run(branches, "go")
    assert sorted(ran.effects) == sorted(
        ["book_flight", "book_hotel", "book_hotel", "cancel_hotel", "cancel_hotel", "cancel_flight"]
    )
    assert ran.result == "3"
    explore(world, branches, "go")


@tool(idempotency=Key.forever(stores="all"))
async def reserve(seat: str) -> Booking:
    _ = current_operation().key
    return Booking(f"R-{seat}")


@reserve.confirm(expires=timedelta(minutes=15))
@tool(idempotency=Key.forever(stores="all"))
async def take_seat(operation: Operation[Booking]) -> str:
    _ = current_operation().key
    if operation.result.code == "R-lost":
        raise Rejected("it was given away")
    return operation.result.code


@reserve.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def release_seat(operation: Operation[Booking]) -> str:
    return f"{operation.result.code} {operation.confirmed}"


@agent(run_id="seats-{given}", tools=[reserve, send_email])
async def two_seats(run: Run, given: str) -> str:
    try:
        async with run.transaction("seats") as boundary:
            first = await reserve("12A")
            second = await reserve(given)
            mail = await boundary.on_commit(send_email, "ann@example.com", f"{first.code} {second.code}")
            if given == "late":
                await run.sleep(timedelta(minutes=20))
            if given == "no":
                boundary.abort("no")
    except TransactionAborted as gone:
        return gone.reason
    return mail.result


@pytest.mark.deeper
def test_reservations_are_confirmed_at_the_commit_before_anything_held_leaves(world: World):
    ran = world.run(two_seats, "12B")
    assert ran.effects == ["reserve", "reserve", "take_seat", "take_seat", "send_email"]
    explore(world, two_seats, "12B")


@pytest.mark.deeper
def test_reservations_are_released_when_it_is_called_off(world: World):
    ran = world.run(two_seats, "no")
    assert ran.effects == ["reserve", "reserve", "release_seat", "release_seat"]
    explore(world, two_seats, "no")


@pytest.mark.deeper
@pytest.mark.slow
def test_a_reservation_that_cannot_be_confirmed_turns_everything_back(world: World):
    ran = world.run(two_seats, "lost")
    assert "it was given away" in str(ran.result)
    assert sorted(ran.effects) == ["release_seat", "release_seat", "reserve", "reserve", "take_seat"]
    explore(world, two_seats, "lost")


def test_a_reservation_whose_time_is_over_is_not_confirmed(world: World):
    ran = world.run(two_seats, "late")
    assert "its time was over before the commit" in str(ran.result)
    assert ran.effects == ["reserve", "reserve", "release_seat", "release_seat"]


@pytest.mark.deeper
def test_one_call_may_say_what_undoes_it(world: World):
    @tool(idempotency=Natural(within=timedelta(hours=1)))
    async def apologise(operation: Operation[str], to: str) -> None:
        assert operation.tool == "send_email"
        assert to

    @agent(run_id="x-{given}", tools=[send_email, apologise])
    async def polite(run: Run, given: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                await send_email.options(compensate=apologise)(given, "hello")
                boundary.abort("no")
        except TransactionAborted as gone:
            return str(gone.undone)
        return ""

    ran = world.run(polite, "a@example.com")
    assert (ran.effects, ran.result) == (["send_email", "apologise"], "('t/send_email#1',)")
    explore(world, polite, "a@example.com")


@pytest.mark.deeper
@pytest.mark.slow
def test_lost_replies_inside_a_transaction_are_settled_before_anything_is_undone(world: World):
    world.lose_reply(book_flight)
    world.lose_reply(cancel_flight)
    assert world.run(book_trip, "full").effects == ["book_flight", "cancel_flight"]
    assert world.run(book_trip, "rome").effects == ["book_flight", "book_hotel", "send_email"]
    explore(world, book_trip, "full")
