"""Decisions of a commit: pure functions from a request, and from facts that the store has read, to changes.

A store reads each fact under the lock of the commit, and applies the changes in it: nothing comes between. A refusal
is raised before anything is changed, and concerns its request alone. Here is each rule whose failure sends an effect
twice or loses one, once for all stores: a late owner's write is fenced out, and no attempt begins while all sending is
paused (`_write`), a run has one owner (`_claim`), the first entry under a key is final (`_check_free`), a counter stops
at its limit, a permit outlives no crash of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from beforehand.errors import JournalError, LedgerTaken, LimitsChanged
from beforehand.journal.backend_rules import (
    PAUSED,
    SENDING,
    check_post,
    first_write,
    lease_lost,
    out_of_order,
    queue_draining,
    queue_full,
    sending_paused,
)
from beforehand.journal.cells import (
    BudgetUse,
    CallPace,
    HeldPermits,
    SlotHolder,
    charged,
    counter_name,
    held_permits,
    judge_all,
    moment_key,
    pace_of,
    settled,
    slot_key,
    slowed,
    use_of,
    worker_of,
)
from beforehand.journal.port import (
    Busy,
    CellKind,
    ClaimRequest,
    ClockReading,
    CommitRequest,
    Firing,
    HintRequest,
    Lease,
    LeaseGranted,
    LedgerEntry,
    LimitState,
    NewRun,
    PermitAnswer,
    PermitRequest,
    Post,
    Posts,
    QueuePlace,
    ReleaseRequest,
    Row,
    RunChange,
    RunRow,
    SlowRequest,
    Worker,
    WorkerState,
    Write,
)

if TYPE_CHECKING:
    from beforehand.model.cell_limit import CellLimit
    from beforehand.model.shared_use import Charge

T = TypeVar("T")
CellAddress: TypeAlias = tuple[CellKind, str, str]
LIMITS: Final = "queues"
"""The stream whose newest entry declares the limits in force."""
SCHEDULES: Final = "schedules"
"""The stream whose newest entry declares the schedules in force."""
_NO_PLACE: Final = QueuePlace("")
_RUNNING: Final = RunChange("running")


class CommitFacts(Protocol):
    """The facts that a store reads for a request, under the lock of its commit."""

    wall_ms: int
    """The journal's wall clock."""

    @property
    def now(self) -> ClockReading:
        """The journal's own clock."""
        ...

    def run(self, name: str) -> RunRow | None:
        """The line of a run."""
        ...

    def leased(self, lease: Lease) -> RunRow | None:
        """The line of the run that a lease names."""
        ...

    def last(self, row: int) -> Row | None:
        """The newest record of a run."""
        ...

    def next_seq(self, lease: Lease) -> int:
        """The number of the run's next record."""
        ...

    def worker(self, name: str, /) -> tuple[Worker, WorkerState]:
        """A worker, and the state of its process."""
        ...

    def newest(self, stream: str) -> int:
        """The id of the newest entry of a stream; 0 without one."""
        ...

    def newest_key(self, stream: str) -> str:
        """The key of the newest entry of a stream; empty without one."""
        ...

    def entry(self, stream: str, key: str) -> LedgerEntry | None:
        """The entry that holds a key."""
        ...

    def new_entry(self) -> int:
        """The id of the next ledger entry."""
        ...

    def cells(self, kind: CellKind, name: str, key: str | None = None) -> dict[str, bytes]:
        """The cells of one name, by key; with `key` at least that one, where there is one."""
        ...

    def holders(self, name: str) -> Mapping[str, int]:
        """The number of slots of that name, by worker."""
        ...

    def last_key(self, kind: CellKind, name: str, until: str) -> str:
        """The last key up to that one; empty without one."""
        ...

    def waiting(self, queue: str) -> int:
        """The number of runs that wait to begin in a queue."""
        ...


class Changes(msgspec.Struct):
    """The changes of a request. None of a cell deletes it. `listed` has left its queue where it `leaves`.

    A run that is `created` has no number yet: the store gives it one, for `numbered`.
    """

    created: tuple[RunRow, QueuePlace] | None = None
    taken: RunRow | None = None
    rows: tuple[Row, ...] = ()
    lease: Lease | None = None
    listed: RunRow | None = None
    leaves: bool = False
    entries: list[LedgerEntry] = []
    cells: dict[CellAddress, bytes | None] = {}


def decide(request: CommitRequest[T], facts: CommitFacts) -> tuple[T, Changes]:
    """The answer to a request and what it changes. Raises its refusal."""
    changes = Changes()
    try:
        return _RULES[type(request)](request, facts, changes), changes
    except msgspec.MsgspecError as error:  # another program wrote it: this request is refused, and not the journal lost
        raise JournalError(
            f"a cell of the journal is damaged: {error}",
            known="nothing was written",
            next_step="keep a copy of the file as it is, and restore a backup",
        ) from error


