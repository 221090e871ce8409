"""Opening: creation, migrations, foreign and newer files, modes, places that cannot hold a journal."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from beforehand.errors import JournalError, JournalUnavailable
from beforehand.journal import host
from beforehand.journal.port import Identity
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.journal.sqlite.schema import Migration, shipped, statements
from tests.unit.journal.journal_helpers import body, error_of, sqlite, start_log, stored


def opened(journal: SqliteJournal) -> Identity:
    async def main() -> Identity:
        identity = await journal.open()
        await journal.close()
        return identity

    return asyncio.run(main())


def refusal(journal: SqliteJournal) -> str:
    async def main() -> BaseException | None:
        return await error_of(journal.open())

    error = asyncio.run(main())
    assert isinstance(error, JournalError)
    return str(error)


def pragma(path: Path, name: str) -> object:
    connection = sqlite3.connect(path)
    ((value,),) = connection.execute(f"pragma {name}").fetchall()
    connection.close()
    return value


def test_a_new_journal_is_private_and_durable_from_the_start(tmp_path: Path) -> None:
    identity = opened(sqlite(tmp_path))
    path = tmp_path / "journal.db"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "journal.db.anchor").stat().st_mode) == 0o600
    assert pragma(path, "journal_mode") == "wal"
    assert pragma(path, "user_version") == shipped()[-1].version
    assert len(identity.secret) == 32
    assert identity.namespace
    assert f"SQLite {sqlite3.sqlite_version}" in identity.notices[0]


def test_the_writing_connection_syncs_fully_and_never_by_itself_checkpoints(tmp_path: Path) -> None:
    async def main() -> None:
        journal = sqlite(tmp_path)
        await journal.open()
        files = journal._store._files
        assert files is not None
        settings = ("synchronous", "fullfsync", "checkpoint_fullfsync")
        assert [files.writer.rows(f"pragma {name}") for name in settings] == [[(2,)], [(1,)], [(1,)]]
        without = ("wal_autocheckpoint", "foreign_keys", "mmap_size", "busy_timeout")
        assert [files.writer.rows(f"pragma {name}") for name in without] == [[(0,)]] * len(without)
        await journal.close()

    asyncio.run(main())


def test_rollback_mode_syncs_the_directory_too(tmp_path: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(tmp_path / "journal.db", mode="rollback")
        identity = await journal.open()
        assert "rollback mode" in identity.notices[0]
        files = journal._store._files
        assert files is not None
        assert files.writer.rows("pragma synchronous") == [(3,)]
        await journal.close()

    asyncio.run(main())


def test_a_mode_lasts_and_can_be_changed_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    opened(SqliteJournal(path, mode="rollback"))
    assert pragma(path, "journal_mode") == "delete"
    opened(SqliteJournal(path))
    assert pragma(path, "journal_mode") == "delete"
    opened(SqliteJournal(path, mode="wal"))
    opened(SqliteJournal(path))
    assert pragma(path, "journal_mode") == "wal"


def test_a_mode_is_not_changed_under_others(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    async def main() -> None:
        first = SqliteJournal(path)
        await first.open()
        error = await error_of(SqliteJournal(path, mode="rollback").open())
        assert isinstance(error, JournalError)
        await (await start_log(first)).append([body(1)])
        await first.close()

    asyncio.run(main())


def test_a_namespace_may_be_given_to_a_new_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    assert opened(SqliteJournal(path, namespace="staging")).namespace == "staging"
    assert opened(SqliteJournal(path, namespace="production")).namespace == "staging"


def test_a_crash_in_the_middle_of_creation_is_gone_over_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.touch()
    first = opened(SqliteJournal(path))
    assert opened(SqliteJournal(path)) == first


def test_pending_migrations_are_applied_in_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    opened(SqliteJournal(path))
    more = (*shipped(), Migration(3, "more.sql", "create table more (n);\ncreate table most (n);"))
    broken = (*more, Migration(4, "broken.sql", "create table third (n);\ncreate table more (n);"))
    assert "more" in refusal(SqliteJournal(path, parts=Parts(migrations=broken)))
    assert pragma(path, "user_version") == 2
    opened(SqliteJournal(path, parts=Parts(migrations=more)))
    assert pragma(path, "user_version") == 3
    opened(SqliteJournal(path, parts=Parts(migrations=broken[:2])))


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    opened(
        SqliteJournal(path, parts=Parts(migrations=(*shipped(), Migration(3, "more.sql", "create table more (n);"))))
    )
    assert "schema version 3; this release knows 2" in refusal(SqliteJournal(path))


def test_a_different_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    opened(SqliteJournal(path))
    other = replace(shipped()[0], sql=shipped()[0].sql + "-- touched\n")
    assert "not the one that this release ships" in refusal(SqliteJournal(path, parts=Parts(migrations=(other,))))


def test_a_history_that_is_gone_is_damage_and_not_another_release(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    opened(SqliteJournal(path))
    with contextlib.closing(sqlite3.connect(path)) as connection:  # what a cut file gives back
        connection.execute("update migration set version = 0, name = 'x', checksum = 'x'")
        connection.commit()
    said = refusal(SqliteJournal(path))
    assert "is damaged: its list of migrations lacks 2 (sqlite.sql)" in said
    assert "use the release" not in said


def test_another_program_s_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    connection = sqlite3.connect(path)
    connection.execute("create table theirs (n)")
    connection.close()
    before = path.read_bytes()
    assert "not a Beforehand journal" in refusal(SqliteJournal(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"this is no database at all, but a text\n" * 100, b"\0" * 4096], ids=["text", "zeros"]
)
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    assert "damaged" in refusal(SqliteJournal(path))


def test_a_damaged_page_stops_writing_and_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    async def fill() -> None:
        journal = SqliteJournal(path)
        await journal.open()
        log = await start_log(journal)
        for number in range(300):
            await log.append([body(number)])
        await log.append([body(300)])
        await journal.close()

    asyncio.run(fill())
    (tmp_path / "journal.db-wal").unlink()  # all of it is in the file since the close
    content = bytearray(path.read_bytes())
    content[4096 : len(content)] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    assert "damaged" in refusal(SqliteJournal(path))


def test_places_that_cannot_hold_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not exist" in refusal(SqliteJournal(tmp_path / "nowhere" / "journal.db"))
    assert "is a directory" in refusal(SqliteJournal(tmp_path))
    monkeypatch.setattr(host, "network_filesystem", lambda _: "nfs4")
    assert "network file system (nfs4)" in refusal(sqlite(tmp_path))
    opened(SqliteJournal(tmp_path / "journal.db", allow_network_filesystem=True))


def test_a_place_without_room_for_a_file_is_reported() -> None:
    error = refusal(SqliteJournal(Path("/proc/journal.db")))
    assert "cannot be opened" in error


def test_a_failed_open_lets_go_of_everything(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"x" * 5000)
    before = list(Path("/proc/self/fd").iterdir())
    refusal(SqliteJournal(path))
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


@pytest.mark.parametrize("seconds", [0, 2])
def test_the_log_has_its_full_size_once_a_process_has_written_for_a_second_and_keeps_it(
    tmp_path: Path, seconds: int
) -> None:
    """The file is whole without it."""
    log, written = tmp_path / "journal.db-wal", list[bytes]()
    moments = itertools.count(0, 1000 * seconds)
    here = replace(host.this_host(), uptime_ms=lambda: next(moments))

    async def fill() -> None:
        journal = SqliteJournal(tmp_path / "journal.db", parts=Parts(here=here))
        await journal.open()
        run = await start_log(journal)
        while len(written) < 300 and log.stat().st_size < 4_000_000:
            written.append(body(len(written)))
            await run.append(written[-1:])
        await journal.close()

    asyncio.run(fill())
    assert (log.stat().st_size > 4_000_000) is (seconds > 1), len(written)
    log.unlink()

    async def look() -> None:
        journal = sqlite(tmp_path)
        assert (await journal.open()).trust == "trusted"
        assert await stored(journal) == written
        await journal.close()

    asyncio.run(look())


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_deleted_file_stops_writing(tmp_path: Path, suffix: str) -> None:
    async def main() -> None:
        journal = sqlite(tmp_path)
        await journal.open()
        log = await start_log(journal)
        await log.append([body(1)])
        (tmp_path / f"journal.db{suffix}").unlink()
        error = await error_of(log.append([body(2)]))
        assert isinstance(error, JournalUnavailable)
        assert "was deleted, moved or replaced" in str(error)
        await journal.close()

    asyncio.run(main())


@pytest.mark.parametrize("suffix", ["", "-lock"])
def test_a_replaced_file_stops_writing_when_the_anchor_is_due(tmp_path: Path, suffix: str) -> None:
    async def main() -> None:
        journal = sqlite(tmp_path)
        await journal.open()
        log = await start_log(journal)
        file = tmp_path / f"journal.db{suffix}"
        if suffix:
            file.unlink()
        else:
            file.rename(tmp_path / "aside.db")
        file.write_bytes(b"")
        with journal._committer.mutex:
            journal._store.save_anchor()
        assert isinstance(await error_of(log.append([body(2)])), JournalUnavailable)
        await journal.close()

    asyncio.run(main())


def test_scripts_are_cut_into_statements() -> None:
    script = "-- a comment; with a semicolon\ncreate table a (n);\n\ncreate index b\n  on a (n);\n-- the end\n"
    assert [statement.split("create")[1].split()[0] for statement in statements(script)] == ["table", "index"]
    assert len(statements("select 1")) == 1
