"""Asks an office for permits in processes that die, and takes in its webhooks in such processes.

A plan is one JSON line, `[what, journal, office, point, number]`: `keyed` or `plain` drives the run that asks, `hook`
takes in the office's webhook. The child kills itself with SIGKILL at the n-th time that it comes by that point. What
the office was asked for stands in files, and outlives the process.
"""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.environment import system_environment
from beforehand.errors import Deferred, RunSuspended
from beforehand.webhooks.incoming import Hooks, WebhookSender
from tests.crash.forks import serve
from tests.crash.points import Points, WatchedJournal

NUMBER = "P-17"
DAY = timedelta(days=1)


def accept(key: str) -> None:
    """The office notes each request. It has one number for all of one key."""
    place = Path(os.environ["OFFICE"])
    with (place / "requests").open("a") as requests:
        requests.write(f"{key}\n")
        requests.flush()
        os.fsync(requests.fileno())


@tool(idempotency=Key.forever())
async def keyed(name: str) -> str:
    accept(current_operation().key)
    raise Deferred("accepted", within=DAY, key=NUMBER)


@tool
async def plain(name: str) -> str:
    accept("")
    raise Deferred("accepted", within=DAY, key=NUMBER)


@agent(run_id="permit-{kind}", tools=[keyed, plain])
async def desk(run: Run, kind: str) -> str:
    permit = await (keyed if kind == "keyed" else plain)("ann")
    return f"ann has {permit}"


async def drive(app: Beforehand, kind: str) -> str:
    """The run, as far as it comes: its result, or what it waits for."""
    try:
        return await app.run(desk, kind)
    except RunSuspended as waits:
        return f"waits: {waits.message}"


async def take_in(app: Beforehand) -> str:
    """The office's webhook comes in by the real app, signed; its status."""
    message = json.loads((Path(os.environ["OFFICE"]) / "webhook.json").read_text())
    hooks = Hooks(app.service, [WebhookSender("office", message["secret"], tools=("keyed", "plain"))])
    said: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": message["body"].encode()}

    async def send(part: dict[str, object]) -> None:
        said.append(part)

    headers = [(name.encode(), value.encode()) for name, value in message["headers"].items()]
    await hooks({"type": "http", "method": "POST", "headers": headers}, receive, send)  # type: ignore[arg-type]  # as a server calls it
    return str(said[0]["status"])


async def live(what: str, journal: str, points: Points) -> str:
    """One life."""
    environment = replace(system_environment(), crash=points)
    async with Beforehand(
        WatchedJournal(journal, points), agents=[desk], environment=environment, recover=False
    ) as app:
        return await (take_in(app) if what == "hook" else drive(app, what))


def child(what: str, journal: str, office: str, point: str, number: int) -> None:
    """Live, and leave what was heard and which points were reached in a file."""
    os.environ["OFFICE"] = office
    points = Points((point, number) if point else None)
    heard = asyncio.run(live(what, journal, points))
    Path(journal + ".heard").write_text(json.dumps([heard, points.reached_so_far]))


if __name__ == "__main__":
    serve(child)
