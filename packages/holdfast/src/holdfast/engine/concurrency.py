"""Many calls, some of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

from holdfast.errors import UsageError

T = TypeVar("T")


async def gather_bounded(calls: Iterator[Coroutine[Any, Any, T]], most: int) -> AsyncGenerator[T]:
    """What they return, in the order in which they end. The next one is taken as soon as there is room for it."""
    pending: set[asyncio.Task[T]] = set()
    try:
        while True:
            while len(pending) < most and (call := next(calls, None)) is not None:
                pending.add(asyncio.get_running_loop().create_task(call))
            if not pending:
                return
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in pending:
            task.cancel()


def checked_loop() -> None:
    """Raise `UsageError` where no loop of asyncio runs: under trio or curio, or outside of every loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "Holdfast runs on asyncio, and no loop of asyncio runs here",
            known="nothing was opened or sent",
            next_step="call it under asyncio.run(...); elsewhere, use `with Holdfast(...) as app` in a thread",
        ) from None
