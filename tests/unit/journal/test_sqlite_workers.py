"""When an owner counts as gone: proven dead, silent on this boot's clock, or of an earlier boot."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from beforehand.journal import host
from beforehand.journal.cells import read_hint
from beforehand.journal.port import Busy, ClaimRequest, LeaseGranted, NewRun, Worker
from beforehand.journal.sqlite.journal import SqliteJournal
from tests.unit.journal.journal_helpers import LONG_MS, Machine, error_of, sqlite

OLD = Worker("old", machine="machine-1", boot="boot-1")


def check(journal: SqliteJournal, what: Callable[[SqliteJournal], Awaitable[None]]) -> None:
    async def main() -> None:
        await journal.open()
        await what(journal)
        await journal.close()

    asyncio.run(main())


async def own(journal: SqliteJournal) -> None:
    await journal.beat(OLD, 10_000)
    assert isinstance(await journal.commit(ClaimRequest("r", "old", NewRun("desk"))), LeaseGranted)


def test_a_lease_ends_on_the_clock_of_its_boot(tmp_path: Path) -> None:
    machine = Machine()

    async def what(journal: SqliteJournal) -> None:
        await own(journal)
        machine.now_ms += 10_000
        busy = await journal.commit(ClaimRequest("r", "new"))
        assert isinstance(busy, Busy)
        assert busy.owner == OLD
        machine.now_ms += 1
        assert (await journal.fate("old")).silent_ms == 1
        assert isinstance(await journal.commit(ClaimRequest("r", "new")), LeaseGranted)

    check(sqlite(tmp_path, machine=machine), what)


def test_a_proven_death_ends_it_at_once(tmp_path: Path) -> None:
    machine = Machine()

    async def what(journal: SqliteJournal) -> None:
        await own(journal)
        machine.dead.add("old")
        assert (await journal.fate("old")).fate == "dead"
        assert [line.run for line in await journal.runs(wakeable=True)] == ["r"]
        assert isinstance(await journal.commit(ClaimRequest("r", "new")), LeaseGranted)

    check(sqlite(tmp_path, machine=machine), what)


@pytest.mark.parametrize(("name", "gone"), [("machine-1", True), ("machine-2", False)])
def test_another_boot_is_over_on_this_machine_and_unknown_elsewhere(tmp_path: Path, name: str, gone: bool) -> None:
    check(sqlite(tmp_path, machine=Machine()), own)

    async def what(journal: SqliteJournal) -> None:
        assert isinstance(await journal.commit(ClaimRequest("r", "new")), LeaseGranted if gone else Busy)

    check(sqlite(tmp_path, machine=Machine(name=name, boot="boot-2")), what)


def test_an_owner_that_never_registered_is_gone(tmp_path: Path) -> None:
    async def what(journal: SqliteJournal) -> None:
        assert isinstance(await journal.commit(ClaimRequest("r", "ghost", NewRun("desk"))), LeaseGranted)
        assert isinstance(await journal.commit(ClaimRequest("r", "new")), LeaseGranted)

    check(sqlite(tmp_path, machine=Machine()), what)


def test_the_real_fate_of_a_real_process(tmp_path: Path) -> None:
    """A child registers itself with a long lease and dies: its runs are free at once."""
    script = (
        "import asyncio, os, signal, sys\n"
        "from beforehand.journal import host\n"
        "from beforehand.journal.port import ClaimRequest, NewRun\n"
        "from beforehand.journal.sqlite.journal import SqliteJournal\n"
        "async def main():\n"
        "    journal = SqliteJournal(sys.argv[1])\n"
        "    await journal.open()\n"
        f"    await journal.beat(host.this_process('child'), {LONG_MS})\n"
        "    await journal.commit(ClaimRequest('r', 'child', NewRun('desk')))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path / "journal.db")], check=False)
    assert child.returncode == -9

    async def what(journal: SqliteJournal) -> None:
        await journal.beat(host.this_process("me"), LONG_MS)
        assert (await journal.fate("child")).fate == "dead"
        assert (await journal.fate("me")).fate == "alive"
        assert isinstance(await journal.commit(ClaimRequest("r", "me")), LeaseGranted)

    check(SqliteJournal(tmp_path / "journal.db"), what)


def test_nothing_is_done_before_open_or_after_close(tmp_path: Path) -> None:
    async def main() -> None:
        journal = sqlite(tmp_path)
        for call in (
            journal.runs(),
            journal.commit(ClaimRequest("r", "w", NewRun("desk"))),
            journal.fate("w"),
            read_hint(journal, "h"),
        ):
            assert "open the journal first" in str(await error_of(call))

    asyncio.run(main())
