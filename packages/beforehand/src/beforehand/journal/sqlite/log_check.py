"""Check of the whole log: gaps, the end, the ledger, and kept heads, which no single run shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from beforehand.journal.backend_rules import CHANGED
from beforehand.journal.port import Broken, Identity, KnownHead, LogCheck
from beforehand.journal.sqlite import anchor, heads, ledger, schema
from beforehand.journal.sqlite.driver import DatabaseFailure, View
from beforehand.journal.sqlite.opening import end_of, tails_at
from beforehand.model.heads import first_head

UNLISTED: Final = "its run is not listed any more"
THE_END: Final = "the end of the journal"
_NAMES: Final[dict[heads.Table, str]] = {"record": "the log of records", "ledger": "the log of ledger entries"}


def check_log(view: View, path: Path, identity: Identity, kept: Sequence[KnownHead]) -> LogCheck:
    """Compare the log with itself, with its anchor and with the heads that were kept. Closes the view."""
    database = view.database
    try:
        streams = [str(stream) for (stream,) in database.rows("select distinct stream from ledger order by stream")]
        mark = anchor.load(anchor.beside(path))
        broken = [*_ends(view, mark, kept), *_streams(view, streams), *_unlisted(view)]
        broken += [*_gaps(view), *_trust(view), *_schema(view)]
        # A known place explains why the anchor's head differs; the heads kept elsewhere are compared all the same.
        known = [KnownHead(mark.head, "the anchor")] if mark is not None and not broken and mark.missing == 0 else []
        return LogCheck(len(streams), (*broken, *_heads(view, identity, [*known, *kept])))
    except DatabaseFailure as failure:
        return LogCheck(0, (Broken("the tables of the journal", 0, f"they cannot be read: {failure}"),))
    finally:
        database.close()


def _ends(view: View, mark: anchor.Anchor | None, kept: Sequence[KnownHead]) -> Iterator[Broken]:
    """A log that is shorter than its anchor or a kept head says. Its rows alone cannot show that."""
    end = end_of(view.database)
    # Where SQLite's own log could not be read, the end that the anchor knows may be in there.
    if mark is not None and not view.stale:
        cut = anchor.lost_tail(mark, tails_at(view.database, mark))
        if cut:
            yield Broken(THE_END, end.records + 1, cut)
    unread = ", as far as it can be read without its -wal file" if view.stale else ""
    for one in kept:
        head = one.head
        for name, known, number in (
            ("records", head.records, end.records),
            ("ledger entries", head.entries, end.entries),
        ):
            if known > number:
                why = f"{one.origin} has {known} {name}, and this file ends at {number}{unread}"
                yield Broken(THE_END, number + 1, why)


def _streams(view: View, streams: Sequence[str]) -> Iterator[Broken]:
    for stream in streams:
        entry = ledger.first_broken(view.database, stream)
        if entry is not None:
            yield Broken(f"ledger {stream}", entry, CHANGED)


def _unlisted(view: View) -> Iterator[Broken]:
    found = view.database.rows("select min(id) from record where run not in (select id from run) group by run")
    for (number,) in found:
        yield Broken("no run", int(str(number)), UNLISTED)


def _gaps(view: View) -> Iterator[Broken]:
    """Numbers without a row. Each row has the number after the one before, so a missing number is a removed row."""
    for table, name in _NAMES.items():
        for gap in heads.gaps(view.database, table):
            if gap.last < gap.first:  # only a number below 1 can follow out of order
                yield Broken(name, gap.last + 1, "it was put in: numbers begin with 1")
                continue
            removed = f"{gap.last - gap.first + 1} were removed" if gap.last > gap.first else "it was removed"
            yield Broken(name, gap.first, f"{removed}; {_beside(view, gap)}")


def _beside(view: View, gap: heads.Gap) -> str:
    """The rows before and after a gap, so that a person can find the missing ones in a backup."""
    if gap.table == "ledger":
        sql = "select stream from ledger where id = ?"
    else:
        sql = "select coalesce((select name from run where run.id = record.run), 'a lost run') from record where id = ?"
    before, after = view.database.rows(sql, (gap.first - 1,)), view.database.rows(sql, (gap.last + 1,))
    what = "an entry of" if gap.table == "ledger" else "a record of"
    start = f"it followed {what} {before[0][0]!s}" if before else "it was the first"
    return f"{start} and came before {what} {after[0][0]!s}" if after else start


def _trust(view: View) -> Iterator[Broken]:
    """The mark of trust in the file, against the last confirmation by an operator on record."""
    found = view.database.rows("select body from ledger where stream = 'journal' order by id desc limit 1")
    ((marked,),) = view.database.rows("select value from meta where name = 'trust'")
    confirmed = "trusted"
    if found:
        try:
            confirmed = str(msgspec.json.decode(str(found[0][0]), type=dict[str, str])["trust"])
        except (msgspec.MsgspecError, KeyError):
            return  # the chain of the stream says so
    if marked != confirmed:
        yield Broken(
            "the mark of trust", 0, f"the file says {marked!s}, and the last confirmation on record {confirmed}"
        )


def _schema(view: View) -> Iterator[Broken]:
    """Tables, indexes, triggers and views that are not those of this release: a trigger changes what is stored."""
    shipped = {_plain(one): one for step in schema.shipped() for one in schema.statements(step.sql)}
    shipped[_plain(schema.HISTORY)] = schema.HISTORY
    sql = "select type, name, sql from sqlite_master where sql is not null and name not like 'sqlite\\_%' escape '\\'"
    for kind, name, text in view.database.rows(sql):
        if shipped.pop(_plain(str(text)), None) is None:
            yield Broken(
                f"the {kind!s} {name!s}", 0, "another program made or changed it: this release has none like it"
            )
    for statement in shipped:
        yield Broken("the schema", 0, f"it lacks what this makes: {statement[:80]}")


def _plain(statement: str) -> str:
    """A statement of the schema without its comments and spaces, as SQLite stores it."""
    lines = (line for line in statement.splitlines() if not line.startswith("--"))
    return " ".join(" ".join(lines).lower().replace("if not exists ", "").rstrip("; ").split())


def _heads(view: View, identity: Identity, known: Sequence[KnownHead]) -> Iterator[Broken]:
    """Compare the file with every head; of those that differ the first is named, as it narrows the place best."""
    end, start = end_of(view.database), first_head(identity.namespace, identity.secret)
    yield from _table_heads(
        view, "record", start.records_hash,
        [(one.head.records, one.head.records_hash, _name(one)) for one in known if one.head.records <= end.records],
    )  # fmt: skip
    yield from _table_heads(
        view, "ledger", start.entries_hash,
        [(one.head.entries, one.head.entries_hash, _name(one)) for one in known if one.head.entries <= end.entries],
    )  # fmt: skip


def _table_heads(view: View, table: heads.Table, start: str, known: Sequence[tuple[int, str, str]]) -> Iterator[Broken]:
    found = heads.hashes_at(view.database, table, start, {number for number, _, _ in known})
    good = 0
    for number, digest, origin in sorted(known):
        if found.get(number) != digest:
            span = f"up to {number}" if good == 0 else f"between {good + 1} and {number}"
            yield Broken(_NAMES[table], good + 1, f"what stands {span} is not what {origin} covers")
            return
        good = number


def _name(one: KnownHead) -> str:
    return one.origin + one.remark
