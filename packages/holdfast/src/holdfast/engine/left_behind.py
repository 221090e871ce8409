"""Calls that outlived the app that made them, in a process that goes on.

A journal can prove that a process is dead, and not that an app in a living process was closed. So the process
remembers the calls of its closed apps: once none of them runs any more, all of them are over, and an app that is
opened later need not wait for the end of the process.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias
from weakref import WeakSet

from holdfast.engine.seams import thread_of
from holdfast.journal.port import Worker

Calls: TypeAlias = WeakSet[asyncio.Future[Any]]
_Process: TypeAlias = tuple[str, str, str, int, int]
_LEFT: Final[dict[str, tuple[_Process, Calls]]] = {}


def leave_behind(worker: Worker, calls: Calls) -> None:
    """The app of this worker is closed. `calls` are those that may still run; a thread keeps its own alive."""
    if worker.pid:
        _LEFT[worker.id] = _process(worker), calls


def still_runs(here: Worker, owner: str) -> bool | None:
    """Whether a call of that worker may still run; None unless it was an app of the process `here`, and is closed.

    Simulated processes share the real one, so it is the worker's own word for its process that counts.
    """
    process, calls = _LEFT.get(owner, (None, None))
    if calls is None or process != _process(here):
        return None
    return any(_runs(call) for call in list(calls))


def _runs(call: asyncio.Future[Any]) -> bool:
    """A thread runs until it ends, whoever waits for it. A coroutine runs no more once its loop is closed."""
    thread = thread_of(call)
    if thread is not None:
        return thread.is_alive()
    return not call.done() and not call.get_loop().is_closed()


def _process(worker: Worker) -> _Process:
    return worker.machine, worker.boot, worker.pid_namespace, worker.pid, worker.started
