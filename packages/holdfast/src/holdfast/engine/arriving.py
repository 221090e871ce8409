"""What a message or an order finds when it comes: no write may begin after it that was decided before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.engine.instance import Instance
from holdfast.engine.tooling import ring

_STIRRED: Final = {"operation", "question", "handoff", "event", "timer"}  # these look again, and wait on


def may_be_stopped(instance: Instance) -> bool:
    """Whether a message has come, or an order is coming or could come before this attempt, as others stand in line."""
    return instance.history.messages is not None or instance.log.alone is not None or instance.receiving is not None


async def in_order(instance: Instance) -> None:
    """Return when what is recorded next comes after everything that was begun, and after an order that comes."""
    while instance.checking or instance.receiving is not None:
        await asyncio.wait({*instance.checking, *([] if instance.receiving is None else [instance.receiving])})


@asynccontextmanager
async def in_between(instance: Instance) -> AsyncGenerator[None]:
    """What is recorded here stands between attempts: what the ledger may still refuse is over, none begins."""
    instance.receiving = asyncio.get_running_loop().create_future()
    try:
        while instance.checking:
            await asyncio.wait(instance.checking)
        yield
    finally:
        instance.receiving.set_result(None)
        instance.receiving = None


def stir(instance: Instance) -> None:
    """Something came that everybody has to know of: let whoever waits look at his situation again."""
    instance.wake()
    for waiting, pause in list(instance.pauses.items()):
        if pause.kind in _STIRRED:
            ring(waiting)
