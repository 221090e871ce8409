"""Limits of tools in one process: permits of its calls, and who asks for the next one.

The journal grants permits. Here is what this process knows about the next free one, so that most attempts that have to
wait do so without asking, and so that those of one process go in the order in which they came.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast.errors import JournalUnavailable, LimitsChanged
from holdfast.journal.port import Permit, PermitRequest
from holdfast.queues.tool_limits import opens_in_ms

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Coroutine, Mapping

    from holdfast.engine.settings import Settings
    from holdfast.journal.port import Journal
    from holdfast.queues.limits import Declaration
    from holdfast.queues.tool_limits import ToolLimit

_SLACK_MS: Final = 2_000
"""How long after its time a waiter keeps its place: one that is gone must not hold up those behind it."""
_LOOK_TOGETHER: Final = 8
"""How many waiters ask again at each look; those behind them ask less often."""


class LimitsInForce(Protocol):
    """The declared limits, as the process knows them."""

    newest: Declaration | None
    tools: Mapping[str, ToolLimit]

    async def refresh(self, journal: Journal) -> None:
        """Read them again."""
        ...


class _Waiter(msgspec.Struct, eq=False):
    """One operation that waits. `until_ms` is when it looks again; `called`: it was woken, and is about to ask."""

    wake: Callable[[], None]
    until_ms: int
    called: bool = False


class _Queue:
    """The waiters of one tool here, in order."""

    def __init__(self) -> None:
        self.opens_ms = 0  # by its rate, or by its service
        self.full_ms = 0  # until when its slots are believed to be taken
        self.waiting: Final[dict[str, _Waiter]] = {}

    def ahead(self, operation: str, now: int) -> int:
        """How many waiters are in front of this operation; 0 for one that was called."""
        for name in [name for name, one in self.waiting.items() if one.until_ms + _SLACK_MS < now]:
            del self.waiting[name]
        mine = self.waiting.get(operation)
        if mine is None:
            return len(self.waiting)
        return 0 if mine.called else list(self.waiting).index(operation)

    def call_next(self) -> None:
        """Wake the first waiter that was not called yet."""
        for one in self.waiting.values():
            if not one.called:
                one.called = True
                one.wake()
                return


class Tasks(Protocol):
    """The process, as far as permits need it."""

    def background(self, coroutine: Coroutine[Any, Any, None], name: str) -> object:
        """Run something that outlives its caller."""
        ...

    def insist(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work as soon as the journal can be reached again."""
        ...