def numbered(granted: LeaseGranted, row: int) -> LeaseGranted:
    """The lease of a run that was created, with the number that the store has given it."""
    return replace(granted, lease=replace(granted.lease, row=row), row=replace(granted.row, row=row))


def _write(write: Write, facts: CommitFacts, changes: Changes) -> None:
    """Store records of a run, its listing, posts that must be new, and charges, for its owner only."""
    lease, row = write.lease, facts.leased(write.lease)
    if row is None or row.token != lease.token:
        raise lease_lost(lease)
    if write.sends and facts.newest_key(SENDING).startswith(PAUSED):
        raise sending_paused(lease.run)
    _check_free(write.posts, facts)
    if write.declared is not None:
        check_limits(write.declared, facts.newest(LIMITS))
    uses = _charged(write, facts)
    if write.rows and write.rows[0].seq != (expected := facts.next_seq(lease)):
        raise out_of_order(write, expected)
    changes.lease, changes.rows = lease, write.rows
    _insert(write.posts, facts, changes)
    for use in uses:
        body = msgspec.json.encode((use.used, use.reserved))
        changes.cells["counter", counter_name(use.budget, use.period), use.limit] = body
    if (change := write.change) is not None:
        changes.leaves = change.leaves_queue
        changes.listed = replace(
            row, status=change.status, reason=change.reason, due_ms=change.due_ms, waits=change.waits,
            updated_ms=facts.wall_ms, owner=None if change.release else row.owner,
            token=row.token + change.release,  # what comes later under the old one is fenced out
            queue="" if change.leaves_queue else row.queue,
        )  # fmt: skip


def _charged(write: Write, facts: CommitFacts) -> list[BudgetUse]:
    def stored(charge: Charge) -> BudgetUse:
        budget, period, limit = charge.budget, charge.period, charge.limit
        return use_of(budget, period, limit, facts.cells("counter", counter_name(budget, period), limit).get(limit))

    return charged(write.charges, stored)


def _claim(request: ClaimRequest, facts: CommitFacts, changes: Changes) -> LeaseGranted | Busy | None:
    """Take a run whose owner is gone, or create it."""
    new = request.new
    firing = None if new is None else new.firing
    if firing is not None and not _may_fire(firing, facts):
        return None
    answer: LeaseGranted | Busy | None = None
    if (row := facts.run(request.run)) is not None:
        answer = _taken(request, row, facts, changes)
    elif new is not None:
        answer = _created(request, new, facts, changes)
    if firing is not None:
        changes.cells["once", firing.schedule, moment_key(firing.moment_ms)] = msgspec.json.encode(request.run)
    return answer


def _may_fire(firing: Firing, facts: CommitFacts) -> bool:
    """True if the moment has come, neither it nor one since was fired, and nothing was declared; see `NewRun`."""
    wall = facts.wall_ms
    last = facts.last_key("once", firing.schedule, moment_key(wall))
    return firing.moment_ms <= wall and last < moment_key(firing.moment_ms) and facts.newest(SCHEDULES) == firing.entry


def _taken(request: ClaimRequest, row: RunRow, facts: CommitFacts, changes: Changes) -> LeaseGranted | Busy:
    if request.new is not None and not request.new.takes(row):
        return Busy(row, Worker(row.owner or ""))
    if row.owner is not None:
        owner, state = facts.worker(row.owner)
        if row.owner == request.worker or not state.gone:
            return Busy(row, owner)
    changes.taken = row = replace(row, token=row.token + 1, owner=request.worker, updated_ms=facts.wall_ms)
    return LeaseGranted(Lease(row.run, row.row, row.token, request.worker), row, facts.last(row.row))


def _created(request: ClaimRequest, new: NewRun, facts: CommitFacts, changes: Changes) -> LeaseGranted:
    """Create a run with its first records, as its listing is then; the worker owns it unless that releases it."""
    if new.place is not None:
        _check_room(new.place, facts)
    place, listed, wall = new.place or _NO_PLACE, new.change or _RUNNING, facts.wall_ms
    lease = Lease(request.run, 0, 1, request.worker)
    write = first_write(lease, new)
    token, owner = (2, None) if listed.release else (1, request.worker)
    row = RunRow(
        request.run, lease.row, new.agent, new.program, listed.status, listed.reason, listed.due_ms, listed.waits,
        token, owner, wall, wall, place.queue, place.tenant,
    )  # fmt: skip
    changes.created = row, place
    changes.lease, changes.rows = lease, write.rows
    return LeaseGranted(lease, row, new.rows[-1] if new.rows else None, fresh=True)


def _check_room(place: QueuePlace, facts: CommitFacts) -> None:
    """Raise where other limits are in force, or the queue accepts no run, or has no room."""
    check_limits(place.declared, facts.newest(LIMITS))
    if place.draining:
        raise queue_draining(place.queue)
    if (waiting := facts.waiting(place.queue)) >= place.capacity:
        raise queue_full(place.queue, waiting)


