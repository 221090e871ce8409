"""The ledger on SQLite: append-only streams, final by compare-and-set, one hash chain per stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from beforehand.errors import LedgerTaken
from beforehand.journal.backend_rules import NEWS_PAGE, ledger_hash, limits_changed
from beforehand.journal.port import LedgerEntry, LedgerNews, Post
from beforehand.journal.sqlite.driver import Database, Value

_COLUMNS = "id, stream, key, cast(body as blob), at_ms"
_PAGE = 1000
NEWEST: Final = "select id from ledger where stream = ? order by id desc limit 1"


def insert(database: Database, post: Post, at_ms: int) -> LedgerEntry:
    """Append an entry whose key is known to be free."""
    last = database.rows("select hash from ledger where stream = ? order by id desc limit 1", (post.stream,))
    previous = last[0][0] if last else None
    assert previous is None or isinstance(previous, bytes)
    ((number,),) = database.rows(
        "insert into ledger (stream, key, body, at_ms, hash) values (?, ?, cast(? as text), ?, ?) returning id",
        (post.stream, post.key, post.body, at_ms, ledger_hash(previous, post, at_ms)),
    )
    assert isinstance(number, int)
    return LedgerEntry(number, post.stream, post.key, post.body, at_ms)


def standing(database: Database, post: Post) -> LedgerEntry | None:
    """The entry that already holds the post's key."""
    if not post.key:
        return None
    found = database.rows(
        f"select {_COLUMNS} from ledger where stream = ? and key = ?",  # noqa: S608 -- a constant
        (post.stream, post.key),
    )
    return _entry(found[0], fresh=False) if found else None


def check_limits(database: Database, declared: int) -> None:
    """Raise `LimitsChanged` where this is not the ledger entry of the limits in force."""
    from beforehand.queues.limits import STREAM  # noqa: PLC0415 - commands that only read import no queues

    found = database.rows(NEWEST, (STREAM,))
    if declared != (found[0][0] if found else 0):
        raise limits_changed()


def first_taken(database: Database, posts: Sequence[Post]) -> LedgerEntry | None:
    """The existing entry for the first post whose key is taken."""
    seen: dict[tuple[str, str], Post] = {}
    for post in posts:
        found = standing(database, post)
        if found is not None:
            return found
        twin = seen.get((post.stream, post.key))
        if post.key and twin is not None:
            return LedgerEntry(0, twin.stream, twin.key, twin.body, 0, fresh=False)
        seen[post.stream, post.key] = post
    return None


def put(database: Database, post: Post, at_ms: int) -> LedgerEntry:
    """Append, or return the existing entry of the key."""
    return standing(database, post) or insert(database, post, at_ms)


def put_all(database: Database, posts: Sequence[Post], at_ms: int) -> list[LedgerEntry]:
    """Append all of them. Raises `LedgerTaken`, before anything is changed, where a key is taken."""
    taken = first_taken(database, posts)
    if taken is not None:
        raise LedgerTaken(taken.stream, taken.key, taken.body)
    return [insert(database, post, at_ms) for post in posts]


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
    return [_entry(row, fresh=True) for row in found]


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
    found = database.rows(
        f"select {_COLUMNS} from ledger where id > ? order by id limit {_PAGE}",  # noqa: S608 -- constants
        (after,),
    )
    return [_entry(row, fresh=True) for row in found]


def first_broken(database: Database, stream: str) -> int | None:
    """The id of the first entry of a stream whose hash does not follow from the one before."""
    head: bytes | None = None
    for row in database.rows(
        f"select {_COLUMNS}, hash from ledger where stream = ? order by id",  # noqa: S608 -- a constant
        (stream,),
    ):
        entry = _entry(row[:5], fresh=True)
        head = ledger_hash(head, Post(entry.stream, entry.key, entry.body), entry.at_ms)
        if row[5] != head:
            return entry.id
    return None


def _entry(row: tuple[Value, ...], *, fresh: bool) -> LedgerEntry:
    number, stream, key, body, at_ms = row
    assert isinstance(number, int)
    assert isinstance(stream, str)
    assert isinstance(key, str)
    assert isinstance(body, bytes)
    assert isinstance(at_ms, int)
    return LedgerEntry(number, stream, key, body, at_ms, fresh)


# --- hints ---------------------------------------------------------------------------------------------------------
# Notes that may be lost and that all processes share, replaced by compare-and-set.


def hint(database: Database, name: str) -> bytes | None:
    found = database.rows("select cast(body as blob) from hint where name = ?", (name,))
    if not found:
        return None
    ((body,),) = found
    assert isinstance(body, bytes)
    return body


def hints_below(database: Database, prefix: str) -> dict[str, bytes]:
    """The hints whose names begin with `prefix`."""
    found = database.rows(
        "select name, cast(body as blob) from hint where substr(name, 1, ?) = ?", (len(prefix), prefix)
    )
    return {str(name): body for name, body in found if isinstance(body, bytes)}


def put_hint(database: Database, name: str, body: bytes, previous: bytes | None) -> bool:
    """Replace the hint if it still is `previous`."""
    if previous is None:
        changed = database.change(
            "insert into hint (name, body) values (?, cast(? as text)) on conflict (name) do nothing", (name, body)
        )
    else:
        changed = database.change(
            "update hint set body = cast(? as text) where name = ? and body = cast(? as text)", (body, name, previous)
        )
    return changed == 1


def next_stream(database: Database, after: str) -> str:
    """The first stream whose name comes after that text; empty if there is none."""
    ((name,),) = database.rows("select min(stream) from ledger where stream > ?", (after,))
    return "" if name is None else str(name)
