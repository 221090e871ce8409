"""The head of a journal file: computed from a known one over later rows, or from the beginning."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Literal, TypeVar, cast

import msgspec

from beforehand.journal.sqlite.driver import Database
from beforehand.model.heads import Head, over_entries, over_records

PAGE: Final = 1000
Table = Literal["record", "ledger"]
_RecordRow = tuple[int, int, int, int, bytes]
_EntryRow = tuple[int, bytes]
_Row = TypeVar("_Row", _RecordRow, _EntryRow)
_COLUMNS: Final[dict[Table, str]] = {"record": "id, run, seq, token, hash", "ledger": "id, hash"}


class Gap(msgspec.Struct, frozen=True):
    """Rows of a table that are missing: all numbers from `first` to `last`."""

    table: Table
    first: int
    last: int


def follow(database: Database, head: Head) -> Head:
    """Continue `head` over the rows that came since, as far as their numbers have no gap."""
    ((last_record, last_entry),) = database.rows("select (select max(id) from record), (select max(id) from ledger)")
    if (last_record or 0, last_entry or 0) == (head.records, head.entries):
        return head  # the most frequent answer, of a process that only waits
    records, records_hash = head.records, head.records_hash
    for page in pages(database, "record", records):
        found = _without_gap(cast("list[_RecordRow]", page), records)
        if found:
            records, records_hash = found[-1][0], over_records(records_hash, found)
        if len(found) < len(page):
            break
    entries, entries_hash = head.entries, head.entries_hash
    for page in pages(database, "ledger", entries):
        rest = _without_gap(cast("list[_EntryRow]", page), entries)
        if rest:
            entries, entries_hash = rest[-1][0], over_entries(entries_hash, rest)
        if len(rest) < len(page):
            break
    return Head(records, entries, records_hash, entries_hash)


def whole(database: Database, start: Head) -> Head:
    """The head over all existing rows, also where some are missing."""
    records, entries, records_hash, entries_hash = 0, 0, start.records_hash, start.entries_hash
    for page in pages(database, "record", 0):
        rows = cast("list[_RecordRow]", page)
        records, records_hash = rows[-1][0], over_records(records_hash, rows)
    for page in pages(database, "ledger", 0):
        rest = cast("list[_EntryRow]", page)
        entries, entries_hash = rest[-1][0], over_entries(entries_hash, rest)
    return Head(records, entries, records_hash, entries_hash)


def hashes_at(database: Database, table: Table, start: str, wanted: Collection[int]) -> dict[int, str]:
    """The hash of the table up to each of the numbers, over the rows that there are. `start` is that of no rows."""
    found, value = {number: start for number in wanted if number < 1}, start
    stops = sorted(number for number in wanted if number > 0)
    for page in pages(database, table, 0):
        for row in page:
            while stops and stops[0] < _number(row):
                found[stops.pop(0)] = value
            value = _over(table, value, row)
        if not stops:
            break
    found |= dict.fromkeys(stops, value)
    return found


def pages(database: Database, table: Table, after: int) -> Iterator[list[tuple[object, ...]]]:
    """The columns of later rows that a head covers, a page at a time."""
    sql = f"select {_COLUMNS[table]} from {table} where id > ? order by id limit {PAGE}"  # noqa: S608 -- constants
    while page := database.rows(sql, (after,)):
        yield cast("list[tuple[object, ...]]", page)
        after = _number(page[-1])


def missing(database: Database) -> int:
    """How many rows are missing between the first number and the last: one count of each table, which is quick."""
    ((number,),) = database.rows(
        "select (select coalesce(max(id), 0) from record) - (select count(*) from record)"
        " + (select coalesce(max(id), 0) from ledger) - (select count(*) from ledger)"
    )
    assert isinstance(number, int)
    return number


def gaps(database: Database, table: Table) -> list[Gap]:
    """The numbers that are missing below the last one."""
    found = database.rows(
        f"select before + 1, id - 1 from (select id, lag(id, 1, 0) over (order by id) before from {table})"  # noqa: S608 -- one of two names
        " where id <> before + 1"
    )
    return [Gap(table, int(str(first)), int(str(last))) for first, last in found]


def _over(table: Table, before: str, row: tuple[object, ...]) -> str:
    if table == "record":
        return over_records(before, (cast("_RecordRow", row),))
    return over_entries(before, (cast("_EntryRow", row),))


def _number(row: tuple[object, ...]) -> int:
    number = row[0]
    assert isinstance(number, int)
    return number


def _without_gap(rows: list[_Row], after: int) -> list[_Row]:
    """The rows up to the first number that does not follow the one before."""
    if rows[-1][0] == after + len(rows):
        return rows
    return [row for place, row in enumerate(rows, after + 1) if row[0] == place]
