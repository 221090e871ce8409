"""The event loop with virtual time, and the simulated processes on it.

    def test_a_day_passes_at_once() -> None:
        run_virtual(sleeps_for_a_day())

The clock jumps to the next timer when no callback can run. Each simulated process is an `Actor` with a queue of its
own; code outside of them belongs to the actor `world`. Within one process callbacks run in the order in which they
were scheduled, as asyncio promises; between processes the schedule picks. A paused actor keeps its queue; a dead one
has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import inspect
import selectors
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar, cast

from beforehand.errors import UsageError

T = TypeVar("T")
Pick = Callable[[list["Actor"]], "Actor"]
OutsideTime = Literal["stops", "runs", "none"]
"""What the clock does while a thread or a service works outside of the loop: it stops, or runs with the real time.

With `none` there is no outside: functions for a thread run inline, sockets are refused, and a loop without a timer is
stuck.
"""

DAY: Final = timedelta(days=1)


class Died(BaseException):
    """The process is dead: nothing it does from here on has an effect. `except Exception` does not catch it."""


class Stuck(AssertionError):
    """The loop cannot go on: nothing is scheduled, or it exceeded its limit of steps or time."""


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
    """One simulated process, or the world outside of them. `held` counts its calls that work outside of the loop."""

    __slots__ = ("alive", "context", "held", "name", "paused", "priority", "ready", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = contextvars.copy_context()
        self.ready: deque[_Turn] = deque()
        self.alive = True
        self.paused = False
        self.held = 0
        self.priority = 0.0
        self.tasks: list[tuple[asyncio.Task[Any], Context]] = []

    def die(self) -> None:
        """SIGKILL: what is scheduled never runs. Its tasks stay as they are, so that no cleanup code runs."""
        self.alive = False
        self.ready.clear()


_MOST_CLOSES: Final = 1_000
ACTOR: Final[ContextVar[Actor]] = ContextVar("beforehand_actor")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits for a timer. `limit` is the virtual time after which it raises `Stuck`.

    `outside` says what the clock does while a tool works in a thread, or a service answers: it `stops`, or `runs` with
    the real time; with `none` the loop has no threads and no network. The other arguments are for a simulation of
    processes: it begins at `now_s`, and `pick` chooses the process that takes the next step, of `most_steps` at most.
    """

    def __init__(
        self,
        limit: timedelta = DAY,
        *,
        outside: OutsideTime = "stops",
        pick: Pick | None = None,
        most_steps: int = sys.maxsize,
        now_s: float = 0.0,
    ) -> None:
        self.world: Final = Actor("world")
        self.steps = 0
        self.halted = False
        self._interrupted = False
        self._now = now_s
        self._limit = limit
        self._until = now_s + limit.total_seconds()
        self._most_steps = most_steps
        self._pick: Pick = pick or (lambda actors: actors[0])
        self._timers: list[tuple[float, int, _Turn, Actor]] = []
        self._scheduled_so_far = 0
        self._actors = [self.world]
        self._graves = [self.world]
        self._generators: dict[int, Actor] = {}
        self._outside: OutsideTime = "stops"  # while its own pipe is registered
        self._sockets = selectors.DefaultSelector()
        super().__init__(self._sockets)
        self._wakers = len(self._sockets.get_map())  # its own pipe, by which threads wake it
        self._outside = outside

    # --- what asyncio asks ---------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since this loop was made, or since the simulation began."""
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

    def call_soon_threadsafe(  # type: ignore[override]  # as above
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Turn:
        """Schedule from another thread, and wake the loop."""
        turn = self.call_soon(callback, *args, context=context)
        if self._outside != "none":
            self._write_to_self()  # type: ignore[attr-defined]  # the stubs omit what is private
        return turn

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
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the function in a thread; at once where there is no outside."""
        if self._outside != "none":
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the waiting task receives it
            future.set_exception(error)
        return future

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect, as async clients do. Raises `UsageError` where there is no outside."""
        self._check_network()
        return await super().create_connection(*args, **options)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connect, as other async clients do. Raises `UsageError` where there is no outside."""
        self._check_network()
        await super().sock_connect(sock, address)

    def _add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        self._check_network()
        return super()._add_reader(fd, callback, *args)  # type: ignore[misc,no-any-return]  # the stubs omit what is private

    def _add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        self._check_network()
        return super()._add_writer(fd, callback, *args)  # type: ignore[misc,no-any-return]  # as above

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error that nothing retrieves, unless a process died of it or is dead."""
        if not isinstance(context.get("exception"), Died) and ACTOR.get(self.world).alive:
            super().call_exception_handler(context)

    # --- threads and services outside ----------------------------------------------------------------------

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Stop the jumps of time inside: something outside the loop is working."""
        actor = ACTOR.get(self.world)
        actor.held += 1
        try:
            yield
        finally:
            actor.held -= 1

    @contextlib.contextmanager
    def passing(self) -> Generator[None]:
        """In a tool's thread: let time jump inside, because this thread only waits."""
        actor = ACTOR.get(self.world)
        actor.held -= 1
        self.call_soon_threadsafe(lambda: None)  # wakes the loop, so that it checks again whether time may jump
        try:
            yield
        finally:
            actor.held += 1

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

    def simulate(self, main: Coroutine[Any, Any, T]) -> T | None:
        """Run until `main` has ended, and close the loop. Raises `Stuck` where it cannot go on."""
        self.set_task_factory(_kept)
        asyncio._set_running_loop(self)  # noqa: SLF001 - as every event loop does
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook)
        try:
            task: asyncio.Task[T] = self.create_task(main)
            with self._between_steps():
                while not task.done() and not self.halted:
                    self._run_once()
            return task.result() if task.done() else None
        finally:
            for actor in self._graves:
                self.bury(actor)
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)  # noqa: SLF001 - as above
            self.close()

    @contextlib.contextmanager
    def _between_steps(self) -> Generator[None]:
        """Let Ctrl-C wait for the end of a callback: inside one, it may drop a coroutine before it is awaited.

        A second one is not waited for, as in `asyncio.Runner`.
        """
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def interrupt(*_: object) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
            self._write_to_self()  # type: ignore[attr-defined]  # the stubs omit what is private

        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def bury(self, actor: Actor) -> None:
        """Close tasks that never ended, in a fixed order, when their code has no effect. Cleanup may begin tasks."""
        for task, context in actor.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio does with its own
                context.run(_close, task.get_coro())
            elif not task.cancelled():
                task.exception()

    # --- inside: asyncio calls the methods whose names it gives ----------------------------------------------

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        super()._asyncgen_firstiter_hook(agen)  # type: ignore[misc]  # the stubs omit what is private
        self._generators[id(agen)] = ACTOR.get(self.world)

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that its process dropped, as asyncio does. In a dead process no cleanup code runs."""
        actor = self._generators.pop(id(agen), self.world)
        if not actor.alive:
            return
        if asyncio._get_running_loop() is self:  # noqa: SLF001 - None, not an error, after the end
            self.inside(actor, agen.aclose())
        else:  # the collector runs in any thread
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]  # as above

    def _run_once(self) -> None:
        """Run one callback, or wait until one can run."""
        if self._interrupted:
            raise KeyboardInterrupt
        if self._outside != "none":
            self._look_outside()
        runnable = [actor for actor in self._actors if actor.ready and not actor.paused]
        if not runnable:
            self._wait()
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

    def _look_outside(self) -> None:
        """Let due timers and ready sockets take their turn beside callbacks that schedule others without end."""
        if self._timers and self._timers[0][0] <= self._now:
            self._ripen()
        if len(self._sockets.get_map()) > self._wakers:
            self._process_events(self._sockets.select(0))

    def _wait(self) -> None:
        """No callback can run: wait for what works outside, or jump to the next timer."""
        timers = self._timers
        while timers and (timers[0][2].callback is None or not timers[0][3].alive):
            heapq.heappop(timers)
        due_s = timers[0][0] if timers else None
        if self._outside == "none":
            if due_s is None:
                raise Stuck(f"nothing is scheduled any more at {self._now:.1f} s")
        elif due_s is None or any(actor.held > 0 for actor in self._actors if actor.alive):
            self._listen(due_s)
            return
        elif heard := self._sockets.select(0):
            self._process_events(heard)
            return
        self._move_to(due_s)
        self._ripen()

    def _listen(self, due_s: float | None) -> None:
        """Wait in real time until something outside is ready; where the clock runs meanwhile, until the next timer."""
        if self._outside == "stops" or due_s is None:
            self._process_events(self._sockets.select(None))
            return
        began = time.monotonic()
        heard = self._sockets.select(max(0.0, due_s - self._now))
        self._move_to(self._now + time.monotonic() - began)
        self._process_events(heard)

    def _move_to(self, moment: float) -> None:
        self._now = max(self._now, moment)
        if self._now > self._until:
            raise Stuck(f"{self._limit} of virtual time passed, and the end was not reached")

    def _ripen(self) -> None:
        """Make all callbacks ready that are due."""
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            _, _, turn, actor = heapq.heappop(timers)
            if actor.alive and turn.callback is not None:
                actor.ready.append(turn)

    def _process_events(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Schedule the handlers of ready sockets. The sockets of a dead process are ready for ever: forget them."""
        for key, mask in events:
            if all(handle is None or self._actor_of(handle).alive for handle in key.data):
                super()._process_events([(key, mask)])  # type: ignore[misc]  # as above
            else:
                self._sockets.unregister(key.fileobj)

    def _add_callback(self, handle: asyncio.Handle) -> None:
        """Schedule the handler of a socket or a signal, for the process that registered it."""
        self._actor_of(handle).ready.append(_Turn(_run_handle, (handle,), Context(), self._now))

    def _actor_of(self, handle: asyncio.Handle) -> Actor:
        context = cast("Context", handle._context)  # type: ignore[attr-defined]  # noqa: SLF001 - public from 3.12
        return context.get(ACTOR, self.world)

    def _check_network(self) -> None:
        if self._outside == "none":
            raise UsageError(
                "the world of a test has a time of its own, and no network for async clients",
                next_step="let the tool talk to a fake (world.use), stub it (world.stub), or use a synchronous client",
            )


def _run_handle(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()  # noqa: SLF001 - as asyncio does


def _kept(
    loop: asyncio.AbstractEventLoop,
    coro: Any,
    *,
    context: Context | None = None,  # typed as loosely as asyncio does
) -> asyncio.Task[Any]:
    """A task factory: the process holds its task, so that nothing is collected at a random moment."""
    context = contextvars.copy_context() if context is None else context
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
    actor = ACTOR.get(None) or (loop.world if isinstance(loop, VirtualLoop) else None)
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
