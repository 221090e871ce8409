"""The journal's port: the interface between the engine and the store.

Four kinds of table implement it: *records* (per run, append-only, chained), the *ledger* (append-only streams beside
them), *projections* (the `runs` listing, rebuildable from records) and *cells* (small state that all processes share).
All that changes is a request, which `beforehand.journal.requests` decides. Every implementation passes
`beforehand.testing.conformance`. A long file, since it is the whole port in one piece.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from beforehand.model.heads import Head

if TYPE_CHECKING:  # commands that only read import no queues
    from beforehand.model.cell_limit import CellLimit
    from beforehand.model.shared_use import Charge
    from beforehand.queues.limits import Declaration

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
RunStatus = Literal["queued", "running", "suspended", "completed", "stopped", "undone"]
StatusFilter: TypeAlias = RunStatus | Literal["halted"]
"""Filter of the listing: a status, or `halted`: the stopped runs that ask a person something."""
Fate = Literal["alive", "dead", "unknown"]
Trust = Literal["trusted", "distrustful", "doubtful"]


AgentKey: TypeAlias = tuple[str, str]
"""An agent's name, and the program whose code it is: two programs may each have an agent of that name."""


class ClockReading(msgspec.Struct, frozen=True, gc=False):
    """A reading of the journal's clock: the moment lies from `earliest_ms` to `latest_ms`, a point if it is exact.

    Moments compare only within one `epoch`. By `earliest_ms` enough time has passed, by `latest_ms` a lease may be
    over. `wall_ms` is the journal's calendar, for all that is stored: due times, expiries, the `at` of records.
    """

    epoch: str
    earliest_ms: int
    latest_ms: int
    wall_ms: int


class Identity(msgspec.Struct, frozen=True):
    """The identity of a journal.

    `namespace` separates idempotency keys of staging from production; `secret` keys the MACs of
    arguments; `trust` says whether anything may be sent (see `Journal.confirm`), `reason` why not;
    `notices` are sentences that a person should read once at open. `file` is the one that holds it, if one does.
    `untouched`: it is read as it is, and may lack the newest writes; the notices say why.
    """

    namespace: str
    secret: bytes
    incarnation: str
    trust: Trust = "trusted"
    reason: str = ""
    notices: tuple[str, ...] = ()
    file: Path | None = None
    untouched: bool = False

    def sidecar(self, suffix: str) -> Path | None:
        """The file beside the journal for what must not be in it, such as a signing key. None: it has no place."""
        return None if self.file is None else self.file.with_name(self.file.name + suffix)


class Worker(msgspec.Struct, frozen=True):
    """A process that drives runs: enough to prove later that it is dead."""

    id: str
    machine: str = ""
    boot: str = ""
    pid_namespace: str = ""
    pid: int = 0
    started: int = 0


class WorkerState(msgspec.Struct, frozen=True):
    """A worker's state. `silent_ms` is how long its lease has been over on the journal's clock; 0 while it lasts."""

    fate: Fate
    silent_ms: int
    pid: int = 0

    @property
    def gone(self) -> bool:
        """True where its runs may be taken: it is proven dead, or its lease is over."""
        return self.fate == "dead" or self.silent_ms > 0

    @property
    def seen_to_live(self) -> bool:
        """True where its process is seen on this machine, or cannot be observed and renews its lease."""
        return self.fate == "alive" or (self.fate == "unknown" and not self.silent_ms)


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to drive one run. `row` is the journal's own number for the run, `token` fences late owners."""

    run: str
    row: int
    token: int
    worker: str


class Row(msgspec.Struct, frozen=True, gc=False):
    """One stored record: `body` is JSON text in UTF-8, `hash` chains it to the row before."""

    seq: int
    body: bytes
    hash: bytes
    token: int = 0


class BodyFilter(msgspec.Struct, frozen=True, gc=False):
    """Selects records by how their bodies begin, or by JSON strings in them. With neither it selects all."""

    beginning: tuple[bytes, ...] = ()
    naming: tuple[bytes, ...] = ()

    def fits(self, body: bytes) -> bool:
        """True if it selects a record with this body."""
        if body.startswith(self.beginning) or any(text in body for text in self.naming):
            return True
        return not self.beginning and not self.naming


