"""An order from another process, at every moment of a run that is driven: once it is on record, no write begins."""

import asyncio
from typing import Any, Literal

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.engine.active_run.log import RunRecorder
from beforehand.errors import BeforehandError, UsageError
from beforehand.model import records as r
from tests.unit.engine.lab import DAY, Lab, run_virtual

LAG_S = 0.002
Order = Literal["cancel", "pause", "take over"]


def traveller(lab: Lab) -> Any:
    """Branches that claim and book one thing after the other, beside one that is handed over to people."""

    @tool(idempotency=Key.forever(stores="all"), claim="what")
    async def book(what: str) -> str:
        await asyncio.sleep(LAG_S)
        lab.sent.append(f"{what} {current_operation().key[:2]}")
        return what

    async def one(branch: int) -> None:
        for number in range(3):
            await book(f"{branch}.{number}")

    async def two(run: Run) -> None:
        await run.hand_off("desk", why="who does the rest?")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> None:
        await run.gather(one(1), two(run), one(3), one(4))

    return desk


async def give(other: Any, order: Order) -> None:
    match order:
        case "cancel":
            await other.service.cancel("trip-ann", by="bea")
        case "pause":
            await other.service.pause("trip-ann", by="bea")
        case "take over":
            await other.service.take_over("trip-ann/~2/hand_off#1", by="bea")


async def ordered_after(ms: int, order: Order) -> Lab:
    """A run, and another process that gives the order so many milliseconds after it began."""
    lab = Lab()
    lab.lag_s = LAG_S
    desk = traveller(lab)
    async with lab.app(desk, poll_ms=5) as app, lab.app(desk, poll_ms=5) as other:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await asyncio.sleep(ms / 1000)
        try:
            await give(other, order)
        except UsageError:
            running.cancel()  # too early: there is nothing to give an order about yet
        await asyncio.wait([running])
        assert running.cancelled() or isinstance(running.exception(), BeforehandError)
    return lab


def begun_after(lab: Lab) -> tuple[int, list[str]]:
    """How many attempts began before the order was on record, and which after it."""
    records = lab.records("trip-ann")
    came = next((at for at, one in enumerate(records) if isinstance(one, r.CommandApplied)), len(records))
    before, after = records[:came], records[came:]
    late = [one.step for one in after if isinstance(one, r.AttemptStarted)]
    return sum(isinstance(one, r.AttemptStarted) for one in before), late


@pytest.mark.parametrize("order", ["cancel", "pause", "take over"])
def test_no_write_begins_after_an_order(order: Order, monkeypatch: pytest.MonkeyPatch):
    """What the ledger may still refuse takes its time to the journal: an order that comes meanwhile stands behind it."""
    found: set[int] = set()
    checked = vars(RunRecorder)["_append_checked"]

    async def slowly(*args: Any) -> None:
        await asyncio.sleep(3 * LAG_S)
        await checked(*args)

    async def sweep() -> None:
        for ms in range(0, 100, 2):
            before, late = begun_after(await ordered_after(ms, order))
            assert not late, f"after {ms} ms: {late}"
            found.add(before)

    monkeypatch.setattr(RunRecorder, "_append_checked", slowly)
    run_virtual(sweep(), limit=DAY)
    assert len(found) > 2, found
