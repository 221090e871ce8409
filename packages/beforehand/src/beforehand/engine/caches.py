"""A process's caches of the journal: the pending index, the inbox depth, and the histories of runs read lately."""

from __future__ import annotations

from typing import Final

import msgspec

from beforehand.errors import ChainBroken
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import Journal, JournalReads, Post, Row
from beforehand.journal.record_codec import decode_all
from beforehand.model.ids import parts_of
from beforehand.model.pending import WAYS, ways_stream
from beforehand.model.policy import Queue
from beforehand.model.run_history import RunHistory
from beforehand.model.system import is_system
from beforehand.model.waits import PEOPLE

_PAGE: Final = 1000
_HOUR_MS: Final = 3_600_000
CACHED_MS: Final = 10_000
"""How long a count is used: people answer in minutes, and counting reads every suspended run."""


class PendingParameters(msgspec.Struct, frozen=True):
    """The parameters that name a thing."""

    names: tuple[str, ...]


class PendingIndex:
    """The sets of parameters known here. They are only ever added; a look at the ledger finds new ones."""

    def __init__(self) -> None:
        self.known: Final[dict[str, list[tuple[str, ...]]]] = {}  # by tool; without one, nothing was ever pending
        self._seen = 0

    def of(self, tool: str) -> tuple[tuple[str, ...], ...]:
        """The parameter sets of one tool."""
        return tuple(self.known.get(tool, ()))

    async def refresh(self, journal: JournalReads) -> None:
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
            await journal.commit(Post(ways_stream(tool), body.decode(), body))
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


# --- histories of runs ----------------------------------------------------------------------------------------------

WORTH_KEEPING: Final = 100
"""How many records a history has that is kept: a shorter one is read as quickly as it is copied."""
KEPT_BYTES: Final = 16 * 1024 * 1024
"""Stored size of the records whose histories are kept, all runs together."""


class StoredHistory:
    """The history of a run, folded from its stored records, with the head of the chain that these make."""

    def __init__(self, history: RunHistory, namespace: str) -> None:
        from beforehand.journal.run_log import genesis  # noqa: PLC0415 - as in `read_on`

        self.history: Final = history
        self.head = genesis(namespace, history.run)
        self.size = 0

    async def read_on(self, journal: Journal) -> None:
        """Add the records that follow, page by page, so that memory holds no more than the fold.

        Raises `ChainBroken` where records were changed or taken out: what is not on record is done again. A run is
        stored together with its first records, so one without any has lost them.
        """
        from beforehand.journal.run_log import verify_chain  # noqa: PLC0415 - `beforehand why` imports no asyncio

        history = self.history
        while rows := await journal.read(history.run, history.records, _PAGE):
            bad = verify_chain(rows, self.head, history.records + 1)
            if bad is not None:
                raise ChainBroken(
                    f"run {history.run}: record {bad} was changed, removed or moved after it was written",
                    known="nothing was sent for this run",
                    next_step="keep a copy of the file, compare it with a backup, and check it: beforehand verify",
                )
            bodies = [row.body for row in rows]
            history.add_all(decode_all(bodies))
            self.head = rows[-1].hash
            self.size += sum(map(len, bodies))
            if len(rows) < _PAGE:
                break
        if not history.records:
            raise ChainBroken(
                f"run {history.run}: its records are missing",
                known="a run is stored together with its first records, so they were removed; nothing was sent for it",
                next_step="keep a copy of the file, compare it with a backup, and check it: beforehand verify",
            )


class RecentHistories:
    """Histories of runs that were read lately, so that reading one again decodes only what was appended since.

    A reader gets a copy. The chain is verified from its start, once, and continued with each new record.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal: Final = journal
        self._kept: Final[dict[str, StoredHistory]] = {}  # the one read last at the end

    async def read(self, run: str, namespace: str, last: Row | None = None) -> RunHistory:
        """The history of a run. Raises `ChainBroken`.

        `last` is its newest record, where the caller has its lease: a history that does not end there is read anew.
        """
        # Taken out while it is read on: a second reader reads all records, and an error leaves no half of one here.
        kept = self._kept.pop(run, None)
        if kept is not None:
            try:
                await kept.read_on(self._journal)
            except ChainBroken:  # the file is another one than before: only reading all of it tells
                kept = None
        if kept is None or (last is not None and (last.seq, last.hash) != (kept.history.records, kept.head)):
            kept = StoredHistory(RunHistory(run), namespace)
            await kept.read_on(self._journal)
        if kept.history.records < WORTH_KEEPING or kept.size > KEPT_BYTES:
            return kept.history
        self._kept[run] = kept
        while sum(one.size for one in self._kept.values()) > KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        return kept.history.copy()
