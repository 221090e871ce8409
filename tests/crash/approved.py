"""Drives a run that asks for an approval, and gives the approval, in processes that die.

A plan is one JSON line, `[what, journal, point, number]`: `drive` goes on with the run, `approve` says yes. The child
kills itself with SIGKILL at the n-th time that it comes by that point. What was paid stands in a file, and outlives it.
"""

import asyncio
import json
import os
from pathlib import Path

from msgspec.structs import replace

from holdfast import Holdfast, Run, agent, tool
from holdfast.engine.seams import system_seams
from holdfast.errors import RunSuspended, UsageError
from tests.crash.forks import serve
from tests.crash.points import Points, WatchedJournal

OPERATION = "refund-ann/pay#1"


def note(cents: int) -> None:
    """The bank pays, and notices no second time."""
    with Path(os.environ["PAID"]).open("a") as paid:
        paid.write(f"{cents}\n")
        paid.flush()
        os.fsync(paid.fileno())


@tool(gate="cents > 5000")
async def pay(cents: int) -> str:
    note(cents)
    return "paid"


@agent(run_id="refund-{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    return await pay(9000)


async def drive(app: Holdfast) -> str:
    """The run, as far as it comes: its result, or what it waits for."""
    try:
        return await app.run(desk, "ann")
    except RunSuspended as waits:
        return f"waits: {waits.message}"


async def approve(app: Holdfast) -> str:
    """A person says yes; where somebody has said so before, what that person is told."""
    try:
        await app.service.approve(OPERATION, by="bea")
    except UsageError as told:
        return told.message
    return "approved"


async def live(what: str, journal: str, points: Points) -> str:
    """One life."""
    seams = replace(system_seams(), crash=points)
    async with Holdfast(WatchedJournal(journal, points), agents=[desk], seams=seams, recover=False) as app:
        return await (approve(app) if what == "approve" else drive(app))


def child(what: str, journal: str, point: str, number: int) -> None:
    """Live, and leave what was heard and which points were reached in a file."""
    os.environ["PAID"] = journal + ".paid"
    points = Points((point, number) if point else None)
    heard = asyncio.run(live(what, journal, points))
    Path(journal + ".heard").write_text(json.dumps([heard, points.reached_so_far]))


if __name__ == "__main__":
    serve(child)
