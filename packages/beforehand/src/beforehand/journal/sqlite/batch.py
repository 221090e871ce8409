"""One batch, one transaction: the writes of many runs become durable together; each succeeds or fails alone.

A batch of plain appends is a single INSERT in autocommit mode, which is one transaction and the
fewest steps that Python can make. Every row is guarded by its fencing token inside the statement, so
a late owner's rows are left out while the others' go in; so are those of an attempt while all sending is
paused, with what its run wrote behind it. Anything more (a changed listing, ledger entries, large bodies,
claims) runs in an explicit transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from beforehand.errors import BeforehandError
from beforehand.journal.backend_rules import check_extras, check_size, lease_lost, out_of_order, sending_paused
from beforehand.journal.port import CommitRequest, Lease, LeaseGranted, Row, Write
from beforehand.journal.sqlite.driver import Database, Value
from beforehand.journal.sqlite.ledger import IS_PAUSED

if TYPE_CHECKING:
    import asyncio

LARGEST_INLINE = 8 << 10
"""Largest body in bytes that is stored in its row; a larger one is stored beside it, once for equal ones."""

POINTER = b'{"payload":"'
POINTER_SIZE = len(POINTER) + 64 + len(b'"}')

_AT = b',"at":'
_MOMENTS = re.compile(rb',"at":([1-9]\d{0,17}),"up":([1-9]\d{0,17})\}')
"""The end of a body. Digits that SQLite writes in the same way again: no sign, no leading zero, fewer than 64 bits."""

_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


_RECORD = "insert into record (run, seq, token, content, at, up, hash)"


def _insert_sql(count: int) -> str:
    """Insert up to `count` rows whose token still is the run's, without those that send while sending is paused.

    The last value of a row is 1 if it sends. Unused places stay NULL and match no run.
    """
    places = ",".join(["(?,?,?,?,?,?,?,?)"] * count)
    return (  # only question marks are put in
        f"{_RECORD} select column1, column2, column3, cast(column4 as text), column5, column6, column7"  # noqa: S608 -- see above
        f" from (values {places})"
        f" where (select token from run where id = column1) = column3 and (column8 = 0 or not {IS_PAUSED})"
    )


_INSERT = {size: _insert_sql(size) for size in _SIZES}
_COLUMNS = 8
_MOST_VALUES = _COLUMNS * _SIZES[-1]
_SIZE_FOR = [next(size for size in _SIZES if size >= count) for count in range(_SIZES[-1] + 1)]


Perform: TypeAlias = Callable[[Database, CommitRequest[Any], tuple[int, int] | None], object]
"""Decides a request and writes its changes. With it goes the place of its run, as far as the batch knows it."""
_Places = dict[int, tuple[int, int]]
"""The next position of runs that are driven from here: the token, and the next seq under it."""


class CommitItem(msgspec.Struct, eq=False):
    """An item of the next commit: one write, another request, or one piece of `work` on the database.

    `work` reads before it changes anything, so that an error which it raises has changed nothing. A `plain` write only
    adds rows whose bodies are stored in the row. An item with none is committed when everything before it is.
    """

    write: Write | None = None
    plain: bool = False
    request: CommitRequest[Any] | None = None
    work: Callable[[Database], object] | None = None
    future: asyncio.Future[object] | None = None
    result: object = None
    error: BeforehandError | None = None


def item_of(write: Write) -> CommitItem:
    """A write as an item of the queue. Raises `RecordRefused` for a record that no journal accepts."""
    plain = bool(write.rows) and not (write.change or write.posts or write.charges or write.declared is not None)
    if not plain:
        check_extras(write)
    for row in write.rows:
        size = len(row.body)
        if size == POINTER_SIZE or size > LARGEST_INLINE:
            check_size(write, row)
            plain = False  # one that only happens to have that size goes the longer way, to no harm
    return CommitItem(write, plain)


class BatchWriter:
    """Turns batches into transactions on one connection. Lets `DatabaseFailure` pass to the store."""

    def __init__(self, database: Database, perform: Perform) -> None:
        self._database = database
        self._perform_request = perform
        self._next: _Places = {}

    def commit(self, items: Sequence[CommitItem]) -> None:
        """Commit the items that may be committed; afterwards each item has its result or its error."""
        if len(items) == 1 and self._commit_next(items[0]):
            return
        ahead: _Places = {}
        rest: list[CommitItem] = []
        values = self._sort(items, ahead, rest)
        if rest or len(values) > _MOST_VALUES:
            self._database.rows("begin immediate")
            if _insert(self._database, values) * _COLUMNS != len(values):
                self.recheck([item for item in items if item not in rest], self._database)
                ahead.clear()  # what follows in `rest` must not be chained on to rows that were left out
            for item in rest:
                self._perform(item, ahead)
            self._database.rows("commit")
        elif _insert(self._database, values) * _COLUMNS != len(values):
            self.recheck(items, self._database)
            return
        self._next.update(ahead)

    def _commit_next(self, item: CommitItem) -> bool:
        """The straight path: one run goes on where it wrote last, in one statement. False: nothing was done.

        The statement checks the fencing token. A failure leaves the run's place as it was known before, and `recheck`
        forgets it, exactly as for a batch.
        """
        write = item.write
        if write is None or not item.plain or len(write.rows) > _SIZES[-1]:
            return False
        run, place = write.lease.row, (write.lease.token, write.rows[0].seq)
        if self._next.get(run) != place:
            return False  # another owner wrote, or the number is odd: the batch finds out which
        values: list[Value] = []
        _add_values(values, write, write.sends)
        if _insert(self._database, values) == len(write.rows):
            self._next[run] = (place[0], place[1] + len(write.rows))
        else:
            self.recheck((item,), self._database)
        return True

    def recheck(self, items: Sequence[CommitItem], database: Database) -> bool:
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
                item.error = _left_out(write, database)
        return landed

    def _sort(self, items: Sequence[CommitItem], ahead: _Places, rest: list[CommitItem]) -> list[Value]:
        """Part plain appends, whose values go into the one INSERT, from all that needs more.

        Order within each run is kept: what follows a write in `rest` goes there too.
        """
        values: list[Value] = []
        apart: set[int] = set()
        sending: set[int] = set()  # what a run writes behind an attempt is left out with it
        for item in items:
            write = item.write
            if write is None:
                if item.work is not None or item.request is not None:
                    rest.append(item)
            elif not item.plain or write.lease.row in apart:
                apart.add(write.lease.row)
                rest.append(item)
            elif self._in_order(item, write, ahead):
                if write.sends:
                    sending.add(write.lease.row)
                _add_values(values, write, write.lease.row in sending)
        return values

    def _in_order(self, item: CommitItem, write: Write, ahead: _Places) -> bool:
        """True if the write continues at the end of the run's stored chain; else it is refused.

        A write under an older token is `LeaseLost` whatever its number is: the present owner's records explain the
        gap, and agent code could catch a `RecordRefused`.
        """
        lease, rows = write.lease, write.rows
        place = ahead.get(lease.row) or self._next.get(lease.row)
        # Under another token others may have written meanwhile, so what is known of the run is void.
        expected = place[1] if place and place[0] == lease.token else _stored_next(self._database, lease.row)
        if rows[0].seq != expected:
            item.error = out_of_order(write, expected) if _holds(self._database, lease) else lease_lost(write.lease)
            return False
        ahead[lease.row] = (lease.token, expected + len(rows))
        return True

    def _perform(self, item: CommitItem, ahead: _Places) -> None:
        """Perform one item inside the open transaction; a refusal concerns it alone and has changed nothing."""
        try:
            if item.work is not None:
                item.result = item.work(self._database)
            elif item.write is not None:
                row = item.write.lease.row
                self._perform_request(self._database, item.write, ahead.get(row) or self._next.get(row))
                self._note(item.write, ahead)
            elif item.request is not None:
                item.result = granted = self._perform_request(self._database, item.request, None)
                if isinstance(granted, LeaseGranted):  # nothing but its owner writes under the new token
                    lease, last = granted.lease, granted.last
                    ahead[lease.row] = (lease.token, last.seq + 1 if last else 1)
        except BeforehandError as error:
            item.error = error

    def _note(self, write: Write, ahead: _Places) -> None:
        run = write.lease.row
        if write.change is not None and write.change.release:
            ahead.pop(run, None)
            self._next.pop(run, None)
        elif write.rows:
            ahead[run] = (write.lease.token, write.rows[-1].seq + 1)


def store_rows(database: Database, lease: Lease, rows: Sequence[Row]) -> None:
    """Store records whose place and token were checked in this transaction."""
    for at in range(0, len(rows), _SIZES[-1]):
        some, values = rows[at : at + _SIZES[-1]], list[Value]()
        for row in some:
            kept = _spilled(row, database)
            values += (lease.row, kept.seq, lease.token, *parted(kept.body), kept.hash)
        places = ",".join(["(?,?,?,cast(? as text),?,?,?)"] * len(some))
        database.change(f"{_RECORD} values {places}", values)


def _insert(database: Database, values: list[Value]) -> int:
    """Insert guarded rows with as few statements as possible; how many passed their guard."""
    if not values:
        return 0
    if len(values) > _MOST_VALUES:
        return _insert(database, values[:_MOST_VALUES]) + _insert(database, values[_MOST_VALUES:])
    count = len(values) // _COLUMNS
    size = _SIZE_FOR[count]
    if size > count:
        values = values + [None] * (_COLUMNS * (size - count))
    return database.change(_INSERT[size], values)


def _spilled(row: Row, database: Database) -> Row:
    """The row with a large body laid beside it. A body that looks like a pointer is laid aside too."""
    if len(row.body) <= LARGEST_INLINE and not _looks_like_pointer(row.body):
        return row
    digest = sha256(row.body).hexdigest()
    database.change(
        "insert into payload (digest, body) values (?, cast(? as text)) on conflict do nothing", (digest, row.body)
    )
    return Row(row.seq, POINTER + digest.encode() + b'"}', row.hash, row.token)


def _add_values(values: list[Value], write: Write, sends: bool) -> None:
    """The values of its rows, one row after the other. An int is bound faster than anything else."""
    run, token, guarded = write.lease.row, write.lease.token, 1 if sends else 0
    for row in write.rows:
        values += (run, row.seq, token, *parted(row.body), row.hash, guarded)


def parted(body: bytes) -> tuple[bytes, int | None, int | None]:
    """A body as it is stored: up to its two moments, and these. The whole body where joining would not give it back."""
    end = body.rfind(_AT)
    found = _MOMENTS.fullmatch(body, end) if end >= 0 else None
    return (body, None, None) if found is None else (body[:end], int(found[1]), int(found[2]))


def read_body(database: Database, body: bytes) -> bytes:
    """The full body of a stored row. Only a body of `POINTER_SIZE` can be a pointer to another."""
    if not _looks_like_pointer(body):
        return body
    digest = body[len(POINTER) : -2].decode()
    found = database.rows("select cast(body as blob) from payload where digest = ?", (digest,))
    if not found:
        return body  # the chain does not hold then, and verify says where
    ((full,),) = found
    assert isinstance(full, bytes)
    return full


def _looks_like_pointer(body: bytes) -> bool:
    return len(body) == POINTER_SIZE and body.startswith(POINTER)


def _left_out(write: Write, database: Database) -> BeforehandError:
    """The reason why rows that were inserted are not there: another owner has the run, or all sending is paused."""
    if not _holds(database, write.lease):
        return lease_lost(write.lease)
    if write.sends:
        return sending_paused(write.lease.run)
    return out_of_order(write, _stored_next(database, write.lease.row))


def _holds(database: Database, lease: Lease) -> bool:
    return database.rows("select token from run where id = ?", (lease.row,)) == [(lease.token,)]


def _stored_next(database: Database, run: int) -> int:
    ((last,),) = database.rows("select coalesce(max(seq), 0) from record where run = ?", (run,))
    assert isinstance(last, int)
    return last + 1


def _is_stored(write: Write, database: Database) -> bool:
    last = write.rows[-1]
    return database.rows("select token, hash from record where run = ? and seq = ?", (write.lease.row, last.seq)) == [
        (write.lease.token, last.hash)
    ]
