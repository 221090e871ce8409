"""How the ledger is read: by the index of its streams, never as a whole."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.journal.sqlite import ledger
from holdfast.journal.sqlite.driver import Database
from holdfast.journal.sqlite.journal import SqliteJournal


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
