"""Runs and workers on SQLite: claims, leases, liveness, and the listing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final, cast

import msgspec

from beforehand.journal.backend_rules import ENDED, FOREVER_MS, due_since, page, wants_look, wants_worker
from beforehand.journal.host import HostFacts
from beforehand.journal.port import (
    EVERY_BODY,
    AgentKey,
    BodyFilter,
    Fate,
    FoundRecord,
    Lease,
    LeaseGranted,
    QueuePlace,
    Row,
    RunRow,
    RunStatus,
    RunWaits,
    StatusFilter,
    Worker,
    WorkerState,
)
from beforehand.journal.sqlite.batch import POINTER, POINTER_SIZE, read_body
from beforehand.journal.sqlite.driver import Database, Value

_RUN = (
    "select name, id, agent, program, status, reason, due_ms, cast(waits as blob), token, owner, created_ms, updated_ms"
    ", queue, tenant from run"
)
_WAITS = "select name, agent, cast(waits as blob), updated_ms from run"
_OPEN = "status in ('running', 'suspended')"  # spelled as in the partial index, which is only used for what it knows
_HALTED = "status = 'stopped' and waits <> '[]'"  # the same
_WAKEABLE = (  # each part finds its runs in an index, so that those which only wait cost nothing
    f"id in (select id from run where {_OPEN} and status = 'running'"  # noqa: S608 -- constants
    f" union all select id from run where {_OPEN} and status = 'suspended' and due_ms <= ?"
    f" union all select id from run where owner is not null)"
    f" and (+{_OPEN} and queue = '' or owner is not null and status in {ENDED})"
)
_FREE = f"owner is null and queue = '' and {_OPEN} and agent = ? and program = ?"
ABANDONED = f"{_RUN} where {_FREE} and status = 'running' order by due_ms, id limit ?"
DUE = f"{_RUN} where {_FREE} and status = 'suspended' and due_ms <= ? order by due_ms, id limit ?"
_NEEDS_A_WORKER = f"select * from ({ABANDONED}) union all select * from ({DUE})"  # noqa: S608 -- constants
_AGENTS_AT_ONCE = 100  # SQLite joins at most 500 selects
HELD = f"{_RUN} where owner = ? and (+{_OPEN} and queue = '' or status in {ENDED})"
COUNTS = "select agent, status, count(*) from run group by agent, status"
_Line = tuple[str, int, str, str, RunStatus, str, int | None, bytes, int, str | None, int, int, str, str]
_WORKER_COLUMNS = "id, machine, boot, pid_namespace, pid, started, lease_boot, lease_end_ms, incarnation"
_WORKER = f"select {_WORKER_COLUMNS} from worker"  # noqa: S608 -- constants
OWNERS = (  # each owner of a run once, with its row where it has one
    f"select owner, {_WORKER_COLUMNS} from (select distinct owner from run where owner is not null)"  # noqa: S608 -- constants
    " left join worker on worker.id = owner"
)


class Query(msgspec.Struct, frozen=True):
    """A filter of the listing; see `Journal.runs`."""

    run: str | None
    status: StatusFilter | None
    wakeable: bool
    limit: int
    after: str
    newest: bool

    def where(self, wall_ms: int) -> tuple[str, tuple[Value, ...]]:
        """The condition in SQL, with its values."""
        # By their numbers, the newest are read from the end, and no further than the limit.
        terms: dict[str, tuple[Value, ...]] = {"id > ?": (0,)} if self.newest else {"name > ?": (self.after,)}
        if self.newest and self.after:
            terms["id < (select id from run where name = ?)"] = (self.after,)
        if self.run is not None:
            terms["name = ?"] = (self.run,)
        if self.status == "halted":
            terms[_HALTED] = ()
        elif self.status is not None:
            terms["status = ?"] = (self.status,)
        if self.status in {"running", "suspended"}:
            terms[_OPEN] = ()  # so that the index of open runs is used: the ended ones cost nothing
        if self.wakeable:
            terms["due_ms <= ?" if self.status == "stopped" else _WAKEABLE] = (wall_ms,)
        return " and ".join(terms), tuple(value for values in terms.values() for value in values)


class RunTables:
    """Ownership of runs, as one process sees it: `here` is its machine, `incarnation` its journal's."""

    def __init__(self, here: HostFacts, incarnation: Callable[[], str]) -> None:
        self.here = here
        self._incarnation = incarnation

    def beat(self, database: Database, worker: Worker, lease_ms: int) -> None:
        """Register the worker or renew its lease, on this boot's clock."""
        database.change(
            "insert into worker (id, machine, boot, pid_namespace, pid, started, lease_boot, lease_end_ms,"
            " incarnation) values (?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set"
            " lease_boot = excluded.lease_boot, lease_end_ms = excluded.lease_end_ms,"
            " incarnation = excluded.incarnation",
            (
                worker.id,
                worker.machine,
                worker.boot,
                worker.pid_namespace,
                worker.pid,
                worker.started,
                self.here.boot,
                self.here.uptime_ms() + lease_ms,
                self._incarnation(),
            ),
        )

    def fate(self, database: Database, worker: str) -> WorkerState:
        """State of the worker's process: proven dead or not, and for how long its lease has been over."""
        return self.look_up(database, worker)[1]

    def due(self, database: Database, agents: Collection[AgentKey], limit: int, skip: Collection[str]) -> list[RunRow]:
        """Runs of these agents that need a worker, those due first; each part is read from an index in its order."""
        wall, most = self.here.wall_ms(), limit + len(skip)
        found: list[tuple[Value, ...]] = []
        keys = list(agents)
        for first in range(0, len(keys), _AGENTS_AT_ONCE):
            some = keys[first : first + _AGENTS_AT_ONCE]
            sql = " union all ".join([_NEEDS_A_WORKER] * len(some))
            found += database.rows(sql, [value for agent in some for value in (*agent, most, *agent, wall, most)])
        for owner in self.gone_owners(database):
            found += [row for row in database.rows(HELD, (owner,)) if row[2:4] in agents]
        lines = [line for line in map(_run_row, found) if line.run not in skip]
        return sorted(lines, key=due_since)[:limit]

    def gone_owners(self, database: Database) -> set[str]:
        """The owners of runs that are proven dead, or whose lease is over."""
        found = database.rows(OWNERS)
        return {str(owner) for owner, *worker in found if self._state_of(str(owner), worker)[1].gone}

    def wall_ms(self) -> int:
        """The journal's wall clock."""
        return self.here.wall_ms()

    def list(self, database: Database, query: Query) -> list[RunRow]:
        """The listing by name."""
        wall, known = self.here.wall_ms(), dict[str, bool]()

        def gone(owner: str) -> bool:
            if owner not in known:
                known[owner] = self.fate(database, owner).gone
            return known[owner]

        wants = wants_look if query.status == "stopped" else wants_worker

        # SQL does not know which workers are gone, so it gets a limit only where that does not matter.
        limit = -1 if query.wakeable else query.limit
        where, values = query.where(wall)
        order = "id desc" if query.newest else "name"
        found = database.rows(f"{_RUN} where {where} order by {order} limit ?", (*values, limit))
        lines = map(_run_row, found)
        return page(lines, query.limit, lambda line: wants(line, wall, gone)) if query.wakeable else list(lines)

    def look_up(self, database: Database, worker: str) -> tuple[Worker, WorkerState]:
        """A worker, and the state of its process."""
        found = database.rows(f"{_WORKER} where id = ?", (worker,))
        return self._state_of(worker, found[0] if found else (None,))

    def _state_of(self, worker: str, found: Sequence[Value]) -> tuple[Worker, WorkerState]:
        """The worker and its state, from its row; None in its place where it has none."""
        if found[0] is None:
            return Worker(worker), WorkerState("unknown", FOREVER_MS)
        name, machine, boot, pids, pid, started, lease_boot, lease_end, incarnation = found
        assert isinstance(pid, int)
        assert isinstance(started, int)
        assert isinstance(lease_end, int)
        known = Worker(str(name), str(machine), str(boot), str(pids), pid, started)
        fate: Fate = self.here.fate(known)
        if lease_boot == self.here.boot:
            return known, WorkerState(fate, max(0, self.here.uptime_ms() - lease_end), pid)
        # Another boot's clock cannot be read here. On this machine that boot is over. Elsewhere only a
        # person can know, and did, if the journal was confirmed (a new incarnation) since.
        over = machine == self.here.machine or incarnation != self._incarnation()
        return known, WorkerState(fate, FOREVER_MS if over else 0, pid)


