"""The history of the listing: each change of a run of a queue, in the order of commits.

The store in memory is read after each call. In a file, triggers note every change of a row in its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from beforehand.journal.cells import LastFiring, firing_of
from beforehand.journal.host import HostFacts
from beforehand.journal.port import (
    Cell,
    CellKind,
    ClaimRequest,
    CommitRequest,
    Firing,
    Identity,
    LeaseGranted,
    LedgerEntry,
    TakeRequest,
    Write,
)
from beforehand.journal.sqlite.driver import Database, StandardDatabase, Value
from beforehand.journal.sqlite.opening import Parts
from beforehand.journal.sqlite.schema import statements
from beforehand.queues.limits import STREAM, DeclaredLimits
from beforehand.queues.modes import queue_of
from beforehand.queues.schedules import STREAM as SCHEDULES
from beforehand.testing.loop import Actor
from beforehand.testing.world.disk import Disk, FaultyJournal, Store
from beforehand.testing.world.files import Afterwards, Files, SqliteDisk

if TYPE_CHECKING:
    from simulator.world import World


T = TypeVar("T")


class Line(msgspec.Struct, frozen=True):
    """One run of a queue at one moment, as its row in the listing has it."""

    row: int
    run: str
    queue: str
    agent: str
    tenant: str
    about: str
    priority: int
    status: str
    owner: str | None
    token: int
    due_ms: int | None
    updated_ms: int

    @property
    def ready_ms(self) -> int | None:
        """The time from which on it is ready for a slot; None if it waits for something else."""
        return self.updated_ms if self.status == "running" else self.due_ms


class Listener(Protocol):
    """Receives each change."""

    def changed(self, line: Line) -> None:
        """The row of a run changed."""
        ...

    def taken(self, before: Line, now: Line) -> None:
        """A worker got a slot for a run."""
        ...

    def declared(self, limits: DeclaredLimits) -> None:
        """Limits were declared."""
        ...


class FiringListener(Protocol):
    """Receives what becomes durable about schedules, and what processes do about them."""

    def entered(self, number: int, at_ms: int, body: bytes) -> None:
        """The ledger has an entry more about schedules."""
        ...

    def fired(self, schedule: str, moment_ms: int, run: str) -> None:
        """A schedule has fired with this run."""
        ...

    def looked(self, actor: Actor, schedule: str, last: LastFiring | None, now_ms: int) -> None:
        """A process has read when the schedule fired last, and decides what is due at that time of its clock."""
        ...

    def attempts(self, actor: Actor, run: str, firing: Firing) -> None:
        """A process is about to fire a schedule."""
        ...


# --- in memory --------------------------------------------------------------------------------------------------------


class QueueStore(Store):
    """The shared journal in memory. It reports each change of a run of a queue."""

    listener: Listener
    firings: FiringListener

    async def commit(self, request: CommitRequest[T]) -> T:
        asked: object = request
        before = {name: self._line(name) for name in self._runs} if isinstance(asked, TakeRequest) else {}
        answer = await super().commit(request)
        if isinstance(asked, ClaimRequest):
            firing = None if asked.new is None else asked.new.firing
            if answer is not None and firing is not None:
                self.firings.fired(firing.schedule, firing.moment_ms, asked.run)
            claimed: object = answer
            if isinstance(claimed, LeaseGranted) and not claimed.fresh:
                self._tell(asked.run)
        elif isinstance(asked, TakeRequest):
            for granted in cast("list[LeaseGranted]", answer):
                self.listener.taken(before[granted.row.run], self._line(granted.row.run))
        return answer

    def gone(self, owner: str) -> bool:
        """True if the runs of that worker may be taken."""
        return self._gone(owner)

    def _written(self, write: Write) -> None:
        super()._written(write)
        if write.change is not None:
            self._tell(write.lease.run)

    def _append(self, entry: LedgerEntry) -> None:
        super()._append(entry)
        if entry.stream == STREAM and not queue_of(entry.key):
            self.listener.declared(msgspec.json.decode(entry.body, type=DeclaredLimits))
        if entry.stream == SCHEDULES:
            self.firings.entered(entry.id, entry.at_ms, entry.body)

    def _tell(self, run: str) -> None:
        if self._runs[run].place.queue:
            self.listener.changed(self._line(run))

    def _line(self, run: str) -> Line:
        found = self._runs[run]
        row, place = found.listing, found.place
        return Line(
            row.row, run, place.queue, row.agent, place.tenant, place.key, place.priority, row.status, row.owner,
            row.token, row.due_ms, row.updated_ms,
        )  # fmt: skip


# --- in a file --------------------------------------------------------------------------------------------------------


_COLUMNS: Final = "id, name, queue, agent, tenant, about, priority, status, owner, token, due_ms, updated_ms"


def _row(which: str) -> str:
    return ", ".join(f"{which}.{name.strip()}" for name in _COLUMNS.split(","))


_NAMES: Final = [name.strip() for name in _COLUMNS.split(",")]
_NOTED: Final = ", ".join(f"{which}_{name}" for which in ("old", "new") for name in _NAMES)
_BOTH: Final = f"{_row('old')}, {_row('new')}"
_WATCH: Final = f"""
create table simulated (number integer primary key, kind text, body blob, {_NOTED});
create trigger simulated_run after insert on run when new.queue <> ''
begin insert into simulated select null, 'changed', null, {_row("new")}, {_row("new")}; end;
create trigger simulated_change after update on run when new.queue <> '' and new.served_ms is old.served_ms
begin insert into simulated select null, 'changed', null, {_BOTH}; end;
create trigger simulated_slot after update of served_ms on run when new.queue <> ''
begin insert into simulated select null, 'taken', null, {_BOTH}; end;
create trigger simulated_limits after insert on ledger when new.stream = '{STREAM}' and instr(new.key, '/') = 0
begin insert into simulated (kind, body) values ('declared', cast(new.body as blob)); end;
create trigger simulated_entry after insert on ledger when new.stream = '{SCHEDULES}'
begin insert into simulated (kind, body, old_id, old_due_ms)
values ('entered', cast(new.body as blob), new.id, new.at_ms); end;
create trigger simulated_firing after insert on cell when new.kind = 'once'
begin insert into simulated (kind, body, old_name, old_due_ms)
values ('fired', cast(new.body as blob), new.name, cast(new.key as integer)); end;
"""  # noqa: S608 - constants
_NEWS: Final = "select * from simulated where number > ? order by number"
_WIDTH: Final = len(_NAMES)


class QueueFiles(Files):
    """The shared file, with triggers that note each change of a run of a queue."""

    def __init__(self, world: World, directory: Path, listener: Listener, firings: FiringListener) -> None:
        self._listener = listener
        self._firings = firings
        self._world = world
        self._noted = 0
        self._history: StandardDatabase | None = None
        super().__init__(world, directory, world.plan.seed, world.checker.stored)

    def parts(self, here: HostFacts, strain: Callable[[], int], made: list[Afterwards]) -> Parts:
        parts = super().parts(here, strain, made)

        def watched(path: Path, read_only: bool) -> Database:
            return _Watched(parts.connect(path, read_only), self._committed)

        return replace(parts, connect=watched)

    async def open(self) -> Identity:
        identity = await super().open()
        history = StandardDatabase(self.path, read_only=False)
        for statement in statements(_WATCH):
            history.rows(statement)
        self._history = history
        return identity

    def gone(self, owner: str, taker: str) -> bool:
        """True if `taker` may take the runs of `owner`: its lease is over, or it is seen to be dead."""
        assert self._history is not None, "open comes first"
        if owner == taker:
            return False
        found = self._history.rows("select lease_boot, lease_end_ms from worker where id = ?", (owner,))
        if not found or found[0][0] != self.world.boot or cast("int", found[0][1]) < self.world.now_ms():
            return True
        hidden = self._world.hidden(owner, self._world.contained.get(taker, False))
        return owner in self.dead and (owner == taker or not hidden)

    def close(self) -> None:
        super().close()
        if self._history is not None:
            self._history.close()

    def _committed(self) -> None:
        if self._history is None:
            return
        for number, kind, body, *lines in self._history.rows(_NEWS, (self._noted,)):
            self._noted = cast("int", number)
            if kind == "entered":
                at = lines[_NAMES.index("due_ms")]
                self._firings.entered(cast("int", lines[0]), cast("int", at), cast("bytes", body))
                continue
            if kind == "fired":
                schedule, moment = lines[_NAMES.index("name")], lines[_NAMES.index("due_ms")]
                run = msgspec.json.decode(cast("bytes", body), type=str)
                self._firings.fired(cast("str", schedule), cast("int", moment), run)
                continue
            if kind == "declared":
                self.observe()  # what was committed before it was under the limits of before
                self._listener.declared(msgspec.json.decode(cast("bytes", body), type=DeclaredLimits))
                continue
            before, now = _line(lines[:_WIDTH]), _line(lines[_WIDTH:])
            if kind == "taken":
                self._listener.taken(before, now)
            else:
                self._listener.changed(now)


def _line(values: list[Value]) -> Line:
    return Line(*cast("tuple[int, str, str, str, str, str, int, str, str | None, int, int | None, int]", values))


class _Watched:
    """A connection that reports when one of its transactions is durable."""

    def __init__(self, real: Database, committed: Callable[[], None]) -> None:
        self._real = real
        self._committed = committed

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        found = self._real.rows(sql, values)
        if sql == "commit":
            self._committed()
        return found

    def change(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._real.change(sql, values)

    def close(self) -> None:
        self._real.close()


# --- what a process asks for ------------------------------------------------------------------------------------------


class _NotedTakes(FaultyJournal):
    looks: Callable[[str, Collection[str]], None]
    firings: FiringListener

    async def cells(
        self, kind: CellKind, names: Collection[str] | None = None, *, below: str = "", until: str | None = None
    ) -> list[Cell]:
        cells: list[Cell] = await self.through("cells", kind, names, below=below, until=until)
        if kind == "once" and names is not None and until is not None:
            (schedule,) = names
            self.firings.looked(self._actor, schedule, firing_of(next(iter(cells), None)), int(until))
        return cells

    async def commit(self, request: CommitRequest[T]) -> T:
        asked: object = request
        if isinstance(asked, ClaimRequest) and asked.new is not None and asked.new.firing is not None:
            self.firings.attempts(self._actor, asked.run, asked.new.firing)
        elif isinstance(asked, TakeRequest):
            self.looks(asked.worker, asked.skip)
        return await super().commit(request)


class QueueDisk(_NotedTakes, Disk):
    """The journal in memory as one process sees it. It notes the requests for slots."""


class QueueSqliteDisk(_NotedTakes, SqliteDisk):
    """The journal in the file as one process sees it. It notes the requests for slots."""
