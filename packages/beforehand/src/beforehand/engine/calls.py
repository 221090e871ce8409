"""The calls of tools that a process has begun: their time limits, and those that outlive their attempts.

A journal can prove that a process is dead, and not that an app in a living process was closed. So the process
remembers the calls of its closed apps: once none of them still runs, all of them are over, and an app that is
opened later need not wait for the end of the process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from beforehand.errors import UsageError
from beforehand.journal.cells import call_is_over
from beforehand.journal.port import Worker, WorkerState
from beforehand.model import records as r
from beforehand.model.operation import Attempt

if TYPE_CHECKING:
    import asyncio


class RunningThread(Protocol):
    """A thread in which a call runs."""

    def is_alive(self) -> bool:
        """True until it has ended."""
        ...


THREADS: Final[WeakKeyDictionary[asyncio.Future[Any], RunningThread]] = WeakKeyDictionary()
"""The thread of each call that runs in one."""


class Calls:
    """The calls that one app has begun and whose end it has not observed yet."""

    def __init__(self) -> None:
        self.timeouts: Final = CallTimeouts()
        self.open: Final[set[asyncio.Future[Any]]] = set()
        self._watched: Final[set[asyncio.Future[Any]]] = set()
        self.any_late = False
        self._late: dict[str, dict[int, asyncio.Future[Any]]] = {}
        self.reports: Final[dict[tuple[str, int], asyncio.Future[None]]] = {}
        """The reports that are being filed of calls that have ended, by operation and attempt."""

    def watch(
        self,
        operation: str,
        calls: dict[int, asyncio.Future[Any]],
        number: int,
        report: Callable[[], asyncio.Future[None] | None],
    ) -> bool:
        """Call `report` when this call ends, whose attempt was given up; False if it is watched already."""
        call = calls[number]
        if call in self._watched:
            return False
        self._watched.add(call)
        self._late[operation] = calls
        self.any_late = True

        def ended(_: asyncio.Future[Any]) -> None:
            self._watched.discard(call)
            self.ended(call)
            if (filing := report()) is not None:
                self.reports[operation, number] = filing
                filing.add_done_callback(lambda _: self.reports.pop((operation, number), None))

        call.add_done_callback(ended)
        return True

    def ended(self, call: asyncio.Future[Any]) -> None:
        """Note the end of a call. A thread goes on after its future was cancelled."""
        if not call.cancelled() or call not in THREADS:
            self.open.discard(call)

    def late(self, operation: str) -> dict[int, asyncio.Future[Any]] | None:
        """Calls of an operation that outlived their attempts in this process, from any drive of the run."""
        self._late = {
            name: calls for name, calls in self._late.items() if any(not call.done() for call in calls.values())
        }
        self.any_late = bool(self._late)
        return self._late.get(operation)


class CallTimeouts:
    """Time limits of waits, on one timer of the event loop.

    Nearly every limit is lifted long before it is over, so a timer of its own for each would be made and
    cancelled for nothing. The one timer is set to the earliest limit that was known when it was set.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Future[None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, over: asyncio.Future[None], seconds: float) -> None:
        """Wait for `over`; after `seconds` this method completes it."""
        loop = over.get_loop()
        due = self._due[over] = loop.time() + seconds
        if self._timer is None or due < self._timer.when():
            self._set_timer(loop, due)
        try:
            await over
        finally:
            del self._due[over]

    def _set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """End what is over by now, and set the timer for what is left."""
        self._timer = None
        until = max(until, loop.time())
        for over, due in self._due.items():
            if due <= until and not over.done():
                over.set_result(None)
        left = [due for due in self._due.values() if due > until]
        if left:
            self._set_timer(loop, min(left))


# --- calls of apps that were closed in this process -----------------------------------------------------------------

_ProcessKey: TypeAlias = tuple[str, str, str, int, int]
_LEFT: Final[dict[str, tuple[_ProcessKey, WeakSet[asyncio.Future[Any]]]]] = {}


def remember_calls(worker: Worker, calls: WeakSet[asyncio.Future[Any]]) -> None:
    """Keep the calls of a closed app that may still run; a thread keeps its own call alive."""
    if worker.pid:
        _LEFT[worker.id] = _process_key(worker), calls


def call_still_runs(here: Worker, owner: str) -> bool | None:
    """True if a call of that worker may still run; None unless it was an app of the process `here`, and is closed.

    Simulated processes share the real one, so the process identity that the worker states counts.
    """
    process, calls = _LEFT.get(owner, (None, None))
    if calls is None or process != _process_key(here):
        return None
    return any(_still_runs(call) for call in list(calls))


def _still_runs(call: asyncio.Future[Any]) -> bool:
    """True for a thread until it ends. A coroutine no longer runs once its loop is closed."""
    thread = THREADS.get(call)
    if thread is not None:
        return thread.is_alive()
    return not call.done() and not call.get_loop().is_closed()


def _process_key(worker: Worker) -> _ProcessKey:
    return worker.machine, worker.boot, worker.pid_namespace, worker.pid, worker.started


# --- calls of processes that owned the run before -----------------------------------------------------------------


HUNG: Final = (
    "process {pid} on this machine still lives and has not reported how its call ended:"
    " end that process (kill -9 {pid}), or wait for its report"
)
_BEATS: Final = (
    "process {pid}, which cannot be observed from here (another container, for example), renews its lease and has not"
    " reported how its call ended: end that process, or wait for its report"
)


class CallFate(msgspec.Struct, frozen=True):
    """The fate of a call: if it is over, its end unless a better one is known, and the process that may run it."""

    over: bool
    end: r.End
    hung: str = ""  # the process in words; empty: no process is seen to live

    def ends(self, attempt: Attempt) -> r.End | None:
        """The end to record for the attempt of this call; None where nothing new is known about it."""
        if attempt.end is None:
            return self.end
        if not self.over:
            return None
        return self.end if self.end.died and attempt.end.kind == "lost" else attempt.end


def fate_of(state: WorkerState, pause_bound_ms: int) -> CallFate:
    """The fate of a call whose process no longer owns the run, by what the journal knows about that process."""
    if state.fate == "dead":
        return CallFate(over=True, end=r.End("lost", why="its process died", died=True))
    over = call_is_over(state, pause_bound_ms)
    # One that renews its lease may go on for ever: no silence ends the wait, so a person is asked.
    says = HUNG if state.fate == "alive" else _BEATS
    return CallFate(
        over, r.End("lost", why="its owner lost the lease"), says.format(pid=state.pid) if state.seen_to_live else ""
    )


# --- the calls of agent code ------------------------------------------------------------------------------------------


def keep_unbegun(calls: dict[Coroutine[Any, Any, Any], str]) -> None:
    """Drop the calls that have begun. One that was closed, or cancelled before it began, counts as begun."""
    for call in [call for call in calls if inspect.getcoroutinestate(call) != inspect.CORO_CREATED]:
        del calls[call]


def close_forgotten(calls: dict[Coroutine[Any, Any, Any], str]) -> UsageError | None:
    """Close the calls that were never awaited, and return the error that names them; None if there are none."""
    keep_unbegun(calls)
    for call in calls:
        call.close()
    if not calls:
        return None
    first, others = next(iter(calls.values())), len(calls) - 1
    return UsageError(
        f"{first} was called and never awaited" + (f", and {others} further calls" if others else ""),
        known="nothing of it was recorded or sent",
        next_step=f"write await {first.partition(' (')[0]}, then resume the run",
    )
