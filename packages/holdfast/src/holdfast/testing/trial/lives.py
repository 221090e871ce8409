"""The lives of one run: time that jumps while the run is idle, a journal in memory, and death at a chosen place.

Each life is an event loop of its own over the same journal. A dead one can neither write nor send any more,
whatever its code does while it is torn down.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from holdfast.journal.memory import MemoryJournal
from holdfast.journal.port import Write
from holdfast.journal.record_codec import decode
from holdfast.model import records as r
from holdfast.testing.clock import EPOCH_MS

LIMIT_S: Final = 3 * 3600.0
"""The time that may pass in one life. A run that waits for longer is suspended, and waits between two lives."""


class LifeTimedOut(Exception):
    """More time passed in one life than `LIMIT_S`: its code waits for what never comes."""


class LifeEnded(BaseException):
    """The process is gone. A `BaseException`: no code may handle it."""


class Passing:
    """The time of all lives of a run: real while a tool or a model works, else it jumps to the next timer."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.asking: set[str] = set()
        self.until = LIMIT_S
        self._calls = 0

    @property
    def ms(self) -> int:
        """Milliseconds since the first life began."""
        return round(self.seconds * 1000)

    @property
    def busy(self) -> bool:
        """True if a call is running that may reach the real world."""
        return self._calls > 0 or bool(self.asking)

    def begin(self, after_s: float = 0) -> None:
        """Begin a new life, `after_s` seconds later."""
        self.asking.clear()
        self._calls = 0
        self.seconds += after_s
        self.until = self.seconds + LIMIT_S

    @contextmanager
    def working(self) -> Generator[None]:
        """Use real time inside."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1


class LifeLoop(asyncio.SelectorEventLoop):
    """An event loop of one life."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing
        super().__init__(_Selector(passing))

    def time(self) -> float:
        """Seconds since the first life began."""
        return self._passing.seconds


class _Selector(selectors.DefaultSelector):
    def __init__(self, passing: Passing) -> None:
        super().__init__()
        self._passing = passing

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._passing.busy or timeout is None or timeout <= 0:
            began = time.monotonic()
            ready = super().select(timeout)
            self._passing.seconds += time.monotonic() - began if self._passing.busy else 0
            return ready
        ready = super().select(0)
        if not ready:
            self._passing.seconds += timeout
            if self._passing.seconds > self._passing.until:
                self._passing.until = float("inf")  # said once: the loop has to run on while it is closed
                raise LifeTimedOut("three hours passed, and nothing arrived that the run waits for")
        return ready


class LifeJournal(MemoryJournal):
    """A journal in memory that refuses dead processes, and notices when a model is asked."""

    def __init__(self, passing: Passing, namespace: str) -> None:
        super().__init__(lambda: passing.ms, lambda: EPOCH_MS + passing.ms, namespace=namespace)
        self.passing = passing
        self.dead = False

    def _call(self, name: str, *, needs_open: bool = True) -> Any:
        if self.dead:
            raise LifeEnded
        return super()._call(name, needs_open=needs_open)

    async def append(self, write: Write) -> None:
        """Commit, unless dead."""
        self._look(write)
        await super().append(write)

    def ride(self, write: Write) -> None:
        """Buffer the write for the next commit, unless dead."""
        if self.dead:
            raise LifeEnded
        self._look(write)
        super().ride(write)

    def _look(self, write: Write) -> None:
        for row in write.rows:
            if row.body.startswith(_DECISIONS):
                record = decode(row.body)
                if isinstance(record, r.DecisionStarted):
                    self.passing.asking.add(record.step)
                elif isinstance(record, r.DecisionRecorded):
                    self.passing.asking.discard(record.step)


_DECISIONS: Final = (b'{"kind":"DecisionStarted"', b'{"kind":"DecisionRecorded"')


class Deaths:
    """The crash points of one run: it counts them, and dies at the chosen ones."""

    def __init__(self, journal: LifeJournal, at: Sequence[int] = ()) -> None:
        self._journal = journal
        self._at = set(at)
        self.count = 0
        self.places: list[str] = []
        self.died: asyncio.Future[None] | None = None

    def reached(self, point: str) -> None:
        """Called by the engine at each boundary."""
        if self._journal.dead:
            raise LifeEnded
        self.count += 1
        if self.count in self._at:
            self._journal.dead = True
            self._journal.power_loss()
            self.places.append(f"crash {point.replace('_', ' ')}")
            if self.died is not None and not self.died.done():
                self.died.set_result(None)
            raise LifeEnded
