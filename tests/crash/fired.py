"""Declares, fires and pauses schedules in processes that die while they do. Each life has its own moment on the clock."""

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.control.schedules import Scheduler, declare_schedules, steer_schedule
from beforehand.engine.environment import SystemClock, system_environment
from beforehand.engine.recovery import Recovery
from beforehand.inspect.reader import read_schedules
from beforehand.journal.host import JournalClock, boot_id, uptime_ms
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.queues.firing_times import Schedule
from tests.crash.desks import note_once
from tests.crash.forks import serve
from tests.crash.points import Points, WatchedJournal

MIDNIGHT = 1_800_057_600_000  # 2027-01-16
HOUR = 3_600_000
WALL = {"declare": MIDNIGHT, "pause": MIDNIGHT + HOUR, "resume": MIDNIGHT + 17 * HOUR}
LATER = MIDNIGHT + 25 * HOUR
SCHEDULES = {
    "all": Schedule("desk", "all", every_ms=8 * HOUR, missed="all"),
    "last": Schedule("desk", "last", cron="0 */6 * * *", missed="once"),
    "once": Schedule("desk", "once", at="2027-01-16T12:00", missed="once"),
    "skipped": Schedule("desk", "skipped", cron="0 3 * * *"),
}
FIRED = [
    "all@2027-01-16T08:00:00Z", "all@2027-01-16T16:00:00Z", "all@2027-01-17T00:00:00Z", "last@2027-01-17T00:00:00Z",
    "once@2027-01-16T12:00:00Z",
]  # fmt: skip


class Clock(SystemClock):
    """A clock that stands still."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms


class Journal(WatchedJournal):
    """The watched journal, by such a clock."""

    def __init__(self, path: str, points: Points, clock: Clock) -> None:
        SqliteJournal.__init__(self, path, clock=JournalClock(boot_id(), uptime_ms, clock.wall_ms))
        self._points = points


@tool(idempotency=Key.forever())
async def pay(name: str) -> str:
    note_once(name)
    return name


@agent(tools=[pay])
async def desk(run: Run, about: str) -> str:
    return await pay(run.id)


async def act(app: Beforehand, what: str) -> object:
    engine = app.engine
    match what:
        case "declare":
            await declare_schedules(engine, SCHEDULES, app.agents)
            return len(await engine.journal.entries("schedules"))
        case "pause" | "resume":
            known, _ = await steer_schedule(engine, "all", what, by="ann")
            return [bool(known.paused), len(await engine.journal.entries("schedules"))]
        case "fire":
            await Scheduler(engine, app.agents).fire()
            return [row.run for row in await engine.journal.runs()]
        case "work":
            looking = Recovery(engine, app.drive)
            while started := await looking.look():
                for task in started:
                    await task
            return Counter(row.status for row in await engine.journal.runs())
        case _:
            return sorted((await read_schedules(engine.journal)).schedules)


async def live(what: str, journal: str, points: Points) -> object:
    clock = Clock(WALL.get(what, LATER))
    environment = replace(system_environment(), crash=points, clock=clock)
    watched = Journal(journal, points, clock)
    async with Beforehand(watched, agents=[desk], environment=environment, recover=False) as app:
        return await act(app, what)


def child(what: str, journal: str, point: str, number: int) -> None:
    os.environ["EFFECTS"] = f"{journal}.effects"
    points = Points((point, number) if point else None)
    heard = asyncio.run(live(what, journal, points))
    Path(f"{journal}.heard").write_text(json.dumps([heard, points.reached_so_far]))


if __name__ == "__main__":
    serve(child)