EVERY_BODY: Final = BodyFilter()
EVERY_RECORD: Final = range(1, 2**53)


class CommitRequest(msgspec.Struct, Generic[T_co], frozen=True):
    """A change that is committed whole, or refused, and then changes nothing. `T_co` is its answer."""


class RunChange(msgspec.Struct, frozen=True, gc=False):
    """The change that a write makes in the `runs` projection. `release` gives the lease back in the same commit.

    A run that `leaves_queue` needs no slot from then on: `due` lists it.
    """

    status: RunStatus
    reason: str = ""
    due_ms: int | None = None  # wall clock; when a suspended run has to be driven again
    waits: bytes = b"[]"  # JSON: the person, event or timer that it waits for
    release: bool = False
    leaves_queue: bool = False


class Post(CommitRequest["LedgerEntry"], frozen=True, gc=False):
    """One entry for the ledger. With a `key`, the first entry under (stream, key) wins for ever."""

    stream: str
    key: str
    body: bytes


class FoundRecord(msgspec.Struct, frozen=True):
    """A stored record that a search found: its number in the journal, its run, its number there and its body."""

    number: int
    run: str
    seq: int
    body: bytes


class LedgerEntry(msgspec.Struct, frozen=True):
    """A ledger entry as stored. `fresh` is false where the key was already taken by an earlier entry."""

    id: int
    stream: str
    key: str
    body: bytes
    at_ms: int
    fresh: bool = True


class LedgerNews(msgspec.Struct, frozen=True):
    """The streams of new ledger entries, in the order of the entries, each once.

    `last` is the largest id that was read. `more`: there were too many for one read, and the next one begins there.
    """

    last: int
    streams: tuple[str, ...] = ()
    more: bool = False


class Posts(CommitRequest[list[LedgerEntry]], frozen=True, gc=False):
    """Several ledger entries, or none: raises `LedgerTaken` where a key is taken."""

    posts: tuple[Post, ...]


class Write(CommitRequest[None], frozen=True, gc=False):
    """A set of changes committed together: records of one run, its listing, and ledger entries that must be new.

    `charges` change the counters of shared budgets. With `declared` it is refused where other limits of queues are in
    force than those of that ledger entry. One that `sends` begins an attempt: it is refused while all sending is paused
    (see `backend_rules.SENDING`), by whichever process and however long before it was made.

    Raises `LeaseLost`, `SendingPaused`, `LedgerTaken`, `LimitsChanged`, `BudgetSpent` or `RecordRefused`. Everything
    that rode before it is durable too.
    """

    lease: Lease
    rows: tuple[Row, ...] = ()
    change: RunChange | None = None
    posts: tuple[Post, ...] = ()
    charges: tuple[Charge, ...] = ()
    declared: int | None = None
    sends: bool = False


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """One line of the `runs` projection: a run, its state, and its owner."""

    run: str
    row: int
    agent: str
    program: str
    status: RunStatus
    reason: str
    due_ms: int | None
    waits: bytes
    token: int
    owner: str | None
    created_ms: int
    updated_ms: int
    queue: str = ""
    tenant: str = ""


class RunWaits(msgspec.Struct, frozen=True, gc=False):
    """The waits of one run: the part of its line that the inbox is built from."""

    run: str
    agent: str
    waits: bytes
    updated_ms: int


class LeaseGranted(msgspec.Struct, frozen=True):
    """The lease was granted. `last` is the newest stored row; `fresh`: this claim has created the run.

    `row` is the listing as the claim found or made it, before any change that came with a new run. `slot`: the run is
    in a queue, and `take` gave it a slot; it has been ready for that since `ready_ms`, a wall clock.
    """

    lease: Lease
    row: RunRow
    last: Row | None
    fresh: bool = False
    slot: bool = False
    ready_ms: int | None = None


