"""Time limits of what is waited for, on one timer of the event loop.

Nearly every limit is lifted long before it is over, so a timer of its own for each would be made and
cancelled for nothing. The one timer stands at the earliest limit that was known when it was set.
"""

from __future__ import annotations

import asyncio


class Limits:
    """The limits of one engine, by what each of them ends."""

    def __init__(self) -> None:
        self._due: dict[asyncio.Future[None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, over: asyncio.Future[None], seconds: float) -> None:
        """Wait for `over`; after `seconds` it is done by us."""
        loop = over.get_loop()
        due = self._due[over] = loop.time() + seconds
        if self._timer is None or due < self._timer.when():
            self._set_timer(loop, due)
        try:
            await over
        finally:
            del self._due[over]

    def _set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """End what is over by now, and set the timer for what is left."""
        self._timer = None
        until = max(until, loop.time())
        for over, due in self._due.items():
            if due <= until and not over.done():
                over.set_result(None)
        left = [due for due in self._due.values() if due > until]
        if left:
            self._set_timer(loop, min(left))
