"""One of several workers on one schedule. Its clock is `ahead` of the others', and a second lasts a twentieth of one.

python -m tests.crash.firing_worker JOURNAL PLACE BEGUN AHEAD
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.environment import SystemClock, system_environment
from beforehand.engine.settings import Settings
from beforehand.journal.host import JournalClock, boot_id, uptime_ms
from beforehand.journal.sqlite.journal import SqliteJournal
from tests.crash.queue_worker import do_once

SPEED = 20
MIDNIGHT = 1_800_057_600_000  # 2027-01-16
world = Path()


@tool(idempotency=Key.forever())
async def pay(name: str) -> str:
    do_once(world, name)
    return name


@agent(tools=[pay])
async def desk(run: Run, about: str) -> str:
    return await pay(run.id)


def journal_at(path: str, begun: int) -> SqliteJournal:
    """The journal by the fast clock, which began at midnight when the machine had been up for so long."""
    return SqliteJournal(
        path, clock=JournalClock(boot_id(), uptime_ms, lambda: MIDNIGHT + (uptime_ms() - begun) * SPEED)
    )


class Ahead(SystemClock):
    """The clock of one process."""

    def __init__(self, begun: int, ahead_ms: int) -> None:
        self._begun, self._ahead_ms = begun, ahead_ms

    def wall_ms(self) -> int:
        return MIDNIGHT + (uptime_ms() - self._begun) * SPEED + self._ahead_ms

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / SPEED)


async def main(path: str, begun: int, ahead_ms: int) -> None:
    environment = replace(system_environment(), clock=Ahead(begun, ahead_ms))
    settings = Settings(recover_every_ms=400, poll_ms=400)
    async with Beforehand(journal_at(path, begun), agents=[desk], settings=settings, environment=environment):
        await asyncio.Event().wait()


if __name__ == "__main__":
    world = Path(sys.argv[2])
    asyncio.run(main(sys.argv[1], int(sys.argv[3]), int(sys.argv[4])))
