"""Narrows suspicion after a death, so that it can be attributed to the operation or run that caused it.

When a process dies, every attempt that was in flight in it looks like the one that killed it, and so does every run
that it had claimed and that had not got anywhere yet. All of them are suspects, and each further death lets fewer
suspects go at once: those that are harmless come through in ever smaller company, and few deaths are held against
them. One more death sets an operation or a run on its last chance aside; it therefore goes alone, and nothing else is
counted with it. What no process died with is not held up by suspects, except by one on its last chance.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Final

from holdfast.model.operation import OperationState

ALONE: Final = 1
"""Chances left: one more death sets it aside."""
WIDER: Final = 3.0
"""The factor by which each death reduces the suspects that go at once: by default 27, 9, 3, and the last one alone."""
_ROUNDING: Final = 1e-9


@dataclass(eq=False)
class _Exclusive:
    """One that goes alone, or waits until everything else has left. `whole`: a run, whose own attempts may come in."""

    run: str
    whole: bool
    granted: bool = False


class IsolationGate:
    """What one process has in flight: attempts, and runs that were claimed and have recorded no progress yet.

    Every `enter` or `wait_to_enter` of an attempt is followed by one `exit`, every `enter_run` by one or more
    `exit_run`.
    `chances` says how many more deaths set it aside, and is 0 where no process died with it.
    """

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()
        self._runs: dict[str, int] = {}
        self._suspects: Counter[int] = Counter()  # inside, by the chances that are left
        self.alone: list[_Exclusive] = []  # what goes alone, or waits to
        self._changes: list[asyncio.Future[None]] = []
        self.waiting: Final[set[str]] = set()
        """The claimed runs that wait to begin."""
        self._closed = False

    def enter(self, run: str = "") -> None:
        """Begin an attempt at once: it is no suspect, and nothing goes alone."""
        assert not self.alone
        self._inside[run] += 1

    async def wait_to_enter(self, run: str = "", *, chances: int = 0) -> None:
        """Begin an attempt when nothing is alone in the process, and a suspect when there is room for it."""
        while self._blocked(run):
            await self._change()
        if chances:
            self.exit_run(run)  # from here on the attempt is what is suspected: two runs would wait for each other
        if chances == ALONE:
            await self._until_alone(_Exclusive(run, whole=False))
        while chances > ALONE and (self._blocked(run) or not self._fits(chances)):
            await self._change()
        self._count(run, chances)

    def exit(self, run: str = "", *, chances: int = 0) -> None:
        """The attempt has ended, or its driver gave up on it."""
        self._less(run, chances)
        if chances == ALONE:
            self.alone.remove(next(one for one in self.alone if one.run == run and not one.whole))
        self._wake()

    async def enter_run(self, run: str, *, chances: int = 0) -> bool:
        """Begin to drive a claimed run, as `wait_to_enter` does; false where the process shuts down meanwhile."""
        self.waiting.add(run)
        try:
            while (self._blocked(run) or not self._fits(chances)) and not self._closed:
                await self._change()
            if chances == ALONE and not self._closed:
                await self._until_alone(_Exclusive(run, whole=True))
        finally:
            self.waiting.discard(run)
        if self._closed:
            self.alone = [one for one in self.alone if one.run != run]
            return False
        self._runs[run] = chances
        self._count(run, chances)
        return True

    def exit_run(self, run: str) -> None:
        """The run has recorded progress, waits, or has ended: a death from here on is not held against its claim."""
        if run in self._runs:
            self.alone = [one for one in self.alone if not (one.whole and one.run == run)]
            self._less(run, self._runs.pop(run))
            self._wake()

    def close(self) -> None:
        """The process shuts down: no run begins any more."""
        self._closed = True
        self._wake()

    def _blocked(self, run: str) -> bool:
        """Whether it has to wait. What is inside goes on until the place is really free: others wait for its end."""
        for one in self.alone:
            if one.run == run and one.whole:
                continue
            if one.granted or one.run == run or not self._inside[run]:
                return True
        return False

    async def _until_alone(self, one: _Exclusive) -> None:
        self.alone.append(one)
        try:
            while not self._closed and (+self._inside or any(other.granted for other in self.alone)):
                await self._change()
        except BaseException:
            self.alone.remove(one)
            self._wake()
            raise
        one.granted = True

    def _fits(self, chances: int) -> bool:
        """Whether a suspect with so many chances has room beside the others: together they fill the process once.

        One on its last chance fills it, one with two chances a third of it, and so on.
        """
        if chances <= ALONE:
            return True
        filled = sum(number * _share(left) for left, number in self._suspects.items())
        return filled + _share(chances) <= 1 + _ROUNDING

    def _count(self, run: str, chances: int) -> None:
        self._inside[run] += 1
        if chances:
            self._suspects[chances] += 1

    def _less(self, run: str, chances: int) -> None:
        if chances:
            self._suspects[chances] -= 1
        self._inside[run] -= 1
        if not self._inside[run]:
            del self._inside[run]

    async def _change(self) -> None:
        change = asyncio.get_running_loop().create_future()
        self._changes.append(change)
        await change

    def _wake(self) -> None:
        changes, self._changes = self._changes, []
        for change in changes:
            if not change.done():
                change.set_result(None)


def _share(chances: int) -> float:
    return WIDER ** (ALONE - chances)


def chances_of(operation: OperationState, deaths_allowed: int) -> int:
    """How many more deaths set the operation aside; 0 where no process died during an attempt of it."""
    return max(deaths_allowed - operation.deaths, 0) if operation.deaths else 0
