"""Transactions of the simulated agents: tools with compensations and confirmations, and a body that uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from beforehand.agent.run import Run
from beforehand.agent.tool import Tool, tool
from beforehand.agent.transactions import Held, Transaction
from beforehand.errors import TransactionAborted
from beforehand.model.contract import Key, Natural
from beforehand.model.outcome import Outcome, Verdict
from beforehand.model.view import Operation
from simulator.agents.tools import ANSWERS, NETWORK, verdict, write
from simulator.plan import Step

UNDOES: Final[Mapping[str, str]] = {
    "seat": "unseat", "room": "leave", "gift": "gift_back", "guide": "unguide", "berth": "unberth",
}  # fmt: skip
"""The service that compensates each service."""

CONFIRMS: Final[Mapping[str, str]] = {"room": "take"}
HELD: Final = ("post", "send")
DAY: Final = timedelta(days=1)


class TripFailed(Exception):
    """The plan lets this trip fail."""


def trip_tools() -> Iterable[Tool[Any, Any]]:
    """What a trip is made of."""
    return (*_compensated(), *_found_again(), *_blunt(), *_held())


def _compensated() -> Iterable[Tool[Any, Any]]:
    """What is undone where a trip fails, and confirmed where it does not."""

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def seat(thing: str) -> str:
        return await write("seat", keyed=True, thing=thing)

    @seat.compensate(restores=True, absent_safe=True)
    @tool(idempotency=Natural(within=DAY), **ANSWERS)
    async def unseat(operation: Operation[str], thing: str) -> str:
        return await write("unseat", thing=thing, value=f"free again by {operation.id}")

    @tool(idempotency=Key.forever(stores="all"), **ANSWERS)
    async def room(thing: str) -> str:
        return await write("room", keyed=True, thing=thing)

    @room.confirm
    @tool(idempotency=Key.forever(stores="all"), **ANSWERS)
    async def take(operation: Operation[str], thing: str) -> str:
        assert operation.result, operation
        return await write("take", keyed=True, thing=thing)

    @room.compensate(restores=True)
    @tool(idempotency=Natural(within=DAY), **ANSWERS)
    async def leave(operation: Operation[str], thing: str) -> str:
        return await write("leave", thing=thing, value=f"left by {operation.id}")

    @tool(**ANSWERS)
    async def gift(thing: str) -> str:
        return await write("gift", marked=True, thing=thing)

    @gift.verify(settle_window=timedelta(seconds=30), every=timedelta(seconds=5))
    async def gift_is_there(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("gift", marker=operation.marker))

    @gift.compensate(restores=True)
    @tool(idempotency=Key.forever(), **ANSWERS)
    async def gift_back(operation: Operation[str], thing: str) -> str:
        assert operation.result, operation
        return await write("gift_back", keyed=True, thing=thing)

    del unseat, take, leave, gift_is_there, gift_back
    return seat, room, gift


def _found_again() -> Iterable[Tool[Any, Any]]:
    """A keyed write that can be read back, and is compensated."""

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def berth(thing: str) -> str:
        return await write("berth", keyed=True, thing=thing)

    @berth.verify(settle_window=timedelta(seconds=20), every=timedelta(seconds=5))
    async def berth_is_there(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("berth", key=operation.key))

    @berth.compensate(restores=True)
    @tool(idempotency=Natural(within=DAY), **ANSWERS)
    async def unberth(operation: Operation[str], thing: str) -> str:
        return await write("unberth", thing=thing, value=f"empty again by {operation.id}")

    del berth_is_there, unberth
    return (berth,)


def _blunt() -> Iterable[Tool[Any, Any]]:
    """A plain write with a plain compensation: only a person can tell what became of either."""

    @tool(**ANSWERS)
    async def guide(thing: str) -> str:
        return await write("guide", thing=thing)

    @guide.compensate(restores=True)
    @tool(**ANSWERS)
    async def unguide(operation: Operation[str], thing: str) -> str:
        assert operation.result, operation
        return await write("unguide", thing=thing)

    del unguide
    return (guide,)


def _held() -> Iterable[Tool[Any, Any]]:
    """What leaves at the end: an effect that may be repeated, and one that may not."""

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def post(thing: str) -> str:
        return await write("post", keyed=True, thing=thing)

    @tool(**ANSWERS)
    async def send(thing: str) -> str:
        return await write("send", thing=thing)

    return post, send


def name_of(step: Step) -> str:
    """The name of its transaction."""
    return f"trip {step.thing}"


async def make_trip(
    run: Run,
    tools: Mapping[str, Tool[Any, Any]],
    step: Step,
    told: Callable[[Outcome[Any]], object],
    inside: Callable[[], Awaitable[object]],
) -> tuple[str, TransactionAborted | None]:
    """Perform the parts of one trip, and what is `inside` it, in a transaction.

    Returns what came of it, and the error that called it off. `told` hears what became of a guide.
    """
    held: list[Held[Any]] = []
    try:
        async with run.transaction(name_of(step)) as boundary:
            await _travel(run, boundary, tools, step, held, told)
            await inside()
            if step.fails:
                raise TripFailed(step.thing)
    except TransactionAborted as gone:
        return f"trip {step.thing} aborted: {sorted(gone.undone)}, standing {sorted(gone.still_standing)}", gone
    return f"trip {step.thing} committed: {[one.outcome.status for one in held]}", None


async def _travel(
    run: Run,
    boundary: Transaction,
    tools: Mapping[str, Tool[Any, Any]],
    step: Step,
    held: list[Held[Any]],
    told: Callable[[Outcome[Any]], object],
) -> None:
    for part in step.parts:
        if part == "guide":
            await _guided(tools, step.thing, told)
        else:
            await _part(run, boundary, tools, part, step.thing, held)


async def _part(
    run: Run, boundary: Transaction, tools: Mapping[str, Tool[Any, Any]], part: str, thing: str, held: list[Held[Any]]
) -> None:
    if part in HELD:
        held.append(await boundary.on_commit(tools[part], thing))
    elif part == "pay":
        await tools["pay"].options(hold=False)(thing)  # nothing compensates it
    elif part == "both":
        await run.gather(tools["seat"](thing), tools["gift"](thing))
    else:
        await tools[part](thing)


async def _guided(tools: Mapping[str, Tool[Any, Any]], thing: str, told: Callable[[Outcome[Any]], object]) -> None:
    """Without a guide there is no trip."""
    outcome = await tools["guide"].outcome(thing)
    told(outcome)
    if outcome.status != "succeeded":
        raise TripFailed(thing)
