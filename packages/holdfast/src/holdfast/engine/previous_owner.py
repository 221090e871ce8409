"""Attempts whose call was given up: whether it still runs, in which process, and how it ended as far as is known."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias
from weakref import WeakSet

import msgspec

from holdfast.engine.environment import thread_of
from holdfast.engine.operation_driver import OperationDriver
from holdfast.journal.port import Worker
from holdfast.model import records as r
from holdfast.model.operation import Attempt

_HUNG: Final = (
    "process {pid} on this machine still lives and has not reported how its call ended:"
    " end that process (kill -9 {pid}), or wait for its report"
)
_BEATS: Final = (
    "process {pid}, which cannot be observed from here (another container, for example), renews its lease and has not"
    " reported how its call ended: end that process, or wait for its report"
)


class _CallFate(msgspec.Struct, frozen=True):
    """Whether the call is known to be over, its end where nothing else is known, and the process that may run it."""

    over: bool
    end: r.End
    hung: str = ""  # the process in words; empty: no process is seen to live


async def account_for_previous_owners(flight: OperationDriver) -> None:
    """Attempts of earlier owners may have no end on record: find out whether their processes still live.

    A call is over when its process is proven dead, or when a process that cannot be observed has been
    silent for longer than the declared bound. Until then absence is never believed. A process that is seen
    to live may hang for ever, so it is named for the person who is asked in the end.
    """
    instance, hung = flight.instance, ""
    if not flight.journaled:
        return
    for attempt in flight.operation.attempts:
        if attempt.over_up is not None:
            continue
        if attempt.token == instance.lease.token:
            if _runs_here(flight, attempt):
                hung = _HUNG.format(pid=instance.engine.worker.pid)
            continue
        fate = await _fate(flight, attempt)
        hung = fate.hung or hung
        if fate.over or attempt.end is None:
            end = fate.end
            if attempt.end is not None and not (end.died and attempt.end.kind == "lost"):
                end = attempt.end
            stamp = instance.stamp()
            ended = r.AttemptEnded(step=flight.step, number=attempt.number, end=end, over=fate.over, **stamp)
            await flight.note(ended, ride=True)
    flight.hung = hung


async def _fate(flight: OperationDriver, last: Attempt) -> _CallFate:
    """What is known of the call of an earlier owner."""
    instance, engine = flight.instance, flight.instance.engine
    owner, here = instance.history.owners[last.token].worker, _HUNG.format(pid=engine.worker.pid)
    if owner == engine.worker.id:
        runs = _runs_here(flight, last)
        return _CallFate(not runs, r.End("lost", why="this process let go of the run"), here if runs else "")
    if (still := call_still_runs(engine.worker, owner)) is not None:
        return _CallFate(not still, r.End("lost", why="the app that made it is closed"), here if still else "")
    state = await engine.journal.fate(owner)
    if state.fate == "dead":
        return _CallFate(over=True, end=r.End("lost", why="its process died", died=True))
    over = state.fate == "unknown" and state.silent_ms > engine.settings.pause_bound_ms
    # One that renews its lease may go on for ever: no silence ends the wait, so a person is asked.
    says = _HUNG if state.fate == "alive" else _BEATS
    return _CallFate(
        over,
        r.End("lost", why="its owner lost the lease"),
        says.format(pid=state.pid) if state.seen_to_live else "",
    )


def _runs_here(flight: OperationDriver, attempt: Attempt) -> bool:
    call = flight.calls.get(attempt.number)
    return call is not None and not call.done()


# Calls that outlived the app that made them, in a process that goes on.
#
# A journal can prove that a process is dead, and not that an app in a living process was closed. So the process
# remembers the calls of its closed apps: once none of them runs any more, all of them are over, and an app that is
# opened later need not wait for the end of the process.


Calls: TypeAlias = WeakSet[asyncio.Future[Any]]
_Process: TypeAlias = tuple[str, str, str, int, int]
_LEFT: Final[dict[str, tuple[_Process, Calls]]] = {}


def remember_calls(worker: Worker, calls: Calls) -> None:
    """The app of this worker is closed. `calls` are those that may still run; a thread keeps its own alive."""
    if worker.pid:
        _LEFT[worker.id] = _process(worker), calls


def call_still_runs(here: Worker, owner: str) -> bool | None:
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
