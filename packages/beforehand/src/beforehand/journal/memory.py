"""The journal in memory: for tests, the simulator and the address `memory:`. No threads; time is given to it.

Several workers of one process may share an instance. What rides becomes durable with the next
append, or as soon as the given clock has moved on by `RIDE_MS`; `power_loss` drops what still rides.
A long file, since it is the whole port in one piece.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from beforehand.errors import JournalError, JournalUnavailable, UsageError
from beforehand.journal import host
from beforehand.journal.backend_rules import (
    FOREVER_MS,
    NEWS_PAGE,
    check_extras,
    check_size,
    due_since,
    ledger_hash,
    page,
    stands,
    trust_entry,
    wants_look,
    wants_worker,
)
from beforehand.journal.cells import worker_of
from beforehand.journal.port import (
    EVERY_BODY,
    AgentKey,
    BodyFilter,
    Cell,
    CellKind,
    ClockReading,
    CommitRequest,
    Fate,
    FoundRecord,
    Identity,
    Journal,
    Lease,
    LeaseGranted,
    LedgerEntry,
    LedgerNews,
    Post,
    QueuePlace,
    QueueState,
    Reader,
    Row,
    RunRow,
    RunStatus,
    RunWaits,
    StatusFilter,
    Storage,
    TakeRequest,
    Trust,
    Worker,
    WorkerState,
    Write,
)
from beforehand.journal.requests import LIMITS, check_limits, decide, numbered
from beforehand.model.heads import Head, first_head, over_entries, over_records
from beforehand.queues.choose import Candidate, Lane, Snapshot, choose

RIDE_MS = 5
T = TypeVar("T")


@dataclass
class _Run:
    """The stored state of one run."""

    listing: RunRow
    rows: list[Row] = field(default_factory=list[Row])
    place: QueuePlace = field(default_factory=lambda: QueuePlace(""))
    holds: bool = False  # it has its key, from its begin to its end
    served_ms: int = 0


@dataclass
class _Fault:
    calls_left: int
    error: Exception
    stored: bool


class MemoryJournal:
    """A journal in memory.

    `now` is the journal's clock in milliseconds, and `wall` the wall clock (by default the same).
    """

    def __init__(
        self,
        now: Callable[[], int],
        wall: Callable[[], int] | None = None,
        *,
        namespace: str = "memory",
        secret: bytes | None = None,
        trust: Trust = "trusted",
    ) -> None:
        self._now = now
        self._wall = wall or now
        secret = sha256(namespace.encode()).digest() if secret is None else secret
        self.identity = Identity(namespace=namespace, secret=secret, incarnation="1", trust=trust)
        self._runs: dict[str, _Run] = {}
        self._names: dict[int, str] = {}
        self._ledger: list[LedgerEntry] = []
        self._keys: dict[tuple[str, str], LedgerEntry] = {}
        self._newest: dict[str, LedgerEntry] = {}  # by stream
        self._cells: defaultdict[str, defaultdict[str, dict[str, bytes]]] = defaultdict(lambda: defaultdict(dict))
        self._workers: dict[str, tuple[Worker, int]] = {}
        self._dead: set[str] = set()
        self._riding: list[tuple[int, Write]] = []
        self._refused: dict[tuple[int, int], Exception] = {}
        self._faults: list[_Fault] = []
        self._stored: list[tuple[int, int, Row]] = []  # number, run and row of every record, in the order of commits
        self._head: Head | None = None
        self._open = False
        self._boot = 1
        self.calls = 0

    # --- switches of tests and the simulator ---------------------------------------------------------

    def fail_next(self, n: int = 1, error: Exception | None = None, *, stored: bool = False) -> None:
        """Let the n-th call from now fail. With `stored` it does its work first and fails afterwards."""
        error = error or JournalUnavailable(f"planned failure of call {n}", next_step="let the test go on")
        self._faults.append(_Fault(n, error, stored))

    def kill(self, worker: str) -> None:
        """Mark the worker's process as dead; that counts as proven."""
        self._dead.add(worker)

    def power_loss(self) -> None:
        """Lose what rode and was not yet durable."""
        self._riding_due()
        self._riding.clear()

    def reboot(self) -> None:
        """The machine starts again: its clock begins anew, and moments from before do not compare with it."""
        self._boot += 1

    def settle(self) -> None:
        """Make durable what rides. A refusal is raised by the run's next write or `flush`."""
        self._settle()

    def everything(self) -> list[bytes]:
        """All that is durable, as bytes: what two equal simulations must agree on."""
        rows = [row.body + row.hash for found in self._runs.values() for row in found.rows]
        return rows + [entry.body for entry in self._ledger]

    # --- the port ------------------------------------------------------------------------------------

    async def open(self) -> Identity:
        after = self._call("open", needs_open=False)
        self._open = True
        after()
        return self.identity

    async def close(self) -> None:
        self._settle()
        self._open = False

    async def confirm(self, trust: Trust, by: str) -> Identity:
        after = self._call("confirm")
        number = int(self.identity.incarnation) + 1
        self.identity = Identity(
            namespace=self.identity.namespace,
            secret=self.identity.secret,
            incarnation=str(number),
            trust=trust,
            reason="" if trust == "trusted" else f"confirmed as {trust} by {by}",
        )
        self._perform(Post("journal", "", trust_entry(trust, by, self.identity.incarnation)))
        after()
        return self.identity

    def clock(self) -> ClockReading:
        return ClockReading(f"memory{self._boot}", up := self._now(), up, self._wall())

    async def beat(self, worker: Worker, lease_ms: int) -> None:
        after = self._call("beat")
        self._workers[worker.id] = (worker, self._now() + lease_ms)
        after()

    async def fate(self, worker: str) -> WorkerState:
        after = self._call("fate")
        after()
        return self._fate(worker)

    async def commit(self, request: CommitRequest[T]) -> T:
        after = self._call(type(request).__name__)
        if isinstance(request, Write):
            self._check_sizes(request)
            self._settle()
            if (refused := self._refused.pop((request.lease.row, request.lease.token), None)) is not None:
                raise refused
        answer: Any = self._take(request) if isinstance(request, TakeRequest) else self._perform(request)
        after()
        return answer  # type: ignore[no-any-return]  # of the kind that the request names

    def ride(self, write: Write) -> None:
        self._check_sizes(write)
        self._riding.append((self._now(), write))

    async def flush(self, lease: Lease) -> None:
        after = self._call("flush")
        self._settle()
        key = (lease.row, lease.token)
        if key in self._refused:
            raise self._refused.pop(key)
        after()

    async def read(
        self, run: str, after: int = 0, limit: int = 1000, *, newest: bool = False, only: BodyFilter = EVERY_BODY
    ) -> list[Row]:
        done = self._call("read")
        self._riding_due()
        found = self._runs.get(run)
        done()
        rows = [row for row in found.rows if row.seq > after and only.fits(row.body)] if found else []
        return rows[max(0, len(rows) - limit) :] if newest else rows[:limit]

    async def search(self, text: str, numbers: range, limit: int) -> list[FoundRecord]:
        done = self._call("search")
        self._riding_due()
        done()
        part, sought = self._stored[max(1, numbers.start) - 1 : numbers.stop - 1], text.lower().encode()
        found = [(number, run, row) for number, run, row in part if sought in row.body.lower()]
        return [
            FoundRecord(number, self._names[run], row.seq, row.body) for number, run, row in found[: -limit - 1 : -1]
        ]

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
        done = self._call("runs")
        self._riding_due()
        done()
        known = self._begun_before(after) if newest else [name for name in sorted(self._runs) if name > after]
        names = [name for name in known if run in (None, name)]
        listed = (self._runs[name].listing for name in names)
        wall = self._wall()

        wants = wants_look if status == "stopped" else wants_worker

        def wanted(line: RunRow) -> bool:
            return stands(line, status) and (not wakeable or wants(line, wall, self._gone))

        return page(listed, limit, wanted)

    async def due(self, agents: Collection[AgentKey], limit: int, skip: Collection[str] = frozenset()) -> list[RunRow]:
        done = self._call("due")
        self._riding_due()
        done()
        wall = self._wall()
        lines = [
            line
            for name, line in ((name, found.listing) for name, found in self._runs.items())
            if name not in skip and (line.agent, line.program) in agents and wants_worker(line, wall, self._gone)
        ]
        return sorted(lines, key=due_since)[:limit]

    def _begun_before(self, run: str) -> list[str]:
        names = list(self._runs)
        return names[: names.index(run) if run else None][::-1]

    def _take(self, request: TakeRequest) -> list[LeaseGranted]:
        self._riding_due()
        check_limits(request.newest.entry, self._facts().newest(LIMITS))
        wall = self._wall()
        snapshot = self._queued(request.agents, request.skip, request.worker, request.newest.paused)
        granted: list[LeaseGranted] = []
        chosen = choose(request.newest.limits, snapshot, request.room)
        for row, ready in zip(chosen.start, chosen.ready_ms, strict=True):
            run = self._runs[self._names[row]]
            run.holds, run.served_ms, line = bool(run.place.key), wall, run.listing
            if line.status == "queued":
                line = replace(line, status="running", due_ms=None, reason="")
            run.listing = line = replace(line, token=line.token + 1, owner=request.worker, updated_ms=wall)
            lease = Lease(line.run, row, line.token, request.worker)
            granted.append(LeaseGranted(lease, line, run.rows[-1] if run.rows else None, slot=True, ready_ms=ready))
        return granted

    def _queued(
        self, agents: Collection[AgentKey], skip: Collection[str], worker: str = "", paused: Collection[str] = ()
    ) -> Snapshot:
        """Everything that `choose` judges for this worker. Runs behind others of their key stay in their lanes here."""
        lanes: defaultdict[tuple[str, str, str, int], list[Candidate]] = defaultdict(list)
        driven, holders = Counter[tuple[str, str, str]](), Counter[tuple[str, str]]()
        served: dict[tuple[str, str], int] = {}
        for run in self._runs.values():
            line, place = run.listing, run.place
            if not place.queue:
                continue
            share, gone = (place.queue, place.tenant), line.owner not in {None, worker} and self._gone(str(line.owner))
            served[share] = max(run.served_ms, served.get(share, 0))
            driven[place.queue, line.agent, place.tenant] += line.owner is not None and not gone
            holders[place.queue, place.key] += run.holds
            lost = gone and line.status != "queued"  # one that has not begun begins at its moment
            ready = line.updated_ms if line.status == "running" or lost else line.due_ms
            waits = line.status in {"queued", "running", "suspended"} and (line.owner is None or gone)
            known = (line.agent, line.program) in agents and line.run not in skip
            known = known and not (line.status == "queued" and place.queue in paused)
            if waits and known and ready is not None and (lost or ready <= self._wall()):
                lanes[place.queue, line.agent, place.tenant, place.priority].append(
                    Candidate(line.row, ready, place.key, run.holds)
                )
        sorted_lanes = ((lane, sorted(some, key=lambda one: (one.ready_ms, one.row))) for lane, some in lanes.items())
        return Snapshot(tuple(Lane(*lane, tuple(some)) for lane, some in sorted_lanes), driven, holders, served)

    async def queues(self) -> list[QueueState]:
        self._call("queues")()
        snapshot = self._queued({(run.listing.agent, run.listing.program) for run in self._runs.values()}, ())
        waiting = Counter(run.place.queue for run in self._runs.values() if run.listing.status == "queued")
        running, oldest = Counter[str](), dict[str, int]()
        for (queue, _, _), count in snapshot.driven.items():
            running[queue] += count
        agents: defaultdict[str, set[AgentKey]] = defaultdict(set)
        for lane in snapshot.lanes:
            oldest[lane.queue] = min(lane.waiting[0].ready_ms, oldest.get(lane.queue, FOREVER_MS))
            lines = (self._runs[self._names[one.row]].listing for one in lane.waiting)
            agents[lane.queue].update((line.agent, line.program) for line in lines)
        return [
            QueueState(name, waiting[name], running[name], oldest.get(name), tuple(sorted(agents[name])))
            for name in sorted({*+waiting, *+running, *oldest})
        ]

    async def cells(
        self, kind: CellKind, names: Collection[str] | None = None, *, below: str = "", until: str | None = None
    ) -> list[Cell]:
        done = self._call("cells")
        self._riding_due()
        done()
        chosen = [name for name in self._cells[kind] if name.startswith(below)] if names is None else names
        found = [Cell(kind, name, *cell) for name in sorted(chosen) for cell in sorted(self._cells[kind][name].items())]
        if until is None:
            return found
        return list({cell.name: cell for cell in found if cell.key <= until}.values())

    async def counts(self) -> dict[tuple[str, RunStatus], int]:
        self._call("counts")()
        return Counter((run.listing.agent, run.listing.status) for run in self._runs.values())

    async def waiting(self, status: StatusFilter) -> list[RunWaits]:
        lines = await self.runs(status=status, limit=len(self._runs))
        return [RunWaits(line.run, line.agent, line.waits, line.updated_ms) for line in lines]

    async def entries(self, stream: str, after: int = 0) -> list[LedgerEntry]:
        done = self._call("entries")
        self._riding_due()
        done()
        below = stream.endswith("/")
        return [
            entry
            for entry in self._ledger[after:]
            if entry.stream == stream or (below and entry.stream.startswith(stream))
        ]

    async def changed(self, pause: Callable[[], Awaitable[None]]) -> None:
        await pause()

    async def news(self, after: int | None) -> LedgerNews:
        done = self._call("news")
        self._riding_due()
        done()
        if after is None:
            return LedgerNews(len(self._ledger))
        found = self._ledger[after : after + NEWS_PAGE]
        streams = tuple(dict.fromkeys(entry.stream for entry in found))
        return LedgerNews(after + len(found), streams, more=len(found) == NEWS_PAGE)

    async def head(self) -> Head:
        done = self._call("head")
        self._riding_due()
        done()
        before = self._head or first_head(self.identity.namespace, self.identity.secret)
        rows = self._stored[before.records :]
        entries = self._ledger[before.entries :]
        self._head = Head(
            len(self._stored),
            len(self._ledger),
            over_records(before.records_hash, ((n, run, row.seq, row.token, row.hash) for n, run, row in rows)),
            over_entries(before.entries_hash, ((entry.id, _digest(entry)) for entry in entries)),
        )
        return self._head

    async def storage(self) -> Storage:
        return Storage("memory:", "memory")

    # --- inside --------------------------------------------------------------------------------------

    def _call(self, name: str, *, needs_open: bool = True) -> Callable[[], None]:
        """Count a call and raise planned faults; the caller calls the result once its work is done."""
        self.calls += 1
        if needs_open and not self._open:
            raise JournalUnavailable(f"{name}: the journal is closed", next_step="open it first")
        sprung: _Fault | None = None
        for fault in tuple(self._faults):
            fault.calls_left -= 1
            if fault.calls_left == 0:
                self._faults.remove(fault)
                sprung = fault
        if sprung is not None and not sprung.stored:
            raise sprung.error

        def after() -> None:
            if sprung is not None:
                raise sprung.error

        return after

    def _check_sizes(self, write: Write) -> None:
        check_extras(write)
        for row in write.rows:
            check_size(write, row)

    def _riding_due(self) -> None:
        if self._riding and self._now() >= self._riding[0][0] + RIDE_MS:
            self._settle()

    def _settle(self) -> None:
        riding, self._riding = self._riding, []
        for _, write in riding:
            try:
                self._perform(write)
            except JournalError as error:
                self._refused.setdefault((write.lease.row, write.lease.token), error)

    def _perform(self, request: CommitRequest[T]) -> T:
        """Decide a request and take what it changes."""
        answer: Any
        answer, changes = decide(request, self._facts())
        if changes.created is not None:
            answer = numbered(answer, len(self._runs) + 1)
            self._names[answer.row.row] = answer.row.run
            self._runs[answer.row.run] = _Run(answer.row, place=changes.created[1])
            changes.lease = answer.lease
        if changes.lease is not None:
            row = changes.lease.row
            self._runs[self._names[row]].rows.extend(changes.rows)
            self._stored += [(number, row, one) for number, one in enumerate(changes.rows, len(self._stored) + 1)]
        for entry in changes.entries:
            self._append(entry)
        if changes.taken is not None:
            self._runs[changes.taken.run].listing = changes.taken
        if changes.listed is not None:
            run = self._runs[changes.listed.run]
            run.listing = changes.listed
            if changes.leaves:
                run.place = replace(run.place, queue="")
            run.holds = run.holds and run.listing.status in {"running", "suspended"}
        for (kind, name, key), body in changes.cells.items():
            if body is None:
                self._cells[kind][name].pop(key, None)
            else:
                self._cells[kind][name][key] = body
        return answer  # type: ignore[no-any-return]  # of the kind that the request names

    def _append(self, entry: LedgerEntry) -> None:
        self._ledger.append(entry)
        self._newest[entry.stream] = entry
        if entry.key:
            self._keys[entry.stream, entry.key] = entry

    def _facts(self) -> _MemoryFacts:
        stored = self._runs, self._names, self._ledger, self._newest, self._keys, self._cells
        return _MemoryFacts(self._wall(), self.clock(), *stored, self._known)

    def _known(self, worker: str) -> tuple[Worker, WorkerState]:
        known, _ = self._workers.get(worker, (Worker(worker), 0))
        return known, self._fate(worker)

    def _fate(self, worker: str) -> WorkerState:
        if worker not in self._workers:
            return WorkerState("unknown", FOREVER_MS)
        known, until = self._workers[worker]
        seen: Fate = "alive" if known.machine else "unknown"  # without a machine there is nothing to observe
        return WorkerState("dead" if worker in self._dead else seen, max(0, self._now() - until), known.pid)

    def _gone(self, worker: str) -> bool:
        return self._fate(worker).gone


