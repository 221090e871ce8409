"""The facts that a request needs, read from the tables under the write lock, and its changes, written to them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from beforehand.journal.port import (
    CellKind,
    ClockReading,
    CommitRequest,
    Lease,
    LedgerEntry,
    Row,
    RunRow,
    TakeRequest,
    Worker,
    WorkerState,
)
from beforehand.journal.requests import Changes, decide, numbered
from beforehand.journal.sqlite import ledger, runs
from beforehand.journal.sqlite.batch import store_rows
from beforehand.journal.sqlite.driver import Database
from beforehand.journal.sqlite.queues import QueueTables
from beforehand.journal.sqlite.runs import RunTables


class Tables(NamedTuple):
    """Runs and workers, and the slots of queues, as one process sees them."""

    roll: RunTables
    slots: QueueTables


ONE_NAME: Final = "select key, cast(body as blob) from cell where kind = ? and name = ?"
ONE_CELL: Final = f"{ONE_NAME} and key = ?"
# A key ends with a space and a number: see `cells.slot_key`.
SLOT_HOLDERS: Final = (
    "select rtrim(key, '0123456789') as worker, count(*) from cell where kind = 'slot' and name = ? group by worker"
)
LAST_KEY: Final = "select key from cell where kind = ? and name = ? and key <= ? order by key desc limit 1"
_STORE: Final = "insert or replace into cell (kind, name, key, body) values (?, ?, ?, cast(? as text))"
_TAKE: Final = "update run set token = ?, owner = ?, updated_ms = ? where id = ?"
_DELETE: Final = "delete from cell where kind = ? and name = ? and key = ?"
WAITING: Final = "select waiting from queue where name = ?"


def perform(tables: Tables, database: Database, request: CommitRequest[Any], place: tuple[int, int] | None) -> object:
    """Decide a request and write what it changes, inside the transaction. Raises its refusal."""
    if isinstance(request, TakeRequest):
        return tables.slots.take(database, request)
    answer, changes = decide(request, SqliteFacts(database, tables.roll, place))
    if changes.created is not None:
        answer = numbered(answer, runs.insert(database, *changes.created))
        changes.lease = answer.lease
    apply(database, changes)
    return answer


class SqliteFacts:
    """The facts as one process reads them. `place` is the token and the next number of the run that it drives."""

    def __init__(self, database: Database, roll: RunTables, place: tuple[int, int] | None = None) -> None:
        self._database = database
        self._roll = roll
        self._place = place
        self.wall_ms = roll.here.wall_ms()

    @property
    def now(self) -> ClockReading:
        return ClockReading(self._roll.here.boot, up := self._roll.here.uptime_ms(), up, self.wall_ms)

    def run(self, name: str) -> RunRow | None:
        return runs.find(self._database, name)

    def leased(self, lease: Lease) -> RunRow | None:
        return runs.numbered(self._database, lease.row)

    def last(self, row: int) -> Row | None:
        return runs.last_record(self._database, row)

    def next_seq(self, lease: Lease) -> int:
        # Under another token others may have written meanwhile, so what is known of the run is void.
        if self._place is not None and self._place[0] == lease.token:
            return self._place[1]
        last = self.last(lease.row)
        return last.seq + 1 if last else 1

    def worker(self, name: str) -> tuple[Worker, WorkerState]:
        return self._roll.look_up(self._database, name)

    def newest(self, stream: str) -> int:
        return ledger.newest(self._database, stream)

    def newest_key(self, stream: str) -> str:
        found = self._database.rows(ledger.NEWEST_KEY, (stream,))
        return cast("str", found[0][0]) if found else ""

    def entry(self, stream: str, key: str) -> LedgerEntry | None:
        return ledger.entry(self._database, stream, key)

    def new_entry(self) -> int:
        ((last,),) = self._database.rows("select max(id) from ledger")
        return cast("int", last or 0) + 1

    def cells(self, kind: CellKind, name: str, key: str | None = None) -> dict[str, bytes]:
        query, more = (ONE_NAME, ()) if key is None else (ONE_CELL, (key,))
        return dict(cast("list[tuple[str, bytes]]", self._database.rows(query, (kind, name, *more))))

    def holders(self, name: str) -> dict[str, int]:
        found = cast("list[tuple[str, int]]", self._database.rows(SLOT_HOLDERS, (name,)))
        return {worker[:-1]: number for worker, number in found}

    def last_key(self, kind: CellKind, name: str, until: str) -> str:
        found = self._database.rows(LAST_KEY, (kind, name, until))
        return cast("str", found[0][0]) if found else ""

    def waiting(self, queue: str) -> int:
        found = self._database.rows(WAITING, (queue,))
        return cast("int", found[0][0]) if found else 0


def apply(database: Database, changes: Changes) -> None:
    """Write the changes of one request, in the transaction in which its facts were read."""
    if changes.rows and changes.lease is not None:
        store_rows(database, changes.lease, changes.rows)
    for entry in changes.entries:
        ledger.insert(database, entry)
    if (row := changes.taken) is not None:
        database.change(_TAKE, (row.token, row.owner, row.updated_ms, row.row))
    if changes.listed is not None:
        runs.update(database, changes.listed, leaves=changes.leaves)
    for address, body in changes.cells.items():
        if body is None:
            database.change(_DELETE, address)
        else:
            database.change(_STORE, (*address, body))
