"""Many processes on one file: nothing acknowledged is lost, the file stays whole, no process meets "database is locked".

On SQLite builds with the WAL-reset bug this is the test that shows our lock to be enough. It checkpoints
constantly, since each process brings the log into the file whenever it has grown by a thousand pages, and
whenever a process closes. `make test` runs a short form, `make deep` a long one.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from beforehand.journal.run_log import genesis, verify_chain
from beforehand.journal.sqlite.journal import SqliteJournal
from tests import forked

WORKER = Path(__file__).with_name("journal_worker.py")


def start(path: Path, name: str, *, runs: int, appends: int, commits: str, output: Path) -> subprocess.Popen[str]:
    command = [str(WORKER), str(path), name, str(runs), str(appends), commits]
    with output.open("wb") as file:
        return forked.start(command, stdout=file)


def acknowledged(outputs: list[Path]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """The last number acknowledged for each run, and who won each key as the processes saw it."""
    runs: dict[str, int] = {}
    winners: dict[str, set[str]] = {}
    for output in outputs:
        for line in output.read_text().splitlines():
            if line.startswith("claim "):
                _, key, winner = line.split()
                winners.setdefault(key, set()).add(winner)
            else:
                run, number = line.split()
                runs[run] = max(int(number), runs.get(run, -1))
    return runs, winners


async def check(path: Path, outputs: list[Path]) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    connection.close()
    journal = SqliteJournal(path)
    identity = await journal.open()
    assert identity.trust == "trusted"
    runs, winners = acknowledged(outputs)
    assert runs
    for run, last in runs.items():
        rows = await journal.read(run, limit=1_000_000)
        assert verify_chain(rows, genesis(identity.namespace, run)) is None
        numbers = [number for row in rows if (number := json.loads(row.body).get("number")) is not None]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > last, (run, last)
    for entry in await journal.entries("claims"):
        assert winners.get(entry.key, {entry.body.decode()}) == {entry.body.decode()}
    await journal.close()


@pytest.mark.deeper
@pytest.mark.parametrize("mode", ["wal", "rollback"])
def test_processes_share_a_file(tmp_path: Path, mode: str, deep: bool) -> None:
    appends = 400 if deep else 40
    path = tmp_path / "journal.db"
    create(path, mode)
    outputs = [tmp_path / f"out{number}" for number in range(4)]
    processes = [
        start(path, f"p{number}", runs=4, appends=appends, commits=commits, output=output)
        for number, (output, commits) in enumerate(zip(outputs, ["loop", "thread"] * 2, strict=True))
    ]
    assert [process.wait() for process in processes] == [0] * 4
    asyncio.run(check(path, outputs))


@pytest.mark.deeper
@pytest.mark.parametrize("mode", ["wal", "rollback"])
def test_killed_processes_lose_nothing_they_acknowledged(tmp_path: Path, mode: str, seed: int, deep: bool) -> None:
    """Each process is killed once it has acknowledged a certain number of records, in the middle of anything."""
    rounds = 60 if deep else 5
    chance = random.Random(seed)
    path = tmp_path / "journal.db"
    create(path, mode)
    outputs: list[Path] = []
    for number in range(rounds):
        pair = [tmp_path / f"out{number}-{which}" for which in "ab"]
        outputs += pair
        processes = [
            start(path, f"p{number}{which.name[-1]}", runs=3, appends=100_000, commits=commits, output=which)
            for which, commits in zip(pair, ["loop", "thread"], strict=True)
        ]
        for process, output in zip(processes, pair, strict=True):
            enough = chance.randrange(1, 2000)
            while output.stat().st_size < enough:
                assert process.poll() is None
            process.send_signal(signal.SIGKILL)
        assert [process.wait() for process in processes] == [-9, -9]
    asyncio.run(check(path, outputs))


def create(path: Path, mode: str) -> None:
    async def main() -> None:
        journal = SqliteJournal(path, mode="wal" if mode == "wal" else "rollback")
        await journal.open()
        await journal.close()

    asyncio.run(main())
