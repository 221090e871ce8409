"""Each store answers every case of the tables, and has stored what was decided: it reads the facts that were meant."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, NamedTuple

import pytest
from msgspec.structs import astuple, replace

from beforehand.errors import BeforehandError
from beforehand.journal.host import HostFacts
from beforehand.journal.memory import MemoryJournal, _Run
from beforehand.journal.port import Busy, Lease, LeaseGranted, LedgerEntry, QueuePlace, Row, RunRow, Worker, WorkerState
from beforehand.journal.sqlite import ledger, runs
from beforehand.journal.sqlite.batch import store_rows
from beforehand.journal.sqlite.facts import Tables, perform
from beforehand.journal.sqlite.queues import QueueTables
from beforehand.journal.sqlite.runs import RunTables
from beforehand.journal.sqlite.schema import shipped, statements
from tests.unit.journal import test_cell_requests, test_requests
from tests.unit.journal.commit_facts import DictFacts

CASES: dict[str, tuple[Any, DictFacts]] = {
    **{name: (case.request, case.facts) for name, case in test_requests.CASES.items()},
    **{name: (case.request, case.facts) for name, case in test_requests.REFUSALS.items()},
    **{
        name: (case.request, DictFacts(stored=case.before, workers=case.workers))
        for name, case in test_cell_requests.CASES.items()
    },
}
WAITING = RunRow("", 0, "desk", "", "queued", "", 1, b"[]", 2, None, 1, 1)
PADDING = "of no case"


class State(NamedTuple):
    """Everything that a store holds, beside what only fills it up."""

    lines: list[RunRow]
    records: dict[int, list[tuple[int, bytes, bytes]]]
    entries: list[LedgerEntry]
    cells: dict[tuple[str, str, str], bytes]


Stored = tuple[Callable[[Any], Any], Callable[[], State]]
"""What commits a request, and what reads the state."""


def fillers(facts: DictFacts) -> Iterator[tuple[RunRow, QueuePlace]]:
    """The runs that wait in queues, by their number alone."""
    numbers = count(100)
    for queue, waiting in facts.queued.items():
        for number in (next(numbers) for _ in range(waiting)):
            yield replace(WAITING, run=f"{PADDING} {number}", row=number, queue=queue), QueuePlace(queue)


def process(name: str, state: WorkerState, *, machine: str = "") -> Worker:
    return Worker(name, machine, pid=state.pid or 7)


def as_state(lines: Any, records: Any, entries: Any, cells: Any) -> State:
    rows = {row: [(one.seq, one.body, one.hash) for one in some] for row, some in records.items() if some}
    mine = sorted((line for line in lines if not line.run.startswith(PADDING)), key=lambda line: line.row)
    return State(mine, rows, [entry for entry in entries if entry.stream != PADDING], dict(cells))


def in_dictionaries(facts: DictFacts) -> Stored:
    return facts.commit, lambda: as_state(facts.lines.values(), facts.records, facts.ledger, facts.stored)


def in_memory(facts: DictFacts) -> Stored:
    journal = MemoryJournal(lambda: facts.now.earliest_ms, lambda: facts.wall_ms)
    vars(journal)["clock"] = lambda: facts.now
    for line in facts.lines.values():
        journal._runs[line.run] = _Run(line, facts.records.get(line.row, []), QueuePlace(line.queue, line.tenant))
        journal._names[line.row] = line.run
    for line, place in fillers(facts):
        journal._runs[line.run] = _Run(line, place=place)
        journal._names[line.row] = line.run
    known = {entry.id: entry for entry in facts.ledger}
    for number in range(1, max(known, default=0) + 1):
        journal._append(known.get(number) or LedgerEntry(number, PADDING, "", b"", 1))
    for (kind, name, key), body in facts.stored.items():
        journal._cells[kind][name][key] = body
    for name, state in facts.workers.items():
        seen = process(name, state, machine="m" if state.fate == "alive" else "")
        journal._workers[name] = seen, facts.now.earliest_ms - state.silent_ms
        if state.fate == "dead":
            journal.kill(name)

    def state() -> State:
        records = {run.listing.row: run.rows for run in journal._runs.values()}
        kept = {
            (kind, name, key): body
            for kind, names in journal._cells.items()
            for name, cells in names.items()
            for key, body in cells.items()
        }
        return as_state([run.listing for run in journal._runs.values()], records, journal._ledger, kept)

    return journal._perform, state


class OnLibrary:
    """A database of SQLite in memory, with the schema of a new journal."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for statement in statements(shipped()[-1].sql):
            self.rows(statement)

    in_transaction = True

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(sql, values).rowcount

    def close(self) -> None:
        self._connection.close()


