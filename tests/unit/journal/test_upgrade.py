"""A journal of schema version 1, as `version_1.py` made it, is brought to version 2 whole or not at all, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from beforehand import Beforehand
from beforehand.engine.environment import SystemRng, system_environment
from beforehand.errors import JournalError, JournalUnavailable
from beforehand.journal.cells import (
    BudgetUse,
    CallPace,
    LastFiring,
    LimitUse,
    budget_uses,
    last_firing,
    limit_uses,
    read_hint,
)
from beforehand.journal.host import this_host
from beforehand.journal.port import Permit, Worker
from beforehand.journal.sqlite.driver import Database, DatabaseFailure, StandardDatabase
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.journal.sqlite.schema import APPLICATION_ID
from tests.cli.lab import Lab
from tests.unit.journal.journal_helpers import Machine, Plan, error_of, sqlite
from tests.unit.journal.version_1 import KILLED, LIMITS, SETTINGS, desk

SCRIPT = Path(__file__).with_name("version_1.sql").read_text(encoding="utf-8")
OLD_TABLES = ("firing", "permit", "pace", "budget_use", "hint")
LEASED_MS, LATER_MS = 19_560_000, 19_600_000
"""Two moments of its boot clock: the processes that made it have a lease, and have none."""
T = TypeVar("T")


def write_anchor(path: Path, machine: str = "machine-1") -> None:
    """The anchor that lay beside the file when the last of these processes was killed, on its own inode."""
    stat = path.stat()
    text = """{"incarnation":"57377bdd6a6f3de4","record":79,"entry":11,"missing":0,"machine":"%s","boot":"boot-1",
    "hash":"7b4f0400c6adbccc2109eb4a98c69f14bf7e721afeeb699c317a6409522105ad","inode":%d,"device":%d,
    "entry_hash":"7f0d2a7647bbad402bed2a972910ed32eb414fa20d781465913f34aa394f236d",
    "log":["9be3eba7b9c247c90bd50cd597dd36a78dcdadfe7f0698dd475a61287cc9da46",
    "ac0528ff3e79a9bacccb81a8e677b9421286ad57d57d51f79b7ac57eb6ede13e"]}"""
    path.with_name(f"{path.name}.anchor").write_text(text % (machine, stat.st_ino, stat.st_dev), encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of version 1."""
    path = tmp_path / "journal.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"pragma application_id = {APPLICATION_ID}; pragma user_version = 1;" + SCRIPT)
    return path


def a_machine(boot: str = "boot-1", now_ms: int = LATER_MS, dead: bool = False) -> Machine:
    machine = Machine(boot, "machine-1", set(), now_ms)
    if dead:
        machine.dead = {"a23912168cc8ff2de30ac8798a228b6f", "e0e3bd660ecaca886889f444950fa392"}
    return machine