class QueuePlace(msgspec.Struct, frozen=True):
    """The place of a submitted run. `key` names what it is about; the queue takes no more than `capacity` such runs.

    These follow from the limits of the ledger entry `declared`, and so does `draining`: the queue accepts no run.
    """

    queue: str
    tenant: str = ""
    key: str = ""
    priority: int = 0
    capacity: int = 2**53
    declared: int = 0
    draining: bool = False


class QueueState(msgspec.Struct, frozen=True):
    """One queue: runs that wait to begin, runs that a worker drives, and since when the oldest has been ready.

    `agents` are those of the runs that are ready and wait for a slot.
    """

    queue: str
    waiting: int
    running: int
    oldest_ms: int | None = None
    agents: tuple[AgentKey, ...] = ()


class TakeRequest(CommitRequest[list[LeaseGranted]], frozen=True):
    """A worker claims at most `room` runs of queues that may start now; see `beforehand.queues.choose`.

    They are runs of these `agents`, without those in `skip`. Raises `LimitsChanged` where other limits are in force
    than `newest`. In a queue that these name as paused no run starts that has not begun (its status is `queued`); those
    that have begun continue.

    Runs of queues are found here and never by `due`: those that have not begun, and those that came due or lost
    their owner later. The slot of a run is its lease, so a process that dies gives back all of its slots.
    """

    worker: str
    agents: Collection[AgentKey]
    room: int
    newest: Declaration
    skip: Collection[str] = frozenset()


class Firing(msgspec.Struct, frozen=True):
    """One moment at which a schedule fires. `entry` is the newest entry of the stream `schedules` that was read."""

    schedule: str
    moment_ms: int
    entry: int = 0


class Permit(msgspec.Struct, frozen=True):
    """A call that may be under way. `number` is the worker's own for it, `operation` what it is made for."""

    worker: str
    number: int
    operation: str = ""


class PermitRequest(CommitRequest["PermitAnswer"], frozen=True):
    """A worker asks whether a call may begin under all of its `limits`, and if so the call is counted.

    A permit counts until its call is released or its worker is proven dead: a crash cannot lose a slot. That of a
    worker that cannot be observed counts until the worker has been silent for longer than `pause_bound_ms`. One that
    is seen to live keeps it. Raises `LimitsChanged` where other limits are in force than those of the ledger entry
    `declared`.
    """

    permit: Permit
    limits: tuple[CellLimit, ...]
    declared: int
    pause_bound_ms: int = 600_000


class ReleaseRequest(CommitRequest[None], frozen=True):
    """A permit is released: its call has ended, or was never begun. Releasing one again, or none, changes nothing.

    `limits` are those under which it was granted, each with the units that the call has used; None: what was requested.
    """

    permit: Permit
    limits: Mapping[str, int | None]


class SlowRequest(CommitRequest[None], frozen=True):
    """No permit is granted under these limits for so long: a service has asked for that."""

    limits: tuple[str, ...]
    wait_ms: int


class HintRequest(CommitRequest[bool], frozen=True):
    """A hint is replaced if it still is `previous`; false if another writer was faster."""

    name: str
    body: bytes
    previous: bytes | None


CellKind = Literal["counter", "rate", "slot", "once", "hint"]
"""See `beforehand.journal.cells`."""


class Cell(msgspec.Struct, frozen=True, gc=False):
    """One stored cell. `key` tells those of one name apart; `body` is JSON text."""

    kind: CellKind
    name: str
    key: str
    body: bytes


class LimitState(msgspec.Struct, frozen=True):
    """One limit after a request. `full`: no further call fits beside those under way.

    `wait_ms`: for so long no further one may begin. `hung` and `silent_ms`: see `cells.HeldPermits`.
    """

    name: str
    full: bool
    wait_ms: int
    hung: int = 0
    silent_ms: int = 0


class PermitAnswer(msgspec.Struct, frozen=True):
    """The answer to a request, and the state of each of its limits. None is used up if one of them refuses."""

    granted: bool
    limits: tuple[LimitState, ...] = ()