def in_sqlite(facts: DictFacts) -> Stored:
    database = OnLibrary()
    here = HostFacts(
        "m", "b", lambda: facts.now.earliest_ms, lambda: facts.wall_ms, lambda worker: facts.workers[worker.id].fate
    )
    roll = RunTables(here, lambda: "1")
    tables = Tables(roll, QueueTables(roll))
    listed = [(line, QueuePlace(line.queue, line.tenant)) for line in facts.lines.values()]
    for line, place in [*listed, *fillers(facts)]:
        database.change("update run set id = ? where id = ?", (line.row, runs.insert(database, line, place)))
    for row, rows in facts.records.items():
        store_rows(database, Lease("", row, 0, ""), rows)
    for entry in facts.ledger:
        ledger.insert(database, entry)
    for (kind, name, key), body in facts.stored.items():
        values = (kind, name, key, body)
        database.change("insert into cell (kind, name, key, body) values (?, ?, ?, cast(? as text))", values)
    for name, state in facts.workers.items():
        seen = astuple(process(name, state))
        values = (*seen, "b", facts.now.earliest_ms - state.silent_ms, "1")
        database.change(f"insert into worker values ({','.join('?' * len(values))})", values)

    def state() -> State:
        numbers = [number for (number,) in database.rows("select id from run")]
        records = {
            number: [
                Row(*row)
                for row in database.rows(
                    "select seq, cast(body as blob), hash from record where run = ? order by seq", (number,)
                )
            ]
            for number in numbers
        }
        names = {stream for (stream,) in database.rows("select distinct stream from ledger")}
        entries = sorted((one for name in names for one in ledger.entries(database, name, 0)), key=lambda one: one.id)
        cells = {
            tuple(row[:3]): row[3] for row in database.rows("select kind, name, key, cast(body as blob) from cell")
        }
        return as_state([runs.numbered(database, number) for number in numbers], records, entries, cells)

    return lambda request: perform(tables, database, request, None), state


def answered(commit: Callable[[Any], Any], request: Any) -> tuple[Any, int]:
    """The answer with the number 1 for a run that was created, and the number that it has."""
    try:
        answer = commit(request)
    except BeforehandError as error:
        return (type(error), str(error)), 0
    if isinstance(answer, LeaseGranted) and answer.fresh:
        row = answer.lease.row
        return replace(answer, lease=replace(answer.lease, row=1), row=replace(answer.row, row=1)), row
    if isinstance(answer, Busy):
        return replace(answer, owner=replace(answer.owner, machine="")), 0
    return answer, 0


def with_first_number(state: State, created: int) -> State:
    """The state with the number 1 for the run that was created."""
    lines = [replace(line, row=1) if line.row == created else line for line in state.lines]
    return state._replace(
        lines=lines, records={1 if row == created else row: rows for row, rows in state.records.items()}
    )


@pytest.mark.parametrize("store", [in_memory, in_sqlite])
@pytest.mark.parametrize(("request_", "facts"), CASES.values(), ids=CASES)
def test_a_store_answers_and_stores_what_was_decided(
    request_: Any, facts: DictFacts, store: Callable[[DictFacts], Stored]
):
    commit, read = store(deepcopy(facts))
    decide, decided = in_dictionaries(deepcopy(facts))
    assert read() == decided()
    answer, created = answered(commit, request_)
    assert answer == answered(decide, request_)[0]
    assert with_first_number(read(), created) == with_first_number(decided(), 1)
