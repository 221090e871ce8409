"""The journal on real SQLite files: the product's own journal for each simulated process, over one file.

Statements, files, locks and group commits are real. Simulated are the clock, the thread behind a journal, who is
alive, and what SQLite reports while the disk is full or broken. A process that dies closes the file without a
last commit and without a checkpoint, as the kernel does after SIGKILL.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from sqlite3 import SQLITE_FULL, SQLITE_IOERR_FSYNC
from typing import Final, Protocol, TypeVar, cast

from beforehand.errors import JournalUnavailable
from beforehand.journal.host import HostFacts
from beforehand.journal.port import (
    Cell,
    CellKind,
    ClockReading,
    CommitRequest,
    Fate,
    Identity,
    Lease,
    LedgerEntry,
    Row,
    RunRow,
    Worker,
    WorkerState,
    Write,
)
from beforehand.journal.sqlite.batch import CommitItem, read_body
from beforehand.journal.sqlite.driver import DatabaseFailure, StandardDatabase, Value
from beforehand.journal.sqlite.group_commit import Committer
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import Actor
from beforehand.testing.world.disk import RIDE_S, FaultyJournal, Machine, subject

ANCHOR_S: Final = 1.0


class WorkingCopy(Machine, Protocol):
    """A machine whose disk is a copy of real files."""

    skew_ms: int
    full_until: int


class Files:
    """The file that all processes share, and a reader of its commits. `stored` receives what became durable."""

    def __init__(self, world: WorkingCopy, directory: Path, seed: int, stored: Callable[[Write], None]) -> None:
        self.world: Final = world
        self.path: Final = directory / "journal.db"
        self.dead: Final[set[str]] = set()
        self.commits_on_loop: Final = seed % 2 == 0
        self._chance: Final = random.Random(f"files/{seed}")  # noqa: S311 - not used for secrets
        self._stored = stored
        self._seen = 0
        self._made: list[Afterwards] = []
        parts = self.parts(self.here(lambda _: "unknown"), lambda: 0, self._made)
        self._journal: Final = SqliteJournal(self.path, namespace="simulated", parts=parts)
        self._reader: StandardDatabase | None = None
        self.identity = Identity("", b"", "")

    def parts(self, here: HostFacts, strain: Callable[[], int], made: list[Afterwards]) -> Parts:
        """The parts of one process's journal; the simulated thread behind it is added to `made`.

        `strain` is the code with which SQLite refuses to write, or zero.
        """

        def behind(committer: Committer, deliver: Callable[[list[CommitItem]], None]) -> Afterwards:
            made.append(Afterwards(committer, deliver, self.world))
            return made[-1]

        return Parts(
            commits="loop" if self.commits_on_loop else "thread",
            connect=lambda path, read_only: Strained(path, read_only, strain),
            here=here,
            entropy=lambda size: self._chance.randbytes(size).hex(),
            behind=behind,
        )

    def here(self, fate: Callable[[Worker], Fate]) -> HostFacts:
        """The simulated machine as seen by a process; `fate` is what it can see of other processes."""
        world = self.world
        return HostFacts(
            machine="m",
            boot=world.boot,
            uptime_ms=world.now_ms,
            wall_ms=lambda: EPOCH_MS + world.now_ms() + world.skew_ms,
            fate=fate,
        )

    async def open(self) -> Identity:
        """Create the file, and begin to read its commits."""
        self.identity = await self._journal.open()
        self._reader = StandardDatabase(self.path, read_only=True)
        return self.identity

    def observe(self) -> None:
        """Read what became durable since the last call, in the order of commits."""
        assert self._reader is not None, "open comes first"
        for number, row, run, seq, token, body, digest in self._reader.rows(_NEWER, (self._seen,)):
            assert isinstance(number, int)
            assert isinstance(row, int)
            assert isinstance(seq, int)
            assert isinstance(token, int)
            assert isinstance(body, bytes)
            assert isinstance(digest, bytes)
            self._seen = number
            self._stored(
                Write(Lease(str(run), row, token, ""), (Row(seq, read_body(self._reader, body), digest, token),))
            )

    async def runs(self, *, limit: int = 1000) -> list[RunRow]:
        """The listing."""
        return await self._journal.runs(limit=limit)

    async def read(self, run: str, *, limit: int = 1000) -> list[Row]:
        """The records of one run."""
        self.observe()
        return await self._journal.read(run, limit=limit)

    async def entries(self, stream: str) -> list[LedgerEntry]:
        """The entries of one stream of the ledger."""
        return await self._journal.entries(stream)

    async def cells(self, kind: CellKind, names: Collection[str] | None = None) -> list[Cell]:
        """The cells of a kind, after all commits that were observed."""
        self.observe()
        return await self._journal.cells(kind, names)

    def kill(self, worker: str) -> None:
        """Mark that process as dead; any process that can see it can prove it."""
        self.dead.add(worker)

    def everything(self) -> list[bytes]:
        """All durable data, as bytes: two equal simulations must agree on it."""
        assert self._reader is not None, "open comes first"
        found = self._reader.rows("select cast(body as blob), hash from record order by id")
        found += self._reader.rows("select cast(body as blob), hash from ledger order by id")
        return [bytes(part) for row in found for part in row if isinstance(part, bytes)]

    def close(self) -> None:
        """Stop reading commits."""
        if self._reader is not None:
            self._reader.close()
        for one in self._made:
            one.abandon()


T = TypeVar("T")
_NEWER: Final = (
    "select record.id, run.id, run.name, record.seq, record.token, cast(record.body as blob), record.hash"
    " from record join run on run.id = record.run where record.id > ? order by record.id"
)


class Strained:
    """A connection whose writes fail while the disk is full or broken."""

    def __init__(self, path: Path, read_only: bool, strain: Callable[[], int]) -> None:
        self._real = StandardDatabase(path, read_only)
        self._strain = strain

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        """See `Database.rows`. A transaction fails at its end, when its pages go to the disk."""
        if sql == "commit":
            self._suffer()
        return self._real.rows(sql, values)

    def change(self, sql: str, values: Sequence[Value] = ()) -> int:
        if not self.in_transaction:
            self._suffer()
        return self._real.change(sql, values)

    def close(self) -> None:
        self._real.close()

    def _suffer(self) -> None:
        code = self._strain()
        if code:
            raise DatabaseFailure(code, "the simulated disk refuses")


class Afterwards:
    """Replaces the thread behind a journal: the same duties, as timers of the simulated loop."""

    def __init__(self, committer: Committer, deliver: Callable[[list[CommitItem]], None], world: WorkingCopy) -> None:
        self._committer = committer
        self._deliver = deliver
        self._world = world
        self._watching = False
        self._anchor_due = 0.0

    def start(self) -> None:
        """Timers need no start."""

    def stop(self) -> None:
        """Commit what is queued."""
        self._commit()

    def commit_soon(self) -> None:
        """Commit the queue after the time that the disk takes."""
        first = next((item.write for item in self._committer.queue if item.write is not None), "")
        asyncio.get_running_loop().call_later(self._world.disk_s(subject(first)), self._commit)

    def watch_rides(self) -> None:
        """Commit riding writes soon, unless another commit takes them first."""
        if not self._watching:
            self._watching = True
            asyncio.get_running_loop().call_later(RIDE_S, self._ridden)

    def keep_house(self) -> None:
        """Renew the anchor, about once a second, and checkpoint far more often than needed."""
        store, now = self._committer.store, asyncio.get_running_loop().time()
        if store.anchor_is_old and now >= self._anchor_due:
            self._anchor_due = now + ANCHOR_S
            with self._committer.mutex:
                store.checkpoint()
                store.save_anchor()

    def abandon(self) -> None:
        """Its process is dead: lose what is queued, and close the handles as they are."""
        self._committer.queue.clear()
        store = self._committer.store
        store.failure = JournalUnavailable("its process is dead")
        store.close()

    def _ridden(self) -> None:
        self._watching = False
        self._commit()

    def _commit(self) -> None:
        items = self._committer.commit_patiently()
        if items:
            self._deliver(items)
        self.keep_house()


# --- the journal as one simulated process sees it, with fault points -------------------------------------------------


class SqliteDisk(FaultyJournal):
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

    @property
    def _stored(self) -> SqliteJournal:
        return self._journal

    def die(self) -> None:
        """Kill its process: no queued write is committed any more."""
        for one in self._made:
            one.abandon()

    async def close(self) -> None:
        if self._actor.alive:
            await self._journal.close()
            self._files.observe()

    def clock(self) -> ClockReading:
        self._alive()
        return self._journal.clock()

    async def beat(self, worker: Worker, lease_ms: int) -> None:
        await self._reach("beat")
        if worker.id not in self.workers:
            self.workers.append(worker.id)
            self._world.contained[worker.id] = self._contained
        await self._journal.beat(worker, lease_ms)

    async def fate(self, worker: str) -> WorkerState:
        await self._reach("fate")
        return await self._journal.fate(worker)

    async def commit(self, request: CommitRequest[T]) -> T:
        if not isinstance(request, Write):
            return await super().commit(request)
        about = subject(request)
        await self._reach("append", about, writing=True)
        await self._journal.commit(request)
        self._world.acknowledged(request)
        await self._committed_point("append", about)
        return cast("T", None)

    def ride(self, write: Write) -> None:
        self._alive()
        self._journal.ride(write)

    async def flush(self, lease: Lease) -> None:
        await self._reach("flush", lease.run, writing=True)
        await self._journal.flush(lease)
        await self._committed_point("flush", lease.run)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _reach(self, call: str, about: str = "", *, writing: bool = False) -> None:
        """The call begins. Nothing waits before it: writes are queued in the order in which they are requested."""
        self._alive()
        if writing:
            self._world.point(self._actor, f"before {call}", about)
        why = self._world.unreachable(self._actor, writing=False)
        if why:
            raise JournalUnavailable(f"{call}: {why}", next_step="wait until it is back")

    async def _committed_point(self, call: str, about: str) -> None:
        self._files.observe()
        if self._world.point(self._actor, f"after {call}", about):
            await asyncio.sleep(0)

    def _strain(self) -> int:
        if self.broken:
            return SQLITE_IOERR_FSYNC
        return SQLITE_FULL if self._world.now_ms() < self._world.full_until else 0
