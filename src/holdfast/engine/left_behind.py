"""Calls that outlived the app that made them, in a process that goes on.

A journal can prove that a process is dead, and not that an app in a living process was closed. So the process
remembers which of its closed apps left calls behind, and whether they still run: an app that is opened later need not
wait for the end of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from holdfast.engine.seams import thread_of
from holdfast.journal.port import Worker

_Process: TypeAlias = tuple[str, str, str, int, int]

_LEFT: Final[dict[str, tuple[_Process, dict[tuple[str, int], Callable[[], bool]]]]] = {}


def leave_behind(worker: Worker, calls: Mapping[str, Mapping[int, asyncio.Future[Any]]]) -> None:
    """The app of this worker is closed. `calls` are what it started and did not see end, by operation and number."""
    left = {
        (operation, number): _runs(call)
        for operation, numbered in calls.items()
        for number, call in numbered.items()
        if not call.done()
    }
    if worker.pid:
        _LEFT[worker.id] = _process(worker), left


def still_runs(here: Worker, owner: str, operation: str, number: int) -> bool | None:
    """Whether that call of another worker still runs; None unless that was an app of the process `here`, and is closed.

    Simulated processes share the real one, so it is the worker's own word for its process that counts.
    """
    process, left = _LEFT.get(owner, (None, None))
    if left is None or process != _process(here):
        return None
    runs = left.get((operation, number))
    return runs is not None and runs()


def _process(worker: Worker) -> _Process:
    return worker.machine, worker.boot, worker.pid_namespace, worker.pid, worker.started


def _runs(call: asyncio.Future[Any]) -> Callable[[], bool]:
    """A thread runs until it ends. A coroutine runs no more once its loop is closed."""
    thread = thread_of(call)
    if thread is not None:
        return thread.is_alive
    return lambda: not call.done() and not call.get_loop().is_closed()
