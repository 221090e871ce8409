"""Addresses become journals in one place, and one process opens a file through one SQLite library only."""

import asyncio
import fcntl
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from beforehand import Beforehand, journal
from beforehand.errors import JournalError, UsageError
from beforehand.journal.backends import address_of, addresses_in
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import Journal
from beforehand.journal.sqlite.apsw_driver import ApswDatabase
from beforehand.journal.sqlite.driver import OpenFile, StandardDatabase
from beforehand.journal.sqlite.journal import SqliteJournal


@pytest.mark.parametrize(
    ("text", "scheme", "place"),
    [
        ("desk.db", "sqlite", "desk.db"),
        ("sqlite:///var/lib/desk.db", "sqlite", "/var/lib/desk.db"),
        ("sqlite://desk.db", "sqlite", "desk.db"),
        ("~/desk.db", "sqlite", str(Path("~/desk.db").expanduser())),
        ("sqlite+apsw:///var/lib/desk.db", "sqlite+apsw", "/var/lib/desk.db"),
        ("odd:name.db", "sqlite", "odd:name.db"),
        ("memory:", "memory", ""),
    ],
)
def test_an_address_is_a_scheme_and_a_place(text: str, scheme: str, place: str):
    found = address_of(text)
    assert (found.scheme, found.place) == (scheme, place)
    assert address_of(found) is found
    assert address_of(str(found)).leads_to(found) or not found.lasting


@pytest.mark.parametrize(
    "text", ["postgresql://localhost/desk", "mysql://x", "://x", "sqlite://", "", ":memory:", "memory://x"]
)
def test_what_no_back_end_opens_is_refused(text: str):
    with pytest.raises(UsageError):
        journal.open(text)


def test_an_unknown_scheme_names_the_known_ones():
    with pytest.raises(UsageError, match=r"sqlite:///.*sqlite\+apsw:///.*memory:"):
        journal.open("postgresql://localhost/desk")


def test_a_journal_is_made_by_its_address(tmp_path: Path):
    assert isinstance(journal.open(tmp_path / "desk.db"), SqliteJournal)
    assert isinstance(journal.open("memory:"), MemoryJournal)
    assert not (tmp_path / "desk.db").exists(), "its own open creates it"


def test_an_address_is_written_as_short_as_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert str(address_of(tmp_path / "a" / "desk.db")) == "a/desk.db"
    assert str(address_of(f"sqlite+apsw://{tmp_path}/desk.db")) == "sqlite+apsw://desk.db"
    assert str(address_of("/elsewhere/desk.db")) == "/elsewhere/desk.db"
    assert not address_of("desk.db").leads_to(address_of("sqlite+apsw://desk.db")), (
        "a printed command keeps the library"
    )


def test_a_journal_without_apsw_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "apsw", None)
    monkeypatch.delitem(sys.modules, "beforehand.journal.sqlite.apsw_driver", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'apsw>="):
        journal.open(f"sqlite+apsw://{tmp_path}/desk.db")


def test_an_app_over_memory_runs_and_every_journal_has_keys_of_its_own():
    from tests.unit.test_app import desk

    with Beforehand("memory:", agents=[desk]) as app:
        assert app.run(desk, 21) == 42
    namespaces = {asyncio.run(journal.open("memory:").open()).namespace for _ in range(3)}
    assert len(namespaces) == 3


def test_a_file_can_be_read_alone_through_either_library(tmp_path: Path):
    async def main() -> None:
        opened = journal.open(tmp_path / "desk.db")
        await opened.open()
        await opened.close()

    asyncio.run(main())
    for connect in (StandardDatabase, ApswDatabase):
        database = connect(tmp_path / "desk.db", True, alone=True)
        assert database.rows("select value from meta where name = 'trust'") == [("trusted",)]
        database.close()


# --- two libraries ---------------------------------------------------------------------------------------------


def library_of(opened: Journal) -> str:
    assert isinstance(opened, SqliteJournal)
    return type(opened._store.reader).__module__.rpartition(".")[2]


def test_the_scheme_chooses_the_library(tmp_path: Path):
    async def main() -> None:
        for scheme, module in (("sqlite+apsw", "apsw_driver"), ("sqlite", "driver")):
            opened = journal.open(f"{scheme}://{tmp_path}/desk.db")
            await opened.open()
            assert library_of(opened) == module
            await opened.close()

    asyncio.run(main())


@pytest.mark.parametrize(("first", "second"), [("sqlite", "sqlite+apsw"), ("sqlite+apsw", "sqlite")])
@pytest.mark.parametrize("reads", [False, True])
def test_one_process_opens_a_file_through_one_library(tmp_path: Path, first: str, second: str, reads: bool):
    async def main() -> None:
        opened = journal.open(f"{first}://{tmp_path}/desk.db")
        await opened.open()
        (tmp_path / "link.db").symlink_to(tmp_path / "desk.db")
        other = address_of(f"{second}://{tmp_path}/link.db")
        with pytest.raises(JournalError, match="already open in this process"):
            await (other.reader() if reads else other.journal()).open()
        again = address_of(f"{first}://{tmp_path}/desk.db").reader()
        await again.open()
        await again.close()
        await opened.close()
        afterwards = address_of(f"{second}://{tmp_path}/desk.db").journal()
        await afterwards.open()
        await afterwards.close()

    asyncio.run(main())


def test_two_threads_that_open_at_once_never_both_succeed_through_two_libraries(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    for _ in range(200):
        both, held = threading.Barrier(2), list[OpenFile]()

        def take(library: str, both: threading.Barrier = both, held: list[OpenFile] = held) -> None:
            both.wait()
            try:
                held.append(OpenFile(path, library))
            except JournalError:
                return

        threads = [threading.Thread(target=take, args=(name,)) for name in ("one", "other")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(held) < 2
        for one in held:
            one.leave()


def locked_by_others(path: Path) -> bool:
    """Whether another process holds a POSIX lock on the bytes that SQLite locks."""
    code = (
        "import fcntl, struct, sys\n"
        "lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0x40000000, 512, 0)\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    print(struct.unpack('hhqqi4x', fcntl.fcntl(file, fcntl.F_GETLK, lock))[0])"
    )
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    return int(found.stdout) != fcntl.F_UNLCK


@pytest.mark.skipif(struct.calcsize("hhqqi4x") != 32, reason="the layout of struct flock is that of 64-bit Linux")
def test_to_look_for_journals_drops_no_lock_on_those_that_are_open(tmp_path: Path):
    async def main() -> None:
        opened = journal.open(tmp_path / "desk.db")
        await opened.open()
        assert locked_by_others(tmp_path / "desk.db")
        assert [one.place for one in addresses_in(tmp_path)] == [str(tmp_path / "desk.db")]
        assert locked_by_others(tmp_path / "desk.db")
        await opened.close()
        assert [one.place for one in addresses_in(tmp_path)] == [str(tmp_path / "desk.db")]

    asyncio.run(main())
