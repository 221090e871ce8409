"""Limits of calls in one process: permits, and who asks for the next one.

The journal grants permits. Here is what this process knows about the next free one, so that most attempts that have to
wait do so without asking, and so that those of one process go in the order in which they came. A call that is under
several limits waits for one of them at a time, and keeps its rank: it delays no call that needs the others meanwhile,
and none that came later goes before it for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Container
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from beforehand.errors import JournalUnavailable, LimitsChanged
from beforehand.journal.cells import opens_in_ms
from beforehand.journal.port import Permit, PermitRequest, ReleaseRequest, SlowRequest
from beforehand.model.decision.situation import LimitWait
from beforehand.queues.call_limits import LimitedCall
from beforehand.queues.limits import TOKENS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Coroutine, Iterable

    from beforehand.engine.process import Queues
    from beforehand.engine.settings import Settings
    from beforehand.journal.cells import LimitUse
    from beforehand.journal.port import ClockReading, Journal, LimitState
    from beforehand.model.run_history import RunHistory
    from beforehand.model.usage import Usage
    from beforehand.queues.call_limits import AppliedLimit
    from beforehand.queues.limits import DeclaredLimits

_SLACK_MS: Final = 2_000
"""How long after its time a waiter keeps its place: one that is gone must not hold up those behind it."""
_LOOK_TOGETHER: Final = 8
"""How many waiters ask again at each look; those behind them ask less often."""


class _Waiter(msgspec.Struct, eq=False):
    """One operation that waits. `until_ms` is when it looks again; `called`: it was woken, and is about to ask."""

    wake: Callable[[], None]
    until_ms: int
    called: bool = False


class _Held(msgspec.Struct, eq=False):
    """A permit of this process: its limits, and the call for which it is held."""

    limits: tuple[str, ...] = ()
    call: asyncio.Future[Any] | None = None
    used: dict[str, int] = {}

    @property
    def spent(self) -> dict[str, int | None]:
        """The units that the call has used, by limit; None: what it had requested."""
        return {name: self.used.get(name) for name in self.limits}


class _Queue(msgspec.Struct, eq=False):
    """The waiters of one limit here."""

    opens_ms: int = 0  # by its rate, or by its service
    full_ms: int = 0  # until when its slots are believed to be taken
    hung: int = 0  # the process that stands still with one of them
    silent_ms: int = 0  # how long a process that has one is silent
    waiting: dict[str, _Waiter] = {}


class Tasks(Protocol):
    """The process, as far as permits need it."""

    def background(self, coroutine: Coroutine[Any, Any, None], name: str) -> object:
        """Run something that outlives its caller."""
        ...

    def insist(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work as soon as the journal can be reached again."""
        ...


