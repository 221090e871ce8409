"""The journal as one simulated process sees it: a shared store behind a disk that can be slow, full or broken.

Riding writes are kept in the process until it commits, and are lost with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from beforehand.errors import JournalUnavailable
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import (
    ClaimRequest,
    ClockReading,
    CommitRequest,
    HintRequest,
    Journal,
    Lease,
    LeaseGranted,
    LedgerEntry,
    PermitRequest,
    Post,
    Posts,
    ReleaseRequest,
    Row,
    RunRow,
    SlowRequest,
    TakeRequest,
    Worker,
    WorkerState,
    Write,
)
from beforehand.testing.loop import Actor, Died

RIDE_S: Final = 0.005
T = TypeVar("T")


class Machine(Protocol):
    """The machine under simulated processes, with a fault at any point."""

    boot: str
    contained: dict[str, bool]

    def now_ms(self) -> int:
        """Milliseconds since the beginning."""
        ...

    def point(self, actor: Actor, label: str, about: str = "") -> bool:
        """A process reached a point, with what it does there. Returns true if it has to stop, and raises `Died`."""
        ...

    def disk_s(self, about: str = "") -> float:
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


_RESTORED: Final = ("counter", "hint")


class Backup(NamedTuple):
    """All that a journal holds at one moment, except which processes are alive."""

    runs: dict[str, tuple[RunRow, list[Row]]]
    ledger: list[LedgerEntry]
    cells: dict[str, dict[str, dict[str, bytes]]]


class Store(MemoryJournal):
    """The shared journal. `stored` receives what became durable."""

    stored: Callable[[Write], None]

    def backup(self) -> Backup:
        """A copy, made while processes go on writing."""
        runs = {name: (run.listing, list(run.rows)) for name, run in self._runs.items()}
        cells = {kind: {name: dict(stored) for name, stored in self._cells[kind].items()} for kind in _RESTORED}
        return Backup(runs, list(self._ledger), cells)

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
        for kind, names in backup.cells.items():
            self._cells[kind].clear()
            self._cells[kind].update({name: dict(stored) for name, stored in names.items()})
        self.identity = msgspec.structs.replace(
            self.identity, trust="distrustful", reason="it is older than what was known of it"
        )

    def _perform(self, request: CommitRequest[T]) -> T:
        answer = super()._perform(request)
        if isinstance(request, Write):
            self._written(request)
        elif isinstance(request, ClaimRequest) and isinstance(answer, LeaseGranted) and answer.fresh:
            assert request.new is not None, request.run
            self._written(Write(answer.lease, request.new.rows, request.new.change))
        return answer

    def _written(self, write: Write) -> None:
        self.stored(write)


_CALLS: Final[dict[type[Any], str]] = {
    ClaimRequest: "claim", TakeRequest: "take", Post: "post", Posts: "post_all", PermitRequest: "permit",
    ReleaseRequest: "release", SlowRequest: "slow", HintRequest: "put_hint",
}  # fmt: skip
_POINTS: Final = {"claim", "take", "post", "post_all"}


def name_of(request: CommitRequest[Any]) -> str:
    """The name of a request at the points where faults strike."""
    return _CALLS[type(request)]


def subject(given: object) -> str:
    """The subject of a call: the run and its first record, the stream and key of an entry, or a name; else empty."""
    match given:
        case ClaimRequest(run=run):
            return run
        case HintRequest(name=name):
            return name
        case Write(lease=lease, rows=rows):
            return f"{lease.run} {rows[0].seq if rows else 0}"
        case Lease(run=run):
            return run
        case Post(stream=stream, key=key):
            return f"{stream} {key}"
        case str():
            return given
        case _:
            return ""


F = TypeVar("F", bound=Callable[..., Any])


def _read(call: F) -> F:
    def forward(self: FaultyJournal, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return self.through(call.__name__, *args, **kwargs)

    return cast("F", forward)


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
    async def _reach(self, call: str, about: str = "", *, writing: bool = False) -> None:
        """The call is on its way to the disk. Raises `JournalUnavailable` where it does not arrive."""

    @abstractmethod
    async def _committed_point(self, call: str, about: str) -> None:
        """The write is durable; the process does not know yet."""

    def _alive(self) -> None:
        if not self._actor.alive:
            raise Died

    async def through(self, call: str, *args: Any, **kwargs: Any) -> Any:
        """The read of the stored journal, behind its fault points."""
        await self._reach(call, subject(args[0]) if args else "")
        return await getattr(self._stored, call)(*args, **kwargs)

    async def changed(self, pause: Callable[[], Awaitable[None]]) -> None:
        await pause()

    open = _read(Journal.open)
    storage = _read(Journal.storage)
    confirm = _read(Journal.confirm)
    read = _read(Journal.read)
    search = _read(Journal.search)
    runs = _read(Journal.runs)
    due = _read(Journal.due)
    queues = _read(Journal.queues)
    cells = _read(Journal.cells)
    counts = _read(Journal.counts)
    waiting = _read(Journal.waiting)
    entries = _read(Journal.entries)
    news = _read(Journal.news)
    head = _read(Journal.head)

    async def commit(self, request: CommitRequest[T]) -> T:
        """See `Journal.commit`. A fault strikes before it is decided, and once it is durable where it changes a run."""
        name = name_of(request)
        about = subject(request)
        await self._reach(name, about, writing=True)
        answer = await self._stored.commit(request)
        if name in _POINTS:
            await self._committed_point(name, about)
        return answer


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

    def clock(self) -> ClockReading:
        """The machine's monotonic clock: all processes of one boot share it."""
        self._alive()
        return ClockReading(self._world.boot, up := self._world.now_ms(), up, self._stored.clock().wall_ms)

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

    async def commit(self, request: CommitRequest[T]) -> T:
        """See `Journal.commit`. The commit of a write continues even if its caller is cancelled."""
        if not isinstance(request, Write):
            return await super().commit(request)
        await self._soon("append", self._taken(), request)
        return cast("T", None)

    def ride(self, write: Write) -> None:
        self._alive()
        self._riding.append(write)
        if self._riding_timer is None:
            self._riding_timer = asyncio.get_running_loop().call_later(RIDE_S, self._ride_later)

    async def flush(self, lease: Lease) -> None:
        await self._soon("flush", self._taken(), lease)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _reach(self, call: str, about: str = "", *, writing: bool = False) -> None:
        """The call is on its way to the disk. A write takes its time, and is a point where a fault may strike."""
        self._alive()
        if writing:
            if self._world.point(self._actor, f"before {call}", about):
                await asyncio.sleep(0)
            await asyncio.sleep(self._world.disk_s(f"{call} {about}"))
            self._alive()
        why = "the disk is broken" if self.broken else self._world.unreachable(self._actor, writing=writing)
        if why:
            raise JournalUnavailable(f"{call}: {why}", next_step="free the disk")

    async def _committed_point(self, call: str, about: str) -> None:
        if self._world.point(self._actor, f"after {call}", about):
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
            about = subject(last or next(iter(self._kept), ""))
            await self._reach(call, about, writing=True)
            kept, self._kept = self._kept, []
            for write in kept:
                store.ride(write)
            store.settle()
            if isinstance(last, Write):
                await store.commit(last)
                self._world.acknowledged(last)
            elif last is not None:
                await store.flush(last)
            await self._committed_point(call, about)


def _looked_at(committing: asyncio.Future[None]) -> None:
    """Retrieve the error, which reaches the caller, or the run's next call if the caller was cancelled."""
    if not committing.cancelled():
        committing.exception()
