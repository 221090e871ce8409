"""macOS, played by a fake of its system library: proof of death, names, and syncs that reach the disk.

What a Mac really answers is printed by `scripts/platform_check.py` there.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from beforehand.inspect.signing_keys import SigningKeys, keep_keys
from beforehand.journal import host, macos
from beforehand.journal.port import Fate, Worker
from beforehand.journal.sqlite import apsw_driver
from beforehand.journal.sqlite.apsw_driver import ApswDatabase
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from tests.unit.journal.journal_helpers import body, start_log

STARTED = 1_700_000_000_123_456
WITH_ZOMBIES, FLAVOR = 1, 3
RUNNING, STOPPED, ZOMBIE = 2, 4, 5
NO_SUCH_NUMBER = 2**22 + 1


class ProcBsdInfo(ctypes.Structure):
    """`struct proc_bsdinfo`, field by field as in <sys/proc_info.h>."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("flags", "status", "xstatus", "pid", "ppid", "uid", "gid")),
        *((name, ctypes.c_uint32) for name in ("ruid", "rgid", "svuid", "svgid", "rfu_1")),
        ("comm", ctypes.c_char * 16),
        ("name", ctypes.c_char * 32),
        *((name, ctypes.c_uint32) for name in ("nfiles", "pgid", "pjobc", "e_tdev", "e_tpgid")),
        ("nice", ctypes.c_int32),
        ("start_tvsec", ctypes.c_uint64),
        ("start_tvusec", ctypes.c_uint64),
    ]


@dataclass
class FakeLibrary:
    """libSystem: the processes that it shows, by number: status and microseconds of the start."""

    processes: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    refused: int = 0

    def proc_pidinfo(self, pid: Any, flavor: int, arg: Any, found: Any, size: Any) -> int:
        assert (flavor, size.value) == (FLAVOR, ctypes.sizeof(ProcBsdInfo))
        status, started = self.processes.get(pid.value, (0, 0))
        if not status or (status == ZOMBIE and arg.value != WITH_ZOMBIES):
            return 0
        seconds, microseconds = divmod(started, 1_000_000)
        info = ProcBsdInfo(
            flags=0xFFFFFFFF, status=status, xstatus=9, pid=pid.value, comm=b"python3", name=b"python3.13", nice=-5,
            start_tvsec=seconds, start_tvusec=microseconds,
        )  # fmt: skip
        ctypes.memmove(found, ctypes.byref(info), size.value)
        return ctypes.sizeof(info)

    def gethostuuid(self, found: Any, _patience: Any) -> int:
        found[:] = list(range(16))
        return self.refused

    def sysctlbyname(self, name: bytes, found: Any, _size: Any, _new: Any, _length: Any) -> int:
        assert name == b"kern.bootsessionuuid"
        found.value = b"B0075E55-10"
        return self.refused


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLibrary:
    """This machine as a Mac: without /proc, and with a system library that shows this process."""
    fake = FakeLibrary({os.getpid(): (RUNNING, STARTED)})
    monkeypatch.setattr(macos, "library", lambda: fake)
    monkeypatch.setattr(host, "_PROC", tmp_path / "no-proc")
    return fake


def a_worker(**changes: Any) -> Worker:
    return replace(host.this_process("mac"), **changes)


# --- processes -------------------------------------------------------------------------------------------------


def test_a_process_registers_with_the_moment_of_its_start(mac: FakeLibrary) -> None:
    worker = host.this_process("mac")
    assert (worker.pid, worker.started, worker.pid_namespace) == (os.getpid(), STARTED, "macos")
    assert host.fate(worker) == "alive"
    del mac.processes[os.getpid()]
    assert host.this_process("mac").pid_namespace == "", "a start that cannot be seen proves nothing later"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ((RUNNING, STARTED), "alive"),
        ((STOPPED, STARTED), "alive"),
        ((ZOMBIE, STARTED), "dead"),
        ((RUNNING, STARTED + 1), "dead"),  # the number was given to another process
    ],
)
def test_death_is_proven_by_number_and_start(mac: FakeLibrary, seen: tuple[int, int], expected: Fate) -> None:
    other = a_worker(pid=4711)
    mac.processes[4711] = seen
    assert host.fate(other) == expected


def test_a_number_that_no_process_has_is_dead(mac: FakeLibrary) -> None:
    assert host.fate(a_worker(pid=NO_SUCH_NUMBER)) == "dead"


