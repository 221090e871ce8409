"""Workers on one queue, some of whose runs kill the process that drives them, each time.

python -m tests.crash.poison_worker JOURNAL PLACE COUNT forks so many workers, and another one for each that dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.settings import Settings
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.crash import queue_worker
from tests.crash.permit_worker import keep_workers
from tests.crash.queue_worker import do_once, note

SLOTS = 2
LIMITS = DeclaredLimits({"mail": QueueLimits(concurrency=SLOTS, key="{name}")})


def die(name: str, how: str) -> None:
    note("deaths", name)
    if how == "exit":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL)


@tool(idempotency=Key.forever())
async def work(name: str) -> str:
    if name.startswith("tool"):
        die(name, name.rpartition("-")[2])
    do_once(queue_worker.place, name)
    return name


@agent(run_id="job-{name}", tools=[work])
async def desk(run: Run, name: str) -> str:
    if name.startswith("code"):
        die(name, name.rpartition("-")[2])
    return await work(name)


async def main(journal: str) -> None:
    settings = Settings(recover_every_ms=40, poll_ms=20)
    async with Beforehand(journal, agents=[desk], settings=settings):
        await asyncio.Event().wait()


if __name__ == "__main__":
    queue_worker.place = Path(sys.argv[2])
    keep_workers(int(sys.argv[3]), lambda: main(sys.argv[1]))
