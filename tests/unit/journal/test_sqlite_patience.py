"""Opening waits for a reader of another program, instead of calling the file locked."""

import asyncio
import sqlite3
import threading

from beforehand.journal.sqlite.journal import SqliteJournal


def test_opening_waits_for_somebody_who_reads(tmp_path):
    path = tmp_path / "j.db"
    opening, reading = threading.Event(), threading.Event()

    def read() -> None:
        shell = sqlite3.connect(path, isolation_level=None)
        shell.execute("pragma journal_mode = delete")
        shell.execute("begin immediate")
        reading.set()
        opening.wait(10)
        threading.Event().wait(0.05)  # the other side is inside its first statement by now
        shell.execute("rollback")
        shell.close()

    async def open_and_close() -> None:
        journal = SqliteJournal(path)
        opening.set()
        await journal.open()
        await journal.close()

    reader = threading.Thread(target=read)
    path.touch(mode=0o600)
    reader.start()
    assert reading.wait(10)
    asyncio.run(open_and_close())
    reader.join()
