"""The anchor: copies, rollbacks and restored backups open distrustful; what merely moved does not."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from beforehand.errors import JournalUnavailable
from beforehand.journal.port import ClaimRequest, Identity, NewRun, Post, Worker
from beforehand.journal.sqlite import anchor
from beforehand.journal.sqlite.journal import SqliteJournal
from tests.unit.journal.journal_helpers import LONG_MS, Machine, body, error_of, sqlite, start_log, stored

Check = Callable[[SqliteJournal, Identity], Awaitable[None]]


def session(journal: SqliteJournal, check: Check | None = None) -> Identity:
    async def main() -> Identity:
        identity = await journal.open()
        if check is not None:
            await check(journal, identity)
        await journal.close()
        return identity

    return asyncio.run(main())


async def write_one(journal: SqliteJournal, _: Identity) -> None:
    log = await start_log(journal, f"r{len(await journal.runs())}")
    await log.append([body(1)])


def copy(place: Path, target: Path, *suffixes: str) -> None:
    target.mkdir(exist_ok=True)
    for suffix in suffixes:
        shutil.copyfile(place / f"journal.db{suffix}", target / f"journal.db{suffix}")


def test_reopening_is_trusted_also_on_another_boot_with_other_device_numbers(tmp_path: Path) -> None:
    machine = Machine()
    session(sqlite(tmp_path, machine=machine), write_one)
    path = tmp_path / "journal.db.anchor"
    mark = json.loads(path.read_text())
    assert mark["record"] == 1
    path.write_text(json.dumps({**mark, "device": mark["device"] + 1}))
    assert session(sqlite(tmp_path, machine=Machine(boot="boot-2"))).trust == "trusted"


def test_a_restored_backup_is_distrusted(tmp_path: Path) -> None:
    session(sqlite(tmp_path), write_one)
    copy(tmp_path, tmp_path / "backup", "")
    session(sqlite(tmp_path), write_one)
    (tmp_path / "journal.db-wal").unlink()
    # Written into the same file, so that only what it holds gives it away.
    (tmp_path / "journal.db").write_bytes((tmp_path / "backup" / "journal.db").read_bytes())
    identity = session(sqlite(tmp_path))
    assert identity.trust == "distrustful"
    assert "rolled back or restored" in identity.reason


def test_a_backup_that_grew_another_history_is_distrusted(tmp_path: Path) -> None:
    session(sqlite(tmp_path), write_one)
    session(sqlite(tmp_path), write_one)
    connection = sqlite3.connect(tmp_path / "journal.db")
    connection.execute("update record set hash = zeroblob(32) where id = 2")
    connection.commit()
    connection.close()
    assert session(sqlite(tmp_path)).trust == "distrustful"


def test_a_ledger_that_lost_its_end_is_distrusted(tmp_path: Path) -> None:
    async def order(journal: SqliteJournal, _: Identity) -> None:
        await journal.commit(Post("run/r", "", b'{"word":"pause"}'))
        await journal.commit(Post("run/r", "", b'{"word":"cancel"}'))

    session(sqlite(tmp_path), order)
    connection = sqlite3.connect(tmp_path / "journal.db")
    for (trigger,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
        connection.execute(f"drop trigger {trigger}")
    connection.execute("delete from ledger where id = 2")
    connection.commit()
    connection.close()
    identity = session(sqlite(tmp_path))
    assert identity.trust == "distrustful"
    assert "the anchor knows 2 ledger entries, and this file ends at 1" in identity.reason


async def write_three(journal: SqliteJournal, _: Identity) -> None:
    log = await start_log(journal)
    for number in range(3):
        await log.append([body(number)])
        await journal.commit(Post(f"tokens/{number}", "", b'{"word":"revoke"}'))


def edit(place: Path, statement: str) -> None:
    connection = sqlite3.connect(place / "journal.db")
    assert connection.execute(statement).rowcount > 0
    connection.commit()
    connection.close()


@pytest.mark.parametrize("table", ["record", "ledger"])
def test_a_row_that_was_removed_is_found_at_open_and_stays_found(tmp_path: Path, table: str) -> None:
    session(sqlite(tmp_path), write_three)
    assert session(sqlite(tmp_path)).trust == "trusted"
    edit(tmp_path, f"delete from {table} where id = 2")
    for _ in range(2):
        identity = session(sqlite(tmp_path))
        assert (identity.trust, "1 of its records or ledger entries were removed" in identity.reason) == (
            "distrustful",
            True,
        )


def test_rows_that_an_operator_goes_on_without_are_not_found_again_but_others_are(tmp_path: Path) -> None:
    async def confirm(journal: SqliteJournal, _: Identity) -> None:
        await journal.confirm("trusted", "ann")
        await journal.commit(Post("s", "", b"{}"))

    session(sqlite(tmp_path), write_three)
    edit(tmp_path, "delete from ledger where id = 2")
    session(sqlite(tmp_path), confirm)
    assert session(sqlite(tmp_path)).trust == "trusted"
    edit(tmp_path, "delete from ledger where id = 3")
    assert session(sqlite(tmp_path)).trust == "distrustful"


def test_a_row_that_is_put_in_below_the_end_is_found_at_open(tmp_path: Path) -> None:
    session(sqlite(tmp_path), write_three)
    edit(tmp_path, "insert into ledger select 0, 'tokens/x', 'k', body, at_ms, hash from ledger where id = 1")
    identity = session(sqlite(tmp_path))
    assert (identity.trust, "were put into its log" in identity.reason) == ("distrustful", True)


def test_rows_that_are_removed_while_it_is_open_end_its_writes(tmp_path: Path) -> None:
    async def attack(journal: SqliteJournal, _: Identity) -> None:
        await write_three(journal, _)
        journal._store.count_rows()
        await journal.commit(Post("s", "", b"{}"))
        edit(tmp_path, "delete from ledger where id = 2")
        journal._store.count_rows()
        error = await error_of(journal.commit(Post("s", "", b"{}")))
        assert isinstance(error, JournalUnavailable)
        assert "1 of its records or ledger entries were removed" in str(error)

    session(sqlite(tmp_path), attack)
    assert session(sqlite(tmp_path)).trust == "distrustful"


def test_a_lost_anchor_is_distrusted_once_there_are_ledger_entries(tmp_path: Path) -> None:
    async def order(journal: SqliteJournal, _: Identity) -> None:
        await journal.commit(Post("accounts/ben", "", b'{"word":"disable"}'))

    session(sqlite(tmp_path), order)
    (tmp_path / "journal.db.anchor").unlink()
    assert session(sqlite(tmp_path)).trust == "distrustful"


def test_a_change_before_the_anchor_does_not_enter_a_head_that_is_made_afterwards(tmp_path: Path) -> None:
    async def remember(journal: SqliteJournal, _: Identity) -> None:
        heads.append(await journal.head())

    heads: list[object] = []
    session(sqlite(tmp_path), write_three)
    session(sqlite(tmp_path), remember)
    edit(tmp_path, "update ledger set hash = zeroblob(32) where id = 1")
    session(sqlite(tmp_path), remember)
    assert heads[0] == heads[1]


def test_two_that_have_a_journal_open_keep_one_anchor_which_never_goes_back(tmp_path: Path) -> None:
    async def both() -> None:
        first, second = sqlite(tmp_path), sqlite(tmp_path)
        await first.open()
        await second.open()
        log = await start_log(first)
        for number in range(50):
            await log.append([body(number)])
            await second.commit(Post(f"s/{number}", "", b"{}"))
        assert await first.head() == await second.head()
        await second.close()
        mark = anchor.load(tmp_path / "journal.db.anchor")
        await first.close()
        assert anchor.load(tmp_path / "journal.db.anchor") == mark
        assert mark is not None
        assert (mark.record, mark.entry) == (50, 50)

    asyncio.run(both())
    assert session(sqlite(tmp_path)).trust == "trusted"


@pytest.mark.parametrize("suffixes", [("",), ("", ".anchor"), ("", ".anchor", "-wal")])
def test_a_copy_is_distrusted_and_the_original_is_not(tmp_path: Path, suffixes: tuple[str, ...]) -> None:
    session(sqlite(tmp_path), write_one)
    copy(tmp_path, tmp_path / "copy", *suffixes)
    assert session(sqlite(tmp_path / "copy")).trust == "distrustful"
    assert session(sqlite(tmp_path)).trust == "trusted"


def test_another_machine_is_a_copy(tmp_path: Path) -> None:
    session(sqlite(tmp_path, machine=Machine()), write_one)
    identity = session(sqlite(tmp_path, machine=Machine(name="machine-2")))
    assert (identity.trust, "another machine" in identity.reason) == ("distrustful", True)


@pytest.mark.parametrize("content", [None, "", "{}", "half of a {"])
def test_a_lost_anchor_is_distrusted_once_there_are_records(tmp_path: Path, content: str | None) -> None:
    session(sqlite(tmp_path))
    path = tmp_path / "journal.db.anchor"
    path.unlink()
    assert session(sqlite(tmp_path), write_one).trust == "trusted"
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert session(sqlite(tmp_path)).trust == "distrustful"


def test_moving_file_and_anchor_within_a_file_system_is_nothing(tmp_path: Path) -> None:
    session(sqlite(tmp_path), write_one)
    (tmp_path / "new").mkdir()
    for name in ("journal.db", "journal.db.anchor"):
        (tmp_path / name).rename(tmp_path / "new" / name)
    assert session(sqlite(tmp_path / "new")).trust == "trusted"


def test_the_anchor_may_lie_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    journal = SqliteJournal(tmp_path / "journal.db", anchor=elsewhere)
    session(journal, write_one)
    assert elsewhere.exists()
    assert not (tmp_path / "journal.db.anchor").exists()
    assert session(SqliteJournal(tmp_path / "journal.db")).trust == "distrustful"


def test_a_distrusted_journal_leaves_the_anchor_alone_until_confirmed(tmp_path: Path) -> None:
    session(sqlite(tmp_path), write_one)
    path = tmp_path / "journal.db.anchor"
    path.unlink()
    session(sqlite(tmp_path), write_one)
    assert not path.exists()

    async def confirm(journal: SqliteJournal, identity: Identity) -> None:
        after = await journal.confirm("doubtful", "ops@example.com")
        assert (after.trust, after.incarnation != identity.incarnation) == ("doubtful", True)
        assert "ops@example.com" in after.reason
        (entry,) = await journal.entries("journal")
        assert json.loads(entry.body)["incarnation"] == identity.incarnation

    session(sqlite(tmp_path), confirm)
    again = session(sqlite(tmp_path), lambda journal, _: clear(journal))
    assert (again.trust, "ops@example.com" in again.reason) == ("doubtful", True)
    assert session(sqlite(tmp_path)).trust == "trusted"


async def clear(journal: SqliteJournal) -> None:
    assert (await journal.confirm("trusted", "ops@example.com")).reason == ""


def test_who_still_has_the_old_incarnation_does_not_write_over_the_new(tmp_path: Path) -> None:
    async def main() -> None:
        old, new = sqlite(tmp_path), sqlite(tmp_path)
        await old.open()
        await new.open()
        fresh = await new.confirm("doubtful", "ops@example.com")
        await write_one(old, fresh)
        await old.close()
        assert json.loads((tmp_path / "journal.db.anchor").read_text())["incarnation"] == fresh.incarnation
        await new.close()

    asyncio.run(main())
    assert session(sqlite(tmp_path)).trust == "doubtful"


def test_a_mark_is_written_within_a_second_of_a_commit(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine()
        journal = sqlite(tmp_path, machine=machine)
        await journal.open()
        log = await start_log(journal)
        await log.append([body(1)])
        path = tmp_path / "journal.db.anchor"
        while json.loads(path.read_text())["record"] < 1:
            machine.now_ms += 1000
            log.ride([body(2)])  # keeps the thread awake
            await log.flush()
        await journal.close()

    asyncio.run(main())


def test_an_anchor_that_cannot_be_written_is_an_error_at_open(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", anchor=tmp_path / "nowhere" / "anchor")

    async def main() -> BaseException | None:
        return await error_of(journal.open())

    error = asyncio.run(main())
    assert isinstance(error, JournalUnavailable)
    assert "anchor" in str(error)


def test_later_it_is_only_reported_and_writing_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "anchors"
    place.mkdir()

    async def main() -> None:
        journal = SqliteJournal(tmp_path / "journal.db", anchor=place / "anchor")
        await journal.open()
        (place / "anchor").unlink()
        place.rmdir()
        log = await start_log(journal)
        await log.append([body(1)])
        with journal._committer.mutex:
            journal._store.save_anchor()
        await log.append([body(2)])
        assert await stored(journal) == [body(1), body(2)]
        await journal.close()

    asyncio.run(main())
    assert "anchor was not renewed" in caplog.text


def test_after_a_confirmed_move_to_another_machine_its_owners_are_gone(tmp_path: Path) -> None:
    """Their clock cannot be read here, and only the operator knew that they are not running."""

    async def first(journal: SqliteJournal, _: Identity) -> None:
        await journal.beat(Worker("old", machine="machine-1", boot="boot-1"), LONG_MS)
        await journal.commit(ClaimRequest("r", "old", NewRun("desk")))

    async def second(journal: SqliteJournal, _: Identity) -> None:
        assert type(await journal.commit(ClaimRequest("r", "new"))).__name__ == "Busy"
        await journal.confirm("doubtful", "ops@example.com")
        assert type(await journal.commit(ClaimRequest("r", "new"))).__name__ == "LeaseGranted"

    session(sqlite(tmp_path, machine=Machine()), first)
    session(sqlite(tmp_path, machine=Machine(name="machine-2", boot="boot-9")), second)


def test_a_leftover_of_a_crash_while_writing_the_anchor_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    mark = anchor.Anchor("i", 1, "00", 2, 3, "m", "b", 0, "", ("", ""))
    anchor.save(path, mark)
    path.with_name("anchor.99999").write_text("half")
    assert anchor.load(path) == mark
