"""Which attempts are in flight beside which.

When a process dies, every attempt that was in flight in it looks like the one that killed it. An operation on
its last chance therefore attempts alone: if the process dies of it once more, nobody else is counted with it, and
one that only happened to be there comes through.
"""

from __future__ import annotations

import asyncio

from holdfast.model.operation import OperationState


class Company:
    """The attempts of one process. Every `admit` (or `join`) is followed by one `leave`."""

    def __init__(self) -> None:
        self.reserved = False  # somebody attempts alone, or waits until everybody has left
        self._inside = 0
        self._waiting: list[asyncio.Future[None]] = []

    def join(self) -> None:
        """Go in at once: nobody wants to be alone."""
        assert not self.reserved
        self._inside += 1

    async def admit(self, *, alone: bool) -> None:
        """Go in when nobody is alone there; with `alone`, when everybody has left."""
        while self.reserved:
            await self._change()
        if alone:
            self.reserved = True
            try:
                while self._inside:
                    await self._change()
            except BaseException:
                self.reserved = False
                self._wake()
                raise
        self._inside += 1

    def leave(self, *, alone: bool) -> None:
        """The attempt has ended, or nobody waits for it any more."""
        self._inside -= 1
        if alone:
            self.reserved = False
        if self._waiting:
            self._wake()

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
