"""What one process of a cell does, in the environment of its host; a zygote imports this and forks each process.

`{"scene": ..., "directory": ...}` drives the run, and returns how it ended. `{"command": [...]}` is a person at the
command line, and returns the status and what was printed. `{"argv": [...]}` runs another program of these tests.
"""

import asyncio
import contextlib
import importlib
import io
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from beforehand import (
    Beforehand,
    DidNotHappen,
    Happened,
    Operation,
    Run,
    RunSuspended,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.cli.main import main as command_line
from beforehand.errors import RunStopped
from tests.hosts import warm
from tests.hosts.world import Scene

HOSTED = importlib.import_module(f"tests.hosts.{os.environ['BEFOREHAND_TEST_HOST']}")


class Desk:
    """The tools of one process, and its agent."""

    def __init__(self, world: Scene, journal: Path) -> None:
        self.world = world
        self.journal = journal
        self.app: Beforehand | None = None
        self.tools = {"verified": self.verified(), "asked": self.asked()}

    def verified(self) -> Any:
        @tool(name="pay")
        async def pay(what: str) -> str:
            """Pay."""
            return await self.paying(what, current_operation().key)

        @pay.verify(settle_window=timedelta(0))
        async def paid(operation: Operation[str]) -> Verdict[str]:
            found = self.world.find(operation.key)
            return DidNotHappen() if found is None else Happened(found)

        return pay

    def asked(self) -> Any:
        @tool(name="pay", gate="true")
        async def pay(what: str) -> str:
            """Pay."""
            return await self.paying(what)

        return pay

    async def paying(self, what: str, key: str = "") -> str:
        await asyncio.sleep(0.05 if what == "c" else 0)
        said = self.world.effect(what, key)
        if self.world.cancels and what == "b" and self.app is not None:
            await self.app.service.cancel("r1", by="ann", why="asked twice")
        return said

    def payer(self) -> Callable[..., Any]:
        """The tool that the host is given: one of Beforehand, or a function of the host's own."""
        if self.world.durable and self.world.tool in self.tools:
            return self.tools[self.world.tool]

        async def pay(what: str) -> str:
            """Pay."""
            return await self.paying(what)

        return pay

    def agent(self) -> Any:
        @agent(tools=[self.tools[self.world.tool]] if self.world.tool in self.tools else [])
        async def desk(run: Run, task: str) -> str:
            return await HOSTED.converse(self.world, self.payer(), task)

        return desk

    async def run(self) -> str:
        """The end of the run, as this process sees it."""
        if not self.world.durable:
            return await HOSTED.without(self.world, self.payer(), "go")
        desk = self.agent()
        async with Beforehand(self.journal, agents=[desk]) as self.app:
            try:
                return await self.app.run(desk, "go", run_id="r1")
            except RunSuspended as waits:
                return f"waits: {waits}"
            except RunStopped as stopped:
                return f"stopped: {stopped.reason}"


def main(job: dict[str, Any]) -> Any:
    if "argv" in job:
        return warm.main(job)
    directory = Path(job["directory"])
    if "command" in job:
        return at_the_command_line([*job["command"], "--journal", str(directory / "desk.db")])
    world = Scene(directory / "witness", **job["scene"])
    return asyncio.run(Desk(world, directory / "desk.db").run())


def at_the_command_line(words: list[str]) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            command_line(words)
        except SystemExit as ended:
            return int(ended.code or 0), printed.getvalue()