class CallLimits:
    """The limits of calls, as this process applies them."""

    def __init__(
        self,
        journal: Journal,
        in_force: Queues,
        settings: Settings,
        worker: str,
        tasks: Tasks,
    ) -> None:
        self._journal = journal
        self._in_force = in_force
        self._settings = settings
        self._worker = worker
        self._tasks = tasks
        self._numbers = itertools.count(1)
        self._held: dict[Permit, _Held] = {}
        self._arrivals = itertools.count(1)
        self._ranks: Final[dict[str, int]] = {}  # of the operations that wait, by their arrival
        self._places: Final[dict[str, str]] = {}  # the limit that each of them waits for
        self.largest_answer = 0  # the most tokens that one call of a model has used here
        self.known: Final[dict[str, _Queue]] = {}
        """The limits under which calls have to wait, as far as this process knows; empty while none has."""

    def of(self, call: LimitedCall) -> tuple[AppliedLimit, ...]:
        """The limits of a call; empty: it needs no permit."""
        newest = self._in_force.newest
        return () if newest is None else newest.limits.of_call(call)

    def wait(self, call: LimitedCall, operation: str) -> LimitWait | None:
        """The limit for which this operation waits longest before it asks for a permit; None: it may ask now."""
        now = self._journal.clock().earliest_ms
        return _longest(self._wait(one, operation, now) for one in self.of(call))

    def _wait(self, one: AppliedLimit, operation: str, now: int) -> LimitWait:
        queue = self.known.get(one.name)
        if queue is None:
            return LimitWait(one.name, 0)
        return LimitWait(one.name, self._wait_ms(queue, one, operation, now), queue.hung, queue.silent_ms)

    def _wait_ms(self, queue: _Queue, one: AppliedLimit, operation: str, now: int) -> int:
        left = max(0, queue.opens_ms - now, queue.full_ms - now)
        ahead = self._ahead(queue, operation, now)
        if not ahead:
            return left
        turn = one.limit.apart_ns * one.units * ahead // 1_000_000
        return max(left, self._settings.poll_ms, turn or self._settings.poll_ms * (1 + ahead // _LOOK_TOGETHER))

    def _ahead(self, queue: _Queue, operation: str, now: int) -> int:
        """How many waiters are in front of this operation; 0 for one that was called."""
        for name in [name for name, one in queue.waiting.items() if one.until_ms + _SLACK_MS < now]:
            del queue.waiting[name], self._ranks[name], self._places[name]
        if (mine := queue.waiting.get(operation)) is not None and mine.called:
            return 0
        rank = self._ranks.get(operation)
        return len(queue.waiting) if rank is None else sum(self._ranks[name] < rank for name in queue.waiting)

    def waits(self, name: str, operation: str, ms: int, wake: Callable[[], None]) -> None:
        """Note that this operation waits for that limit, and how to wake it. It keeps its rank where it has one."""
        queue = self.known.setdefault(name, _Queue())
        if self._places.get(operation, name) != name:
            self._leave_place(operation)
        self._ranks.setdefault(operation, next(self._arrivals))
        self._places[operation] = name
        queue.waiting[operation] = _Waiter(wake, self._journal.clock().earliest_ms + ms)

    def look_again(self) -> None:
        """Let all that wait compute their turn anew: other limits were declared."""
        for queue in self.known.values():
            queue.opens_ms = 0
            for one in queue.waiting.values():
                one.wake()

    def leave(self, operation: str) -> None:
        """Let the next one ask instead of this operation, which waits no longer."""
        self._leave_place(operation)
        self._ranks.pop(operation, None)

    def _leave_place(self, operation: str) -> None:
        name = self._places.pop(operation, "")
        queue = self.known.get(name)
        if queue is not None and (mine := queue.waiting.pop(operation, None)) is not None and mine.called:
            self._wake_next(name)

    async def take(self, call: LimitedCall, operation: str) -> Permit | None:
        """A permit for this call; None: it has to wait, and `wait` says for how long."""
        permit = Permit(self._worker, next(self._numbers), operation)
        self._held[permit] = _Held()
        try:
            granted = await self._ask(call, permit)
        except BaseException:
            self.release(permit)  # it may have been granted, and the answer was lost
            raise
        if granted:
            return permit
        del self._held[permit]
        return None

    async def _ask(self, call: LimitedCall, permit: Permit) -> bool:
        while limits := self.of(call):
            newest = self._in_force.newest
            assert newest is not None, permit
            self._held[permit].limits = tuple(one.name for one in limits)
            cells = tuple(one.cell for one in limits)
            request = PermitRequest(permit, cells, newest.entry, self._settings.pause_bound_ms)
            try:
                answer = await self._journal.commit(request)
            except LimitsChanged:
                await self._in_force.refresh(self._journal)
                continue
            for one in answer.limits:
                if one.full or one.wait_ms or one.name in self.known:
                    self._note(one)
            if answer.granted:
                self.leave(permit.operation)
                for one in answer.limits:
                    self._wake_next(one.name)
            return answer.granted
        return True  # its limits were withdrawn meanwhile

    def _note(self, one: LimitState) -> None:
        """Note when the next call under a limit may begin. Slots of other processes are looked for at each poll."""
        queue, now = self.known.setdefault(one.name, _Queue()), self._journal.clock().earliest_ms
        queue.opens_ms = now + one.wait_ms
        queue.full_ms = now + self._settings.poll_ms if one.full else 0
        queue.hung, queue.silent_ms = (one.hung, one.silent_ms) if one.full else (0, 0)

    def _wake_next(self, name: str) -> None:
        """Let the first waiter ask, if a call may begin now."""
        queue = self.known.get(name)
        if queue is None or max(queue.opens_ms, queue.full_ms) > self._journal.clock().earliest_ms:
            return
        if not queue.waiting:
            del self.known[name]
        elif uncalled := [operation for operation, one in queue.waiting.items() if not one.called]:
            first = queue.waiting[min(uncalled, key=self._ranks.__getitem__)]
            first.called = True
            first.wake()

    def release(self, permit: Permit, call: asyncio.Future[Any] | None = None) -> None:
        """Release a permit when this call has ended; without one at once."""
        if call is None or call.done():
            self._release_soon(permit)
        else:
            self._held[permit].call = call
            call.add_done_callback(lambda _: self._release_soon(permit))

    def release_model(self, permit: Permit, models: Collection[str], used: Usage | None) -> None:
        """Release a permit of a model call. What it has used counts in place of what it might; unknown, that counts.

        None: the call was not made, and counts for nothing.
        """
        held = self._held[permit]
        if used is None:
            held.used = dict.fromkeys(held.limits, 0)
        elif (tokens := used.input_tokens + used.output_tokens) or used.refused:
            self.largest_answer = max(self.largest_answer, tokens)
            names = [name for name in held.limits if name.startswith(TOKENS)]
            asked = {name: name.partition(" / ")[0].removeprefix(TOKENS) for name in names}
            other = used.model in models  # of several models that might be asked, the others have used nothing
            held.used = {name: 0 if other and model != used.model else tokens for name, model in asked.items()}
        self._release_soon(permit)

    def _release_soon(self, permit: Permit) -> None:
        tasks = self._tasks

        async def work() -> None:
            try:
                await self._forget(permit)
            except JournalUnavailable:
                tasks.insist(lambda: self._forget(permit))

        tasks.background(work(), "beforehand-permit")

    async def _forget(self, permit: Permit) -> None:
        # The next one is woken first. Its request follows the release into the journal, mostly in the same commit.
        held = self._held.get(permit, _Held())
        for name in held.limits:
            if (queue := self.known.get(name)) is not None:
                queue.full_ms = 0
            self._wake_next(name)
        await self._journal.commit(ReleaseRequest(permit, held.spent))
        self._held.pop(permit, None)
        for name in held.used:  # what was estimated too high is free now
            if (queue := self.known.get(name)) is not None:
                queue.opens_ms = 0
            self._wake_next(name)

    async def release_rest(self, driven: Container[str]) -> None:
        """Release what this process still holds, except for calls that run on after it is closed.

        Calls of runs that are still `driven` are about to begin, or under way: they keep theirs.
        """
        for permit, held in list(self._held.items()):
            over = permit.operation.partition("/")[0] not in driven
            if over and (held.call is None or held.call.done()):
                await self._journal.commit(ReleaseRequest(permit, held.spent))

    async def slow(self, call: LimitedCall, wait_ms: int) -> None:
        """Let no process make such calls for so long: the service has asked for that.

        Where the tool reaches declared services, it is theirs that wait, with all of their tools.
        """
        shared = [one.name for one in self.of(call) if one.shared]
        names = [name for name in shared if name.startswith("service ")] or shared
        if not names:
            return
        await self._journal.commit(SlowRequest(tuple(names), wait_ms))
        until = self._journal.clock().earliest_ms + wait_ms
        for name in names:
            queue = self.known.setdefault(name, _Queue())
            queue.opens_ms = max(queue.opens_ms, until)


class RecordedLimits:
    """The limits of calls as a journal has them at one moment, for a reader that asks for no permit."""

    def __init__(self, declared: DeclaredLimits, uses: Iterable[LimitUse], now: ClockReading, poll_ms: int) -> None:
        self.known: Final = {use.name: use for use in uses}
        self._declared = declared
        self._now = now
        self._poll_ms = poll_ms

    def wait(self, call: LimitedCall) -> LimitWait | None:
        """The limit for which this call waits longest; None for none."""
        return _longest(self._wait(one) for one in self._declared.of_call(call))

    def _wait(self, one: AppliedLimit) -> LimitWait:
        if (use := self.known.get(one.name)) is None:
            return LimitWait(one.name, 0)
        full = one.limit.at_once is not None and len(use.permits) >= one.limit.at_once
        ms = max(opens_in_ms(one.cell, use.pace, self._now.epoch, self._now.earliest_ms), self._poll_ms if full else 0)
        return LimitWait(one.name, ms, use.hung if full else 0)


def _longest(waits: Iterable[LimitWait]) -> LimitWait | None:
    wait = max(waits, key=lambda one: one.ms, default=None)
    return wait if wait is not None and wait.ms else None


def limited_call(history: RunHistory, tool: str) -> LimitedCall:
    """A call of a tool by this run, as far as limits are concerned."""
    started = history.lifecycle.started
    return LimitedCall(tool, "" if started is None else started.tenant)
