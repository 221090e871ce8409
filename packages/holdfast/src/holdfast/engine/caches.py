"""A process's caches of the journal, so that a step need not read it: the pending index, and the inbox depth."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.journal.entry_codec import readable, written
from holdfast.journal.port import Journal, Post
from holdfast.model.ids import parts_of
from holdfast.model.pending import WAYS, ways_stream
from holdfast.model.policy import Queue
from holdfast.model.system import is_system
from holdfast.model.waits import PEOPLE

_PAGE: Final = 1000
_HOUR_MS: Final = 3_600_000
CACHED_MS: Final = 10_000
"""How long a count is used: people answer in minutes, and counting reads every suspended run."""


class PendingParameters(msgspec.Struct, frozen=True):
    """The parameters that name a thing."""

    names: tuple[str, ...]


class PendingIndex:
    """The sets of parameters known here. They are only ever added. A process looks for new ones every `poll_ms`."""

    def __init__(self) -> None:
        self.known: Final[dict[str, list[tuple[str, ...]]]] = {}  # by tool; without one, nothing was ever pending
        self._seen = 0

    def of(self, tool: str) -> tuple[tuple[str, ...], ...]:
        """The parameter sets of one tool."""
        return tuple(self.known.get(tool, ()))

    async def refresh(self, journal: Journal) -> None:
        """Read the parameter sets that other processes have added.

        All of them are read, since they are few and have an index; the ledger beyond a given entry may be long.
        """
        new = [entry for entry in await journal.entries(WAYS) if entry.id > self._seen]
        for entry, way in await readable(journal, new, PendingParameters):
            self._take(parts_of(entry.stream)[1], way.names)
        self._seen = max([self._seen, *(entry.id for entry in new)])

    async def add(self, journal: Journal, tool: str, names: tuple[str, ...]) -> None:
        """Add a parameter set, durable on return."""
        if names not in self.known.get(tool, ()):
            body = written(PendingParameters(names))
            await journal.post(Post(ways_stream(tool), body.decode(), body))
            self._take(tool, names)

    def _take(self, tool: str, names: tuple[str, ...]) -> None:
        ways = self.known.setdefault(tool, [])
        if names not in ways:
            ways.append(names)


class _Wait(msgspec.Struct, frozen=True):
    """The one field of a listed wait that is needed here."""

    kind: str


class InboxDepth:
    """Number of open inbox items, cached for a few seconds."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known = Queue()
        self._counted_ms: int | None = None

    async def queue(self, now_ms: int) -> Queue:
        """The number of items that wait for people in suspended runs, and since when the oldest does."""
        if self._counted_ms is None or not 0 <= now_ms - self._counted_ms < CACHED_MS:
            self._known, self._counted_ms = await self._count(now_ms), now_ms
        return self._known

    async def _count(self, now_ms: int) -> Queue:
        depth, oldest, after = 0, now_ms, ""
        while rows := await self._journal.runs(status="suspended", limit=_PAGE, after=after):
            for row in rows:
                waits = [] if is_system(row.agent) else msgspec.json.decode(row.waits, type=list[_Wait])
                asked = sum(one.kind in PEOPLE for one in waits)
                depth += asked
                oldest = min(oldest, row.updated_ms) if asked else oldest
            after = rows[-1].run
        return Queue(depth, (now_ms - oldest) / _HOUR_MS)
