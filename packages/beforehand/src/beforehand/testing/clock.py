"""Virtual time for tests: clocks, chance and threads of a process that runs on a `VirtualLoop`.

No test has to sleep, and the order of events depends on the program alone. Threads stay real: while a
tool runs in one, time stops, unless the tool declares that it only waits (`VirtualLoop.passing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

from beforehand.engine.environment import DaemonThreads, Environment, NoCrash, Threads
from beforehand.journal.host import JournalClock
from beforehand.testing.loop import DAY, VirtualLoop

T = TypeVar("T")
EPOCH_MS: Final = 1_767_225_600_000
"""The wall clock when a virtual loop starts: the first of January 2026, 00:00 UTC."""

_BOOTS: Final = itertools.count(1)


class VirtualClock:
    """The wall clock of a virtual loop. Set `skew_ms` to make it wrong, or jump."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return EPOCH_MS + ticks_ms(self._loop) + self.skew_ms

    async def sleep(self, seconds: float) -> None:
        """Pause this task; the loop jumps."""
        await asyncio.sleep(seconds)


class SeededRng:
    """A random number generator that a seed repeats."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not used for secrets

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._random.uniform(low, high)

    def token(self) -> str:
        """128 bits in hexadecimal."""
        return f"{self._random.getrandbits(128):032x}"


class InlineThreads:
    """Runs synchronous tools in the loop itself: no other thread, one order of events."""

    inline = True

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` now, in a copy of this context; the future is done when this returns."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(contextvars.copy_context().run(function))
        except Exception as error:  # noqa: BLE001 - any exception of a tool ends its call
            future.set_exception(error)
        return future


class HeldThreads:
    """Real threads. Virtual time stops while one of them runs."""

    inline = False

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._threads = DaemonThreads()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in a thread, and hold the clock meanwhile."""
        future = self._threads.call(function)
        holding = contextlib.ExitStack()
        holding.enter_context(self._loop.held())
        future.add_done_callback(lambda _: holding.close())
        return future


def simulated_environment(loop: VirtualLoop, seed: int = 1, *, threads: Threads | None = None) -> Environment:
    """An environment over a virtual loop: virtual time, seeded chance, threads that hold the clock, no crashes."""
    return Environment(VirtualClock(loop), SeededRng(seed), threads or HeldThreads(loop), NoCrash())


def ticks_ms(loop: asyncio.AbstractEventLoop) -> int:
    """The loop's time in whole milliseconds: the clock of a journal in memory."""
    return round(loop.time() * 1000)


def virtual_journal_clock(loop: VirtualLoop) -> JournalClock:
    """The clock of a virtual loop for a journal in a file: `SqliteJournal(path, clock=...)`."""
    boot = f"virtual:{os.getpid()}:{next(_BOOTS)}"  # a new loop begins at 0: times of two loops are not comparable
    return JournalClock(boot, lambda: ticks_ms(loop), VirtualClock(loop).wall_ms, loop.held)


def run_virtual(main: Coroutine[Any, Any, T], *, limit: timedelta = DAY) -> T:
    """Run `main` on a virtual loop of its own. Raises `Stuck` after `limit` of virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(limit)) as runner:
        return runner.run(main)


def virtual_loop() -> VirtualLoop:
    """The running loop. Raises `TypeError` unless it is a virtual one."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise TypeError("this is not a virtual loop: start the test with beforehand.testing.clock.run_virtual(...)")
    return loop
