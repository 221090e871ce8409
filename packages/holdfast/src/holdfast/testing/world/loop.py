"""An event loop that decides everything: the time, and the process that takes the next step.

Each simulated process is an `Actor` with a queue of its own. Within one process callbacks run in the order in
which they were scheduled, as asyncio promises; between processes the schedule picks. Time jumps to the next
timer when no process can take a step. A paused actor keeps its queue; a dead one has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import inspect
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVar

T = TypeVar("T")
Pick = Callable[[list["Actor"]], "Actor"]


class Died(BaseException):
    """The process is dead: nothing it does from here on has an effect. `except Exception` does not catch it."""


class Stuck(AssertionError):
    """The simulation cannot go on: nothing is scheduled, or it exceeded its limit of steps or time."""


class _Turn:
    """One callback that waits for its turn: the used part of asyncio's `Handle`, and cheap to make."""

    __slots__ = ("args", "at", "callback", "context")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...], context: Context, at: float) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.at = at

    def cancel(self) -> None:
        """It never runs."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """True if it was cancelled."""
        return self.callback is None

    def when(self) -> float:
        """The time of the loop for which it was scheduled."""
        return self.at


class Actor:
    """One simulated process, or the world outside of them."""

    __slots__ = ("alive", "context", "name", "paused", "priority", "ready", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = contextvars.copy_context()
        self.ready: deque[_Turn] = deque()
        self.alive = True
        self.paused = False
        self.priority = 0.0
        self.tasks: list[tuple[asyncio.Task[Any], Context]] = []

    def die(self) -> None:
        """SIGKILL: what is scheduled never runs. Its tasks stay as they are, so that no cleanup code runs."""
        self.alive = False
        self.ready.clear()


_MOST_CLOSES: Final = 1_000
ACTOR: Final[ContextVar[Actor]] = ContextVar("holdfast_actor")


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one simulation. `pick` chooses among the actors that can take a step; time begins at `now_s`."""

    def __init__(self, pick: Pick, *, most_steps: int = 400_000, now_s: float = 0.0) -> None:
        super().__init__()
        self.world: Final = Actor("world")
        self.steps = 0
        self.halted = False
        self.accidents: list[str] = []
        self._now = now_s
        self._timers: list[tuple[float, int, _Turn, Actor]] = []
        self._scheduled_so_far = 0
        self._pick = pick
        self._actors = [self.world]
        self._graves = [self.world]
        self._generators: dict[int, Actor] = {}
        self._most_steps = most_steps
        self.set_task_factory(_kept)

    # --- what asyncio asks ---------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._now

    def call_soon(  # type: ignore[override]  # the generic signature of the base adds nothing here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Turn:
        """Schedule for the process that calls."""
        context = contextvars.copy_context() if context is None else context
        turn = _Turn(callback, args, context, self._now)
        actor = context.get(ACTOR, self.world)
        if actor.alive:
            actor.ready.append(turn)
        return turn

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads here

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Turn:
        """Schedule for the process that calls, `delay` seconds from now."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Turn:
        """Schedule for the process that calls, at a time of this loop."""
        context = contextvars.copy_context() if context is None else context
        turn = _Turn(callback, args, context, when)
        self._scheduled_so_far += 1
        heapq.heappush(self._timers, (when, self._scheduled_so_far, turn, context.get(ACTOR, self.world)))
        return turn

    def run_in_executor(  # type: ignore[override]  # as above
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the function at once: there are no threads here."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the waiting task receives it
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an unretrieved error as an accident, unless it is a death."""
        error = context.get("exception")
        if not isinstance(error, (Died, asyncio.CancelledError)) and ACTOR.get(self.world).alive:
            self.accidents.append(f"{context.get('message')}: {error!r}")

    # --- processes -----------------------------------------------------------------------------------------

    def spawn(self, name: str, main: Callable[[], Coroutine[Any, Any, T]], priority: float = 0.0) -> Actor:
        """A new process that runs `main`."""
        actor = Actor(name)
        actor.priority = priority
        self._actors = [one for one in self._actors if one.alive]
        self._actors.append(actor)
        self._graves.append(actor)
        actor.context.run(ACTOR.set, actor)
        self.inside(actor, main())
        return actor

    def inside(self, actor: Actor, what: Coroutine[Any, Any, object]) -> None:
        """Make a process do something, such as receive a call from outside."""
        actor.context.run(self.create_task, what)

    def run(self, main: Coroutine[Any, Any, T], *, until: float) -> T | None:
        """Run until `main` has ended. Raises `Stuck` after `until` seconds, or if nothing can happen any more."""
        asyncio._set_running_loop(self)  # noqa: SLF001 - as every event loop does
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._begun, self._abandoned)
        try:
            task: asyncio.Task[T] = self.create_task(main)
            while not task.done() and not self.halted:
                self._step(until)
            return task.result() if task.done() else None
        finally:
            self._bury()
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)  # noqa: SLF001 - as above
            self.close()

    def _begun(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[id(generator)] = ACTOR.get(self.world)

    def _abandoned(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that its process dropped, as asyncio does. In a dead process no cleanup code runs."""
        actor = self._generators.pop(id(generator), self.world)
        if actor.alive and asyncio._get_running_loop() is self:  # noqa: SLF001 - None, not an error, after the end
            self.inside(actor, generator.aclose())

    def _step(self, until: float) -> None:
        runnable = [actor for actor in self._actors if actor.ready and not actor.paused]
        if not runnable:
            self._advance(until)
            return
        actor = runnable[0] if len(runnable) == 1 else self._pick(runnable)
        turn = actor.ready.popleft()
        self.steps += 1
        if self.steps > self._most_steps:
            raise Stuck(f"{self._most_steps} steps were taken at {self._now:.1f} s, and no end is in sight")
        if turn.callback is None:
            return
        try:
            turn.context.run(turn.callback, *turn.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio does: the loop goes on
            self.call_exception_handler({"message": f"a callback failed: {turn.callback}", "exception": error})

    def _advance(self, until: float) -> None:
        """Make all callbacks ready that are due next."""
        timers = self._timers
        while timers and (timers[0][2].callback is None or not timers[0][3].alive):
            heapq.heappop(timers)
        if not timers:
            raise Stuck(f"nothing is scheduled any more at {self._now:.1f} s")
        self._now = max(self._now, timers[0][0])
        if self._now > until:
            raise Stuck(f"{until:.0f} s passed, and the simulation has not come to rest")
        while timers and timers[0][0] <= self._now:
            _, _, turn, actor = heapq.heappop(timers)
            if actor.alive and turn.callback is not None:
                actor.ready.append(turn)

    def _bury(self) -> None:
        """Close tasks that never ended, in a fixed order, when their code has no effect. Cleanup may begin tasks."""
        for task, context in (one for actor in self._graves for one in actor.tasks):
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio does with its own
                context.run(_close, task.get_coro())
            elif not task.cancelled():
                task.exception()


def _kept(
    loop: asyncio.AbstractEventLoop,
    coro: Any,
    *,
    context: Context | None = None,  # typed as loosely as asyncio does
) -> asyncio.Task[Any]:
    """A task factory: the process holds its task, so that nothing is collected at a random moment."""
    context = contextvars.copy_context() if context is None else context
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
    actor = ACTOR.get(None) or (loop.world if isinstance(loop, SimLoop) else None)
    if actor is not None:
        actor.tasks.append((task, context))
    return task


def _close(coroutine: Any) -> None:
    """Close a coroutine of a dead process, and first what it awaits: a part left open would complain when collected.

    Each `await` of its cleanup code needs one more attempt to end it. The task that closes a collected asynchronous
    generator runs no coroutine but an `aclose()` of its own type, which awaits nothing that could be seen.
    """
    for _ in range(_MOST_CLOSES):
        inner: Any = coroutine
        while _open(awaited := getattr(inner, "cr_await", None)):
            inner = awaited
        with contextlib.suppress(BaseException):  # of cleanup code of a dead process
            inner.close()
        if not _open(coroutine):
            return


def _open(awaited: object) -> bool:
    return inspect.iscoroutine(awaited) and inspect.getcoroutinestate(awaited) != inspect.CORO_CLOSED
