"""Which way a commit takes to the disk: on the event loop, or through the background thread.

On the loop there is no hop between threads, which is a fifth faster at one run at a time and much
faster when agent code keeps the loop busy; but a slow disk would stop everything else on the loop.
So the time that commits keep their thread off the processor is averaged, and the loop is used while
that is short. Only speed hangs on this clock, never a decision about an effect.
"""

from __future__ import annotations

import time
from typing import Literal

Way = Literal["auto", "loop", "thread"]

_SHORT_NS = 500_000
_WEIGHT = 0.2
_FIRST_PROBE = 32
_RAREST_PROBE = 1024


class Pace:
    """Measures commits and chooses the way; `way` forces one."""

    def __init__(self, way: Way = "auto") -> None:
        self.way = way
        self.blocked_ns = 0.0
        self._passes = 0
        self._commits = 0
        self._probe_after = _FIRST_PROBE

    def on_loop(self) -> bool:
        """Whether the next commit may block the loop. Asked once per batch."""
        if self.way != "auto":
            return self.way == "loop"
        if self.blocked_ns < _SHORT_NS:
            return True
        self._passes += 1
        if self._passes < self._probe_after:
            return False
        # The thread's own figures are spoilt by a busy loop, so now and then the loop is tried again.
        self._passes = 0
        self._probe_after = min(2 * self._probe_after, _RAREST_PROBE)
        self._commits = 0
        return True

    def start(self) -> tuple[int, int] | None:
        """Begin to measure a commit on the calling thread, unless it is not worth its while.

        The processor's clock takes as long to read as a row takes to encode: one commit in four will do.
        """
        self._commits += 1
        if self._commits & 3 != 1 or self.way != "auto":
            return None
        return time.perf_counter_ns(), time.thread_time_ns()

    def end(self, started: tuple[int, int], *, on_loop: bool) -> None:
        """Take a finished commit into the average."""
        wall, cpu = started
        blocked = (time.perf_counter_ns() - wall) - (time.thread_time_ns() - cpu)
        if on_loop or blocked < self.blocked_ns:
            self.blocked_ns += _WEIGHT * (blocked - self.blocked_ns)
            if self.blocked_ns < _SHORT_NS:
                self._probe_after = _FIRST_PROBE