class NewRun(msgspec.Struct, frozen=True):
    """A run that does not exist yet: its agent, its first records, and its listing where that is not `running`.

    `program` is the program that the agent belongs to; empty for the runtime's own agents.

    With a `place` it is in a queue: only `take` finds it a worker. The claim raises `QueueFull` where there is no room,
    `QueueDraining` where the queue accepts no run, `LimitsChanged` where other limits are in force, and is `Busy` where
    the run exists: a submission takes no lease.

    With a `firing` it is submitted by a schedule, and the commit that creates it stores that the schedule has fired.
    The claim is None, and nothing is stored, where the moment is still to come by the journal's clock, where the
    schedule has fired at this moment or a later one that is not to come either, or where the stream `schedules` has
    grown since. So no two processes fire one moment, none fires under a declaration that another one has replaced, and
    what fired while a clock was wrong delays nothing. Where the run exists, the claim is `Busy`, and the schedule has
    fired with that run.
    The rows are numbered from 1 under the token 1. With a `change` that releases the lease, any worker may claim the
    run at once.
    """

    agent: str
    rows: tuple[Row, ...] = ()
    change: RunChange | None = None
    program: str = ""
    place: QueuePlace | None = None
    firing: Firing | None = None

    def takes(self, row: RunRow) -> bool:
        """True if a claim with this may take the run that exists: the same agent's, which was not submitted."""
        same_program = not row.program or not self.program or row.program == self.program
        return self.place is None and row.agent == self.agent and same_program


class ClaimRequest(CommitRequest["LeaseGranted | Busy | None"], frozen=True):
    """A worker takes the lease of a run whose owner is gone; a new fencing token each time.

    With `new` a missing run is created, its first records in the same commit: no crash leaves a run without them.
    One that exists for another agent, or for another program's agent of this name, is `Busy`: it is not taken.
    None: there is no such run. A claim by the worker that already owns the run is `Busy` too: one process never
    drives a run twice. Raises `RecordRefused` for a first record that is too large; then nothing was created.
    """

    run: str
    worker: str
    new: NewRun | None = None


class Busy(msgspec.Struct, frozen=True):
    """The run was not taken: another living worker drives it, it is in a queue, or it is a run of another agent."""

    row: RunRow
    owner: Worker


class KnownHead(msgspec.Struct, frozen=True):
    """A head that was kept elsewhere. `origin` names it in a sentence, `remark` is added to that name."""

    head: Head
    origin: str
    remark: str = ""


class Broken(msgspec.Struct, frozen=True):
    """A place where the journal differs from what was written, and why."""

    chain: str
    record: int
    why: str


class LogCheck(msgspec.Struct, frozen=True):
    """The result of `Reader.check`: the number of ledger streams, and every damaged place."""

    streams: int
    broken: tuple[Broken, ...] = ()


class Storage(msgspec.Struct, frozen=True):
    """The storage of a journal, for display. `details` are facts that only its back end has, by name."""

    location: str
    engine: str
    bytes: int | None = None
    details: dict[str, str] = {}


