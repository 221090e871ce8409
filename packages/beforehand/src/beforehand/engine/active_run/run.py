"""A run as this process drives it, with its tasks and its facts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from beforehand.engine.active_run.log import RunRecorder
from beforehand.engine.active_run.replay import Replay
from beforehand.engine.active_run.scopes import Scope, outside
from beforehand.engine.active_run.waiters import Waiters
from beforehand.engine.process import Process
from beforehand.engine.suspension import Ending
from beforehand.errors import JournalError, LeaseLost, LedgerTaken, RecordRefused, Sealed
from beforehand.journal.port import Lease
from beforehand.journal.run_log import RunLog
from beforehand.model import records as r
from beforehand.model.facts import Correction, Fact, Known
from beforehand.model.run_history import REFUSED, RunHistory
from beforehand.model.transaction import encloses

FEWEST_CALLS: Final = 64
"""Calls that are kept unexamined; a longer list is examined each time it has doubled."""


class Drivers:
    """The drivers of a run: their tasks by step, the operations that they drive, and the boundaries they close."""

    def __init__(self, waiters: Waiters, break_off: Callable[[BaseException], object]) -> None:
        self.tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self.operations: Final[dict[str, object]] = {}  # `driver_of` types them; their module imports this one
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

        self.tasks[key] = asyncio.get_running_loop().create_task(body(), context=outside())


class ActiveRun:
    """A run that this process drives: its records, its replay, its waiters and its drivers.

    It lives from a claim of the run to its end, suspension or loss. Only it appends to the run, and once it is sealed
    nothing goes through it any more.
    """

    def __init__(self, process: Process, history: RunHistory, log: RunLog) -> None:
        self.process: Final = process
        self.run: Final = history.run
        self.history: Final = history
        self.lease: Final[Lease] = log.lease
        self.log: Final = RunRecorder(process, history, log, self.fail)
        self.claimed_up: Final = self.log.claimed_up
        self.masks: Final = self.log.masks
        self.waiters: Final = Waiters(self)
        self.replay: Final = Replay(history, self.waiters, self)
        self.drivers: Final = Drivers(self.waiters, self.break_off)
        self.facts: Final = RunFacts(self.log, self.waiters.wake)
        self.root: Final = Scope(self)
        self.calls: Final[dict[Coroutine[Any, Any, Any], str]] = {}
        """The calls of tools that agent code made, and where. They are held: one that it dropped is here at its end."""
        self.calls_kept = FEWEST_CALLS
        self.sealed: Sealed | None = None
        self.evicted: Sealed | None = None
        self.closed = False  # True once agent code may do nothing through this run: it is sealed or evicted
        self.failure: JournalError | None = None
        self.draining = False
        self.code: object = None  # the interface of agent code to this run, once that has begun
        self.host_calls = 0  # how many steps a host has called
        self.abandoned = False  # some of its code did not end, and was abandoned
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._over: asyncio.Future[None] | None = None  # done when its code has ended, or its drive has to

    def may_correct(self) -> bool:
        """True if code has not come back yet to a message that may correct facts of steps under way."""
        return self.replay.catching_up and bool(self.facts.undelivered())

    def refuse_repeat(self, path: str, *, beside: bool) -> bool:
        """True if a host's call under a name that it used before is refused: it comes, or came, beside the first.

        The refusal is on record. A replay delivers the first call at once, so the second would come after its end
        there, and would be sent as a call of its own.
        """
        refused = self.noted(path, REFUSED) or (beside and not self.knows(path))
        if refused:
            self.note(path, REFUSED)
        return refused

    def leave_answer(self, step: str) -> None:
        """Record that the caller of a step was cancelled before it took its answer: a replay cancels it there.

        The answer is skipped: one that stayed would keep all later ones waiting.
        """
        answered = step in self.history.steps.answers or self.replay.is_new(step)
        if answered and step in self.history.delivered.by_step and self.sealed is None:
            self.caller_left(step)
        self.replay.forgo(step)

    def caller_left(self, step: str) -> None:
        """Record that the caller of this step is being cancelled. A replay, which cancels it again, records nothing."""
        if step not in self.history.delivered.left:
            self.log.buffer(r.CallerLeft(step=step, **self.log.stamp()))

    def note(self, path: str, what: str) -> None:
        """Note what became of a host's call that has no record of its own."""
        if not (self.closed or self.noted(path, what)):
            self.log.buffer(r.ValueRecorded(step=path + what, what=what, value=r.Raw(b"null"), **self.log.stamp()))
            self.replay.order.take(self.history.delivered.count - 1)  # no code comes for it

    def noted(self, path: str, what: str) -> bool:
        """True if that is on record."""
        return path + what in self.history.steps.answers

    def knows(self, path: str) -> bool:
        """True if steps below this path are on record, and code has not received them in this process."""
        return any(step.startswith(path) for step in (*self.history.operations, *self.history.steps.answers))

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
        self.end(Ending("error", str(error), error=error))
        self.seal(str(error))
        assert self.sealed is not None
        return self.sealed

    def end(self, ending: Ending) -> None:
        """Ask for the drive of this run to end; the first reason counts."""
        if not self.ending.done():
            self.ending.set_result(ending)
            if self._over is not None:  # by a callback: what is to happen in this pass of the loop still does
                self.ending.get_loop().call_soon(self.over)

    def over(self) -> None:
        """Note that the code of the run has ended, or that its drive has to end."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def until_over(self) -> None:
        """Return when the code of the run has ended, or its drive has to end.

        As `asyncio.wait` for both, with one object instead of fifteen: each live run waits here.
        """
        self._over = self.ending.get_loop().create_future()
        if self.ending.done():
            self.ending.get_loop().call_soon(self.over)
        await self._over


class RunFacts:
    """The facts of one run: a correction stops the steps of plans that relied on the old value.

    `learned` are the messages whose facts it knows already.
    """

    def __init__(self, log: RunRecorder, wake: Callable[[], None]) -> None:
        self.known: Final = Known()
        self.learned: Final[dict[int, None]] = {}
        self.seen_by_models: Final[dict[str, bytes]] = {}
        self._log: Final = log
        self._wake: Final = wake  # let the drivers evaluate their situation again

    def learn(self, fact: Fact, by: str = "") -> Correction | None:
        """Take a fact. If it corrects one that steps of a plan under way rely on, nothing more is sent for them.

        That is on record: a process that recovers the run does not send it either.
        """
        correction = self.known.learn(fact, by)
        if correction is None:
            return None
        if correction != Correction(fact.name):
            self.known.corrections.append(correction)
        self.drop({*correction.dropped, *correction.underway} & self.known.planned.keys(), fact.name)
        return correction

    def undelivered(self) -> tuple[r.MessageReceived, ...]:
        """Messages with facts that no code of this run has received in this process."""
        messages = self._log.history.messages
        if messages is None:
            return ()
        return tuple(one for one in messages.received.values() if one.facts and one.entry not in self.learned)

    def drop_open_steps(self) -> None:
        """Drop steps under way in a plan that begins (perhaps again) and relies on a fact that a message corrected."""
        under_way = [operation.step for operation in self._log.history.open_operations()]
        for message in self.undelivered():
            for fact in message.facts:
                resting = self.resting_on(fact)
                self.drop({one for one in resting if any(encloses(one, step) for step in under_way)}, fact.name)

    def drop_resting_on(self, message: r.MessageReceived) -> None:
        """Drop every step of a plan that relies on a fact that this message corrects."""
        for fact in message.facts:
            self.drop(self.resting_on(fact), fact.name)

    def resting_on(self, fact: r.Reported) -> set[str]:
        """The steps of plans that rely on another value of this fact."""
        return self.known.resting_on(fact.name, msgspec.json.decode(fact.value))

    def drop(self, steps: set[str], fact: str) -> None:
        """Send nothing more for these steps of plans: the fact that they rely on was corrected."""
        steps -= self._log.history.given_up.keys()
        if steps:
            dropped = r.StepsDropped(steps=tuple(sorted(steps)), why=f"{fact} was corrected", **self._log.stamp())
            self._log.buffer(dropped)
            self._wake()