class ToolLimits:
    """The limits of tools, as this process applies them. A reader has no `tasks`, and asks for no permit."""

    def __init__(
        self,
        journal: Journal,
        in_force: LimitsInForce,
        settings: Settings,
        worker: str,
        tasks: Tasks | None,
    ) -> None:
        self._journal = journal
        self._in_force = in_force
        self._settings = settings
        self._worker = worker
        self._tasks = tasks
        self._numbers = itertools.count(1)
        self._held: dict[Permit, asyncio.Future[Any] | None] = {}
        self.known: Final[dict[str, _Queue]] = {}
        """The tools of which calls have to wait, as far as this process knows; empty while none has."""

    def of(self, tool: str) -> ToolLimit | None:
        """The limit of a tool; None: it has none, and its calls need no permit."""
        return self._in_force.tools.get(tool)

    def wait_ms(self, tool: str, operation: str) -> int:
        """How long this operation has to wait before it asks for a permit; 0: it may ask now."""
        queue, limit = self.known.get(tool), self.of(tool)
        if queue is None or limit is None:
            return 0
        now = self._journal.now().ms
        left = max(0, queue.opens_ms - now, queue.full_ms - now)
        ahead = queue.ahead(operation, now)
        if not ahead:
            return left
        turn = limit.apart_us * ahead // 1000 or self._settings.poll_ms * (1 + ahead // _LOOK_TOGETHER)
        return max(left, self._settings.poll_ms, turn)

    def waits(self, tool: str, operation: str, ms: int, wake: Callable[[], None]) -> None:
        """Note that this operation waits, and how to wake it. It keeps its place where it has one."""
        queue = self.known.setdefault(tool, _Queue())
        queue.waiting[operation] = _Waiter(wake, self._journal.now().ms + ms)

    def look_again(self) -> None:
        """Let all that wait compute their turn anew: other limits were declared."""
        for queue in self.known.values():
            queue.opens_ms = 0
            for one in queue.waiting.values():
                one.wake()

    def leave(self, tool: str, operation: str) -> None:
        """Let the next one ask instead of this operation, which waits no longer."""
        queue = self.known.get(tool)
        if queue is not None and (mine := queue.waiting.pop(operation, None)) is not None and mine.called:
            self._wake_next(tool)

    async def take(self, tool: str, operation: str) -> Permit | None:
        """A permit for one call of this tool; None: it has to wait, and `wait_ms` says for how long."""
        permit = Permit(tool, self._worker, next(self._numbers), operation)
        self._held[permit] = None
        try:
            granted = await self._ask(permit)
        except BaseException:
            self.release(permit)  # it may have been granted, and the answer was lost
            raise
        if granted:
            return permit
        del self._held[permit]
        return None

    async def _ask(self, permit: Permit) -> bool:
        while (limit := self.of(permit.tool)) is not None:
            newest = self._in_force.newest
            assert newest is not None, permit
            request = PermitRequest(permit, limit, newest.entry, self._settings.pause_bound_ms)
            try:
                answer = await self._journal.permit(request)
            except LimitsChanged:
                await self._in_force.refresh(self._journal)
                continue
            if answer.full or answer.wait_ms or permit.tool in self.known:
                queue = self._note(permit.tool, answer.wait_ms, full=answer.full)
                if answer.granted:
                    queue.waiting.pop(permit.operation, None)
                    self._wake_next(permit.tool)
            return answer.granted
        return True  # its limit was withdrawn meanwhile

    def _note(self, tool: str, wait_ms: int, *, full: bool) -> _Queue:
        """Note when the next call of a tool may begin. Slots of other processes are looked for at each poll."""
        queue, now = self.known.setdefault(tool, _Queue()), self._journal.now().ms
        queue.opens_ms = now + wait_ms
        queue.full_ms = now + self._settings.poll_ms if full else 0
        return queue

    def _wake_next(self, tool: str) -> None:
        """Let the first waiter ask, if one may begin now."""
        queue = self.known.get(tool)
        if queue is None or max(queue.opens_ms, queue.full_ms) > self._journal.now().ms:
            return
        if queue.waiting:
            queue.call_next()
        else:
            del self.known[tool]

    def release(self, permit: Permit, call: asyncio.Future[Any] | None = None) -> None:
        """Release a permit when this call has ended; without one at once."""
        if call is None or call.done():
            self._release_soon(permit)
        else:
            self._held[permit] = call
            call.add_done_callback(lambda _: self._release_soon(permit))

    def _release_soon(self, permit: Permit) -> None:
        tasks = self._tasks
        assert tasks is not None, "a reader has no permits"

        async def work() -> None:
            try:
                await self._forget(permit)
            except JournalUnavailable:
                tasks.insist(lambda: self._forget(permit))

        tasks.background(work(), "holdfast-permit")

    async def _forget(self, permit: Permit) -> None:
        # The next one is woken first. Its request follows the release into the journal, mostly in the same commit.
        if (queue := self.known.get(permit.tool)) is not None:
            queue.full_ms = 0
        self._wake_next(permit.tool)
        await self._journal.release(permit)
        self._held.pop(permit, None)

    async def release_rest(self) -> None:
        """Release what this process still holds, except for calls that run on after it is closed."""
        for permit, call in list(self._held.items()):
            if call is None or call.done():
                await self._journal.release(permit)

    async def slow(self, tool: str, wait_ms: int) -> None:
        """Let no process call this tool for so long: its service has asked for that."""
        await self._journal.slow(tool, wait_ms)
        queue = self.known.setdefault(tool, _Queue())
        queue.opens_ms = max(queue.opens_ms, self._journal.now().ms + wait_ms)

    async def read(self) -> None:
        """Read from the journal what is in use, for a reader that asks for no permit."""
        now = self._journal.now()
        for use in await self._journal.permits(self._settings.pause_bound_ms):
            limit = self.of(use.tool)
            if limit is None:
                continue
            full = limit.at_once is not None and len(use.permits) >= limit.at_once
            wait_ms = opens_in_ms(limit, use.pace, now.boot, now.ms)
            if full or wait_ms:
                self._note(use.tool, wait_ms, full=full)