class JournalReads(Protocol):
    """The methods that a journal and a reader of it share. All may raise `JournalUnavailable`."""

    async def open(self) -> Identity:
        """Create or migrate, then open. Raises `JournalError` for a newer schema or a damaged file."""
        ...

    async def close(self) -> None:
        """Flush what rides and release the file. Safe to call twice."""
        ...

    def clock(self) -> ClockReading:
        """The journal's clock: except for its calendar, it runs through suspension and cannot be set."""
        ...

    async def fate(self, worker: str) -> WorkerState:
        """State of a worker's process: proven dead, alive or `unknown`. Unknown ids count as silent for ever."""
        ...

    async def read(
        self, run: str, after: int = 0, limit: int = 1000, *, newest: bool = False, only: BodyFilter = EVERY_BODY
    ) -> list[Row]:
        """Stored rows of a run with `seq > after`, in order: the first `limit` of them, or the `newest`.

        Rows that `only` does not select may be left out. The limit counts those that are returned.
        """
        ...

    async def search(self, text: str, numbers: range, limit: int) -> list[FoundRecord]:
        """The newest `limit` records with these numbers, of any run, whose bodies contain this text.

        Case does not count in ASCII letters. Every record is read, down to the last one that is returned.
        """
        ...

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
        """List the runs, by run id. `wakeable`: running without a living owner, or suspended and due.

        `newest` has those first that were begun last; `after` then goes on with those begun before that run.
        With `status="stopped"`, `wakeable` are the stopped runs that are due to be verified again.
        """
        ...

    async def due(self, agents: Collection[AgentKey], limit: int, skip: Collection[str] = frozenset()) -> list[RunRow]:
        """Runs of these agents that need a worker, without those named in `skip`: the one due first comes first.

        A run needs one when it runs and has no living owner, or is suspended and due. So does one that has ended and
        whose owner is gone, also in a queue: commands to it may be left. An abandoned run is due since its listing last
        changed. Runs of other agents, and of other programs, cost nothing, however many there are.
        """
        ...

    async def queues(self) -> list[QueueState]:
        """The queues in which a run waits or is driven, by name."""
        ...

    async def cells(
        self, kind: CellKind, names: Collection[str] | None = None, *, below: str = "", until: str | None = None
    ) -> list[Cell]:
        """The cells of a kind, by name and key: those of these `names`, or all whose names begin with `below`.

        With `until`, of each of these names only the last cell whose key does not come after it.
        """
        ...

    async def counts(self) -> dict[tuple[str, RunStatus], int]:
        """The number of runs, by agent and status."""
        ...

    async def waiting(self, status: StatusFilter) -> list[RunWaits]:
        """The waits of all runs of that status, in any order: less than half the work of reading whole lines."""
        ...

    async def entries(self, stream: str, after: int = 0) -> list[LedgerEntry]:
        """Entries of one stream, or of every stream below it where the name ends in `/`, by id."""
        ...

    async def news(self, after: int | None) -> LedgerNews:
        """The streams of the entries with a larger id, in one read for all of them. None: only the newest id.

        Entries are numbered in the order in which they become durable: none appears later with a smaller number.
        """
        ...

    async def head(self) -> Head:
        """The head of the log: how many records and ledger entries are durable, and the hashes over all of them."""
        ...

    async def storage(self) -> Storage:
        """Where and how the journal is stored."""
        ...


class Journal(JournalReads, Protocol):
    """An append-only log. Where a method raises `JournalUnavailable`, nothing was written."""

    async def confirm(self, trust: Trust, by: str) -> Identity:
        """Record an operator's decision about a distrusted journal in the ledger stream `journal`."""
        ...

    async def beat(self, worker: Worker, lease_ms: int) -> None:
        """Register the worker or renew its lease; never queues behind data."""
        ...

    async def commit(self, request: CommitRequest[T]) -> T:
        """Decide a request, commit what it changes, and return when that is durable.

        A refusal concerns this request alone: others of the same group commit are not affected.
        """
        ...

    def ride(self, write: Write) -> None:
        """Commit with the next write of any run, or within a few milliseconds. Order is kept.

        A refusal is raised by the run's next write or `flush`.
        """
        ...

    async def flush(self, lease: Lease) -> None:
        """Return when everything that was written under this lease is durable.

        That is what rode, and what was appended by callers that were cancelled meanwhile: their commit goes on.
        Raises its refusal where it was refused.
        """
        ...

    async def changed(self, pause: Callable[[], Awaitable[None]]) -> bool | None:
        """Wait until another process may have committed, at most for the `pause`. One task waits at a time.

        False: none has since the last call, which was found without a statement. None: only a read tells.
        """
        ...


class Reader(JournalReads, Protocol):
    """A journal opened for reading, with the operations that only an operator needs."""

    async def check(self, known: Sequence[KnownHead]) -> LogCheck:
        """Compare the whole log with itself, with the back end's own memory of it, and with `known` heads.

        The chains of single runs are not part of it. Tables that cannot be read are broken themselves.
        """
        ...

    def ledger(self) -> AsyncIterator[LedgerEntry]:
        """The whole ledger by id, read page by page."""
        ...

    async def next_stream(self, after: str) -> str:
        """The first stream of the ledger whose name comes after that text; empty if there is none."""
        ...
