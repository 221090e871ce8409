"""The journal on SQLite: the port's methods, each a line or two over the parts below."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from beforehand.errors import JournalUnavailable
from beforehand.journal.fork_safety import belongs_here
from beforehand.journal.host import JournalClock
from beforehand.journal.port import (
    ClockReading,
    CommitRequest,
    Identity,
    Lease,
    TakeRequest,
    Trust,
    Worker,
    Write,
)
from beforehand.journal.sqlite import anchor as anchor_file
from beforehand.journal.sqlite.driver import Database, DatabaseFailure
from beforehand.journal.sqlite.facts import Tables, perform
from beforehand.journal.sqlite.failures import explain, inherited
from beforehand.journal.sqlite.group_commit import CommitPace, Committer, GroupCommit
from beforehand.journal.sqlite.journal_file import JournalFile
from beforehand.journal.sqlite.opening import FileSettings, Mode, Parts
from beforehand.journal.sqlite.queues import QueueTables
from beforehand.journal.sqlite.reads import SqliteReads
from beforehand.journal.sqlite.runs import RunTables
from beforehand.model.heads import Head

T = TypeVar("T")


class SqliteJournal(SqliteReads):
    """A journal in one SQLite file, which any number of processes on one machine may share.

    `mode` is "wal", "rollback" or "auto", which keeps the mode of an existing file and creates a new file in WAL mode.
    `anchor` is the path of the anchor, by default beside the file. `namespace` is that of a new journal, by default a
    generated one. `clock` replaces the machine's clock, for example in tests. `parts` are for tests and other drivers.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode = "auto",
        anchor: str | os.PathLike[str] | None = None,
        namespace: str | None = None,
        allow_network_filesystem: bool = False,
        clock: JournalClock | None = None,
        parts: Parts | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        place = Path(anchor).absolute() if anchor else anchor_file.beside(self.path)
        parts = parts or Parts()
        if clock is not None:
            here = replace(parts.here, boot=clock.boot, uptime_ms=clock.uptime_ms, wall_ms=clock.wall_ms)
            parts = replace(parts, here=here)
        settings = FileSettings(self.path, place, mode, allow_network_filesystem, namespace, parts)
        self._behind = parts.behind
        self._held = clock.held if clock else None
        self._roll = RunTables(parts.here, lambda: self._store.identity.incarnation)
        self._slots = QueueTables(self._roll)
        self._store = JournalFile(settings, partial(perform, Tables(self._roll, self._slots)))
        self._committer = Committer(self._store, CommitPace(parts.commits))
        self._group: GroupCommit | None = None
        self._inherited = False

    async def open(self) -> Identity:
        if self._inherited:
            raise inherited(self.path)
        if self._group is not None:
            return self._store.identity
        identity = await asyncio.to_thread(self._store.open)
        self._group = GroupCommit(self._committer, self._behind, self._held)
        belongs_here(self)
        return identity

    async def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            await group.stop()
            await asyncio.to_thread(self._store.close)

    async def confirm(self, trust: Trust, by: str) -> Identity:
        await self._running.settle_queue()
        return await asyncio.to_thread(self._confirm, trust, by)

    async def beat(self, worker: Worker, lease_ms: int) -> None:
        await self._running.run(lambda database: self._roll.beat(database, worker, lease_ms))

    def clock(self) -> ClockReading:
        here = self._roll.here
        return ClockReading(here.boot, up := here.uptime_ms(), up, here.wall_ms())

    async def commit(self, request: CommitRequest[T]) -> T:
        group = self._group
        if group is None:
            raise self._not_open()
        answer: Any = None
        if type(request) is Write:
            waiting = group.append(request)
            if waiting is not None:
                try:
                    await waiting
                except asyncio.CancelledError:
                    group.left(request, waiting)
                    raise
        elif type(request) is TakeRequest and not self._read(partial(self._slots.wants, request=request)):
            answer = []
        else:
            answer = await group.decide(request)
        return answer  # type: ignore[no-any-return]  # of the kind that the request names; `cast` would be a call more

    def ride(self, write: Write) -> None:
        self._running.ride(write)

    async def flush(self, lease: Lease) -> None:
        await self._running.flush(lease)

    async def changed(self, pause: Callable[[], Awaitable[None]]) -> bool | None:
        await pause()
        mutex = self._committer.mutex
        if self._group is None or not mutex.acquire(blocking=False):
            return None
        try:
            return self._store.changed()
        finally:
            mutex.release()

    async def head(self) -> Head:
        return self._read(lambda _: self._store.head())

    def disown(self) -> None:
        """In a forked child: every use raises. The thread behind it and its loop are the parent's."""
        self._inherited, self._group = True, None
        self._store.disown()

    @property
    def _running(self) -> GroupCommit:
        if self._group is None:
            raise self._not_open()
        return self._group

    def _read(self, query: Callable[[Database], T]) -> T:
        """Read on the calling thread: reading never waits for writers."""
        try:
            return query(self._store.reader)
        except DatabaseFailure as failure:
            raise explain(failure, self.path) from failure

    def _confirm(self, trust: Trust, by: str) -> Identity:
        with self._committer.mutex:
            return self._store.confirm(trust, by)

    def _not_open(self) -> JournalUnavailable:
        if self._inherited:
            return inherited(self.path)
        return JournalUnavailable(f"{self.path} is not open", next_step="open the journal first")
