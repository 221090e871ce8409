"""The ledger on SQLite: append-only streams, final by compare-and-set, one hash chain per stream; and cells."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast

from beforehand.journal.backend_rules import NEWS_PAGE, PAUSED, SENDING, ledger_hash
from beforehand.journal.port import Cell, CellKind, LedgerEntry, LedgerNews, Post
from beforehand.journal.sqlite.driver import Database, Value

_COLUMNS = "id, stream, key, cast(body as blob), at_ms"
# `key <> ''` is what the index of keys holds: without it a key is looked for in its whole stream.
ENTRY: Final = f"select {_COLUMNS} from ledger where stream = ? and key = ? and key <> ''"  # noqa: S608 -- a constant
_PAGE: Final = f"select {_COLUMNS} from ledger where id > ? order by id limit 1000"  # noqa: S608 -- a constant
_CELL: Final = "select kind, name, key, cast(body as blob) from cell where kind = ?"
OF_A_NAME: Final = f"{_CELL} and name = ? order by key"
LAST: Final = f"{_CELL} and name = ? and key <= ? order by key desc limit 1"
BELOW: Final = f"{_CELL} and name >= ? and name < ? order by name, key"
NEWEST: Final = "select id from ledger where stream = ? order by id desc limit 1"
NEWEST_KEY: Final = NEWEST.replace("id", "key", 1)
_NEWEST_SWITCH: Final = f"select key glob '{PAUSED}*' from ledger where stream = '{SENDING}' order by id desc limit 1"  # noqa: S608 -- names of ours
IS_PAUSED: Final = f"coalesce(({_NEWEST_SWITCH}), 0)"


def insert(database: Database, entry: LedgerEntry) -> None:
    """Append an entry whose key is known to be free."""
    last = database.rows("select hash from ledger where stream = ? order by id desc limit 1", (entry.stream,))
    previous = last[0][0] if last else None
    assert previous is None or isinstance(previous, bytes)
    digest = ledger_hash(previous, Post(entry.stream, entry.key, entry.body), entry.at_ms)
    database.change(
        "insert into ledger (id, stream, key, body, at_ms, hash) values (?, ?, ?, cast(? as text), ?, ?)",
        (entry.id, entry.stream, entry.key, entry.body, entry.at_ms, digest),
    )


def entry(database: Database, stream: str, key: str) -> LedgerEntry | None:
    """The entry that holds a key."""
    found = database.rows(ENTRY, (stream, key))
    return _entry(found[0]) if found else None


def newest(database: Database, stream: str) -> int:
    """The id of the newest entry of a stream; 0 without one."""
    found = database.rows(NEWEST, (stream,))
    return cast("int", found[0][0]) if found else 0


def entries(database: Database, stream: str, after: int) -> list[LedgerEntry]:
    """Entries with a larger id, of one stream or of all below a name that ends in `/`."""
    where, names = "stream = ?", [stream]
    if stream.endswith("/"):
        where, names = "stream >= ? and stream < ?", [stream, stream[:-1] + chr(ord("/") + 1)]
    # Many streams from the beginning: their index is the way. Left to itself, SQLite would read the whole ledger by id.
    number = "+id" if stream.endswith("/") and not after else "id"
    found = database.rows(
        f"select {_COLUMNS} from ledger where {where} and {number} > ? order by {number}",  # noqa: S608 -- constants
        (*names, after),
    )
    return [_entry(row) for row in found]


def news(database: Database, after: int | None) -> LedgerNews:
    """The streams with entries after that id, found by id alone: the cost is that of the new entries."""
    if after is None:
        ((last,),) = database.rows("select coalesce(max(id), 0) from ledger")
        assert isinstance(last, int)
        return LedgerNews(last)
    rows = database.rows(f"select id, stream from ledger where id > ? order by id limit {NEWS_PAGE}", (after,))  # noqa: S608 -- a constant
    found = cast("list[tuple[int, str]]", rows)
    last = found[-1][0] if found else after
    return LedgerNews(last, tuple(dict.fromkeys(stream for _, stream in found)), more=len(found) == NEWS_PAGE)


def page(database: Database, after: int) -> list[LedgerEntry]:
    """The next entries of the whole ledger, by id."""
    return [_entry(row) for row in database.rows(_PAGE, (after,))]


def first_broken(database: Database, stream: str) -> int | None:
    """The id of the first entry of a stream whose hash does not follow from the one before."""
    head: bytes | None = None
    for row in database.rows(
        f"select {_COLUMNS}, hash from ledger where stream = ? order by id",  # noqa: S608 -- a constant
        (stream,),
    ):
        entry = _entry(row[:5])
        head = ledger_hash(head, Post(entry.stream, entry.key, entry.body), entry.at_ms)
        if row[5] != head:
            return entry.id
    return None


def _entry(row: tuple[Value, ...]) -> LedgerEntry:
    number, stream, key, body, at_ms = row
    assert isinstance(number, int)
    assert isinstance(stream, str)
    assert isinstance(key, str)
    assert isinstance(body, bytes)
    assert isinstance(at_ms, int)
    return LedgerEntry(number, stream, key, body, at_ms)


def read_cells(
    database: Database, kind: CellKind, names: Collection[str] | None, below: str, until: str | None
) -> list[Cell]:
    """Cells of a kind; see `Journal.cells`."""
    if names is None:
        end = below + chr(0x10FFFF)
        found = database.rows(BELOW, (kind, below, end))
    else:
        found = list[tuple[Value, ...]]()
        for name in sorted(names):
            found += (
                database.rows(OF_A_NAME, (kind, name)) if until is None else database.rows(LAST, (kind, name, until))
            )
    return [Cell(*row) for row in cast("list[tuple[CellKind, str, str, bytes]]", found)]


def next_stream(database: Database, after: str) -> str:
    """The first stream whose name comes after that text; empty if there is none."""
    ((name,),) = database.rows("select min(stream) from ledger where stream > ?", (after,))
    return "" if name is None else str(name)
