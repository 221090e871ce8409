"""The sources of time, randomness, threads and crashes. The product uses them only through this module.

A test or a simulator passes its own; the product uses the ones here.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final, Protocol, TypedDict, TypeVar

import msgspec

from beforehand.engine.calls import THREADS
from beforehand.errors import UsageError

T = TypeVar("T")


class Stamp(TypedDict):
    """The two clocks of a record: the wall for people, the journal's own for windows."""

    at: int
    up: int


class Clock(Protocol):
    """The wall clock, for people and for what expires. Durations come from the journal's clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this machine believes."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause this task."""
        ...


class Rng(Protocol):
    """Chance and identifiers."""

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        ...

    def token(self) -> str:
        """A new identifier, 128 bits in hexadecimal."""
        ...


class Threads(Protocol):
    """Where synchronous tools run."""

    @property
    def inline(self) -> bool:
        """True if there are no threads: functions run in the loop itself."""
        ...

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in a thread of its own, with this context. The future never abandons it."""
        ...


class CrashPoints(Protocol):
    """Named places where a process may die. Does nothing in the product."""

    def reached(self, point: str) -> None:
        """Called at each of `POINTS`, `TRANSACTION_POINTS` and `CHILD_POINTS`."""
        ...


POINTS = (
    "before_intent",
    "after_intent",
    "before_send",
    "after_send",
    "before_outcome",
    "after_outcome",
    "before_verify",
    "after_verify",
    "before_claim",
    "after_claim",
    "before_end",
    "after_end",
)
TRANSACTION_POINTS = ("before_closing", "after_closing")
"""Around each record that moves a transaction towards its end."""
CHILD_POINTS = ("before_start", "after_start", "after_child_stored", "before_join", "after_join", "after_told")
"""Around the record that a child is started, after it is stored, around the record of its end, and after the commit of
a notice to a relative, which then has to be brought."""


class SystemClock:
    """The machine's own clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Pause this task."""
        await asyncio.sleep(seconds)


class SystemRng:
    """The operating system's randomness for identifiers, a fast generator for jitter."""

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return random.uniform(low, high)  # noqa: S311  # jitter is not a secret

    def token(self) -> str:
        """128 random bits."""
        return secrets.token_hex(16)


class DaemonThreads:
    """One daemon thread per call: a tool that never returns must not keep the process from ending."""

    inline = False

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in a new thread that sees the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def report(outcome: Callable[[], None]) -> None:
            if not future.done():
                outcome()

        def body() -> None:
            try:
                result = context.run(function)
            except BaseException as error:  # noqa: BLE001  # any exception of a tool ends its call
                wrapped = RuntimeError("the tool raised StopIteration") if isinstance(error, StopIteration) else error
                _tell(loop, report, lambda: future.set_exception(wrapped))
            else:
                _tell(loop, report, lambda: future.set_result(result))

        thread = THREADS[future] = threading.Thread(target=body, name="beforehand-tool", daemon=True)
        thread.start()
        return future


def _tell(
    loop: asyncio.AbstractEventLoop, report: Callable[[Callable[[], None]], None], what: Callable[[], None]
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(report, what)


class NoCrash:
    """The product never dies on purpose."""

    def reached(self, point: str) -> None:
        """Do nothing."""


class Environment(msgspec.Struct, frozen=True):
    """The whole environment of a process."""

    clock: Clock
    rng: Rng
    threads: Threads
    crash: CrashPoints


def system_environment() -> Environment:
    """The environment of the real world."""
    return Environment(SystemClock(), SystemRng(), DaemonThreads(), NoCrash())


async def shielded(task: asyncio.Task[T]) -> T:
    """The result of a task that goes on where its caller is cancelled.

    As `asyncio.shield`, with a quarter of its objects: each live run has such callers, and the collector visits them.
    """
    if not task.done():
        over: asyncio.Future[None] = task.get_loop().create_future()
        task.add_done_callback(partial(_ended, over))
        await over
    return task.result()


def _ended(over: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not warn where the caller was cancelled
    if not over.done():
        over.set_result(None)


async def gather_bounded(calls: Iterator[Coroutine[Any, Any, T]], most: int) -> AsyncGenerator[T]:
    """Yield the results of the calls in the order in which they end, running at most `most` at once."""
    pending: set[asyncio.Task[T]] = set()
    try:
        while True:
            while len(pending) < most and (call := next(calls, None)) is not None:
                pending.add(asyncio.get_running_loop().create_task(call))
            if not pending:
                return
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in pending:
            task.cancel()


def checked_loop() -> None:
    """Raise `UsageError` if no asyncio loop runs: under trio or curio, or outside of every loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "Beforehand runs on asyncio, and no loop of asyncio runs here",
            known="nothing was opened or sent",
            next_step="call it under asyncio.run(...); elsewhere, use `with Beforehand(...) as app` in a thread",
        ) from None


# --- the collector of this interpreter ----------------------------------------------------------------------------


class GarbageCollector:
    """Python's collector while apps are open that tune it (`Settings.gc_threshold`). The last of them restores it.

    Each collection visits what live runs occupy, and an ordinary threshold makes it do so many times a second.
    """

    def __init__(self) -> None:
        self._thresholds: list[int] = []
        self._before: tuple[int, int, int] | None = None
        self._froze = False

    def tune(self, threshold: int) -> None:
        """Collect after so many new objects, and no longer visit the objects that exist now."""
        if self._before is None:
            self._before = gc.get_threshold()
            self._froze = gc.get_freeze_count() == 0  # otherwise the application froze its own: they stay frozen
            if self._froze:
                gc.collect()  # garbage that is frozen would stay until the app is closed
                gc.freeze()
        self._thresholds.append(threshold)
        gc.set_threshold(max(self._thresholds), *self._before[1:])

    def restore(self, threshold: int) -> None:
        """Undo `tune`; while other apps tune it, only their thresholds count."""
        self._thresholds.remove(threshold)
        assert self._before is not None
        if self._thresholds:
            gc.set_threshold(max(self._thresholds), *self._before[1:])
            return
        gc.set_threshold(*self._before)
        self._before = None
        if self._froze:
            gc.unfreeze()


GARBAGE: Final = GarbageCollector()
