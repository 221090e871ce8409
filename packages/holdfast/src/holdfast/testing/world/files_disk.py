"""The journal on real SQLite files as one simulated process sees it: the product's journal, with fault points."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from sqlite3 import SQLITE_FULL, SQLITE_IOERR_FSYNC

from holdfast.errors import JournalUnavailable
from holdfast.journal.port import (
    AgentKey,
    Busy,
    Fate,
    Identity,
    Instant,
    Lease,
    LeaseGranted,
    LedgerEntry,
    NewRun,
    Post,
    Row,
    RunRow,
    RunStatus,
    RunWaits,
    StatusFilter,
    Trust,
    Worker,
    WorkerState,
    Write,
)
from holdfast.journal.sqlite.journal import SqliteJournal
from holdfast.model.heads import Head
from holdfast.testing.world.files import Afterwards, Files
from holdfast.testing.world.loop import Actor, Died


class SqliteDisk:
    """The journal port of one process: the product's journal, with fault points around it."""

    def __init__(self, files: Files, actor: Actor, *, contained: bool) -> None:
        self._files = files
        self._world = files.world
        self._actor = actor
        self._contained = contained
        self.workers: list[str] = []
        self.broken = False
        self._boot = files.world.boot
        self._made: list[Afterwards] = []
        self._journal = SqliteJournal(files.path, parts=files.parts(files.here(self.sees), self._strain, self._made))

    def sees(self, worker: Worker) -> Fate:
        """The fate of a process, as far as it can be seen from here."""
        if worker.id not in self.workers and self._world.hidden(worker.id, self._contained):
            return "unknown"
        return "dead" if worker.id in self._files.dead else "alive"

    def die(self) -> None:
        """Kill its process: no queued write is committed any more."""
        for one in self._made:
            one.abandon()

    async def open(self) -> Identity:
        """See `Journal.open`."""
        self._begin("open")
        return await self._journal.open()

    async def close(self) -> None:
        """See `Journal.close`."""
        if self._actor.alive:
            await self._journal.close()
            self._files.observe()

    async def confirm(self, trust: Trust, by: str) -> Identity:
        """See `Journal.confirm`."""
        self._begin("confirm")
        return await self._journal.confirm(trust, by)

    def now(self) -> Instant:
        """See `Journal.now`."""
        if not self._actor.alive:
            raise Died
        return Instant(self._boot, self._world.now_ms())

    async def beat(self, worker: Worker, lease_ms: int) -> None:
        """See `Journal.beat`."""
        self._begin("beat")
        if worker.id not in self.workers:
            self.workers.append(worker.id)
            self._world.contained[worker.id] = self._contained
        await self._journal.beat(worker, lease_ms)

    async def fate(self, worker: str) -> WorkerState:
        """See `Journal.fate`."""
        self._begin("fate")
        return await self._journal.fate(worker)

    async def claim(self, run: str, worker: str, new: NewRun | None = None) -> LeaseGranted | Busy | None:
        """See `Journal.claim`."""
        self._begin("claim", writing=True)
        claimed = await self._journal.claim(run, worker, new)
        await self._end("claim")
        return claimed

    async def append(self, write: Write) -> None:
        """See `Journal.append`."""
        self._begin("append", writing=True)
        await self._journal.append(write)
        self._world.acknowledged(write)
        await self._end("append")

    def ride(self, write: Write) -> None:
        """See `Journal.ride`."""
        if not self._actor.alive:
            raise Died
        self._journal.ride(write)

    async def flush(self, lease: Lease) -> None:
        """See `Journal.flush`."""
        self._begin("flush", writing=True)
        await self._journal.flush(lease)
        await self._end("flush")

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """See `Journal.read`."""
        self._begin("read")
        return await self._journal.read(run, after, limit)

    async def runs(
        self,
        *,
        run: str | None = None,
        status: StatusFilter | None = None,
        wakeable: bool = False,
        limit: int = 1000,
        after: str = "",
        newest: bool = False,
    ) -> list[RunRow]:
        """See `Journal.runs`."""
        self._begin("runs")
        return await self._journal.runs(
            run=run, status=status, wakeable=wakeable, limit=limit, after=after, newest=newest
        )

    async def due(self, agents: Collection[AgentKey], limit: int, skip: Collection[str] = frozenset()) -> list[RunRow]:
        """See `Journal.due`."""
        self._begin("due")
        return await self._journal.due(agents, limit, skip)

    async def counts(self) -> dict[tuple[str, RunStatus], int]:
        """See `Journal.counts`."""
        self._begin("counts")
        return await self._journal.counts()

    async def waiting(self, status: StatusFilter) -> list[RunWaits]:
        """See `Journal.waiting`."""
        self._begin("waiting")
        return await self._journal.waiting(status)

    async def post(self, post: Post) -> LedgerEntry:
        """See `Journal.post`."""
        self._begin("post", writing=True)
        entry = await self._journal.post(post)
        await self._end("post")
        return entry

    async def post_all(self, posts: tuple[Post, ...]) -> list[LedgerEntry]:
        """See `Journal.post_all`."""
        self._begin("post_all", writing=True)
        entries = await self._journal.post_all(posts)
        await self._end("post_all")
        return entries

    async def entries(self, stream: str, after: int = 0) -> list[LedgerEntry]:
        """See `Journal.entries`."""
        self._begin("entries")
        return await self._journal.entries(stream, after)

    async def last_entry(self) -> int:
        """See `Journal.last_entry`."""
        self._begin("last_entry")
        return await self._journal.last_entry()

    async def head(self) -> Head:
        """See `Journal.head`."""
        self._begin("head")
        return await self._journal.head()

    async def hint(self, name: str) -> bytes | None:
        """See `Journal.hint`."""
        self._begin("hint")
        return await self._journal.hint(name)

    async def put_hint(self, name: str, body: bytes, previous: bytes | None) -> bool:
        """See `Journal.put_hint`."""
        self._begin("put_hint", writing=True)
        return await self._journal.put_hint(name, body, previous)

    def sidecar(self, suffix: str) -> None:
        """See `Journal.sidecar`: what lies beside this one is not simulated."""

    # --- inside ----------------------------------------------------------------------------------------------

    def _begin(self, call: str, *, writing: bool = False) -> None:
        """The call begins. Nothing waits before it: writes are queued in the order in which they are requested."""
        if not self._actor.alive:
            raise Died
        if writing:
            self._world.point(self._actor, f"before {call}")
        why = self._world.unreachable(self._actor, writing=False)
        if why:
            raise JournalUnavailable(f"{call}: {why}", next_step="wait until it is back")

    async def _end(self, call: str) -> None:
        """The write is durable; the process does not know yet."""
        self._files.observe()
        if self._world.point(self._actor, f"after {call}"):
            await asyncio.sleep(0)

    def _strain(self) -> int:
        if self.broken:
            return SQLITE_IOERR_FSYNC
        return SQLITE_FULL if self._world.now_ms() < self._world.full_until else 0