def test_a_process_that_the_system_hides_is_unknown(mac: FakeLibrary) -> None:
    """Of another user, or from within a sandbox: the number is taken, and nothing is told about it."""
    worker, here = a_worker(), host.this_process("here")
    mac.processes.clear()
    assert host.fate(worker, here) == "unknown"


@pytest.mark.parametrize("pid", [2**32 + 1, 2**80])
def test_a_number_that_no_c_int_holds_is_not_that_of_another_process(mac: FakeLibrary, pid: int) -> None:
    mac.processes.update({0: (RUNNING, STARTED), 1: (RUNNING, STARTED)})
    assert macos.process(pid) is None


def test_without_the_function_the_time_bound_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(macos, "library", object)
    monkeypatch.setattr(host, "_PROC", tmp_path / "no-proc")
    assert host.fate(host.this_process("mac")) == "unknown"
    assert (macos.machine(), macos.boot()) == ("", "")

    async def main() -> tuple[str, ...]:
        journal = SqliteJournal(tmp_path / "journal.db")
        identity = await journal.open()
        await journal.close()
        return identity.notices

    assert "counts as over `pause_bound_ms` later" in asyncio.run(main())[-1]


def test_machine_and_boot_are_named(mac: FakeLibrary) -> None:
    assert macos.machine() == "000102030405060708090a0b0c0d0e0f"
    assert macos.boot() == "B0075E55-10"
    mac.refused = -1
    assert (macos.machine(), macos.boot()) == ("", "")


# --- syncs -----------------------------------------------------------------------------------------------------


@dataclass
class Syncs:
    """The syncs of this process: those through the disk's cache, and those that fsync(2) makes."""

    full: int = 0
    plain: int = 0
    failure: int = 0

    def fcntl(self, _descriptor: int, command: int) -> int:
        assert command == 51  # F_FULLFSYNC
        if self.failure:
            raise OSError(self.failure, os.strerror(self.failure))
        self.full += 1
        return 0

    def fsync(self, _descriptor: int) -> None:
        self.plain += 1


@pytest.fixture
def syncs(mac: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    counted = Syncs()
    monkeypatch.setattr(fcntl, "fcntl", counted.fcntl)
    monkeypatch.setattr(os, "fsync", counted.fsync)
    return counted


def opened(path: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(path)
        await journal.open()
        await journal.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "write",
    [
        lambda path: opened(path / "journal.db"),
        lambda path: keep_keys(path / "keys", SigningKeys(("secret",))),
    ],
    ids=["journal and anchor", "signing keys"],
)
def test_our_own_files_are_synced_through_the_cache_of_the_disk(
    syncs: Syncs, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    assert syncs.full > 0
    assert syncs.plain == 0


def test_a_file_system_without_full_syncs_gets_what_it_has(syncs: Syncs, tmp_path: Path) -> None:
    syncs.failure = errno.ENOTSUP
    opened(tmp_path / "journal.db")
    assert (syncs.full, syncs.plain > 0) == (0, True)


def test_a_full_sync_that_fails_is_not_replaced_by_a_weaker_one(syncs: Syncs) -> None:
    syncs.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        host.sync(0)
    assert syncs.plain == 0


FULL = apsw.mapping_sync["SQLITE_SYNC_FULL"]


class WatchedFile(apsw.VFSFile):
    seen: list[tuple[str, int]]

    def __init__(self, name: Any, flags: list[int]) -> None:
        self._kind = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").suffix
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        self.seen.append((self._kind, flags))
        super().xSync(flags)


class WatchedVFS(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("watched", "")

    def xOpen(self, name: Any, flags: list[int]) -> WatchedFile:
        return WatchedFile(name, flags)


def test_sqlite_asks_for_full_syncs_of_commits_and_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its code for macOS turns into F_FULLFSYNC; on Linux the request makes no difference."""
    vfs, seen = WatchedVFS(), list[tuple[str, int]]()
    monkeypatch.setattr(WatchedFile, "seen", seen, raising=False)
    where = apsw_driver.location
    monkeypatch.setattr(apsw_driver, "location", lambda path, **how: f"{where(path, **how)}&vfs=watched")

    async def main() -> None:
        journal = SqliteJournal(tmp_path / "journal.db", parts=Parts(connect=ApswDatabase))
        await journal.open()
        log = await start_log(journal)
        await log.append([body(1)])
        await journal.close()

    asyncio.run(main())
    vfs.unregister()
    assert {kind for kind, _ in seen} >= {".db", ".db-wal"}
    assert [one for one in seen if one[1] & 0x0F & FULL != FULL] == []
