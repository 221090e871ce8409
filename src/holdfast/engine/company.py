"""Isolates an operation's or a run's last chance, so that a death can be attributed to it.

When a process dies, every attempt that was in flight in it looks like the one that killed it, and so does every run
that it had claimed and that had not got anywhere yet. One more death sets an operation or a run on its last chance
aside; it therefore goes alone. If the process dies of it, nothing else is counted with it, and one that only happened
to be there comes through.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from holdfast.model.operation import OperationState


@dataclass(eq=False)
class _Alone:
    """One that goes alone, or waits until everything else has left. `whole`: a run, whose own attempts may come in."""

    run: str
    whole: bool
    granted: bool = False


class Company:
    """What one process has in flight: attempts, and runs that were claimed and have recorded no progress yet.

    Every `admit` (or `join`) of an attempt is followed by one `leave`, every `enter` of a run by one or more `exit`.
    """

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()
        self._runs: set[str] = set()
        self._alone: list[_Alone] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False

    @property
    def reserved(self) -> bool:
        """Whether something goes alone, or waits to."""
        return bool(self._alone)

    def join(self, run: str = "") -> None:
        """Begin an attempt at once: nothing goes alone."""
        assert not self.reserved
        self._inside[run] += 1

    async def admit(self, run: str = "", *, alone: bool) -> None:
        """Begin an attempt when nothing is alone in the process; with `alone`, when everything has left."""
        while self._blocked(run):
            await self._change()
        if alone:
            self.exit(run)  # from here on the attempt is what is suspected: two runs would wait for each other
            await self._until_alone(_Alone(run, whole=False))
        self._inside[run] += 1

    def leave(self, run: str = "", *, alone: bool) -> None:
        """The attempt has ended, or its driver gave up on it."""
        self._less(run)
        if alone:
            self._alone.remove(next(one for one in self._alone if one.run == run and not one.whole))
        self._wake()

    async def enter(self, run: str, *, alone: bool) -> bool:
        """Begin to drive a claimed run, `alone` on its last chance; false where the process shuts down meanwhile."""
        while self._blocked(run) and not self._closed:
            await self._change()
        if alone and not self._closed:
            await self._until_alone(_Alone(run, whole=True))
        if self._closed:
            self._alone = [one for one in self._alone if one.run != run]
            return False
        self._runs.add(run)
        self._inside[run] += 1
        return True

    def exit(self, run: str) -> None:
        """The run has recorded progress, waits, or has ended: a death from here on is not held against its claim."""
        if run in self._runs:
            self._runs.discard(run)
            self._alone = [one for one in self._alone if not (one.whole and one.run == run)]
            self._less(run)
            self._wake()

    def close(self) -> None:
        """The process shuts down: no run begins any more."""
        self._closed = True
        self._wake()

    def _blocked(self, run: str) -> bool:
        """Whether it has to wait. What is inside goes on until the place is really free: others wait for its end."""
        for one in self._alone:
            if one.run == run and one.whole:
                continue
            if one.granted or one.run == run or not self._inside[run]:
                return True
        return False

    async def _until_alone(self, one: _Alone) -> None:
        self._alone.append(one)
        try:
            while not self._closed and (+self._inside or any(other.granted for other in self._alone)):
                await self._change()
        except BaseException:
            self._alone.remove(one)
            self._wake()
            raise
        one.granted = True

    def _less(self, run: str) -> None:
        self._inside[run] -= 1
        if not self._inside[run]:
            del self._inside[run]

    async def _change(self) -> None:
        change = asyncio.get_running_loop().create_future()
        self._waiting.append(change)
        await change

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)


def on_its_last_chance(operation: OperationState, deaths_allowed: int) -> bool:
    """Whether one more death of its process sets the operation aside."""
    return 0 < operation.deaths == deaths_allowed - 1
