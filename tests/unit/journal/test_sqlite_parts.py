"""The small parts of the SQLite journal: pace, lock, driver."""

from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from beforehand.journal.host import queued_ns
from beforehand.journal.port import LedgerEntry
from beforehand.journal.sqlite import group_commit, ledger
from beforehand.journal.sqlite.driver import DatabaseFailure, StandardDatabase
from beforehand.journal.sqlite.group_commit import CommitPace
from beforehand.journal.sqlite.lock import FileLock
from beforehand.journal.sqlite.schema import shipped, statements

MS = 1_000_000


def measured(
    pace_: CommitPace, wall_ns: int, monkeypatch: pytest.MonkeyPatch, *, on_loop: bool = True, queued_ns: int = 0
) -> None:
    """A commit that keeps its thread waiting for `wall_ns`, and for `queued_ns` of them for a processor."""
    times, queued = iter([0, wall_ns]), iter([7 * MS, 7 * MS + queued_ns])
    monkeypatch.setattr(group_commit, "queued_ns", lambda: next(queued))
    monkeypatch.setattr(group_commit.time, "perf_counter_ns", lambda: next(times))
    monkeypatch.setattr(group_commit.time, "thread_time_ns", lambda: 0)
    started = None
    while started is None:
        started = pace_.start()
    pace_.end(started, on_loop=on_loop)


def test_a_slow_disk_is_left_to_the_thread_and_tried_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    some = CommitPace()
    assert some.on_loop()
    for _ in range(3):
        measured(some, 5 * MS, monkeypatch)
    asked = [some.on_loop() for _ in range(3000)]
    assert 0 < sum(asked) < 20
    gaps = [place for place, loop in enumerate(asked) if loop]
    assert gaps[1] - gaps[0] > gaps[0]
    for _ in range(40):
        measured(some, MS // 10, monkeypatch)
    assert some.on_loop()


def test_a_busy_processor_is_not_taken_for_a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    some = CommitPace()
    for _ in range(20):
        measured(some, 50 * MS, monkeypatch, queued_ns=50 * MS - MS // 10)
    assert some.on_loop()
    assert some.blocked_ns <= MS // 10


def test_the_wait_for_a_processor_is_that_of_the_calling_thread() -> None:
    before = queued_ns()
    others: list[int] = []
    threads = [threading.Thread(target=lambda: others.append(queued_ns())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(others) == len(threads)
    assert 0 <= before <= queued_ns()


def test_the_thread_s_figures_only_count_when_they_are_better(monkeypatch: pytest.MonkeyPatch) -> None:
    some = CommitPace()
    for _ in range(20):
        measured(some, 50 * MS, monkeypatch, on_loop=False)
    assert some.on_loop()


def test_a_forced_way_is_kept() -> None:
    assert CommitPace("loop").on_loop()
    assert not CommitPace("thread").on_loop()
    assert CommitPace("loop").start() is None


def test_locks_exclude_each_other_within_a_process_too(tmp_path: Path) -> None:
    one, two = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    one.open()
    two.open()
    assert one.try_take()
    assert not two.try_take()
    assert not two.take(0.001)
    # Opening and closing the file elsewhere must not drop it, as it would drop a lock of fcntl.
    os.close(os.open(tmp_path / "lock", os.O_RDWR))
    assert not two.try_take()
    taken = threading.Thread(target=lambda: two.take(30))
    taken.start()
    one.release()
    taken.join()
    assert not one.try_take()
    two.close()
    assert one.try_take()
    one.close()
    one.close()


WINDOWS = """
import os, sys
sys.modules["fcntl"] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_PATH", "fork", "register_at_fork"):
    delattr(os, name)
"""
PROGRAM = """
from beforehand import Beforehand, Run, agent
from beforehand.errors import JournalError

@agent(run_id="greet-{name}")
async def desk(run: Run, name: str) -> str:
    return name

with Beforehand("memory:", agents=[desk]) as app:
    print(app.run(desk, "ann"))
try:
    with Beforehand("runs.db", agents=[desk]):
        pass
except JournalError as error:
    print(error.message)
"""
COMMAND = """
sys.argv = ["beforehand", "run", "desk.py:desk", '"ann"', "--journal", "runs.db"]
from beforehand.cli.main import main
main()
"""


def test_windows_is_told_in_one_sentence_what_is_missing(tmp_path: Path) -> None:
    """Simulated: without what Python lacks there, and on whatever system this is."""
    (tmp_path / "desk.py").write_text(PROGRAM.partition("with ")[0])
    sentence = "a journal in a file needs flock(2), a lock that ends with its process, which Windows does not have"
    run = partial(subprocess.run, capture_output=True, text=True, check=False, cwd=tmp_path)
    program = run([sys.executable, "-c", WINDOWS + PROGRAM])
    assert (program.stdout.splitlines()[:2], program.stderr) == (["ann", sentence], "")
    command = run([sys.executable, "-c", WINDOWS + COMMAND])
    assert (command.returncode, command.stderr.splitlines()[0]) == (1, f"JournalError: {sentence}")
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "busy"),
        (sqlite3.SQLITE_FULL, "full"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "readonly"),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, "refused"),
        (sqlite3.SQLITE_CORRUPT_VTAB, "damaged"),
        (sqlite3.SQLITE_IOERR_FSYNC, "broken"),
        (sqlite3.SQLITE_CANTOPEN, "broken"),
    ],
)
def test_extended_codes_have_a_kind(code: int, kind: str) -> None:
    assert DatabaseFailure(code, "x").kind == kind


def test_a_reading_connection_can_neither_create_nor_write(tmp_path: Path) -> None:
    path = tmp_path / "some#file?.db"
    with pytest.raises(DatabaseFailure):
        StandardDatabase(path, read_only=True)
    writer = StandardDatabase(path, read_only=False)
    assert writer.change("create table a (n)") == -1
    reader = StandardDatabase(path, read_only=True)
    with pytest.raises(DatabaseFailure) as caught:
        reader.change("insert into a values (1)")
    assert caught.value.kind == "readonly"
    for connection in (reader, writer):
        connection.close()
    with pytest.raises(DatabaseFailure):
        writer.rows("select 1")


def test_a_changed_ledger_entry_breaks_its_stream_only(tmp_path: Path) -> None:
    database = StandardDatabase(tmp_path / "x.db", read_only=False)
    for statement in statements(shipped()[0].sql):
        database.rows(statement)
    ids = itertools.count(1)
    for number in range(3):
        for stream in ("a", "b"):
            ledger.insert(database, LedgerEntry(next(ids), stream, str(number), b"%d" % number, number))
    assert ledger.first_broken(database, "a") is None
    database.change("update ledger set body = '9' where id = 3")
    assert ledger.first_broken(database, "a") == 3
    assert ledger.first_broken(database, "b") is None
    database.close()
