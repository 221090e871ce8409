"""One process of a cell: `program.py HOST DIRECTORY SCENE`, in the environment of the host. It prints how the run ended."""

import asyncio
import importlib
import json
import sys
from datetime import timedelta
from pathlib import Path

from holdfast import (
    DidNotHappen,
    Happened,
    Holdfast,
    Operation,
    Run,
    RunSuspended,
    Verdict,
    agent,
    current_operation,
    tool,
)
from tests.hosts.world import Scene

HOST, DIRECTORY, SCENE = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
WORLD = Scene(DIRECTORY / "witness", **SCENE)
HOSTED = importlib.import_module(f"tests.hosts.{HOST}")


@tool(name="pay")
async def verified(what: str) -> str:
    """Pay."""
    await asyncio.sleep(0.05 if what == "c" else 0)
    return WORLD.effect(what, current_operation().key)


@verified.verify(settle_window=timedelta(0))
async def paid(operation: Operation[str]) -> Verdict[str]:
    found = WORLD.find(operation.key)
    return DidNotHappen() if found is None else Happened(found)


@tool(name="pay", gate="true")
async def asked(what: str) -> str:
    """Pay."""
    return WORLD.effect(what)


async def plain(what: str) -> str:
    """Pay."""
    await asyncio.sleep(0.05 if what == "c" else 0)
    return WORLD.effect(what)


@agent(tools=[{"verified": verified, "asked": asked}.get(WORLD.tool, verified)])
async def desk(run: Run, task: str) -> str:
    return await converse(task)


async def converse(task: str) -> str:
    payer = {"verified": verified, "asked": asked, "plain": plain, "host asks": plain}[WORLD.tool]
    if not WORLD.durable and payer is not plain:
        payer = plain
    return await HOSTED.converse(WORLD, payer, task)


async def main() -> str:
    """The end of the run, as this process sees it."""
    if not WORLD.durable:
        return await converse("go")
    async with Holdfast(DIRECTORY / "desk.db", agents=[desk]) as app:
        try:
            return await app.run(desk, "go", run_id="r1")
        except RunSuspended as waits:
            return f"waits: {waits}"


if __name__ == "__main__":
    print(asyncio.run(main()))