@dataclass
class _MemoryFacts:
    """The facts of one request, as the journal holds them."""

    wall_ms: int
    now: ClockReading
    runs: Mapping[str, _Run]
    names: Mapping[int, str]
    ledger: Sequence[LedgerEntry]
    heads: Mapping[str, LedgerEntry]
    keys: Mapping[tuple[str, str], LedgerEntry]
    kinds: Mapping[str, Mapping[str, dict[str, bytes]]]
    worker: Callable[[str], tuple[Worker, WorkerState]]

    def run(self, name: str) -> RunRow | None:
        return self.runs[name].listing if name in self.runs else None

    def leased(self, lease: Lease) -> RunRow | None:
        return self.run(self.names.get(lease.row, ""))

    def last(self, row: int) -> Row | None:
        rows = self.runs[self.names[row]].rows
        return rows[-1] if rows else None

    def next_seq(self, lease: Lease) -> int:
        return len(self.runs[self.names[lease.row]].rows) + 1

    def newest(self, stream: str) -> int:
        return self.heads[stream].id if stream in self.heads else 0

    def newest_key(self, stream: str) -> str:
        return self.heads[stream].key if stream in self.heads else ""

    def entry(self, stream: str, key: str) -> LedgerEntry | None:
        return self.keys.get((stream, key))

    def new_entry(self) -> int:
        return len(self.ledger) + 1

    def cells(self, kind: CellKind, name: str, key: str | None = None) -> dict[str, bytes]:  # noqa: ARG002 -- as cheap
        return self.kinds[kind][name]

    def holders(self, name: str) -> dict[str, int]:
        return Counter(map(worker_of, self.kinds["slot"][name]))

    def last_key(self, kind: CellKind, name: str, until: str) -> str:
        return max((key for key in self.kinds[kind][name] if key <= until), default="")

    def waiting(self, queue: str) -> int:
        return sum(run.place.queue == queue for run in self.runs.values() if run.listing.status == "queued")


