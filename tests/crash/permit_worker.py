"""Workers whose tools share a limit. Each call holds one of the slots, which the system lends once.

python -m tests.crash.permit_worker JOURNAL PLACE COUNT forks so many workers, and another one for each that is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.settings import Settings
from beforehand.queues.call_limits import CallLimit, ModelLimit, ServiceLimit
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.crash import queue_worker
from tests.crash.queue_worker import do_once, locked, note
from tests.crash.zygote import PR_SET_PDEATHSIG

SLOTS = 3
APART_S = 0.02
BURST = 2
LIMITS = DeclaredLimits(
    {"calls": QueueLimits()},
    tools={"paced": CallLimit(rate="50/second", burst=BURST)},
    models={"lent": ModelLimit(at_once=SLOTS)},
    services={"lender": ServiceLimit(at_once=SLOTS, tools=("work", "work_too"))},
)
_AT_WORK_S = 0.02  # long enough that a call above the limit would be seen beside the others


async def borrow(name: str) -> str:
    slot = next(filter(None, (locked(f"slot-{number}") for number in range(SLOTS))), None)
    try:
        if slot is None:
            note("exceeded", f"{name} beside {SLOTS} others")
        if name.startswith("stuck") and not (queue_worker.place / name).exists():
            note(name, str(os.getpid()))
            await asyncio.Event().wait()  # the process is killed here, in the middle of the call
        await asyncio.sleep(_AT_WORK_S)
        do_once(queue_worker.place, name)
    finally:
        if slot is not None:
            slot.close()
    return name


@tool(idempotency=Key.forever())
async def work(name: str) -> str:
    return await borrow(name)


@tool(idempotency=Key.forever())
async def work_too(name: str) -> str:
    return await borrow(name)


@tool(idempotency=Key.forever())
async def paced(name: str) -> str:
    note("began", f"{time.monotonic()}")
    do_once(queue_worker.place, name)
    return name


async def ask(name: str) -> str:
    """One call of a model, which holds one of its slots."""
    slot = next(filter(None, (locked(f"model-{number}") for number in range(SLOTS))), None)
    try:
        if slot is None:
            note("exceeded", f"{name} beside {SLOTS} others")
        if name.startswith("asked-stuck") and not (queue_worker.place / name).exists():
            note(name, str(os.getpid()))
            await asyncio.Event().wait()  # the process is killed here
        await asyncio.sleep(_AT_WORK_S)
        note("answered", name)
    finally:
        if slot is not None:
            slot.close()
    return name


@agent(run_id="call-{name}", tools=[work, work_too, paced])
async def desk(run: Run, name: str) -> str:
    if name.startswith("asked"):
        return await run.options(model="lent").decide(ask, name)
    return await (paced if name.startswith("paced") else work_too if name.endswith("1") else work)(name)


async def main(journal: str) -> None:
    settings = Settings(recover_every_ms=40, poll_ms=20)
    async with Beforehand(journal, agents=[desk], settings=settings):
        await asyncio.Event().wait()


def keep_workers(count: int, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Fork so many workers, which do not outlive this process, and another one for each that dies."""
    alive = 0
    while True:
        while alive < count:
            alive += 1
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                asyncio.run(main())
        os.wait()
        alive -= 1


if __name__ == "__main__":
    queue_worker.place = Path(sys.argv[2])
    keep_workers(int(sys.argv[3]), lambda: main(sys.argv[1]))
