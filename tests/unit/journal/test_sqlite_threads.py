"""Two threads use one journal file: neither reads over a connection on which the other has a statement under way."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from beforehand.journal.port import ClaimRequest, NewRun, Row, Write
from beforehand.journal.run_log import genesis
from beforehand.journal.sqlite.driver import DatabaseFailure, StandardDatabase
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.journal_file import JournalFile
from beforehand.journal.sqlite.opening import Parts

SLOW = "select max(id), 1 from record union all select max(id), 2 from ledger"


class Interrupted(StandardDatabase):
    """A connection that, on the thread of this name, has a statement under way while it waits for `go_on`."""

    THREAD = "upkeep"

    under_way = threading.Event()
    go_on = threading.Event()

    def rows(self, sql, values=()):
        if threading.current_thread().name != self.THREAD:
            return super().rows(sql, values)
        slow = self._connection.execute(SLOW)  # two rows: after the first the statement is still open
        slow.fetchone()
        self.under_way.set()
        assert self.go_on.wait(30)
        found = super().rows(sql, values)
        slow.fetchall()
        return found


@pytest.mark.parametrize("upkeep", [JournalFile.follow, JournalFile.count_rows], ids=["follow", "count"])
def test_what_was_committed_is_read_while_the_other_thread_reads(tmp_path: Path, upkeep: Callable[[JournalFile], None]):
    Interrupted.under_way.clear()
    Interrupted.go_on.clear()

    async def main() -> None:
        journal = SqliteJournal(tmp_path / "j.db", parts=Parts(connect=Interrupted, commits="loop"))
        await journal.open()
        await journal.commit(ClaimRequest("first", "w", NewRun("agent")))
        other = threading.Thread(target=upkeep, args=(journal._store,), name=Interrupted.THREAD)
        other.start()
        try:
            assert Interrupted.under_way.wait(30)
            await journal.commit(ClaimRequest("second", "w", NewRun("agent")))
            assert [row.run for row in await journal.runs()] == ["first", "second"]
        finally:
            Interrupted.go_on.set()
            other.join()
            await journal.close()

    asyncio.run(main())


def test_a_write_that_landed_is_found_while_the_loop_reads(tmp_path: Path):
    class Lies(StandardDatabase):
        """Reports a failure of the insert that it has done."""

        armed = False

        def change(self, sql, values=()):
            changed = super().change(sql, values)
            if Lies.armed:
                Lies.armed = False
                raise DatabaseFailure(sqlite3.SQLITE_IOERR, "planned")
            return changed

    async def main() -> None:
        journal = SqliteJournal(tmp_path / "j.db", parts=Parts(connect=Lies, commits="loop"))
        identity = await journal.open()
        claimed = await journal.commit(ClaimRequest("r", "w", NewRun("agent")))
        slow = journal._store.reader._connection.execute(SLOW)
        slow.fetchone()  # a statement of the loop is under way
        Lies.armed = True
        digest = genesis(identity.namespace, "r")
        await journal.commit(Write(claimed.lease, (Row(1, b"x" * 20, digest),)))
        slow.fetchall()
        assert not Lies.armed
        assert len(await journal.read("r")) == 1
        await journal.close()

    asyncio.run(main())
