"""A journal that is only looked at: it reads what is there, and refuses whatever would write."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beforehand.cli.common import without_waiting
from beforehand.errors import JournalError, JournalUnavailable
from beforehand.journal.cells import read_hint
from beforehand.journal.port import ClaimRequest, HintRequest, Lease, NewRun, Post
from beforehand.journal.sqlite.driver import is_open_here
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.reader import SqliteReader

LEASE = Lease("r", 1, 1, "w")


async def filled(path) -> None:
    journal = SqliteJournal(path)
    await journal.open()
    await journal.commit(ClaimRequest("r", "w", NewRun("agent")))
    await journal.commit(Post("s", "k", b"1"))
    await journal.commit(HintRequest("h", b"2", None))
    await journal.close()


def test_it_reads_and_never_writes(tmp_path):
    async def main():
        await filled(tmp_path / "j.db")
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
        journal = SqliteReader(tmp_path / "j.db", untouched=True)
        with pytest.raises(JournalUnavailable, match="is not open"):
            await journal.runs()
        identity = await journal.open()
        assert (identity.trust, "for reading only" in identity.notices[0]) == ("trusted", True)
        assert [row.run for row in await journal.runs()] == ["r"]
        assert [entry.body for entry in await journal.entries("s")] == [b"1"]
        assert (await read_hint(journal, "h"), await journal.read("r")) == (b"2", [])
        assert (await journal.fate("w")).fate == "unknown"
        assert journal.clock().earliest_ms > 0
        await journal.close()
        await journal.close()
        assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}

    asyncio.run(main())


@pytest.mark.parametrize("content", [b"", b"hello, this is no database at all"])
def test_what_is_no_journal_is_said(tmp_path, content):
    (tmp_path / "j.db").write_bytes(content)
    with pytest.raises(JournalError):
        asyncio.run(SqliteReader(tmp_path / "j.db", untouched=True).open())


def test_an_older_schema_cannot_be_brought_up_to_date(tmp_path):
    async def main():
        await filled(tmp_path / "j.db")
        journal = SqliteJournal(tmp_path / "j.db")
        await journal.open()
        journal._store._files.writer.rows("pragma user_version = 7")
        await journal.close()
        reading = SqliteReader(tmp_path / "j.db", untouched=True)
        with pytest.raises(JournalError, match="has schema version 7; this release reads 2"):
            await reading.open()
        assert not is_open_here(tmp_path / "j.db"), "a file that is refused is closed"

    asyncio.run(main())


def test_a_file_that_can_be_written_is_opened_as_by_everybody_and_not_appended_to(tmp_path):
    async def main():
        await filled(tmp_path / "j.db")
        (tmp_path / "j.db-lock").unlink()
        journal = SqliteReader(tmp_path / "j.db")
        identity = await journal.open()
        assert (identity.untouched, identity.trust) == (False, "trusted")
        assert (tmp_path / "j.db-lock").exists()
        assert [row.run for row in await journal.runs()] == ["r"]
        await journal.close()
        await journal.close()
        with pytest.raises(JournalUnavailable, match="is not open"):
            await journal.runs()

    asyncio.run(main())


def test_it_needs_no_event_loop(tmp_path):
    asyncio.run(filled(tmp_path / "j.db"))

    async def look() -> list[str]:
        journal = SqliteReader(tmp_path / "j.db")
        await journal.open()
        found = [row.run for row in await journal.runs()]
        await journal.close()
        return found

    assert without_waiting(look()) == ["r"]


def test_what_waits_for_something_is_not_done_without_a_loop():
    async def wait() -> None:
        await asyncio.sleep(0)

    waiting = wait()
    with pytest.raises(RuntimeError):
        without_waiting(waiting)
    assert waiting.cr_frame is None, "it is closed"


def test_a_full_disk_can_be_looked_at(tmp_path):
    path = tmp_path / "j.db"

    async def main():
        journal = SqliteJournal(path)
        await journal.open()
        await journal.close()
        older = (tmp_path / "j.db.anchor").read_bytes()
        await filled(path)
        (tmp_path / "j.db.anchor").write_bytes(older)  # a process that died before it renewed the anchor
        fresh = tmp_path / f"j.db.anchor.{os.getpid()}"
        fresh.symlink_to("/dev/full")  # where the next anchor is written: there is no room for it
        with pytest.raises(JournalUnavailable, match="No space left"):
            await SqliteJournal(path).open()
        assert not fresh.is_symlink(), "what could not be written is not left behind"
        fresh.symlink_to("/dev/full")
        reading = SqliteReader(path)
        identity = await reading.open()
        assert identity.untouched
        assert "the disk is full (make room)" in identity.notices[-1]
        assert [row.run for row in await reading.runs()] == ["r"]
        await reading.close()

    asyncio.run(main())


HALF_WRITTEN = """
import os, signal, sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("pragma cache_size = 1")  # so that changed pages are written before the commit
file.execute("begin immediate")
file.execute("insert into payload select value, zeroblob(9000) from json_each(?)", (str(list(range(100))),))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("reads", [SqliteReader, partial(SqliteJournal, mode="rollback")], ids=["reader", "journal"])
def test_a_read_rolls_back_what_a_killed_process_left_half_written(tmp_path: Path, reads: Callable[[Path], Any]):
    async def main() -> None:
        path = tmp_path / "j.db"
        writer = SqliteJournal(path, mode="rollback")
        await writer.open()
        await writer.commit(Post("s", "", b"1"))
        await writer.close()
        journal = reads(path)
        await journal.open()
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", HALF_WRITTEN, str(path))
        assert await killed.wait() == -signal.SIGKILL
        assert (tmp_path / "j.db-journal").stat().st_size > 0
        assert [entry.body for entry in await journal.entries("s")] == [b"1"]
        assert not (tmp_path / "j.db-journal").exists()
        await journal.close()

    asyncio.run(main())
