"""Makes trips in processes that die: reads one plan per line, forks, and says how the child ended.

A plan is `[scenario, journal, world, point, number]`; the child kills itself with SIGKILL at the n-th time that it
comes by that point. Everything is imported once, so that a fork costs a millisecond.
"""

import asyncio
import json
import os
from pathlib import Path

from msgspec.structs import replace

from beforehand import Beforehand
from beforehand.engine.environment import system_environment
from beforehand.errors import UsageError
from examples.trip import Trip, book_trip
from tests.crash.forks import serve
from tests.crash.points import Points, WatchedJournal

TRIPS = {
    "commit": Trip("1", "SFO", "Lisbon", 3),
    "abort": Trip("1", "SFO", "Full Lisbon", 0),
    "undo": Trip("1", "SFO", "Lisbon", 3),
}


async def live(scenario: str, journal: str, points: Points) -> str:
    """One life: make the trip, and undo it where that is what is tried."""
    environment = replace(system_environment(), crash=points)
    async with Beforehand(
        WatchedJournal(journal, points), agents=[book_trip], environment=environment, recover=False
    ) as app:
        if scenario != "undo":
            return await app.run(book_trip, TRIPS[scenario])
        try:
            undone = await app.undo("trip-1", by="ann")
        except UsageError:
            await app.drive("trip-1")  # it was begun before
            return (await app.service.row("trip-1")).status
        return undone.phase


def child(scenario: str, journal: str, world: str, point: str, number: int) -> None:
    """Live, and leave what was heard and which points were reached in a file."""
    os.environ["TRIP_WORLD"] = world
    points = Points((point, number) if point else None)
    heard = asyncio.run(live(scenario, journal, points))
    Path(journal + ".heard").write_text(json.dumps([heard, points.reached_so_far]))


if __name__ == "__main__":
    serve(child)
