"""How much waits for people: counted from the listing, and believed for some seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.model.policy import Queue
from holdfast.model.system import is_system
from holdfast.model.waits import PEOPLE

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

_PAGE: Final = 1000
_HOUR_MS: Final = 3_600_000
BELIEVED_MS: Final = 10_000
"""How long a count is used: people answer in minutes, and counting reads every resting run."""


class _Wait(msgspec.Struct, frozen=True):
    """The one field of a wait in the listing that counts here."""

    kind: str


class Crowd:
    """What waits for people in this journal, as this process knows it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = Queue()
        self._counted_ms: int | None = None

    async def queue(self, now_ms: int) -> Queue:
        """How many things wait for people, in runs that rest, and since when the oldest of them does."""
        if self._counted_ms is None or not 0 <= now_ms - self._counted_ms < BELIEVED_MS:
            self._known, self._counted_ms = await self._count(now_ms), now_ms
        return self._known

    async def _count(self, now_ms: int) -> Queue:
        depth, oldest, after = 0, now_ms, ""
        while rows := await self._engine.journal.runs(status="suspended", limit=_PAGE, after=after):
            for row in rows:
                waits = [] if is_system(row.agent) else msgspec.json.decode(row.waits, type=list[_Wait])
                asked = sum(one.kind in PEOPLE for one in waits)
                depth += asked
                oldest = min(oldest, row.updated_ms) if asked else oldest
            after = rows[-1].run
        return Queue(depth, (now_ms - oldest) / _HOUR_MS)