def _digest(entry: LedgerEntry) -> bytes:
    """A hash over everything in an entry; in memory nothing chains it to its stream."""
    return ledger_hash(None, Post(entry.stream, entry.key, entry.body), entry.at_ms)


class _InMemory:
    """The back end of the address `memory:`: each opening makes a new journal, which ends with the process."""

    lasting = False
    reads_wait = False

    def checked(self, place: str) -> str:
        if place:
            raise UsageError("a journal in memory has no name", next_step="give memory:")
        return place

    def journal(self, place: str) -> Journal:  # noqa: ARG002 - every back end is asked alike
        # Of its own namespace: the keys that it sends must not meet those of an earlier process.
        return MemoryJournal(host.uptime_ms, host.wall_ms, namespace=os.urandom(8).hex(), secret=os.urandom(32))

    def reader(self, place: str) -> Reader:  # noqa: ARG002 - every back end is asked alike
        raise UsageError(
            "a journal in memory is known to the process that opened it alone",
            next_step="name a file for a journal that commands can read: --journal desk.db",
        )

    def exists(self, place: str) -> bool:  # noqa: ARG002 - every back end is asked alike
        return False

    def same(self, place: str, other: str) -> bool:  # noqa: ARG002 - every back end is asked alike
        return False

    def below(self, place: str, directory: Path) -> str:  # noqa: ARG002 - every back end is asked alike
        return place

    def shown(self, place: str) -> str:
        return place

    def found_in(self, directory: Path) -> list[str]:  # noqa: ARG002 - every back end is asked alike
        return []


IN_MEMORY: Final = _InMemory()
