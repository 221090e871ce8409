"""The desk whose journal is `version_1.sql`, as the last release with version 1 of the schema wrote it.

With that release on the path, `python version_1.py runs.db > version_1.sql` makes such a file in an empty directory. One
process does all that ends or waits; another one is killed in a model call, and in a tool's call under two limits.
"""

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from beforehand import Beforehand, Key, NotSent, Run, agent, current_operation, tool
from beforehand.control.schedules import Scheduler, declare_schedules
from beforehand.engine.settings import Settings
from beforehand.errors import RunStopped, RunSuspended
from beforehand.journal.host import this_host
from beforehand.journal.port import Worker
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.policies import Budget, Retry
from beforehand.queues.call_limits import CallLimit, ServiceLimit
from beforehand.queues.firing_times import Schedule
from beforehand.queues.limits import DeclaredLimits, QueueLimits, SharedBudget

LIMITS = DeclaredLimits(
    {"mail": QueueLimits(concurrency=2)},
    tools={"charge": CallLimit(at_once=3, rate="600/minute", burst=2), "send": CallLimit()},
    services={"bank": ServiceLimit(at_once=3, tools=("charge",))},
    budgets={
        "all": SharedBudget(tokens=1_000_000, effects=100, cost="20 EUR", unpriced="0.05 EUR"),
        "desks": SharedBudget(agent="desk", model_calls=50),
    },
)
EVERY = {"nightly": Schedule("desk", {"name": "fired"}, every_ms=1_000, missed="all")}
SETTINGS = Settings(hold_ms=100, recover_every_ms=100, poll_ms=100)
HANGS = __name__ == "__main__"
"""Calls that are never answered, while the journal is made."""
begun: list[str] = []


async def judge(name: str) -> dict[str, dict[str, int]]:
    """A model."""
    if HANGS and name == "thinks":
        begun.append(name)
        await asyncio.Event().wait()
    return {"usage": {"input_tokens": 400, "output_tokens": 20}}


@tool(idempotency=Key.forever(), budget=Budget(call="0.40 EUR"))
async def charge(name: str) -> str:
    assert current_operation().key
    if HANGS and name == "calls":
        begun.append(name)
        await asyncio.Event().wait()
    return f"charged {name}"


@tool
async def mail(name: str) -> str:
    raise TimeoutError("no answer")


@tool(retry=Retry(attempts=50, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=2)))
async def send(name: str) -> str:
    raise NotSent("down", retry_after=3_600)


@tool(retry=Retry(attempts=50, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=2)))
async def fetch(name: str) -> str:
    raise NotSent("down")


@dataclass
class Task:
    name: str
    does: str = "end"


@agent(run_id="{task.name}", program="desk")
async def desk(run: Run, task: Task) -> str:
    name = task.name
    await run.decide(judge, name)
    match task.does:
        case "charge":
            return await charge(name)
        case "mail":
            return await mail(name)
        case "send":
            return await send(name)
        case "fetch":
            return await fetch(name)
        case "sleep":
            await run.sleep(timedelta(hours=1))
        case "wait":
            return str(await run.wait_for("approved", "boss"))
    return f"{name}: {task.does}"


DOES = {
    "charged": "charge", "asked": "mail", "slowed": "send", "broken": "fetch", "asleep": "sleep", "awaits": "wait",
    "stopped": "wait", "ended": "end",
}  # fmt: skip
KILLED = {"thinks": "charge", "calls": "charge"}


def opened(journal: str) -> Beforehand:
    """An app on a machine that has no name of its own."""
    here = replace(this_host(), machine="machine-1", boot="boot-1")
    return Beforehand(
        SqliteJournal(journal, parts=Parts(here=here)),
        agents=[desk],
        queues=LIMITS,
        settings=SETTINGS,
        recover=False,
        worker=lambda name: Worker(name, "machine-1", "boot-1", "pids-1", os.getpid(), 1),
    )


async def write_most(journal: str) -> None:
    async with opened(journal) as app:
        for name, does in DOES.items():
            with contextlib.suppress(RunSuspended):
                await app.run(desk, Task(name, does))
        await app.service.cancel("stopped", by="ann", why="it is not wanted")
        with contextlib.suppress(RunStopped):
            await app.resume("stopped")
        for name in ("queued", "queued-too"):
            await app.submit(desk, Task(name, "charge"), queue="mail", at=datetime(2040, 1, 1, tzinfo=UTC))
        await declare_schedules(app.engine, EVERY, app.agents)
        while sum(row.run.startswith("nightly") for row in await app.engine.journal.runs()) < 3:
            await Scheduler(app.engine, app.agents).fire()
            await asyncio.sleep(0.2)


async def die(journal: str) -> None:
    async with opened(journal) as app:
        running = [asyncio.create_task(app.run(desk, Task(name, does))) for name, does in KILLED.items()]
        while set(begun) != set(KILLED):
            await asyncio.wait(running, timeout=0.3)
        os.kill(os.getpid(), signal.SIGKILL)


def main(journal: str) -> None:
    asyncio.run(write_most(journal))
    if not (child := os.fork()):
        asyncio.run(die(journal))
    os.waitpid(child, 0)
    with contextlib.closing(sqlite3.connect(journal)) as connection:
        sys.stdout.writelines(f"{line}\n" for line in connection.iterdump())


if __name__ == "__main__":
    main(sys.argv[1])
