"""A server of its own: `starlette_program.py DIRECTORY PORT KILL`. KILL: before, after, slow, or nothing."""

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from beforehand import Beforehand, DidNotHappen, Happened, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.hosts.starlette import Runs
from tests.hosts.world import effects

DIRECTORY, PORT, KILL = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
WITNESS = DIRECTORY / "witness"


class Order(msgspec.Struct):
    to: str
    cents: int


@tool
async def pay(to: str, cents: int) -> str:
    if KILL == "slow" and cents > 5:
        await asyncio.sleep(2)
    _die("before")
    with WITNESS.open("a") as file:
        file.write(json.dumps({"what": f"{to} {cents}", "key": current_operation().key}) + "\n")
    _die("after")
    return f"paid {to}"


@pay.verify(settle_window=timedelta(0))
async def paid(operation: Operation[str], to: str) -> Verdict[str]:
    found = any(one["key"] == operation.key for one in effects(WITNESS))
    return Happened(f"paid {to}") if found else DidNotHappen()


def _die(place: str) -> None:
    if place == KILL:
        os.kill(os.getpid(), signal.SIGKILL)


@agent(tools=[pay])
async def order(run: Run, given: Order) -> str:
    return await pay(given.to, given.cents)


desk = Beforehand(DIRECTORY / "desk.db", agents=[order])
api = Starlette(routes=[Mount("/runs", Runs(desk, wait=timedelta(seconds=30)))], lifespan=desk.lifespan)

if __name__ == "__main__":
    uvicorn.run(api, host="127.0.0.1", port=PORT, log_level="warning")
