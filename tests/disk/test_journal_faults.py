"""Real failures of real system calls: strace lets the n-th write or sync of the journal's files fail.

For each n: nothing acknowledged is lost, the chain holds, the file is whole; after a failed sync or write
nothing more is written through that process; a full disk is survived.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand.journal.run_log import genesis, verify_chain
from beforehand.journal.sqlite.journal import SqliteJournal

CHILD = Path(__file__).with_name("journal_child.py")
STRACE = ("strace", "-f", "--seccomp-bpf", "-e", "trace=pwrite64,fdatasync,fsync")  # it stops at no other call


def spoil(place: Path, fault: str, suffix: str, commits: str) -> tuple[list[str], list[str]]:
    """Run the workload with a fault on one of the journal's files; its words, and the calls on that file."""
    path, trace = place / "journal.db", place / "trace"
    create(path)
    strace = [*STRACE, "-o", str(trace), "-P", f"{path}{suffix}", "-e", f"inject={fault}"]
    command = [*strace, sys.executable, str(CHILD), str(path), commits]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), trace.read_text().splitlines()


def create(path: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(path)
        await journal.open()
        await journal.close()

    asyncio.run(main())


def last_acknowledged(words: list[str]) -> int:
    return max((int(word.split()[1]) for word in words if word.startswith("acknowledged ")), default=0)


async def check(path: Path, words: list[str]) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    connection.close()
    journal = SqliteJournal(path)
    identity = await journal.open()
    assert identity.trust == "trusted"
    rows = await journal.read("r")
    assert verify_chain(rows, genesis(identity.namespace, "r")) is None
    numbers = [number for row in rows if (number := json.loads(row.body).get("number"))]
    assert sorted(set(numbers)) == list(range(1, max(numbers, default=0) + 1))
    assert last_acknowledged(words) <= max(numbers, default=0)
    await journal.close()


@pytest.mark.parametrize("commits", ["loop", "thread"])
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
@pytest.mark.parametrize("n", [2, 5, 9])
def test_a_failing_log_ends_writing_and_loses_nothing(tmp_path: Path, call: str, n: int, commits: str) -> None:
    words, trace = spoil(tmp_path, f"{call}:error=EIO:when={n}", "-wal", commits)
    assert any("the disk failed" in word for word in words)
    (failed,) = [place for place, line in enumerate(trace) if "INJECTED" in line]
    assert [line for line in trace[failed + 1 :] if "pwrite64" in line or "sync(" in line] == []
    asyncio.run(check(tmp_path / "journal.db", words))


@pytest.mark.parametrize("commits", ["loop", "thread"])
@pytest.mark.parametrize("n", [1, 4, 7, 10])
def test_a_full_disk_is_survived(tmp_path: Path, n: int, commits: str) -> None:
    words, _ = spoil(tmp_path, f"pwrite64:error=ENOSPC:when={n}..{n + 1}", "-wal", commits)
    refusals = [place for place, word in enumerate(words) if "no space left" in word]
    assert last_acknowledged(words[refusals[0] :])
    asyncio.run(check(tmp_path / "journal.db", words))


@pytest.mark.parametrize(
    "fault", ["pwrite64:error=EIO:when=1", "pwrite64:error=ENOSPC:when=2", "fdatasync:error=EIO:when=1"]
)
def test_a_checkpoint_that_fails_loses_nothing(tmp_path: Path, fault: str) -> None:
    """The log is brought into the file at close; what could not be is still in the log."""
    words, trace = spoil(tmp_path, fault, "", "loop")
    assert any("INJECTED" in line for line in trace)
    assert last_acknowledged(words) == 72
    asyncio.run(check(tmp_path / "journal.db", words))
