"""One of several workers on one queue. Each run holds a lock of its key and one of the slots, which the system lends once.

python -m tests.crash.queue_worker JOURNAL PLACE
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from pathlib import Path
from typing import IO

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.settings import Settings
from beforehand.queues.limits import DeclaredLimits, QueueLimits

SLOTS = 3
LIMITS = DeclaredLimits({"mail": QueueLimits(concurrency=SLOTS, key="order-{ticket.order}")})
_AT_WORK_S = 0.01  # long enough that a second run of the key would be seen beside it
place = Path()


def note(file: str, text: str) -> None:
    with (place / file).open("a") as lines:
        lines.write(f"{text}\n")
        lines.flush()
        os.fsync(lines.fileno())


def locked(name: str) -> IO[str] | None:
    """The lock of that name, or None where another holder has it; also one in this process."""
    file = (place / name).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def do_once(world: Path, name: str) -> None:
    """The world does it once for one key: a file is made whole or not at all, wherever the process dies."""
    (world / f"effect {name} {current_operation().key}").touch()


def done(world: Path) -> list[str]:
    """What was done in the world, as often as it was."""
    return sorted(file.name.split(" ")[1] for file in world.iterdir() if file.name.startswith("effect "))


@tool(idempotency=Key.forever())
async def work(name: str) -> str:
    do_once(place, name)
    return name


@agent(run_id="job-{ticket[name]}", tools=[work])
async def desk(run: Run, ticket: dict[str, str]) -> str:
    key = locked(f"key-{ticket['order']}")
    slot = next(filter(None, (locked(f"slot-{number}") for number in range(SLOTS))), None)
    try:
        if key is None or slot is None:
            note("exceeded", f"{ticket} beside another of its key" if key is None else f"{ticket} without a slot")
        await asyncio.sleep(_AT_WORK_S)
        return await work(ticket["name"])
    finally:
        for one in (key, slot):
            if one is not None:
                one.close()


async def main(journal: str) -> None:
    settings = Settings(recover_every_ms=40, poll_ms=20)
    async with Beforehand(journal, agents=[desk], settings=settings):
        await asyncio.Event().wait()


if __name__ == "__main__":
    place = Path(sys.argv[2])
    asyncio.run(main(sys.argv[1]))
