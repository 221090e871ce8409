"""Every disk that a kill or a power loss may leave behind holds everything that was acknowledged.

The workload runs once under strace. From its file operations the possible disks are rebuilt: for a kill the one
after each operation, for a power loss random ones of the many. Each is opened as a journal.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beforehand.errors import JournalError
from beforehand.journal.port import Identity
from beforehand.journal.run_log import genesis, verify_chain
from beforehand.journal.sqlite import anchor, ledger, runs
from beforehand.journal.sqlite.driver import StandardDatabase
from beforehand.journal.sqlite.journal_file import JournalFile
from beforehand.journal.sqlite.opening import FileSettings
from tests.disk.disk_model import Disk, Operation, Say, Sync, parse
from tests.draws import spread

CHILD = Path(__file__).with_name("journal_child.py")
CALLS = "trace=openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink,rename"
IN_MEMORY = Path("/dev/shm")


def record(place: Path, mode: str) -> list[Operation]:
    """Run the workload on a journal that does not exist yet, and note what it does to its files."""
    directory = place / "recorded"
    directory.mkdir()
    strace = ["strace", "-ff", "--seccomp-bpf", "--absolute-timestamps=unix,ns", "-y", "-xx", "-s", "8000000"]
    strace += ["-e", CALLS, "-o", str(place / "trace")]
    command = [*strace, sys.executable, str(CHILD), str(directory / "journal.db")]
    subprocess.run([*command, "loop", mode, "4"], check=True, capture_output=True)
    operations = [
        step for step in parse(place.glob("trace.*"), directory) if not getattr(step, "name", "").endswith("-shm")
    ]
    assert Say("closed") in operations
    return operations


def points(operations: list[Operation]) -> Iterator[Disk]:
    """The same disk after each operation; in `make test` after every third of them."""
    disk, chosen = Disk(), set(spread(range(len(operations))))
    for at, operation in enumerate(operations):
        disk.do(operation)
        if at in chosen:
            yield disk


@pytest.fixture(params=["wal", "rollback"])
def operations(request: pytest.FixtureRequest, tmp_path: Path) -> list[Operation]:
    return record(tmp_path, request.param)


@pytest.fixture
def image() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="beforehand-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        yield Path(place)


def clear(place: Path) -> None:
    for file in place.iterdir():
        file.unlink()


def check(place: Path, files: dict[str, bytes], said: list[str]) -> None:
    """Open what was left, and compare it with what had been said."""
    place.mkdir(exist_ok=True)
    clear(place)
    for name, content in files.items():
        (place / name).write_bytes(content)
    kept = anchor.load(place / "journal.db.anchor")
    store = JournalFile(FileSettings(place / "journal.db", place / "journal.db.anchor"))
    identity = store.open()
    try:
        compare(store, identity, kept, said)
    finally:
        store.close()


def compare(store: JournalFile, identity: Identity, kept: anchor.Anchor | None, said: list[str]) -> None:
    database = store.reader
    assert isinstance(database, StandardDatabase)
    assert database.rows("pragma integrity_check") == [("ok",)]
    rows = runs.read(database, "r", 0, 1_000_000)
    assert verify_chain(rows, genesis(identity.namespace, "r")) is None
    assert ledger.first_broken(database, "claims") is None
    numbers = [number for row in rows if (number := json.loads(row.body).get("number")) is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    ((last,),) = database.rows("select coalesce(max(id), 0) from record")
    assert isinstance(last, int)
    if kept is not None:
        assert kept.record <= last
    for text in said:
        word, _, rest = text.partition(" ")
        if word == "open":
            assert identity.namespace == rest
            assert kept is not None
        elif word == "acknowledged":
            assert int(rest) <= len(numbers)


@pytest.mark.deeper
def test_a_kill_anywhere_loses_nothing(operations: list[Operation], image: Path) -> None:
    for disk in points(operations):
        check(image, disk.after_kill(), disk.said)


def lose_power(
    operations: list[Operation], image: Path, chance: random.Random, rounds: int, *, ordered_names: bool
) -> int:
    """Check some of the disks that a power loss may leave at each point; how many."""
    states = 0
    for disk in points(operations):
        for _ in range(rounds):
            check(image, disk.after_power_loss(chance, ordered_names=ordered_names), disk.said)
            states += 1
    return states


@pytest.mark.deeper
@pytest.mark.parametrize("ordered_names", [True, False], ids=["ordered", "strict"])
def test_a_power_loss_anywhere_loses_nothing(
    operations: list[Operation], image: Path, ordered_names: bool, seed: int, deep: bool
) -> None:
    wanted = 5000 if deep else 80
    rounds = -(-wanted // len(operations)) if deep else 1
    assert lose_power(operations, image, random.Random(seed), rounds, ordered_names=ordered_names) >= wanted


@pytest.mark.parametrize("left_out", ["journal.db-wal", ""], ids=["log", "directory"])
def test_the_model_finds_what_an_unsafe_setting_loses(tmp_path: Path, image: Path, seed: int, left_out: str) -> None:
    """The same images with some syncs left out: the check must fail, or it proves nothing."""
    operations = [step for step in record(tmp_path, "wal") if step != Sync(left_out)]
    with pytest.raises((AssertionError, JournalError)):
        lose_power(operations, image, random.Random(seed), 5, ordered_names=False)