def granted(database: Database, row: RunRow, worker: str) -> LeaseGranted:
    """The lease of a run that the worker took in this transaction."""
    return LeaseGranted(Lease(row.run, row.row, row.token, worker), row, last_record(database, row.row))


def last_record(database: Database, run: int) -> Row | None:
    """The newest record of a run."""
    last = database.rows(
        "select seq, cast(body as blob), hash, token from record where run = ? order by seq desc limit 1", (run,)
    )
    return _record(database, last[0]) if last else None


def find(database: Database, run: str) -> RunRow | None:
    """One line of the listing, by name."""
    found = database.rows(f"{_RUN} where name = ?", (run,))
    return _run_row(found[0]) if found else None


def numbered(database: Database, row: int) -> RunRow | None:
    """One line of the listing, by number."""
    found = database.rows(f"{_RUN} where id = ?", (row,))
    return _run_row(found[0]) if found else None


def insert(database: Database, row: RunRow, place: QueuePlace) -> int:
    """Add a line to the listing. Returns its number."""
    name, _, *shown = msgspec.structs.astuple(row)
    ((number,),) = database.rows(
        "insert into run (name, agent, program, status, reason, due_ms, waits, token, owner, created_ms,"
        " updated_ms, queue, tenant, about, priority)"
        " values (?, ?, ?, ?, ?, ?, cast(? as text), ?, ?, ?, ?, ?, ?, ?, ?) returning id",
        (name, *shown, place.key, place.priority),
    )
    return cast("int", number)


