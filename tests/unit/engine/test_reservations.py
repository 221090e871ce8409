"""Reservations: what confirms and releases them is what was declared when they were made, and they lapse early."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Natural, Operation, Run, TransactionAborted, agent, current_operation, tool
from beforehand.errors import RunSuspended
from tests.unit.engine.lab import Lab, virtual

STEADY = Key.forever(stores="all")
HOUR = timedelta(hours=1)


def seats(lab: Lab, version: str) -> Any:
    """A reservation whose confirmation and release may be missing from a later version, or have other names."""

    @tool(idempotency=STEADY)
    async def reserve(seat: str) -> str:
        _ = current_operation().key
        return seat

    def companion(name: str) -> Any:
        @tool(name=name, idempotency=Natural(within=HOUR))
        async def serves(operation: Operation[str]) -> None:
            lab.sent.append(name)

        return serves

    number = "two" if version in {"two", "both"} else "one"
    if version != "no confirmation":
        reserve.confirm(expires=HOUR)(companion(f"confirm_{number}"))
    if version != "no release":
        reserve.compensate(restores=True)(companion(f"release_{number}"))
    extra = [companion("confirm_one"), companion("release_one")] if version == "both" else []

    @agent(run_id="r-{name}", tools=[reserve, *extra])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                await reserve("12A")
                await run.sleep(timedelta(minutes=1))
                if name == "no":
                    boundary.abort("no")
        except TransactionAborted as gone:
            return f"{gone.reason}: {gone.undone}"
        return "done"

    return desk


UNDONE = "('t/reserve#1',)"


@pytest.mark.parametrize(
    ("later", "name", "comes", "sent"),
    [
        ("one", "go", "done", ["confirm_one"]),
        ("one", "no", f"no: {UNDONE}", ["release_one"]),
        ("both", "no", f"no: {UNDONE}", ["release_one"]),
        ("two", "no", f"no: {UNDONE}", ["release_two"]),
        ("two", "go", "done", ["confirm_two"]),
        ("both", "go", "done", ["confirm_one"]),
        ("no confirmation", "go", f"its confirmation is no longer in this app: {UNDONE}", ["release_one"]),
        ("no release", "go", "done", ["confirm_one"]),
        ("no release", "no", "the compensation of t/reserve#1 is no longer in this app", []),
    ],
)
@virtual
async def test_what_confirms_and_releases_is_what_was_declared_and_is_here(
    lab: Lab, later: str, name: str, comes: str, sent: list[str]
):
    first, desk = seats(lab, "one"), seats(lab, later)
    await lab.until_suspended(first, name)
    await lab.pass_time(minutes=1)
    async with lab.app(desk) as app:
        if sent:
            assert comes in await app.run(desk, name)
        else:
            with pytest.raises(RunSuspended, match=f"partly undone: {comes}"):
                await app.run(desk, name)
    assert lab.sent == sent


MINUTES = 60_000


@pytest.mark.parametrize(
    ("expires", "error", "waits", "confirmed"),
    [
        (15 * MINUTES, MINUTES, 14 * MINUTES - 1, True),
        (15 * MINUTES, MINUTES, 14 * MINUTES, False),
        (5 * MINUTES, MINUTES, 4.5 * MINUTES - 1, True),
        (5 * MINUTES, MINUTES, 4.5 * MINUTES, False),
        (15 * MINUTES, MINUTES, -MINUTES, True),
        (15 * MINUTES, MINUTES, -MINUTES - 1, False),
    ],
)
@virtual
async def test_a_reservation_lapses_early_by_the_error_of_the_clocks(
    lab: Lab, expires: float, error: int, waits: float, confirmed: bool
):
    """A clock that went back by more than that error proves nothing about its age."""

    @tool(idempotency=STEADY)
    async def reserve(seat: str) -> str:
        _ = current_operation().key
        return seat

    @reserve.confirm(expires=timedelta(milliseconds=expires))
    @tool(idempotency=Natural(within=HOUR))
    async def confirm(operation: Operation[str]) -> None:
        lab.sent.append("confirm")

    @reserve.compensate(restores=True)
    @tool(idempotency=Natural(within=HOUR))
    async def release(operation: Operation[str]) -> None:
        lab.sent.append("release")

    @agent(run_id="r-{name}", tools=[reserve])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("t"):
            await reserve("12A")
            lab.clock.skew_ms = int(waits)
        return "done"

    async with lab.app(desk, clock_error_ms=error) as app:
        with contextlib.suppress(TransactionAborted):
            assert await app.run(desk, "ann") == "done"
    assert lab.sent == ["confirm" if confirmed else "release"]
