"""Replay: the order in which code receives recorded deliveries, and the records that it has not come back to yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final, NoReturn, Protocol

from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.active_run.waiters import Waiters, wake_all
from beforehand.engine.suspension import Ending, Pause
from beforehand.errors import ReplayDiverged
from beforehand.model.run_history import Delivery, RunHistory
from beforehand.model.stop_reasons import after_stop


class DeliveryOrder:
    """The order of deliveries: each has a number, and the lowest remaining one is next.

    `at` is the number up to which they may be taken. `over` are those that no code takes. Before those that are `apart`
    code comes to rest; one leaves that set once code has.
    """

    def __init__(self, over: Iterable[int], apart: dict[int, None], waiters: Waiters) -> None:
        self.at: int = 0
        self._next: int = 0
        self._over = dict.fromkeys(over)
        self.apart = apart
        self._waiters = waiters
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        if self._over:
            self._advance()

    def is_open(self, index: int) -> bool:
        """True if this delivery may be taken now; without any that is `apart`, those up to `at` may be.

        One that is recorded once its turn has come follows the rule of a replay, which knows it before: without it, two
        answers of one commit on a slow disk would reach their branches together here, and one after the other there.
        """
        if index == self.at and index in self.apart and self._waiters.beside_others():
            self.at = index - 1
            self._waiters.once_settled(partial(self._open, index))
        return index <= self.at

    def before(self, index: int) -> list[asyncio.Future[None]]:
        """The coroutines that wait until everything that was delivered before this one is taken."""
        return self._waiting.setdefault(index, [])

    def take(self, index: int) -> None:
        """Consume this delivery; the next one may be taken, at once or once code has come to rest."""
        self.apart.pop(index, None)
        if index != self._next:
            self._over[index] = None
            return
        self._next += 1
        if self._over or self.apart or self._waiting:
            self._advance()
        else:
            self.at = self._next

    def _advance(self) -> None:
        while self._next in self._over:
            del self._over[self._next]
            self._next += 1
        if self._next in self.apart:
            self._waiters.once_settled(partial(self._open, self._next))
        else:
            self._open(self._next)

    def _open(self, index: int) -> None:
        if index == self._next:  # it may have been given up while code came to rest
            self.at = index
            self.apart.pop(index, None)
            if self._waiting and (waiting := self._waiting.pop(index, None)):
                wake_all(waiting)


class ReplayedRun(Protocol):
    """The run that is replayed, as its replay knows it."""

    @property
    def closed(self) -> bool:
        """True once the run takes no more steps here."""
        ...

    def end(self, ending: Ending) -> None:
        """End the drive."""
        ...

    def leave_answer(self, step: str) -> None:
        """Note that no code takes the recorded answer of this step."""
        ...


class Replay:
    """The progress of agent code through the records of its run.

    `expected` are recorded writes that code has not come back to. `begun` are pauses and decisions that are on record
    without an answer, and that code has not come back to. `left` are transactions whose end code has received.
    These two, as other sets of a run that mostly stay empty, are dicts: the garbage collector visits every set.
    """

    def __init__(self, history: RunHistory, waiters: Waiters, replayed: ReplayedRun) -> None:
        self.order: Final = DeliveryOrder(history.delivered.dropped, history.delivered.apart, waiters)
        self.expected: Final[set[str]] = history.expected_steps()
        self.begun: Final[set[str]] = (
            set(history.steps.timers) | set(history.steps.questions) | set(history.steps.decisions_begun)
        ) - set(history.steps.answers)
        self.left: Final[dict[str, None]] = {}
        self.kept: Final[dict[str, None]] = {}  # operations that a late call or a command is about: never forgotten
        self._history: Final = history
        self._waiters: Final = waiters
        self._replayed: Final = replayed
        self._recorded: Final = history.delivered.count  # how much was delivered before this process claimed the run
        self._to_receive: Final[list[asyncio.Future[None]]] = []
        self._held_back: Final[list[asyncio.Future[None]]] = []
        self._settling = False
        # True until code has received again what it received, and has come to rest after that: also where there is
        # nothing but a pause on record.
        self.receiving = self.order.at < self._recorded or bool(self.expected or self.begun)
        self.catching_up = self.receiving  # the same, until it has come back to every recorded write as well

    def replaying(self) -> bool:
        """True if the record goes on past the point that code has reached."""
        return self.order.at < self._history.delivered.count or bool(self.expected) or bool(self.begun)

    def reach(self, step: str) -> None:
        """Agent code came back to a recorded operation."""
        self.expected.discard(step)
        self._consider()

    def _consider(self) -> None:
        """Let code go on from the end of the record, once it has come to rest there: it may cancel a branch first."""
        if self._settling or self.order.at < self._recorded:
            return
        if self.receiving or (self.catching_up and not self.expected):
            self._settling = True
            self._waiters.once_settled(self._go_on)

    def _go_on(self) -> None:
        self._settling = self.receiving = False
        wake_all(self._to_receive)
        if not self.expected:
            self.catching_up = False
            wake_all(self._held_back)
        if self._history.messages is not None:
            self._waiters.wake()

    async def receive_all(self, scope: Scope, step: str) -> None:
        """Return once code has received everything that is on record: only then it may receive anything new."""
        self._consider()
        while self.receiving:
            await self._waiters.wait(scope, self._to_receive, Pause("replay", step))

    async def catch_up(self, scope: Scope, step: str) -> None:
        """Return once code has come back to every recorded write as well: only then a new one may be sent."""
        self._consider()
        while self.catching_up:
            await self._waiters.wait(scope, self._held_back, Pause("replay", step))

    def caught_up(self) -> asyncio.Future[None]:
        """Done once code has come back to everything on record."""
        self._consider()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.catching_up:
            self._held_back.append(future)
        else:
            future.set_result(None)
        return future

    def turn(self, step: str) -> asyncio.Future[None]:
        """Done once everything that was delivered before this has been taken."""
        index = self._history.delivered.by_step[step].index
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.order.is_open(index):
            future.set_result(None)
        else:
            self.order.before(index).append(future)
        return future

    async def reach_turn(self, scope: Scope, step: str) -> None:
        """Wait until everything that was delivered before this has been taken."""
        delivered = self._history.delivered.by_step
        while (delivery := delivered.get(step)) is not None and not self.order.is_open(delivery.index):
            await self._waiters.wait(scope, self.order.before(delivery.index), Pause("replay", step))

    async def take_turn(self, scope: Scope | None, step: str) -> Delivery:
        """Wait until everything that was delivered earlier has been taken; then take this delivery.

        A caller that received it before it was cancelled does so again: it is cancelled at its next wait.
        """
        index, cancelled = self._history.delivered.by_step[step].index, None
        while index > self.order.at or (self.order.apart and not self.order.is_open(index)):  # mostly without a call
            try:
                await self._waiters.wait(scope, self.order.before(index), Pause("replay", step))
            except asyncio.CancelledError as error:
                if self._was_received(scope, step):
                    cancelled = error
                    continue
                if step not in self._history.operations:  # the caller of an operation notes that it has left
                    self._replayed.leave_answer(step)
                raise
        if cancelled is not None and (task := asyncio.current_task()) is not None:
            task.uncancel()
            task.cancel(*cancelled.args)
        if scope is not None:
            scope.received = True
        return self.take(step)

    def _was_received(self, scope: Scope | None, step: str) -> bool:
        """True if the record says that the caller of this step received its answer, and was not cancelled before.

        A time limit cancels its body in its turn: what is recorded after that was not received.
        """
        delivery = self._history.delivered.by_step.get(step)
        if delivery is None or self.is_new(step) or delivery.kind == "left" or self._replayed.closed:
            return False
        return scope is None or not scope.cancelled_by_limit()

    def is_new(self, step: str) -> bool:
        """True if this was delivered since this process claimed the run."""
        delivery = self._history.delivered.by_step.get(step)
        return delivery is not None and delivery.index >= self._recorded

    def forgo(self, step: str) -> None:
        """Skip a delivery that its cancelled caller never takes: the next one comes, and is not kept waiting."""
        if step in self._history.delivered.by_step:
            self.take(step)

    def take(self, step: str) -> Delivery:
        """Take this delivery: its turn has come, or is given up."""
        delivery = self._history.delivered.by_step.pop(step)
        self.order.take(delivery.index)
        if self.catching_up:
            if self.order.at >= self._recorded:
                self._consider()
        elif self._history.messages is not None:
            self._waiters.wake()
        return delivery

    def forget(self, step: str) -> None:
        """Drop a settled step that was delivered, unless a late call or a command is about it."""
        if step not in self.kept:
            self._history.forget(step)

    # --- divergence ------------------------------------------------------------------------------------------

    def diverge(self, why: str, difference: str = "", cause: Exception | None = None) -> NoReturn:
        """End the run because its code went another way than the record. Raises `ReplayDiverged`.

        The error is kept with the ending: raised in a branch, it may never reach the code that awaits the branch.
        """
        error = self.divergence(why, difference)
        self._replayed.end(Ending("diverged", why, error=error))
        raise error from cause

    def divergence(self, why: str, difference: str = "") -> ReplayDiverged:
        """The error that shows `difference`, or else what the record holds and the code did not come back to."""
        run = self._history.run
        shown = [f"- recorded, not reached: {self._shown(step)}" for step in self._missing()[:20]]
        shown += [f"+ now: {step}" for step in dict.fromkeys(self._held())]
        return ReplayDiverged(
            f"run {run}: {why}",
            run=run,
            difference=difference or "\n".join(shown),
            next_step=after_stop(run, "diverged")[1],
        )

    def departure(self) -> str:
        """The first difference between the code and the record, in words."""
        due = next(iter(self._history.delivered.by_step), "") or next(iter(self._missing()), "")
        now = next((step for step in self._waiting() if step != due), "")
        if due and now:
            return f"the code comes to {now} where the record has {due}"
        return f"every branch waits, and the code did not come again to {due or 'recorded steps'}"

    def _missing(self) -> list[str]:
        """The recorded steps that code has not come back to, in their order."""
        known = [step for step in self._history.operations if step in self.expected]
        return known or list(self._history.delivered.by_step)

    def _held(self) -> list[str]:
        """The steps that code has come to, and that are not on record."""
        recorded = self._history.operations.keys() | self._history.delivered.by_step.keys()
        return [step for step in self._waiting() if step not in recorded]

    def _waiting(self) -> list[str]:
        return [pause.step for pause in self._waiters.pauses.values() if pause.kind == "replay" and pause.step]

    def _shown(self, step: str) -> str:
        """A recorded step with the call that it was, where it was one."""
        if (operation := self._history.operations.get(step)) is None:
            return f"{self._history.run}/{step}"
        return f"{self._history.run}/{step}: {operation.intent.tool} {bytes(operation.intent.arguments).decode()}"