def update(database: Database, row: RunRow, *, leaves: bool) -> None:
    """Change a line of the listing."""
    if leaves:  # as if it ended there: it is counted out of its queue, and gives its key to the first run behind it
        database.change("update run set status = 'stopped' where id = ?", (row.row,))
        database.change("update run set queue = '' where id = ?", (row.row,))
    database.change(
        "update run set status = ?, reason = ?, due_ms = ?, waits = cast(? as text), updated_ms = ?, owner = ?,"
        " token = ? where id = ?",
        (row.status, row.reason, row.due_ms, row.waits, row.updated_ms, row.owner, row.token, row.row),
    )


def counts(database: Database) -> dict[tuple[str, RunStatus], int]:
    """The number of runs, by agent and status."""
    found = database.rows(COUNTS)
    return {(agent, status): number for agent, status, number in cast("list[tuple[str, RunStatus, int]]", found)}


def waiting(database: Database, status: StatusFilter) -> list[RunWaits]:
    """The waits of all runs of that status, as the index has them."""
    where, values = Query(None, status, wakeable=False, limit=-1, after="", newest=False).where(0)
    found = database.rows(f"{_WAITS} where {where}", values)
    return [RunWaits(*row) for row in cast("list[tuple[str, str, bytes, int]]", found)]


_RECORDS: Final = (
    "select seq, cast(body as blob), hash, token from record"
    " where run = (select id from run where name = ?) and seq > ?"
)

_MOMENTS: Final = frozenset((b'"at"', b'"up"'))
_LAST: Final = chr(sys.maxunicode)


def read(
    database: Database, run: str, after: int, limit: int, *, newest: bool = False, only: BodyFilter = EVERY_BODY
) -> list[Row]:
    """Stored rows with `seq > after`, in order: the first ones, or the newest. `only`: see `_selecting`."""
    chosen, values = _selecting(only) if only.beginning or only.naming else ("", [])
    order = "desc" if newest else "asc"
    found = database.rows(f"{_RECORDS}{chosen} order by seq {order} limit ?", (run, after, *values, limit))
    if newest:
        found.reverse()
    # Not checked row by row, for replay reads them all: an odd number or hash breaks the chain, which readers verify.
    stored = cast("list[tuple[int, bytes, bytes, int]]", found)
    return [
        Row(seq, body if len(body) != POINTER_SIZE else read_body(database, body), digest, token)
        for seq, body, digest, token in stored
    ]


def _selecting(only: BodyFilter) -> tuple[str, list[Value]]:
    """The condition for the bodies that a filter selects. Large bodies pass, since they are stored elsewhere.

    `content` is stored, and `body` is computed anew each time that it is named. It lacks only the two moments.
    """
    if not _MOMENTS.isdisjoint(only.naming):
        return "", []
    beginnings = [one.decode() for one in (POINTER, *only.beginning)]
    conditions = ["(content >= ? and content < ?)"] * len(beginnings) + ["instr(content, ?)"] * len(only.naming)
    ranges = [bound for one in beginnings for bound in (one, one + _LAST)]
    return f" and ({' or '.join(conditions)})", [*ranges, *(one.decode() for one in only.naming)]


def _record(database: Database, row: tuple[Value, ...]) -> Row:
    seq, body, digest, token = row
    assert isinstance(seq, int)
    assert isinstance(body, bytes)
    assert isinstance(digest, bytes)
    assert isinstance(token, int)
    return Row(seq, read_body(database, body), digest, token)


def _run_row(row: tuple[Value, ...]) -> RunRow:
    # Not checked, for an inbox reads ten thousand of them: the columns of `_RUN` are the fields, in their order.
    return RunRow(*cast("_Line", row))


_CONTAINING: Final = (  # a large body lies beside its row
    "select record.id, name, seq, cast(record.body as blob) from record join run on run.id = record.run"
    " left join payload on length(record.content) = ? and payload.digest = substr(record.content, 13, 64)"
    " where record.id between ? and ? and coalesce(payload.body, record.content) like ? escape '\\'"
    " order by record.id desc limit ?"
)
_WILD: Final = re.compile(r"([%_\\])")


def search(database: Database, text: str, numbers: range, limit: int) -> list[FoundRecord]:
    """The newest records whose bodies contain a text; see `Reader.search`."""
    plain = _WILD.sub(r"\\\1", text)
    found = database.rows(_CONTAINING, (POINTER_SIZE, numbers.start, numbers.stop - 1, f"%{plain}%", limit))
    return [
        FoundRecord(number, run, seq, read_body(database, body))
        for number, run, seq, body in cast("list[tuple[int, str, int, bytes]]", found)
    ]
