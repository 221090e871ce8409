"""Waiting for several branches of a run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def plain(awaitable: Awaitable[T]) -> T:
    """Any awaitable as a coroutine, for a task."""
    return await awaitable


async def all_of(tasks: list[asyncio.Task[R]]) -> list[R]:
    """All results in order; the first error cancels the rest and is raised when they have ended."""
    if not tasks:
        return []
    try:
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
    failed = next((task for task in tasks if task in done and (task.cancelled() or task.exception())), None)
    if failed is not None:
        failed.result()
    return [task.result() for task in tasks]
