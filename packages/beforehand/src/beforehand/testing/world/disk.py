"""The journal as one simulated process sees it: a shared store behind a disk that can be slow, full or broken.

Riding writes are kept in the process until it commits, and are lost with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from beforehand.errors import JournalUnavailable
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import (
    EVERY_BODY,
    NO_USE,
    AgentKey,
    BodyFilter,
    BudgetUse,
    Busy,
    FoundRecord,
    Identity,
    Instant,
    Journal,
    LastFiring,
    Lease,
    LeaseGranted,
    LedgerEntry,
    LedgerNews,
    LimitUse,
    NewRun,
    Permit,
    PermitAnswer,
    PermitRequest,
    Post,
    QueueState,
    Row,
    RunRow,
    RunStatus,
    RunWaits,
    StatusFilter,
    TakeRequest,
    Trust,
    Worker,
    WorkerState,
    Write,
)
from beforehand.model.heads import Head
from beforehand.testing.loop import Actor, Died

RIDE_S: Final = 0.005


class Machine(Protocol):
    """The machine under simulated processes, with a fault at any point."""

    boot: str
    contained: dict[str, bool]

    def now_ms(self) -> int:
        """Milliseconds since the beginning."""
        ...

    def point(self, actor: Actor, label: str) -> bool:
        """A process reached a point. Returns true if it has to stop there, and raises `Died` if it dies."""
        ...

    def disk_s(self) -> float:
        """The duration of a write, in seconds."""
        ...

    def unreachable(self, actor: Actor, *, writing: bool) -> str:
        """The reason why the journal cannot be reached, or an empty text."""
        ...

    def hidden(self, worker: str, contained: bool) -> bool:
        """True if that process cannot be observed from here."""
        ...

    def acknowledged(self, write: Write) -> None:
        """Called when a process has been notified that this write is durable."""
        ...


class DiskSetup(Machine, Protocol):
    """A machine with one store for all processes."""

    @property
    def store(self) -> MemoryJournal:
        """The shared journal."""
        ...


class Backup(NamedTuple):
    """All that a journal holds at one moment, except which processes are alive."""

    runs: dict[str, tuple[RunRow, list[Row]]]
    ledger: list[LedgerEntry]
    hints: dict[str, bytes]
    uses: dict[tuple[str, str, str], BudgetUse]


class Store(MemoryJournal):
    """The shared journal. `stored` receives what became durable."""

    stored: Callable[[Write], None]

    def backup(self) -> Backup:
        """A copy, made while processes go on writing."""
        runs = {name: (run.listing, list(run.rows)) for name, run in self._runs.items()}
        return Backup(runs, list(self._ledger), dict(self._hints), dict(self._uses))

    def restore(self, backup: Backup) -> None:
        """Replace the content by a copy. The next process that opens it detects this, and no longer trusts it."""
        self._riding.clear()
        self._refused.clear()
        self._runs = {
            name: dataclasses.replace(self._runs[name], listing=listing, rows=list(rows))
            for name, (listing, rows) in backup.runs.items()
        }
        self._names = {run.listing.row: name for name, run in self._runs.items()}
        self._ledger = list(backup.ledger)
        self._keys = {(entry.stream, entry.key): entry for entry in backup.ledger if entry.key}
        self._hints = dict(backup.hints)
        self._uses = dict(backup.uses)
        self.identity = msgspec.structs.replace(
            self.identity, trust="distrustful", reason="it is older than what was known of it"
        )

    def _commit(self, write: Write) -> None:
        super()._commit(write)
        self.stored(write)


class FaultyJournal(ABC):
    """The journal port of one simulated process: the calls of the stored journal, with fault points around them.

    A subclass adds the calls that wait for the disk, or that show who is alive.
    """

    _actor: Actor

    @property
    @abstractmethod
    def _stored(self) -> Journal:
        """The journal behind the fault points."""

    @abstractmethod
    async def _reach(self, call: str, *, writing: bool = False) -> None:
        """The call is on its way to the disk. Raises `JournalUnavailable` where it does not arrive."""

    @abstractmethod
    async def _committed_point(self, call: str) -> None:
        """The write is durable; the process does not know yet."""

    def _alive(self) -> None:
        if not self._actor.alive:
            raise Died

    async def open(self) -> Identity:
        await self._reach("open")
        return await self._stored.open()

    async def confirm(self, trust: Trust, by: str) -> Identity:
        await self._reach("confirm")
        return await self._stored.confirm(trust, by)

    async def claim(self, run: str, worker: str, new: NewRun | None = None) -> LeaseGranted | Busy | None:
        await self._reach("claim", writing=True)
        claimed = await self._stored.claim(run, worker, new)
        await self._committed_point("claim")
        return claimed

    async def read(
        self, run: str, after: int = 0, limit: int = 1000, *, newest: bool = False, only: BodyFilter = EVERY_BODY
    ) -> list[Row]:
        await self._reach("read")
        return await self._stored.read(run, after, limit, newest=newest, only=only)

    async def search(self, text: str, numbers: range, limit: int) -> list[FoundRecord]:
        await self._reach("search")
        return await self._stored.search(text, numbers, limit)

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
        await self._reach("runs")
        return await self._stored.runs(
            run=run, status=status, wakeable=wakeable, limit=limit, after=after, newest=newest
        )

    async def due(self, agents: Collection[AgentKey], limit: int, skip: Collection[str] = frozenset()) -> list[RunRow]:
        await self._reach("due")
        return await self._stored.due(agents, limit, skip)

    async def take(self, request: TakeRequest) -> list[LeaseGranted]:
        await self._reach("take", writing=True)
        granted = await self._stored.take(request)
        await self._committed_point("take")
        return granted

    async def queues(self) -> list[QueueState]:
        await self._reach("queues")
        return await self._stored.queues()

    async def fired(self, schedule: str, until_ms: int) -> LastFiring | None:
        await self._reach("fired")
        return await self._stored.fired(schedule, until_ms)

    async def budget_uses(self, periods: Mapping[str, str]) -> list[BudgetUse]:
        await self._reach("budget_uses")
        return await self._stored.budget_uses(periods)

    async def counts(self) -> dict[tuple[str, RunStatus], int]:
        await self._reach("counts")
        return await self._stored.counts()

    async def waiting(self, status: StatusFilter) -> list[RunWaits]:
        await self._reach("waiting")
        return await self._stored.waiting(status)

    async def post(self, post: Post) -> LedgerEntry:
        await self._reach("post", writing=True)
        entry = await self._stored.post(post)
        await self._committed_point("post")
        return entry

    async def post_all(self, posts: tuple[Post, ...]) -> list[LedgerEntry]:
        await self._reach("post_all", writing=True)
        entries = await self._stored.post_all(posts)
        await self._committed_point("post_all")
        return entries

    async def entries(self, stream: str, after: int = 0) -> list[LedgerEntry]:
        await self._reach("entries")
        return await self._stored.entries(stream, after)

    def mark(self) -> None:
        return None

    async def news(self, after: int | None) -> LedgerNews:
        await self._reach("news")
        return await self._stored.news(after)

    async def head(self) -> Head:
        await self._reach("head")
        return await self._stored.head()

    async def permit(self, request: PermitRequest) -> PermitAnswer:
        await self._reach("permit", writing=True)
        return await self._stored.permit(request)

    async def release(self, permit: Permit, used: Mapping[str, int] = NO_USE) -> None:
        await self._reach("release", writing=True)
        await self._stored.release(permit, used)

    async def slow(self, limits: Collection[str], wait_ms: int) -> None:
        await self._reach("slow", writing=True)
        await self._stored.slow(limits, wait_ms)

    async def permits(self, pause_bound_ms: int = 600_000) -> list[LimitUse]:
        await self._reach("permits")
        return await self._stored.permits(pause_bound_ms)

    async def hint(self, name: str) -> bytes | None:
        await self._reach("hint")
        return await self._stored.hint(name)

    async def put_hint(self, name: str, body: bytes, previous: bytes | None) -> bool:
        await self._reach("put_hint", writing=True)
        return await self._stored.put_hint(name, body, previous)

    def size(self) -> None:  # noqa: B027 - likewise: its bytes are not on a disk
        """The disk is simulated."""

    def sidecar(self, suffix: str) -> None:  # noqa: B027 - this is its whole body: files beside it are not simulated
        """See `Journal.sidecar`."""


class Disk(FaultyJournal):
    """The journal of one process on the store that all share."""

    def __init__(self, world: DiskSetup, actor: Actor, *, contained: bool) -> None:
        self._world = world
        self._actor = actor
        self._contained = contained
        self._riding: list[Write] = []
        self._riding_timer: asyncio.TimerHandle | None = None
        self._kept: list[Write] = []
        """Riding writes of a commit that failed: they precede everything that was requested later."""
        self._in_turn = asyncio.Lock()
        self._left: dict[Lease, list[asyncio.Task[None]]] = {}
        self.workers: list[str] = []
        self.broken = False

    @property
    def _stored(self) -> MemoryJournal:
        return self._world.store

    def die(self) -> None:
        """Kill its process, and lose the riding writes with it."""
        self._riding.clear()

    async def close(self) -> None:
        """Flush the riding writes. The store stays open for other processes."""
        if self._actor.alive and not self.broken:
            await self._start("close", self._taken(), None)

    def now(self) -> Instant:
        """The machine's monotonic clock: all processes of one boot share it."""
        self._alive()
        return Instant(self._world.boot, self._world.now_ms())

    async def beat(self, worker: Worker, lease_ms: int) -> None:
        await self._reach("beat")
        if worker.id not in self.workers:
            self.workers.append(worker.id)
            self._world.contained[worker.id] = self._contained
        await self._world.store.beat(worker, lease_ms)

    async def fate(self, worker: str) -> WorkerState:
        """See `Journal.fate`. Processes in other containers cannot be observed."""
        await self._reach("fate")
        state = await self._world.store.fate(worker)
        if state.fate != "unknown" and worker not in self.workers and self._world.hidden(worker, self._contained):
            return WorkerState("unknown", state.silent_ms)
        return state

    async def append(self, write: Write) -> None:
        """See `Journal.append`. A commit continues even if its caller is cancelled."""
        await self._soon("append", self._taken(), write)

    def ride(self, write: Write) -> None:
        self._alive()
        self._riding.append(write)
        if self._riding_timer is None:
            self._riding_timer = asyncio.get_running_loop().call_later(RIDE_S, self._ride_later)

    async def flush(self, lease: Lease) -> None:
        await self._soon("flush", self._taken(), lease)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _reach(self, call: str, *, writing: bool = False) -> None:
        """The call is on its way to the disk. A write takes its time, and is a point where a fault may strike."""
        self._alive()
        if writing:
            if self._world.point(self._actor, f"before {call}"):
                await asyncio.sleep(0)
            await asyncio.sleep(self._world.disk_s())
            self._alive()
        why = "the disk is broken" if self.broken else self._world.unreachable(self._actor, writing=writing)
        if why:
            raise JournalUnavailable(f"{call}: {why}", next_step="free the disk")

    async def _committed_point(self, call: str) -> None:
        if self._world.point(self._actor, f"after {call}"):
            await asyncio.sleep(0)

    def _ride_later(self) -> None:
        """Commit the riding writes: no other commit took them along."""
        self._riding_timer = None
        self._start("riding", self._taken(), None)

    def _taken(self) -> list[Write]:
        """Take the riding writes, to commit them with the current call, before any later one."""
        self._alive()
        riding, self._riding = self._riding, []
        if self._riding_timer is not None:
            self._riding_timer.cancel()
            self._riding_timer = None
        return riding

    async def _soon(self, call: str, riding: list[Write], last: Write | Lease) -> None:
        """Wait for a commit; it continues if its caller is cancelled, and the run's next call receives its error."""
        lease = last.lease if isinstance(last, Write) else last
        committing = self._start(call, riding, last)
        left = self._left.pop(lease, ())
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError:
            self._left[lease] = [*left, committing]
            raise
        for earlier in left:
            await earlier

    def _start(self, call: str, riding: list[Write], last: Write | Lease | None) -> asyncio.Task[None]:
        committing = asyncio.get_running_loop().create_task(
            self._commit(call, riding, last), context=self._actor.context
        )
        committing.add_done_callback(_looked_at)
        return committing

    async def _commit(self, call: str, riding: list[Write], last: Write | Lease | None) -> None:
        """Make one commit at a time, in the order in which they were requested."""
        store = self._world.store
        async with self._in_turn:
            self._kept += riding
            await self._reach(call, writing=True)
            kept, self._kept = self._kept, []
            for write in kept:
                store.ride(write)
            store.settle()
            if isinstance(last, Write):
                await store.append(last)
                self._world.acknowledged(last)
            elif last is not None:
                await store.flush(last)
            await self._committed_point(call)


def _looked_at(committing: asyncio.Future[None]) -> None:
    """Retrieve the error, which reaches the caller, or the run's next call if the caller was cancelled."""
    if not committing.cancelled():
        committing.exception()