def _post(post: Post, facts: CommitFacts, changes: Changes) -> LedgerEntry:
    check_post(post)
    standing = facts.entry(post.stream, post.key) if post.key else None
    return replace(standing, fresh=False) if standing is not None else _insert((post,), facts, changes)[0]


def _post_all(request: Posts, facts: CommitFacts, changes: Changes) -> list[LedgerEntry]:
    for post in request.posts:
        check_post(post)
    _check_free(request.posts, facts)
    return _insert(request.posts, facts, changes)


def _insert(posts: Sequence[Post], facts: CommitFacts, changes: Changes) -> list[LedgerEntry]:
    """Append entries whose keys are known to be free."""
    if posts:
        first, wall = facts.new_entry(), facts.wall_ms
        for number, post in enumerate(posts, first):
            changes.entries.append(LedgerEntry(number, post.stream, post.key, post.body, wall))
    return changes.entries


def _check_free(posts: Sequence[Post], facts: CommitFacts) -> None:
    """Raise `LedgerTaken` for the first of these whose key is taken."""
    mine: dict[tuple[str, str], Post] = {}
    for post in posts:
        if post.key:
            standing = facts.entry(post.stream, post.key) or mine.get((post.stream, post.key))
            if standing is not None:
                raise LedgerTaken(post.stream, post.key, standing.body)
            mine[post.stream, post.key] = post


def check_limits(declared: int, newest: int) -> None:
    """Raise `LimitsChanged` where other limits are in force than those of the entry `declared`."""
    if declared != newest:
        raise LimitsChanged("other limits of queues are in force", next_step="read them, and try again")


def _permit(request: PermitRequest, facts: CommitFacts, changes: Changes) -> PermitAnswer:
    """Judge a request under all limits of the call, and count it where all of them grant it."""
    check_limits(request.declared, facts.newest(LIMITS))
    asked, limits, now = request.permit, request.limits, facts.now
    held: list[HeldPermits] = []
    states_of: list[tuple[CellLimit, int, CallPace]] = []
    for limit in limits:
        holders = facts.holders(limit.name)
        states = {worker: facts.worker(worker)[1] for worker in sorted(holders.keys() - {asked.worker})}
        dead = {worker for worker, state in states.items() if state.fate == "dead"}
        for key in facts.cells("slot", limit.name) if dead else ():
            if worker_of(key) in dead:
                changes.cells["slot", limit.name, key] = None
        held.append(slots := held_permits(states, request.pause_bound_ms, asked.worker))
        under_way = sum(number for worker, number in holders.items() if worker in slots.workers)
        states_of.append((limit, under_way, pace_of(facts.cells("rate", limit.name, "").get(""))))
    verdicts = judge_all(states_of, now.epoch, now.earliest_ms)
    granted = all(verdict.granted for verdict in verdicts)
    for (limit, _, before), verdict in zip(states_of, verdicts, strict=True):
        if verdict.pace != before:
            changes.cells["rate", limit.name, ""] = msgspec.json.encode(verdict.pace)
        if granted:
            holder = SlotHolder(asked.operation, limit.units, now.earliest_ms)
            changes.cells["slot", limit.name, slot_key(asked)] = msgspec.json.encode(holder)
    together = zip(limits, held, verdicts, strict=True)
    after = (
        LimitState(limit.name, verdict.full, verdict.wait_ms, slots.hung, slots.silent_ms)
        for limit, slots, verdict in together
    )
    return PermitAnswer(granted, tuple(after))


def _release(request: ReleaseRequest, facts: CommitFacts, changes: Changes) -> None:
    """Free the slots of a permit, and count what its call has used in place of what it had requested."""
    key, now = slot_key(request.permit), facts.now
    for name, used in request.limits.items():
        body = facts.cells("slot", name, key).get(key)
        if body is None:
            continue
        changes.cells["slot", name, key] = None
        if used is not None:
            held = msgspec.json.decode(body, type=SlotHolder)
            pace = settled(
                pace_of(facts.cells("rate", name, "").get("")), now.epoch, held.units, used, held.at_ms, now.earliest_ms
            )
            changes.cells["rate", name, ""] = msgspec.json.encode(pace)


def _slow(request: SlowRequest, facts: CommitFacts, changes: Changes) -> None:
    now = facts.now
    for name in request.limits:
        pace = slowed(pace_of(facts.cells("rate", name, "").get("")), now.epoch, now.earliest_ms + request.wait_ms)
        changes.cells["rate", name, ""] = msgspec.json.encode(pace)


def _put_hint(request: HintRequest, facts: CommitFacts, changes: Changes) -> bool:
    if facts.cells("hint", request.name, "").get("") != request.previous:
        return False
    changes.cells["hint", request.name, ""] = request.body
    return True


_RULES: Final[Mapping[type, Callable[[Any, CommitFacts, Changes], Any]]] = {
    Write: _write,
    ClaimRequest: _claim,
    Post: _post,
    Posts: _post_all,
    PermitRequest: _permit,
    ReleaseRequest: _release,
    SlowRequest: _slow,
    HintRequest: _put_hint,
}
