"""Sets a register twice in processes that die. The first request of all is on its way for a while, and gets no answer.

A plan is one JSON line, `[journal, place, point, number]`. The child kills itself with SIGKILL at the n-th time that it
comes by that point. What was requested is in a file, with the moment at which each request lands.
"""

import asyncio
import json
import os
import time
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from beforehand import Beforehand, Natural, Run, agent, tool
from beforehand.engine.environment import system_environment
from beforehand.policies import Retry
from tests.crash.forks import serve
from tests.crash.points import Points, WatchedJournal

ON_ITS_WAY_S = 0.12
WINDOW = timedelta(milliseconds=200)
SOON = Retry(attempts=6, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=5))


def request(value: str) -> None:
    """Note the request. The first one lands later, as one that was held up on the network."""
    path = Path(os.environ["REGISTER"])
    late = 0.0 if path.exists() else ON_ITS_WAY_S
    with path.open("a") as file:
        file.write(f"{time.monotonic() + late} {value}\n")
    if late:
        raise TimeoutError("no answer")


@tool(idempotency=Natural(settle_window=WINDOW), retry=SOON)
async def put(thing: str, value: str) -> str:
    request(value)
    return value


@agent(run_id="set-{thing}", tools=[put])
async def desk(run: Run, thing: str) -> str:
    await put(thing, "on")
    return await put(thing, "off")


async def live(journal: str, points: Points) -> str:
    environment = replace(system_environment(), crash=points)
    async with Beforehand(
        WatchedJournal(journal, points), agents=[desk], environment=environment, recover=False
    ) as app:
        return await app.run(desk, "lamp")


def child(journal: str, register: str, point: str, number: int) -> None:
    """Live, and leave the result and which points were reached in a file."""
    os.environ["REGISTER"] = register
    points = Points((point, number) if point else None)
    result = asyncio.run(live(journal, points))
    Path(journal + ".result").write_text(json.dumps([result, points.reached_so_far]))


if __name__ == "__main__":
    serve(child)
