"""Calls that outlived the app that made them, in a process that goes on.

A journal can prove that a process is dead, and not that an app in a living process was closed. So the process
remembers which of its closed apps left calls behind, and whether they still run: an app that is opened later need not
wait for the end of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.engine.seams import thread_of

_LEFT: Final[dict[str, dict[tuple[str, int], Callable[[], bool]]]] = {}


def leave_behind(worker: str, calls: Mapping[str, Mapping[int, asyncio.Future[Any]]]) -> None:
    """The app of this worker is closed. `calls` are what it started and did not see end, by operation and number."""
    _LEFT[worker] = {
        (operation, number): _runs(call)
        for operation, numbered in calls.items()
        for number, call in numbered.items()
        if not call.done()
    }


def still_runs(worker: str, operation: str, number: int) -> bool | None:
    """Whether that call still runs; None where the worker was no app of this process, or is not closed."""
    left = _LEFT.get(worker)
    if left is None:
        return None
    runs = left.get((operation, number))
    return runs is not None and runs()


def _runs(call: asyncio.Future[Any]) -> Callable[[], bool]:
    """A thread runs until it ends. A coroutine runs no more once its loop is closed."""
    thread = thread_of(call)
    if thread is not None:
        return thread.is_alive
    return lambda: not call.done() and not call.get_loop().is_closed()
