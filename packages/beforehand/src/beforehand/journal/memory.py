"""The journal in memory: for tests, the simulator and the address `memory:`. No threads; time is given to it.

Several workers of one process may share an instance. What rides becomes durable with the next
append, or as soon as the given clock has moved on by `RIDE_MS`; `power_loss` drops what still rides.
A long file, since it is the whole port in one piece.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from beforehand.errors import (
    BudgetSpent,
    JournalUnavailable,
    LeaseLost,
    LedgerTaken,
    LimitsChanged,
    RecordRefused,
    UsageError,
)
from beforehand.journal import host
from beforehand.journal.backend_rules import (
    FOREVER_MS,
    NEWS_PAGE,
    charged,
    check_extras,
    check_post,
    check_size,
    due_since,
    first_write,
    held_permits,
    ledger_hash,
    limits_changed,
    page,
    queue_draining,
    queue_full,
    stands,
    trust_entry,
    wants_look,
    wants_worker,
)
from beforehand.journal.port import (
    EVERY_BODY,
    NO_USE,
    AgentKey,
    BodyFilter,
    BudgetUse,
    Busy,
    Fate,
    Firing,
    FoundRecord,
    HeldPermits,
    Identity,
    Instant,
    Journal,
    LastFiring,
    Lease,
    LeaseGranted,
    LedgerEntry,
    LedgerNews,
    LimitState,
    LimitUse,
    NewRun,
    Permit,
    PermitAnswer,
    PermitRequest,
    Post,
    QueuePlace,
    QueueState,
    Reader,
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
from beforehand.model.heads import Head, first_head, over_entries, over_records
from beforehand.model.shared_use import Charge
from beforehand.model.shell import to_type
from beforehand.queues.call_limits import CallPace, judge_all, settled, slowed
from beforehand.queues.choose import Candidate, Lane, Snapshot, choose
from beforehand.queues.limits import STREAM
from beforehand.queues.schedules import STREAM as SCHEDULES

RIDE_MS = 5


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
        self._hints: dict[str, bytes] = {}
        self._fired: defaultdict[str, list[LastFiring]] = defaultdict(list)
        self._permits: dict[str, dict[Permit, tuple[int, int]]] = {}  # units and moment of each, by limit
        self._paces: dict[str, CallPace] = {}
        self._uses: dict[tuple[str, str, str], BudgetUse] = {}
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
        """Make durable what rides. A refusal is raised by the run's next `append` or `flush`."""
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
        self._insert(Post("journal", "", trust_entry(trust, by, self.identity.incarnation)))
        after()
        return self.identity

    def now(self) -> Instant:
        return Instant(f"memory{self._boot}", self._now())

    async def beat(self, worker: Worker, lease_ms: int) -> None:
        after = self._call("beat")
        self._workers[worker.id] = (worker, self._now() + lease_ms)
        after()

    async def fate(self, worker: str) -> WorkerState:
        after = self._call("fate")
        after()
        return self._fate(worker)

    async def claim(self, run: str, worker: str, new: NewRun | None = None) -> LeaseGranted | Busy | None:
        after = self._call("claim")
        found = self._runs.get(run)
        firing = None if new is None else new.firing
        if firing is not None and not self._may_fire(firing):
            after()
            return None
        if found is None:
            claimed = self._create(run, worker, new) if new is not None else None
            self._store_firing(firing, run)
            after()
            return claimed
        self._store_firing(firing, run)
        listing = found.listing
        if new is not None and not new.takes(listing):
            after()
            return Busy(listing, Worker(listing.owner or ""))
        if listing.owner is not None and (listing.owner == worker or not self._gone(listing.owner)):
            after()
            owner = self._workers.get(listing.owner)
            return Busy(listing, owner[0] if owner else Worker(listing.owner))
        found.listing = replace(listing, token=listing.token + 1, owner=worker, updated_ms=self._wall())
        after()
        lease = Lease(run, listing.row, found.listing.token, worker)
        return LeaseGranted(lease, found.listing, found.rows[-1] if found.rows else None)

    async def append(self, write: Write) -> None:
        after = self._call("append")
        self._check_sizes(write)
        self._settle()
        key = (write.lease.row, write.lease.token)
        if key in self._refused:
            raise self._refused.pop(key)
        self._commit(write)
        after()

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

    async def take(self, request: TakeRequest) -> list[LeaseGranted]:
        after = self._call("take")
        self._riding_due()
        self._check_newest(request.newest.entry)
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
        after()
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

    async def permit(self, request: PermitRequest) -> PermitAnswer:
        after, asked, now = self._call("permit"), request.permit, self.now()
        self._check_newest(request.declared)
        held = [self._counted(one.name, request.pause_bound_ms, asked.worker) for one in request.limits]
        found = [(one, len(it.permits), self._pace(one.name)) for one, it in zip(request.limits, held, strict=True)]
        verdicts = judge_all(found, now.boot, now.ms)
        granted = all(verdict.granted for verdict in verdicts)
        for one, verdict in zip(request.limits, verdicts, strict=True):
            self._paces[one.name] = verdict.pace
            if granted:
                self._permits.setdefault(one.name, {})[asked] = one.units, now.ms
        after()
        together = zip(request.limits, held, verdicts, strict=True)
        states = [LimitState(one.name, it.full, it.wait_ms, of_it.hung, of_it.silent_ms) for one, of_it, it in together]
        return PermitAnswer(granted, tuple(states))

    async def release(self, permit: Permit, used: Mapping[str, int] = NO_USE) -> None:
        after, now = self._call("release"), self.now()
        for name, held in self._permits.items():
            units, at_ms = held.pop(permit, (0, 0))
            if units and name in used:
                self._paces[name] = settled(self._pace(name), now.boot, units, used[name], at_ms, now.ms)
        after()

    async def slow(self, limits: Collection[str], wait_ms: int) -> None:
        after, now = self._call("slow"), self.now()
        for name in limits:
            self._paces[name] = slowed(self._pace(name), now.boot, now.ms + wait_ms)
        after()

    async def permits(self, pause_bound_ms: int = 600_000) -> list[LimitUse]:
        self._call("permits")()
        held = {name: self._counted(name, pause_bound_ms) for name in sorted(self._paces)}
        return [LimitUse(name, it.permits, self._pace(name), it.hung) for name, it in held.items()]

    def _pace(self, name: str) -> CallPace:
        return self._paces.get(name, CallPace())

    def _counted(self, name: str, pause_bound_ms: int, worker: str = "") -> HeldPermits:
        """The permits of a limit whose call may be under way."""
        return held_permits(list(self._permits.get(name, ())), self._fate, pause_bound_ms, worker)

    async def fired(self, schedule: str, until_ms: int) -> LastFiring | None:
        self._call("fired")()
        return self._last_firing(schedule, until_ms)

    async def budget_uses(self, periods: Mapping[str, str] | None) -> list[BudgetUse]:
        done = self._call("budget_uses")
        self._riding_due()
        done()
        found = [use for use in self._uses.values() if periods is None or periods.get(use.budget) == use.period]
        return sorted(found, key=lambda use: (use.budget, use.period, use.limit))

    def _last_firing(self, schedule: str, until_ms: int) -> LastFiring | None:
        come = (one for one in self._fired[schedule] if one.moment_ms <= until_ms)
        return max(come, key=lambda one: one.moment_ms, default=None)

    def _may_fire(self, firing: Firing) -> bool:
        last = self._last_firing(firing.schedule, self._wall())
        newest = next((entry.id for entry in reversed(self._ledger) if entry.stream == SCHEDULES), 0)
        fresh = last is None or last.moment_ms < firing.moment_ms
        return fresh and firing.moment_ms <= self._wall() and newest == firing.entry

    def _store_firing(self, firing: Firing | None, run: str) -> None:
        if firing is not None:
            self._fired[firing.schedule].append(LastFiring(firing.moment_ms, run))

    async def counts(self) -> dict[tuple[str, RunStatus], int]:
        self._call("counts")()
        return Counter((run.listing.agent, run.listing.status) for run in self._runs.values())

    async def waiting(self, status: StatusFilter) -> list[RunWaits]:
        lines = await self.runs(status=status, limit=len(self._runs))
        return [RunWaits(line.run, line.agent, line.waits, line.updated_ms) for line in lines]

    async def post(self, post: Post) -> LedgerEntry:
        after = self._call("post")
        check_post(post)
        entry = self._insert(post)
        after()
        return entry

    async def post_all(self, posts: tuple[Post, ...]) -> list[LedgerEntry]:
        after = self._call("post_all")
        for post in posts:
            check_post(post)
        self._check_free(posts)
        entries = [self._insert(post) for post in posts]
        after()
        return entries

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

    def mark(self) -> None:
        return None

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

    async def hint(self, name: str) -> bytes | None:
        self._call("hint")()
        return self._hints.get(name)

    async def put_hint(self, name: str, body: bytes, previous: bytes | None) -> bool:
        after = self._call("put_hint")
        fits = self._hints.get(name) == previous
        if fits:
            self._hints[name] = body
        after()
        return fits

    def size(self) -> int | None:
        return None

    def sidecar(self, suffix: str) -> Path | None:  # noqa: ARG002 - there is no place for any
        return None

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
                self._commit(write)
            except (BudgetSpent, LeaseLost, LedgerTaken, LimitsChanged, RecordRefused) as error:
                self._refused.setdefault((write.lease.row, write.lease.token), error)

    def _commit(self, write: Write) -> None:
        lease = write.lease
        found = self._runs.get(self._names.get(lease.row, ""))
        if found is None or found.listing.token != lease.token:
            raise LeaseLost(
                f"run {lease.run}: lease {lease.token} was taken over by another owner",
                known="nothing was written",
                next_step=f"the new owner continues the run: {to_type('show', lease.run)}",
            )
        self._check_free(write.posts)
        if write.declared is not None:
            self._check_newest(write.declared)
        uses = charged(write.charges, self._use)
        for seq, row in enumerate(write.rows, len(found.rows) + 1):
            if row.seq != seq:
                raise RecordRefused(f"{lease.run}: record {row.seq} came where {seq} is next")
        found.rows.extend(write.rows)
        self._stored += [(number, lease.row, row) for number, row in enumerate(write.rows, len(self._stored) + 1)]
        for post in write.posts:
            self._insert(post)
        self._uses |= {(use.budget, use.period, use.limit): use for use in uses}
        if write.change is not None:
            change = write.change
            found.listing = replace(
                found.listing,
                status=change.status,
                reason=change.reason,
                due_ms=change.due_ms,
                waits=change.waits,
                owner=None if change.release else found.listing.owner,
                token=found.listing.token + change.release,  # what comes later under the old one is fenced out
                updated_ms=self._wall(),
                queue="" if change.leaves_queue else found.listing.queue,
            )
            if change.leaves_queue:
                found.place = replace(found.place, queue="")
            found.holds = found.holds and change.status in {"running", "suspended"}

    def _use(self, charge: Charge) -> BudgetUse:
        key = charge.budget, charge.period, charge.limit
        return self._uses.get(key) or BudgetUse(*key)

    def _check_free(self, posts: tuple[Post, ...]) -> None:
        """Raise `LedgerTaken` for the first of these whose key is taken."""
        mine: dict[tuple[str, str], Post] = {}
        for post in posts:
            key = (post.stream, post.key)
            standing = self._keys.get(key) or mine.get(key)
            mine |= {key: post} if post.key else {}
            if standing is not None:
                raise LedgerTaken(post.stream, post.key, standing.body)

    def _create(self, run: str, worker: str, new: NewRun) -> LeaseGranted:
        wall = self._wall()
        lease = Lease(run, len(self._runs) + 1, 1, worker)
        write = first_write(lease, new)
        place = new.place or QueuePlace("")
        waiting = sum(one.place.queue == place.queue for one in self._runs.values() if one.listing.status == "queued")
        if new.place is not None:
            self._check_newest(place.declared)
            if place.draining:
                raise queue_draining(place.queue)
            if waiting >= place.capacity:
                raise queue_full(place.queue, waiting)
        listing = RunRow(
            run, lease.row, new.agent, new.program, "running", "", None, b"[]", lease.token, worker, wall, wall,
            place.queue, place.tenant,
        )  # fmt: skip
        self._names[lease.row] = run
        self._runs[run] = found = _Run(listing, place=place)
        self._commit(write)
        return LeaseGranted(lease, listing, found.rows[-1] if found.rows else None, fresh=True)

    def _check_newest(self, declared: int) -> None:
        if declared != max((entry.id for entry in self._ledger if entry.stream == STREAM), default=0):
            raise limits_changed()

    def _fate(self, worker: str) -> WorkerState:
        if worker not in self._workers:
            return WorkerState("unknown", FOREVER_MS)
        known, until = self._workers[worker]
        seen: Fate = "alive" if known.machine else "unknown"  # without a machine there is nothing to observe
        return WorkerState("dead" if worker in self._dead else seen, max(0, self._now() - until), known.pid)

    def _gone(self, worker: str) -> bool:
        return self._fate(worker).gone

    def _insert(self, post: Post) -> LedgerEntry:
        standing = self._keys.get((post.stream, post.key))
        if standing is not None:
            return replace(standing, fresh=False)
        entry = LedgerEntry(len(self._ledger) + 1, post.stream, post.key, post.body, self._wall())
        self._ledger.append(entry)
        if post.key:
            self._keys[post.stream, post.key] = entry
        return entry


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

    def sidecar(self, place: str, suffix: str) -> Path | None:  # noqa: ARG002 - every back end is asked alike
        return None

    def found_in(self, directory: Path) -> list[str]:  # noqa: ARG002 - every back end is asked alike
        return []


IN_MEMORY: Final = _InMemory()
