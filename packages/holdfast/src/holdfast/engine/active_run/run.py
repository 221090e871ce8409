"""The tasks of a run that drive operations, and finish transactions, from the records."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.active_run.facts import RunFacts
from holdfast.engine.active_run.log import RunRecorder
from holdfast.engine.active_run.replay import Replay
from holdfast.engine.active_run.scopes import SCOPE, Scope
from holdfast.engine.active_run.waiters import Waiters
from holdfast.engine.process import Process
from holdfast.engine.suspension import Ending
from holdfast.errors import JournalError, LeaseLost, LedgerTaken, RecordRefused, Sealed
from holdfast.journal.port import Lease
from holdfast.journal.run_log import RunLog
from holdfast.model.run_history import RunHistory

if TYPE_CHECKING:
    from holdfast.engine.operation_driver import OperationDriver


class Drivers:
    """The drivers of a run: their tasks by step, the operations that they drive, and the boundaries they close."""

    def __init__(self, waiters: Waiters, break_off: Callable[[BaseException], object]) -> None:
        self.tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self.operations: Final[dict[str, OperationDriver]] = {}
        self.closing: Final[dict[str, None]] = {}  # the exits of transactions that are being closed, in begun order
        self._waiters: Final = waiters
        self._break_off: Final = break_off

    def start(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a driver. No caller receives what it raises: an error that it cannot handle ends the run."""

        async def body() -> None:
            try:
                await work()
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - nothing else receives it
                self._break_off(error)
            finally:
                self.tasks.pop(key, None)
                self._waiters.settled(key)
                self._waiters.consider_rest()

        context = contextvars.copy_context()
        context.run(SCOPE.set, None)  # a task of the runtime is no branch of agent code, and not cancelled with one
        self.tasks[key] = asyncio.get_running_loop().create_task(body(), context=context)


# A run as this process drives it.
#
# An active run lives from a claim of the run to its end, suspension or loss. Only it appends to the run, and once it is
# sealed nothing goes through it any more.


class ActiveRun:
    """A run that this process drives: its records, its replay, its waiters and its drivers."""

    def __init__(self, process: Process, history: RunHistory, log: RunLog) -> None:
        self.process: Final = process
        self.run: Final = history.run
        self.history: Final = history
        self.lease: Final[Lease] = log.lease
        self.log: Final = RunRecorder(process, history, log, self.fail)
        self.masks: Final = self.log.masks
        self.waiters: Final = Waiters(self)
        self.replay: Final = Replay(history, self.waiters, self.end)
        self.drivers: Final = Drivers(self.waiters, self.break_off)
        self.facts: Final = RunFacts(self.log, self.waiters.wake)
        self.root: Final = Scope(self)
        self.sealed: Sealed | None = None
        self.evicted: Sealed | None = None
        self.closed = False  # True once agent code may do nothing through this run: it is sealed or evicted
        self.failure: JournalError | None = None
        self.draining = False
        self.abandoned = False  # some of its code did not end, and was abandoned
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    def check(self) -> None:
        """Raise `Sealed` if the run no longer accepts steps of agent code."""
        if (sealed := self.sealed or self.evicted) is not None:
            raise sealed

    def seal(self, reason: str) -> None:
        """Refuse every step of agent code from here on; a refused step does nothing."""
        if self.sealed is None:
            self.sealed = Sealed(f"run {self.run}: {reason}")
            self.closed = True

    def evict(self, reason: str) -> None:
        """Refuse further steps of agent code; what the record has begun is still finished."""
        self.evicted = Sealed(f"run {self.run}: {reason}")
        self.closed = True
        self.root.alive = False
        self.ending = asyncio.get_running_loop().create_future()

    def fail(self, error: JournalError) -> Sealed:
        """End because the journal failed or the lease is lost; agent code receives `Sealed` and nothing else."""
        self.failure = self.failure or error
        self.end(Ending("lost" if isinstance(error, LeaseLost) else "unavailable", str(error)))
        self.seal(str(error))
        assert self.sealed is not None
        return self.sealed

    def break_off(self, error: BaseException) -> Sealed:
        """Stop the run with an error of the runtime, or of a declaration, that no record holds.

        Agent code does not receive it: it could catch it and go another way than after the repair, when the run is
        resumed. A refused record stops the run as well; after any other error of the journal the run is claimed anew.
        """
        if isinstance(error, JournalError) and not isinstance(error, (LedgerTaken, RecordRefused)):
            return self.fail(error)
        self.end(Ending("failed", str(error), error=error))
        self.seal(str(error))
        assert self.sealed is not None
        return self.sealed

    def end(self, ending: Ending) -> None:
        """Ask for the drive of this run to end; the first reason counts."""
        if not self.ending.done():
            self.ending.set_result(ending)
