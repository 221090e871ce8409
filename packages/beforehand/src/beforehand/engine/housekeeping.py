"""House-keeping: the loops that a process runs for as long as its app is open, and their failures.

A round that fails with any error is logged and the next one begins all the same: a loop that ended in silence
would leave a process that takes no commands. A loop that is cancelled from outside, as by code that cancels all tasks
of the event loop, is started again. What fails is published as a losable note of the process, which
`beforehand ps`, `beforehand doctor` and the commands to its runs show.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beforehand.errors import BeforehandError, LeaseLost
from beforehand.journal.port import HintRequest
from beforehand.model.system import HEALTH, Trouble

if TYPE_CHECKING:
    from beforehand.engine.environment import Clock
    from beforehand.journal.port import Journal

LOG: Final = logging.getLogger("beforehand")
AGAIN_MS: Final = 60_000
"""How often a failure that goes on is logged, and how long a task that was started again is shown."""
_RESTART_S: Final = 1.0
_END_S: Final = 5.0  # a task that refuses to end does not hold up the end of the process


class Housekeeping:
    """The house-keeping of one process."""

    def __init__(self, journal: Journal, clock: Clock, worker: str) -> None:
        self._journal = journal
        self._clock = clock
        self._worker = worker
        self._troubles: dict[str, Trouble] = {}
        self._logged_ms: dict[str, int] = {}
        self._published: bytes | None = None
        self._restarted_ms: dict[str, int] = {}
        self._loops: dict[Loop, None] = {}  # ordered: they end in the order in which they began
        self.outside: Final = contextvars.copy_context()
        """The context of the app: a task that is begun in agent code would be a branch of its run."""

    def keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Loop:
        """Start a task that begins again where it is cancelled or dies, until it returns or `close` ends it."""
        loop = Loop(self, name, work)
        self._loops[loop] = None
        return loop

    async def close(self, *, keep: Loop | None = None) -> None:
        """End all tasks, except one."""
        for loop in [one for one in self._loops if one is not keep]:
            await loop.close()

    async def round(self, task: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do one round of a task. Its errors are logged and published, and the next round goes on."""
        try:
            await work()
        except LeaseLost:
            return  # that run ends by itself
        except Exception as error:  # noqa: BLE001 - a bug of one round must not end every later one
            await self._failed(task, error)
        else:
            if self._troubles:
                await self.forget({task})

    async def forget(self, tasks: Collection[str]) -> None:
        """Remove these tasks from the failing ones."""
        if tasks & self._troubles.keys():
            for task in tasks:
                self._troubles.pop(task, None)
                self._logged_ms.pop(task, None)
            await self._publish()

    def failing(self) -> list[str]:
        """The tasks that failed in their last round."""
        return list(self._troubles)

    def let_go(self, loop: Loop) -> None:
        """Drop a task that has ended for good."""
        self._loops.pop(loop, None)

    async def restarted(self, loop: Loop, cause: BaseException) -> None:
        """Log a task that was cancelled or died and runs again, and show it for `AGAIN_MS`."""
        task = f"{loop.name} was cancelled" if isinstance(cause, asyncio.CancelledError) else f"{loop.name} died"
        self._restarted_ms[task] = self._clock.wall_ms()
        await self._failed(task, cause, "It was started again")

    async def forget_restarts(self) -> None:
        """Drop the restarts of tasks that have run for a while since."""
        now = self._clock.wall_ms()
        over = {task for task, since in self._restarted_ms.items() if now - since >= AGAIN_MS}
        for task in over:
            del self._restarted_ms[task]
        await self.forget(over)

    async def _failed(self, task: str, error: BaseException, then: str = "It is tried again") -> None:
        now, text = (self._clock.wall_ms(), f"{type(error).__name__}: {error}".removesuffix(": ")[:500])
        before = self._troubles.get(task)
        self._troubles[task] = Trouble(task, text, now if before is None else before.since_ms)
        if before is None or before.error != text or now - self._logged_ms[task] >= AGAIN_MS:
            self._logged_ms[task] = now
            known = isinstance(error, (BeforehandError, asyncio.CancelledError))
            LOG.log(
                logging.WARNING if known else logging.ERROR,
                "%s: %s. %s.", task, text.rstrip("."), then, exc_info=None if known else error,
            )  # fmt: skip
            await self._publish()

    async def _publish(self) -> None:
        body = msgspec.json.encode(list(self._troubles.values()))
        with contextlib.suppress(BeforehandError):  # a journal that takes nothing takes no note either; the log has it
            if await self._journal.commit(HintRequest(HEALTH + self._worker, body, self._published)):
                self._published = body


class Loop:
    """A task of the house-keeping, as `Housekeeping.keep` runs it."""

    def __init__(self, house: Housekeeping, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self._house = house
        self._work = work
        self._closed = False
        self._task = self._start(None)

    def cancel(self) -> None:
        """End it. It is not started again."""
        self._closed = True
        self._task.cancel()

    async def close(self) -> None:
        """End it, and wait for its end."""
        self.cancel()
        if self._task is not asyncio.current_task():
            await asyncio.wait({self._task}, timeout=_END_S)

    def _start(self, cause: BaseException | None) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(
            self._run(cause), name=f"beforehand: {self.name}", context=self._house.outside.copy()
        )
        task.add_done_callback(self._ended)
        return task

    async def _run(self, cause: BaseException | None) -> None:
        if cause is not None:
            await self._house.restarted(self, cause)
        await self._work()

    def _ended(self, task: asyncio.Task[None]) -> None:
        cause = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._closed or cause is None:
            self._house.let_go(self)
            return
        # By a timer: where the event loop itself is shut down, which cancels all tasks, the timer never comes.
        task.get_loop().call_later(_RESTART_S, self._again, cause)

    def _again(self, cause: BaseException) -> None:
        if not self._closed:
            self._task = self._start(cause)
