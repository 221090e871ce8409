"""How the ledger and the listing are read: by an index, or in the order of the rows, never as a whole and sorted."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from beforehand.journal.sqlite import ledger, runs
from beforehand.journal.sqlite.driver import Database
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.runs import Query


class Asked:
    """A database that is only asked for its plan."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.plan = ""

    def rows(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        self.plan = "; ".join(row[3] for row in self._database.execute(f"explain query plan {query}", values))
        return []


@pytest.mark.parametrize("stream", ["accounts/anna", "accounts/"])
def test_streams_are_found_by_their_index(journal_path: Path, stream: str):
    async def made() -> None:
        journal = SqliteJournal(journal_path)
        await journal.open()
        await journal.close()

    asyncio.run(made())
    with sqlite3.connect(journal_path) as database:
        asked = Asked(database)
        ledger.entries(cast("Database", asked), stream, 0)
    database.close()
    assert "ledger_stream (stream" in asked.plan


def test_the_newest_runs_are_read_from_the_end_without_sorting(journal_path: Path):
    plan = asyncio.run(
        planned(journal_path, Query(None, None, wakeable=False, limit=5, after="", newest=True), "id desc")
    )
    assert plan == "SEARCH run USING INTEGER PRIMARY KEY (rowid>?)", "in order, up to the limit, and nothing is sorted"


def test_of_stopped_runs_only_those_that_ask_are_read(journal_path: Path):
    plan = asyncio.run(
        planned(journal_path, Query(None, "halted", wakeable=False, limit=5, after="", newest=False), "name")
    )
    assert plan == "SEARCH run USING INDEX run_halted (name>?)"


def test_runs_are_counted_from_their_index(journal_path: Path):
    assert asyncio.run(plan_of(journal_path, runs.COUNTS, ())) == "SCAN run USING COVERING INDEX run_count"


@pytest.mark.parametrize("query", [runs.ABANDONED, runs.DUE])
def test_what_is_due_is_read_in_order_and_other_agents_not_at_all(journal_path: Path, query: str):
    plan = asyncio.run(plan_of(journal_path, query, ("desk", "desk", 5, 5)[: query.count("?")]))
    found = "SEARCH run USING INDEX run_due (agent=? AND program=? AND status=?"
    assert plan == (f"{found} AND due_ms<?)" if query == runs.DUE else f"{found})"), "nothing is sorted"


def test_what_a_dead_worker_held_is_found_by_its_owner(journal_path: Path):
    assert asyncio.run(plan_of(journal_path, runs.HELD, ("w",))) == "SEARCH run USING INDEX run_held (owner=?)"


async def plan_of(path: Path, query: str, values: tuple[object, ...]) -> str:
    journal = SqliteJournal(path)
    await journal.open()
    await journal.close()
    with closing(sqlite3.connect(path)) as database:
        return "; ".join(row[3] for row in database.execute(f"explain query plan {query}", values))


async def planned(path: Path, query: Query, order: str) -> str:
    """How SQLite would read these lines of the listing."""
    journal = SqliteJournal(path)
    await journal.open()
    await journal.close()
    where, values = query.where(0)
    with closing(sqlite3.connect(path)) as database:
        statement = f"explain query plan select name from run where {where} order by {order} limit 5"
        return "; ".join(row[3] for row in database.execute(statement, values))


def test_an_entry_is_found_by_its_key_and_not_among_all_of_its_stream(journal_path: Path):
    plan = asyncio.run(plan_of(journal_path, ledger.ENTRY, ("s", "k")))
    assert plan == "SEARCH ledger USING INDEX ledger_key (stream=? AND key=?)"