def rows(path: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def content(path: Path) -> str:
    """Everything in the file, as SQL. It is sound."""
    assert rows(path, "pragma integrity_check") == [("ok",)]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def unchanged(path: Path) -> bool:
    """True if the file is of version 1, and holds what was put into it."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCRIPT)
        return version(path) == 1 and content(path) == "\n".join(connection.iterdump()) + "\n"


def version(path: Path) -> int:
    ((number,),) = rows(path, "pragma user_version")
    return int(number)


def on(journal: SqliteJournal, work: Callable[[SqliteJournal], Awaitable[T]]) -> T:
    """Do this on the open journal."""

    async def main() -> T:
        await journal.open()
        try:
            return await work(journal)
        finally:
            await journal.close()

    return asyncio.run(main())


async def nothing(_: SqliteJournal) -> None:
    return None


def upgraded(place: Path, machine: Machine | None = None) -> None:
    on(sqlite(place, machine=machine or a_machine()), nothing)


class LeastPauses(SystemRng):
    """Draws the shortest pause before an attempt."""

    def uniform(self, low: float, high: float) -> float:
        return low


# --- what it holds ----------------------------------------------------------------------------------------------------


def test_the_stored_journal_is_of_version_1_and_holds_something_of_each_kind(path: Path) -> None:
    assert unchanged(path)
    for table in OLD_TABLES:
        assert len(rows(path, f"select * from {table}")) > 1, table
    assert {row[0] for row in rows(path, "select status from run")} == {
        "queued", "running", "suspended", "completed", "stopped"
    }  # fmt: skip


def test_every_counter_reads_as_before(path: Path) -> None:
    before = [BudgetUse(*row) for row in rows(path, "select budget, period, what, used, reserved from budget_use")]
    assert sum(use.reserved > 0 for use in before) > 2
    assert on(sqlite(path.parent), lambda journal: budget_uses(journal, None)) == before
    day = before[0].period
    one = on(sqlite(path.parent), lambda journal: budget_uses(journal, {"desks": day, "other": day}))
    assert one == [use for use in before if use.budget == "desks"]


def test_permits_and_rates_read_as_before(path: Path) -> None:
    paces = {name: CallPace(*pace) for name, *pace in rows(path, "select * from pace order by name")}
    held = rows(path, "select name, worker, number, operation from permit")
    assert [row[3] for row in held] == ["calls/charge#1"] * 2
    before = [
        LimitUse(name, tuple(Permit(*of) for limit, *of in held if limit == name), pace) for name, pace in paces.items()
    ]
    assert on(sqlite(path.parent, machine=a_machine()), limit_uses) == before
    proven = on(sqlite(path.parent, machine=a_machine(dead=True)), limit_uses)
    assert proven == [LimitUse(name, (), pace) for name, pace in paces.items()]


def test_firings_and_hints_read_as_before(path: Path) -> None:
    fired = [LastFiring(*row) for row in rows(path, "select moment_ms, run from firing order by moment_ms")]
    hints = {name: body.encode() for name, body in rows(path, "select name, body from hint")}
    moments = [one.moment_ms for one in fired]

    async def read(journal: SqliteJournal) -> None:
        assert await last_firing(journal, "nightly", moments[0] - 1) is None
        assert [await last_firing(journal, "nightly", moment) for moment in moments] == fired
        assert await last_firing(journal, "nightly", moments[-1] + 10**9) == fired[-1]
        assert {name: await read_hint(journal, name) for name in hints} == hints

    on(sqlite(path.parent), read)


@pytest.mark.parametrize("name", ["plain", 'it\'s "quoted"', "ä \N{SNOWMAN}\n\\", "a b c"])
def test_names_of_any_kind_arrive(path: Path, name: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("insert into firing values (?, 900, ?)", (name, name))
        connection.execute("insert into budget_use values (?, 'tree', 'cost EUR', ?, 0)", (name, 2**63 - 1))
        connection.execute("insert into pace values (?, 'boot-1', 1, 2, 3, 4)", (name,))
        connection.execute("insert into permit values (?, 'a worker', 3, ?, 5, 6)", (name, name))
        connection.execute("insert into hint values (?, '1')", (name,))

    async def read(journal: SqliteJournal) -> None:
        assert await last_firing(journal, name, 10**9) == LastFiring(900, name)
        use = BudgetUse(name, "tree", "cost EUR", 2**63 - 1)
        assert await budget_uses(journal, {name: "tree"}) == [use]
        assert await read_hint(journal, name) == b"1"
        (pace,) = await journal.cells("rate", [name])
        (slot,) = await journal.cells("slot", [name])
        assert (pace.body, slot.body[-5:]) == (b'["boot-1",1,2,3,4]', b",5,6]")
        await journal.beat(Worker("a worker"), 10**9)
        (of_it,) = [use for use in await limit_uses(journal) if use.name == name]
        assert of_it.permits == (Permit("a worker", 3, name),)

    on(sqlite(path.parent), read)


def test_each_row_becomes_a_cell_of_its_own_though_it_holds_nothing(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "insert into budget_use values ('a', 'tree', 'tokens', 0, 7), ('a', 'tree', 'effects', 0, 0)"
        )
        connection.execute("insert into pace values ('a', '', 0, 0, 0, 0), ('a b', '', 0, 0, 9, 0)")
        connection.execute("insert into permit values ('a', 'w', 0, '', 0, 0), ('a', 'w 0', 0, '', 0, 0)")
        connection.execute("insert into firing values ('a', 0, ''), ('a', 1, '')")
        connection.execute("insert into hint values ('a', ''), ('a b', '0')")
    before = sorted(rows(path, f"select count(*) from {table}")[0][0] for table in OLD_TABLES)
    upgraded(path.parent)
    assert sorted(number for (number,) in rows(path, "select count(*) from cell group by kind")) == before
    assert on(sqlite(path.parent), lambda journal: budget_uses(journal, {"a": "tree"})) == [
        BudgetUse("a", "tree", "effects"), BudgetUse("a", "tree", "tokens", 0, 7)
    ]  # fmt: skip


# --- what it becomes --------------------------------------------------------------------------------------------------


def test_the_schema_is_that_of_a_new_journal_and_nothing_else_changes(path: Path, tmp_path: Path) -> None:
    kept = ("record", "run", "ledger", "payload", "queue", "worker", "meta")
    before = {table: rows(path, f"select * from {table}") for table in kept}
    upgraded(tmp_path)
    assert version(path) == 2
    assert {table: rows(path, f"select * from {table}") for table in kept} == before
    assert [row[0] for row in rows(path, "select version from migration order by version")] == [1, 2]
    (tmp_path / "new").mkdir()
    upgraded(tmp_path / "new")
    objects = "select type, name, tbl_name, sql from sqlite_master order by type, name"
    assert rows(path, objects) == rows(tmp_path / "new" / "journal.db", objects)
    assert {row[1] for row in rows(path, objects)}.isdisjoint(OLD_TABLES)
    once = content(path)
    upgraded(tmp_path)
    assert content(path) == once


def test_the_command_line_finds_nothing_broken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    write_anchor(path, this_host().machine)
    lab = Lab(path.parent, {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    said = lab("verify", "--journal", str(path))
    assert (said.status, said.err) == (0, "")
    assert version(path) == 2
    assert "waits for approved boss" in lab("show", "awaits", "--journal", str(path)).words


def test_runs_go_on_where_they_were(path: Path) -> None:
    """One that waits for an event, and two whose process was killed: what these had reserved is given back."""

    async def main() -> None:
        write_anchor(path)
        here = msgspec.structs.replace(this_host(), machine="machine-1", boot="boot-2", fate=lambda _: "dead")
        app = Beforehand(
            SqliteJournal(path, parts=Parts(here=here)), agents=[desk], queues=LIMITS, settings=SETTINGS, recover=False,
            environment=msgspec.structs.replace(system_environment(), rng=LeastPauses()),
            worker=lambda name: Worker(name, "machine-1", "boot-2"),
        )  # fmt: skip
        async with asyncio.timeout(30), app:
            journal = app.engine.journal
            await app.service.signal("awaits", "approved", key="boss", payload={"by": "ann"})
            assert await app.resume("awaits") == "{'by': 'ann'}"
            for run in KILLED:
                assert await app.resume(run) == f"charged {run}"
            assert {row.run for row in await journal.runs(status="completed")} == {
                "charged",
                "ended",
                "awaits",
                *KILLED,
            }
            uses = await budget_uses(journal, None)
            assert {use.reserved for use in uses} == {0}
            assert [use.permits for use in await limit_uses(journal)] == [()] * 3

    asyncio.run(main())


# --- what comes in between --------------------------------------------------------------------------------------------


def statements(place: Path) -> list[str]:
    """What an upgrade executes, from the beginning of its transaction to the end."""
    plan = Plan()
    on(sqlite(place, plan, a_machine()), nothing)
    first = plan.statements.index("begin immediate")
    return plan.statements[first : plan.statements.index("commit") + 1]


def reference(place: Path) -> tuple[int, str]:
    """How many statements an upgrade has, and what it leaves."""
    (place / "reference").mkdir()
    path = place / "reference" / "journal.db"
    path.write_bytes((place / "journal.db").read_bytes())
    return len(statements(path.parent)), content(path)


def at(number: int, happens: Callable[[], T]) -> Callable[[str], T | None]:
    """Let this happen before the statement of this number, from the transaction's begin on."""
    left: list[int] = []

    def before(sql: str) -> T | None:
        if sql == "begin immediate" or left:
            left.append(1)
        return happens() if len(left) == number + 1 else None

    return before


def killed(place: Path, number: int) -> None:
    """Upgrade in a process that is killed before the statement of this number, from the transaction's begin on."""
    plan = Plan(before=at(number, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    if (child := os.fork()) == 0:
        try:
            on(sqlite(place, plan, a_machine()), nothing)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_process_that_is_killed_at_any_statement_leaves_one_version_whole(path: Path, tmp_path: Path) -> None:
    count, after = reference(tmp_path)
    original = path.read_bytes()
    assert count > 15
    for number in range(count + 1):
        killed(tmp_path, number)
        assert content(path) == after if number == count else unchanged(path), number
        upgraded(tmp_path)
        assert content(path) == after, number
        for file in tmp_path.glob("journal.db*"):
            file.unlink()
        path.write_bytes(original)


class SmallDisk:
    """A connection to a file that has room for so many more pages. SQLite itself says when they are used up."""

    def __init__(self, pages: int) -> None:
        self._pages = pages

    def connect(self, path: Path, read_only: bool) -> Database:
        database = StandardDatabase(path, read_only)
        if not read_only:
            ((now,),) = database.rows("pragma page_count")
            assert isinstance(now, int)
            database.rows(f"pragma max_page_count = {now + self._pages}")
        return database


@pytest.mark.parametrize("change", ["", "alter table pace drop column apart_ns"])
def test_another_version_1_is_named_and_left_as_it_is(path: Path, tmp_path: Path, change: str) -> None:
    """One of an earlier release, whose tables may differ: the upgrade is not made for it."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(f"update migration set checksum = 'another'; {change}")
    before = content(path)
    error = asyncio.run(error_of(sqlite(tmp_path, machine=a_machine()).open()))
    assert isinstance(error, JournalError)
    assert "migration 1 (sqlite.sql) is not the one that this release ships" in str(error)
    assert (version(path), content(path)) == (1, before)


def test_a_disk_that_fills_in_the_middle_leaves_version_1(path: Path, tmp_path: Path) -> None:
    refused = asyncio.run(error_of(SqliteJournal(path, parts=Parts(connect=SmallDisk(0).connect)).open()))
    assert isinstance(refused, JournalUnavailable)
    assert "no space left" in str(refused)
    assert unchanged(path)
    upgraded(tmp_path)
    assert version(path) == 2


def test_a_failure_at_any_statement_leaves_version_1(path: Path, tmp_path: Path) -> None:
    count, after = reference(tmp_path)
    assert count > 15
    for number in range(count):
        full = DatabaseFailure(sqlite3.SQLITE_FULL, "planned")
        plan = Plan(before=at(number, lambda full=full: full))
        error = asyncio.run(error_of(sqlite(tmp_path, plan, a_machine()).open()))
        assert isinstance(error, JournalUnavailable), number
        assert unchanged(path), number
    upgraded(tmp_path)
    assert content(path) == after


@pytest.mark.parametrize("boot", ["boot-1", "boot-0"])
@pytest.mark.parametrize("now_ms", [LEASED_MS, LATER_MS])
@pytest.mark.parametrize("dead", [True, False])
def test_it_is_left_to_processes_of_the_earlier_release_while_one_may_live(
    path: Path, tmp_path: Path, boot: str, now_ms: int, dead: bool
) -> None:
    machine = a_machine(boot, now_ms, dead)
    if boot == "boot-1" and now_ms == LEASED_MS and not dead:
        error = asyncio.run(error_of(sqlite(tmp_path, machine=machine).open()))
        assert isinstance(error, JournalError)
        assert "processes of that release use it" in str(error)
        assert unchanged(path)
    else:
        upgraded(tmp_path, machine)
        assert version(path) == 2
