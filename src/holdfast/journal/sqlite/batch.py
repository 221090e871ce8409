"""One batch, one transaction: the writes of many runs become durable together, each on its own terms.

A batch of plain appends is a single INSERT in autocommit mode, which is one transaction and the
fewest steps that Python can make. Every row is guarded by its fencing token inside the statement, so
a late owner's rows are left out while the others' go in. Anything more (a changed listing, ledger
entries, large bodies, claims) runs in an explicit transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256

from holdfast.errors import HoldfastError, LeaseLost, LedgerTaken, RecordRefused
from holdfast.journal.port import Row, RunChange, Write
from holdfast.journal.sqlite import ledger
from holdfast.journal.sqlite.driver import Database, Value

LARGEST_INLINE = 8 << 10
"""Bytes of a body that stands in its row; a larger one lies beside it, once for equal ones."""

_POINTER = b'{"payload":"'
_POINTER_SIZE = len(_POINTER) + 64 + len(b'"}')

_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


def _insert_sql(count: int) -> str:
    """Insert up to `count` rows whose token still is the run's. Unused places stay NULL and match no run."""
    places = ",".join(["(?,?,?,?,?)"] * count)
    return (  # only question marks are put in
        "insert into record (run, seq, token, at_ms, body, hash)"  # noqa: S608 -- see above
        " select column1, column2, column3, ?, cast(column4 as text), column5"
        f" from (values {places})"
        " where (select token from run where id = column1) = column3"
    )


_INSERT = {size: _insert_sql(size) for size in _SIZES}


class Item:
    """What waits for the next commit: one write, or one piece of `work` on the database.

    `work` looks first and changes afterwards, so that an error which it raises has changed nothing.
    """

    __slots__ = ("error", "future", "result", "work", "write")

    def __init__(
        self,
        write: Write | None,
        future: asyncio.Future[object] | None = None,
        work: Callable[[Database], object] | None = None,
    ) -> None:
        self.write = write
        self.work = work
        self.future = future
        self.result: object = None
        self.error: HoldfastError | None = None


