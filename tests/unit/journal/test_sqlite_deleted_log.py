"""A log that was deleted takes with it what the anchor has not seen yet: a new journal opens distrustful then."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand.journal.port import Worker
from beforehand.journal.sqlite.journal import SqliteJournal

WRITES = """
import asyncio, os, signal
from beforehand.journal.port import Post
from beforehand.journal.sqlite.journal import SqliteJournal

async def main():
    journal = SqliteJournal("desk.db")
    await journal.open()
    await journal.commit(Post("run/x", "", b"1"))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def killed(directory: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", WRITES], cwd=directory, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL


def opened(directory: Path) -> tuple[str, str, int]:
    """How the journal opens, why, and how many entries it has. Something is written, as every process does."""

    async def main() -> tuple[str, str, int]:
        journal = SqliteJournal(directory / "desk.db")
        identity = await journal.open()
        await journal.beat(Worker("w"), 1000)
        entries = await journal.entries("run/x")
        await journal.close()
        return identity.trust, identity.reason, len(entries)

    return asyncio.run(main())


@pytest.mark.parametrize("lost", ["deleted", "emptied"])
def test_a_new_journal_without_its_log_opens_distrustful(tmp_path: Path, lost: str):
    killed(tmp_path)
    log = tmp_path / "desk.db-wal"
    assert log.stat().st_size > 0
    log.unlink() if lost == "deleted" else os.truncate(log, 0)
    for _ in range(3):  # looking at it, and writing to it, does not make it trusted
        trust, reason, entries = opened(tmp_path)
        assert (trust, entries) == ("distrustful", 0)
        assert "the anchor knows 1 ledger entries, and this file ends at 0" in reason


def test_an_operator_may_trust_it_again(tmp_path: Path):
    killed(tmp_path)
    (tmp_path / "desk.db-wal").unlink()

    async def main() -> None:
        journal = SqliteJournal(tmp_path / "desk.db")
        assert (await journal.open()).trust == "distrustful"
        assert (await journal.confirm("trusted", "ann")).trust == "trusted"
        await journal.close()

    asyncio.run(main())
    assert opened(tmp_path)[0] == "trusted"


def test_a_killed_new_journal_with_its_log_opens_trusted(tmp_path: Path):
    killed(tmp_path)
    assert opened(tmp_path) == ("trusted", "", 1)


def test_a_new_journal_that_was_closed_opens_trusted(tmp_path: Path):
    assert [opened(tmp_path)[0] for _ in range(3)] == ["trusted"] * 3
