"""What a journal file tells without a statement: every commit of any process is told as a change."""

import asyncio
import os
import time
from functools import partial
from pathlib import Path

import pytest

from beforehand.journal.port import Post
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import grow_log

MINUTE_NS = 60 * 10**9


def age(path: Path) -> None:
    """Let the last write of the log be a minute old."""
    then = time.time_ns() - MINUTE_NS
    os.utime(f"{path}-wal", ns=(then, then))


def size_of_log(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def told(journal: SqliteJournal) -> bool | None:
    return await journal.changed(partial(asyncio.sleep, 0))


async def settle(journal: SqliteJournal, path: Path) -> None:
    """Wait for a log that nothing writes to: what opening the other journal began may still be under way."""
    async with asyncio.timeout(30):
        while True:
            if (answer := await told(journal)) is False:
                return
            if answer is None:
                age(path)
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("folded", [False, True])
def test_a_commit_of_another_connection_is_a_change(tmp_path: Path, folded: bool):
    async def story() -> None:
        path = tmp_path / "journal.db"
        mine, other = SqliteJournal(path), SqliteJournal(path)
        await mine.open()
        await other.open()
        if folded:
            await other.commit(Post("a", "first", b"1"))
            grow_log(path)
        for number in range(3):
            await settle(mine, path)
            if folded:  # the next commit begins the log anew, at its present size
                mine._store.checkpoint()  # pyright: ignore[reportPrivateUsage]  # at this moment
            size = size_of_log(path)
            await other.commit(Post("a", str(number), b"1"))
            assert await told(mine) is None, "a second commit could bear the same time"
            age(path)
            assert await told(mine), "it was written"
            assert await told(mine) is False, "nothing was written since"
            assert not folded or size_of_log(path) == size
        await other.close()
        await mine.close()
        assert await told(mine) is None

    asyncio.run(story())


def test_only_a_read_tells_while_a_process_commits(tmp_path: Path):
    """Its rows are in the log, with their time, and seen only when its sync has ended: on a slow disk much later."""

    async def story() -> None:
        path = tmp_path / "journal.db"
        mine, other = SqliteJournal(path), SqliteJournal(path)
        await mine.open()
        await other.open()
        await other.commit(Post("a", "", b"1"))
        while other._store.anchor_is_old or mine._store.anchor_is_old:  # noqa: ASYNC110 - no event says so  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)
        age(path)
        lock = other._store._lock  # pyright: ignore[reportPrivateUsage]  # held as during a commit
        assert lock.take(5)
        assert await told(mine) is None
        lock.release()
        assert await told(mine) is not None
        await other.close()
        await mine.close()

    asyncio.run(story())


def test_without_a_log_only_a_read_tells(tmp_path: Path):
    async def story() -> None:
        journal = SqliteJournal(tmp_path / "journal.db", mode="rollback")
        await journal.open()
        assert await told(journal) is None
        await journal.close()

    asyncio.run(story())