class BatchWriter:
    """Turns batches into transactions on one connection. Lets `DatabaseFailure` pass to the store."""

    def __init__(self, database: Database, wall_ms: Callable[[], int]) -> None:
        self._database = database
        self._wall_ms = wall_ms
        self._next: dict[int, int] = {}  # run -> the seq of its next record, for runs driven from here

    def commit(self, items: Sequence[Item]) -> None:
        """Commit what may be committed; afterwards each item has its result or its error."""
        ahead: dict[int, int] = {}
        plain, rest = self._sort(items, ahead)
        count = sum(len(write.rows) for write in plain)
        if rest or count > _SIZES[-1]:
            self._database.rows("begin immediate")
            stored = self._insert([(write, row) for write in plain for row in write.rows])
            for item in rest:
                self._perform(item, ahead)
            self._database.rows("commit")
        else:
            stored = self._insert([(write, row) for write in plain for row in write.rows])
        self._next.update(ahead)
        if stored != count:
            self.recheck(items, self._database)

    def recheck(self, items: Sequence[Item], database: Database) -> bool:
        """Read back which of `items` are stored and give the others their error.

        False when none of the batch is: then its transaction did not happen.
        """
        landed = False
        for item in items:
            write = item.write
            if write is None or not write.rows or item.error is not None:
                continue
            self._next.pop(write.lease.row, None)
            if _is_stored(write, database):
                landed = True
            else:
                item.error = lease_lost(write)
        return landed

    def forget(self, run: int) -> None:
        """The run was claimed or given back: what its next record is, is read anew."""
        self._next.pop(run, None)

    def _sort(self, items: Sequence[Item], ahead: dict[int, int]) -> tuple[list[Write], list[Item]]:
        """Plain appends for the one INSERT, and all that needs more, in order within each run."""
        plain: list[Write] = []
        rest: list[Item] = []
        apart: set[int] = set()
        for item in items:
            write = item.write
            if write is None:
                rest.append(item)
            elif write.lease.row in apart or not _is_plain(write):
                apart.add(write.lease.row)
                rest.append(item)
            elif write.rows and self._in_order(item, write, ahead):
                plain.append(write)
        return plain, rest

    def _in_order(self, item: Item, write: Write, ahead: dict[int, int]) -> bool:
        """Whether the write goes on where the run's stored chain ends; else it is refused."""
        run = write.lease.row
        expected = ahead.get(run) or self._next.get(run) or self._stored_next(run)
        first = write.rows[0].seq
        if first != expected:
            item.error = out_of_order(write, expected)
            return False
        ahead[run] = first + len(write.rows)
        return True

    def _stored_next(self, run: int) -> int:
        ((last,),) = self._database.rows("select coalesce(max(seq), 0) from record where run = ?", (run,))
        assert isinstance(last, int)
        return last + 1

    def _insert(self, rows: Sequence[tuple[Write, Row]]) -> int:
        """Insert guarded rows with as few statements as possible; how many passed their guard."""
        stored = 0
        for start in range(0, len(rows), _SIZES[-1]):
            part = rows[start : start + _SIZES[-1]]
            size = next(size for size in _SIZES if size >= len(part))
            values: list[Value] = [self._wall_ms()]
            for write, row in part:
                lease = write.lease
                values += (lease.row, row.seq, lease.token, row.body, row.hash)
            values += [None] * (5 * (size - len(part)))
            stored += self._database.change(_INSERT[size], values)
        return stored

    def _perform(self, item: Item, ahead: dict[int, int]) -> None:
        """Do one item inside the open transaction; a refusal is its own and has changed nothing."""
        try:
            if item.work is not None:
                item.result = item.work(self._database)
            elif item.write is not None:
                self._write(item, item.write, ahead)
        except HoldfastError as error:
            item.error = error

    def _write(self, item: Item, write: Write, ahead: dict[int, int]) -> None:
        database, run = self._database, write.lease.row
        if database.rows("select token from run where id = ?", (run,)) != [(write.lease.token,)]:
            raise lease_lost(write)
        taken = ledger.first_taken(database, write.posts)
        if taken is not None:
            raise LedgerTaken(taken.stream, taken.key, taken.body)
        if write.rows and not self._in_order(item, write, ahead):
            return
        self._insert([(write, self._spilled(row)) for row in write.rows])
        for post in write.posts:
            ledger.insert(database, post, self._wall_ms())
        if write.change is not None:
            _change_run(database, write, write.change, self._wall_ms())

    def _spilled(self, row: Row) -> Row:
        """The row with a large body laid beside it. A body that looks like a pointer is laid aside too."""
        if not _lies_beside(row.body):
            return row
        digest = sha256(row.body).hexdigest()
        self._database.change(
            "insert into payload (digest, body) values (?, cast(? as text)) on conflict do nothing",
            (digest, row.body),
        )
        return Row(row.seq, _POINTER + digest.encode() + b'"}', row.hash, row.token)


def read_body(database: Database, body: bytes) -> bytes:
    """The full body for what stands in a row."""
    if not _looks_like_pointer(body):
        return body
    digest = body[len(_POINTER) : -2].decode()
    found = database.rows("select cast(body as blob) from payload where digest = ?", (digest,))
    if not found:
        return body  # the chain does not hold then, and verify says where
    ((full,),) = found
    assert isinstance(full, bytes)
    return full


def lease_lost(write: Write) -> LeaseLost:
    return LeaseLost(
        f"{write.lease.run}: the lease with token {write.lease.token} is over", known="nothing was written"
    )


def out_of_order(write: Write, expected: int) -> RecordRefused:
    return RecordRefused(
        f"{write.lease.run}: record {write.rows[0].seq} came where {expected} is next",
        known="an earlier write of this run was refused, or two logs write to it",
    )


def _is_plain(write: Write) -> bool:
    if write.change is not None or write.posts:
        return False
    return not any(_lies_beside(row.body) for row in write.rows)


def _lies_beside(body: bytes) -> bool:
    return len(body) > LARGEST_INLINE or _looks_like_pointer(body)


def _looks_like_pointer(body: bytes) -> bool:
    return len(body) == _POINTER_SIZE and body.startswith(_POINTER)


def _is_stored(write: Write, database: Database) -> bool:
    last = write.rows[-1]
    return database.rows("select token, hash from record where run = ? and seq = ?", (write.lease.row, last.seq)) == [
        (write.lease.token, last.hash)
    ]


def _change_run(database: Database, write: Write, change: RunChange, wall_ms: int) -> None:
    database.change(
        "update run set status = ?, reason = ?, due_ms = ?, waits = cast(? as text), updated_ms = ?,"
        " owner = case when ? then null else owner end where id = ? and token = ?",
        (
            change.status,
            change.reason,
            change.due_ms,
            change.waits,
            wall_ms,
            change.release,
            write.lease.row,
            write.lease.token,
        ),
    )
