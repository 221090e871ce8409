"""Narrows suspicion after a death, so that it can be attributed to the operation or run that caused it.

When a process dies, every attempt that was in flight in it looks like the one that killed it, and so does every run
that it drove. All of them are suspects, and each further death lets fewer suspects run at once: the harmless ones
end in ever smaller groups, and few deaths are counted against them. A suspected run stays one until it ends or waits,
because it may kill each process after it has recorded a step. One more death sets an operation or a run on its last
chance aside; it therefore runs alone, and nothing else is counted with it. Suspects do not delay attempts and runs that
no process died with, except a suspect on its last chance.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from beforehand.engine.tool_protocol import wake
from beforehand.model.operation import OperationState

ALONE: Final = 1
"""Chances left: one more death sets it aside."""
WIDER: Final = 3.0
"""Factor by which each death reduces the suspects that run at once: by default 27, 9, 3, and the last one alone."""
_ROUNDING: Final = 1e-9


@dataclass(eq=False)
class _Exclusive:
    """A suspect that runs alone, or waits until all others have ended. `whole`: a run, whose own attempts may enter."""

    run: str
    whole: bool
    granted: bool = False


class IsolationGate:
    """The attempts in flight of one process, its claimed runs without progress, and suspected runs until they wait.

    Every `enter` or `wait_to_enter` of an attempt is followed by one `exit`, every `enter_run` by one or more
    `exit_run`.
    `chances` says how many more deaths set it aside, and is 0 where no process died with it.
    """

    def __init__(self) -> None:
        self._inside: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        self._suspects: Counter[int] = Counter()  # in flight, by the chances that are left
        self.alone: list[_Exclusive] = []  # suspects that run alone, or wait to
        self._changes: list[asyncio.Future[None]] = []
        self.waiting: Final[set[str]] = set()
        """The claimed runs that wait to begin."""
        self.end_lost_runs: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Ends the code of lost runs: it would run beside one that runs alone. Set by the engine."""
        self.closed = False

    def enter(self, run: str = "") -> None:
        """Begin an attempt at once: it is not a suspect, and nothing runs alone."""
        assert not self.alone
        self._inside[run] = self._inside.get(run, 0) + 1

    async def wait_to_enter(self, run: str = "", *, chances: int = 0) -> int:
        """Begin an attempt when nothing runs alone in the process, and a suspect when there is room for it.

        Returns the chances to pass to `exit`: 0 for an attempt that takes no more room than its run, itself a suspect,
        and uses that room. While it waited, each death of the process would count against the run.
        """
        while self._blocked(run):
            await self._change()
        held = self._runs.get(run, 0)
        if chances > ALONE and 0 < held <= chances:
            chances = 0
        elif chances and held != ALONE:
            self.exit_run(run)  # from here on the attempt is the suspect: two runs would wait for each other
        if chances == ALONE:
            await self._until_alone(_Exclusive(run, whole=False))
        while chances > ALONE and (self._blocked(run) or not self._fits(chances)):
            await self._change()
        self._count(run, chances)
        return chances

    def exit(self, run: str = "", *, chances: int = 0) -> None:
        """Note that the attempt has ended, or that its driver gave it up."""
        if chances == ALONE:
            self.alone.remove(next(one for one in self.alone if one.run == run and not one.whole))
        self._left(run, chances)

    async def enter_run(self, run: str, *, chances: int = 0) -> bool:
        """Begin to drive a claimed run, as `wait_to_enter` does; false where the process shuts down meanwhile."""
        self.waiting.add(run)
        try:
            while (self._blocked(run) or not self._fits(chances)) and not self.closed:
                await self._change()
            if chances == ALONE and not self.closed:
                await self._until_alone(_Exclusive(run, whole=True))
        finally:
            self.waiting.discard(run)
        if self.closed:
            self.alone = [one for one in self.alone if one.run != run]
            return False
        self._runs[run] = chances
        self._count(run, chances)
        return True

    def suspects(self, run: str) -> bool:
        """True if the run may have killed a process, and has neither ended nor waited since it was claimed."""
        return self._runs.get(run, 0) > 0

    def on_last_chance(self, run: str) -> bool:
        """True if one more death sets the run aside."""
        return self._runs.get(run, 0) == ALONE

    def exit_run(self, run: str) -> None:
        """Note that the run waits or has ended, or made progress and is no suspect: it takes no room any more."""
        if run in self._runs:
            self.alone = [one for one in self.alone if not (one.whole and one.run == run)]
            self._left(run, self._runs.pop(run))

    def close(self) -> None:
        """Let no further run begin: the process shuts down."""
        self.closed = True
        self._wake()

    def _blocked(self, run: str) -> bool:
        """True if it has to wait. Runs already inside go on until an exclusive one begins: it waits for their end."""
        for one in self.alone:
            other = one.run != run or not one.whole
            if other and (one.granted or one.run == run or run not in self._inside):
                return True
        return False

    async def _until_alone(self, one: _Exclusive) -> None:
        self.alone.append(one)
        try:
            while not self.closed and not self._is_alone(one.run):
                await self._change()
            one.granted = True
            if self.end_lost_runs is not None:
                await self.end_lost_runs()
        except BaseException:
            self.alone.remove(one)
            self._wake()
            raise

    def _is_alone(self, run: str) -> bool:
        """True if nothing else is inside. A run that is alone makes its own attempts."""
        whole = [one for one in self.alone if one.whole and one.granted and one.run == run]
        return sum(self._inside.values()) == len(whole) and [one for one in self.alone if one.granted] == whole

    def _fits(self, chances: int) -> bool:
        """True if a suspect with so many chances fits beside the others: together they fill the process once.

        One on its last chance fills it, one with two chances a third of it, and so on.
        """
        if chances <= ALONE:
            return True
        filled = sum(number * _share(left) for left, number in self._suspects.items())
        return filled + _share(chances) <= 1 + _ROUNDING

    def _count(self, run: str, chances: int) -> None:
        self._inside[run] = self._inside.get(run, 0) + 1
        if chances:
            self._suspects[chances] += 1

    def _left(self, run: str, chances: int) -> None:
        """Count an attempt or run less, and wake the waiters if its end can let one of them begin.

        They wait for a suspect, for one that runs alone, or for all others to have ended. Any other end concerns none:
        if each woke all of them, a thousand ends and a thousand waiters would make a million checks.
        """
        if chances:
            self._suspects[chances] -= 1
        self._inside[run] -= 1
        if not self._inside[run]:
            del self._inside[run]
        if chances or not self._inside:
            self._wake()

    async def _change(self) -> None:
        change = asyncio.get_running_loop().create_future()
        self._changes.append(change)
        await change

    def _wake(self) -> None:
        changes, self._changes = self._changes, []
        for change in changes:
            wake(change)


def _share(chances: int) -> float:
    return WIDER ** (ALONE - chances)


def chances_of(operation: OperationState, deaths_allowed: int) -> int:
    """How many more deaths set the operation aside; 0 where no process died during an attempt of it."""
    return max(deaths_allowed - operation.deaths, 0) if operation.deaths else 0
