"""The order in which code is told things: every delivery of a run has a number, and the lowest one left is next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.engine.tool_protocol import wake


class DeliveryOrder:
    """Whose turn it is. `at` is the number of the delivery that comes next; `over` are those that nobody takes."""

    def __init__(self, over: Iterable[int]) -> None:
        self.at = 0
        self._over = set(over)
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._skip()

    def before(self, index: int) -> list[asyncio.Future[None]]:
        """Those who wait until everything that was delivered before this one is taken."""
        return self._waiting.setdefault(index, [])

    def take(self, index: int) -> None:
        """Code is told this one now, or nobody ever will be: whose turn comes by that is told."""
        if self._over or index != self.at:
            self._over.add(index)
            self._skip()
        else:
            self.at += 1
        if self._waiting and (waiting := self._waiting.pop(self.at, None)):
            wake_all(waiting)

    def _skip(self) -> None:
        while self.at in self._over:
            self._over.discard(self.at)
            self.at += 1


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Let everybody go on who waits here."""
    for waiter in waiters:
        wake(waiter)
    waiters.clear()
