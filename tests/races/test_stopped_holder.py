"""A process that is stopped while it holds the journal's lock: others name it, fail no run, and go on afterwards."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent, tool
from beforehand.errors import JournalLocked
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts

HOLDER = """
import asyncio, os, signal
from beforehand.journal.sqlite.journal import SqliteJournal

async def main():
    journal = SqliteJournal("desk.db")
    await journal.open()
    journal._committer.mutex.acquire()  # else the thread behind it could release the lock
    assert journal._store._lock.try_take()
    print("holds it", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    journal._store._lock.release()
    journal._committer.mutex.release()
    await journal.close()

asyncio.run(main())
"""


def begun(directory: Path) -> subprocess.Popen[str]:
    """A process that was stopped in the middle of a commit."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=directory, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds it\n"
    os.waitpid(process.pid, os.WUNTRACED)
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = begun(tmp_path)
    yield process
    ended(process)


def desk_in(tmp_path: Path):
    @tool
    async def note(text: str) -> str:
        with (tmp_path / "world.txt").open("a") as world:
            world.write(text + "\n")
        return text

    @agent(run_id="r-{name}", tools=[note])
    async def desk(run: Run, name: str) -> str:
        return await note(name)

    return desk


def test_whoever_waits_for_a_stopped_process_names_it_and_goes_on_when_it_is_free(
    tmp_path: Path, holder: subprocess.Popen[str]
):
    desk = desk_in(tmp_path)

    async def main() -> None:
        journal = SqliteJournal(tmp_path / "desk.db", parts=Parts(lock_limit_s=0.5))
        with pytest.raises(JournalLocked, match=f"process {holder.pid}, which is stopped"):
            await journal.open()
        os.kill(holder.pid, signal.SIGCONT)
        assert holder.wait(60) == 0
        async with Beforehand(journal, agents=[desk], recover=False) as app:
            assert await app.run(desk, "ann") == "ann"

    asyncio.run(main())


def test_a_run_that_could_not_write_is_not_failed_and_goes_on(tmp_path: Path):
    desk = desk_in(tmp_path)

    async def main() -> None:
        journal = SqliteJournal(tmp_path / "desk.db", parts=Parts(lock_limit_s=0.5))
        async with Beforehand(journal, agents=[desk], recover=False) as app:
            assert await app.run(desk, "before") == "before"
            stopped = await asyncio.to_thread(begun, tmp_path)
            try:
                with pytest.raises(JournalLocked) as locked:
                    await app.run(desk, "ann")
                assert f"process {stopped.pid}, which is stopped" in str(locked.value)
                assert f"kill -CONT {stopped.pid}" in str(locked.value)
                os.kill(stopped.pid, signal.SIGCONT)
                assert await asyncio.to_thread(stopped.wait, 60) == 0
            finally:
                await asyncio.to_thread(ended, stopped)
            assert await app.run(desk, "ann") == "ann", "the same app goes on once the lock is free"
            assert [row.status for row in await app.service.runs()] == ["completed", "completed"]

    asyncio.run(main())
    assert (tmp_path / "world.txt").read_text().split() == ["before", "ann"]
