"""Processes that come to harm: one is stopped in a call for hours, one dies of the run that it drives.

A tool whose process is stopped in the middle of a call, a tool during whose call its process dies, and code that does
the same: see `process_checker.py` for what has to become of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from holdfast.agent.tool import Tool, tool
from holdfast.model.contract import Key
from holdfast.model.outcome import Verdict
from holdfast.model.view import Operation
from holdfast.testing.world.loop import Died
from simulator.tools import ANSWERS, NETWORK, verdict, write

POISON: Final = ("risk", "crash")
"""Steps at which the process dies whenever it comes to them: during a call, and between calls."""


def process_tools() -> Iterable[Tool[Any, Any]]:
    """A tool that can be read back, whose process is stopped in it; and one that kills its process."""

    @tool(**ANSWERS)
    async def haul(thing: str) -> str:
        return await write("haul", marked=True, thing=thing)

    @haul.verify(settle_window=timedelta(seconds=30), every=timedelta(seconds=15))
    async def hauled(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("haul", marker=operation.marker))

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def risk(thing: str) -> str:
        await die()
        return thing

    del hauled
    return haul, risk


async def die() -> None:
    """The process ends here, whichever it is."""
    from simulator.scripted import LIFE  # noqa: PLC0415 - it performs the steps that stand here

    life = LIFE.get()
    await life.world.travel()
    if life.actor.alive:
        life.world.tell(life.actor, "dies of the run that it drives")
        life.world.checker.processes.died()
        life.kill()
    raise Died
