"""A journal file that was written by other means: each change to each row is found, and its place is named."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from beforehand import Beforehand, Run, agent, tool
from beforehand.cli.main import main
from beforehand.errors import RunSuspended
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.signed_heads import KeptHead, signed_head
from beforehand.inspect.verify import Checked, Kept, check
from beforehand.journal.port import Post
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.reader import SqliteReader
from beforehand.model.heads import SignedHead

KEY = "0123456789abcdef0123456789abcdef"
TABLES = ("record", "ledger")


@tool(claim="order")
def pay(order: str) -> str:
    return "paid " + order * 2000  # large enough to be kept beside its row


@agent(run_id="r-{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    paid = await pay(name)
    if name == "waits":
        return str(await run.wait_for("word"))
    return paid


class Pristine(NamedTuple):
    """A journal that holds, and what it was: each test writes it back into the same file first."""

    file: Path
    journal: bytes
    anchor: bytes
    head: SignedHead

    def restore(self, *, anchor: bool = True) -> None:
        for suffix in ("-wal", "-shm"):
            self.file.with_name(self.file.name + suffix).unlink(missing_ok=True)
        self.file.write_bytes(self.journal)
        beside = self.file.with_name(self.file.name + ".anchor")
        if anchor:
            beside.write_bytes(self.anchor)
        else:
            beside.unlink(missing_ok=True)

    def checked(self, *, heads: bool = False) -> Checked:
        async def look() -> Checked:
            journal = SqliteReader(self.file, untouched=True)
            identity = await journal.open()
            kept = Kept((KeptHead(1, self.head),)) if heads else Kept()
            found = await check(JournalReader(journal, identity), journal, kept)
            await journal.close()
            return found

        return asyncio.run(look())


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Pristine:
    file = tmp_path_factory.mktemp("log") / "journal.db"
    with Beforehand(file, agents=[desk], recover=False) as app:
        for name in ("ann", "bob"):
            app.run(desk, name)
        with pytest.raises(RunSuspended):
            app.run(desk, "waits")

    async def words() -> SignedHead:
        journal = SqliteJournal(file)
        identity = await journal.open()
        await journal.commit(Post("accounts/ben", "", b'{"word":"add","by":"ann"}'))
        await journal.commit(Post("tokens/t1", "", b'{"word":"add","by":"ann"}'))
        await journal.commit(Post("tokens/t1", "", b'{"word":"revoke","by":"ann"}'))
        await journal.commit(Post("pause/pay", "", b'{"why":"stop"}'))
        await journal.commit(Post("audit/1", "", b'{"who":"ben"}'))
        head = await signed_head(journal, identity, 0, (KEY,))
        await journal.close()
        return head

    head = asyncio.run(words())
    made = Pristine(file, file.read_bytes(), file.with_name("journal.db.anchor").read_bytes(), head)
    assert made.checked(heads=True).broken == []
    return made


@contextlib.contextmanager
def editing(file: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(file)) as database:
        yield database
        database.commit()
        database.execute("pragma wal_checkpoint(truncate)")


def ids(file: Path, table: str) -> list[int]:
    with editing(file) as database:
        return [number for (number,) in database.execute(f"select id from {table} order by id")]


def named(found: Checked) -> str:
    return "; ".join(f"{one.chain}, {one.record}: {one.why}" for one in found.broken)


@pytest.mark.parametrize("table", TABLES)
def test_any_row_that_is_removed_is_named(pristine: Pristine, table: str):
    pristine.restore()
    numbers = ids(pristine.file, table)
    assert len(numbers) > 5
    for number in numbers[:-1]:
        pristine.restore(anchor=False)  # the file alone says it
        with editing(pristine.file) as database:
            database.execute(f"delete from {table} where id = ?", (number,))
        found = pristine.checked()
        places = [one.record for one in found.broken if one.chain.startswith("the log of") and "removed" in one.why]
        assert places == [number], named(found)


@pytest.mark.parametrize("heads", [False, True], ids=["the anchor", "a head kept elsewhere"])
@pytest.mark.parametrize("table", TABLES)
def test_an_end_that_is_cut_off_is_named(pristine: Pristine, table: str, heads: bool):
    pristine.restore()
    for number in ids(pristine.file, table):
        pristine.restore(anchor=not heads)
        with editing(pristine.file) as database:
            database.execute(f"delete from {table} where id >= ?", (number,))
        found = pristine.checked(heads=heads)
        assert any(one.chain == "the end of the journal" for one in found.broken), named(found)


def test_a_cut_end_without_anchor_and_heads_is_not_seen_and_that_is_said(pristine: Pristine):
    pristine.restore(anchor=False)
    with editing(pristine.file) as database:
        database.execute("delete from ledger where id = (select max(id) from ledger)")
    assert pristine.checked().broken == []  # the limit that SECURITY.md names
    assert pristine.checked(heads=True).broken != []


BODY = {"record": "content", "ledger": "body"}
EDITS = {
    "record": {
        "content": "cast(replace(content, '\"', '\" ') as text)",
        "at": "coalesce(at + 1, 7)",
        "up": "coalesce(up, 7) + 1",
        "hash": "zeroblob(32)",
        "seq": "seq + 1000",
        "run": "run % 3 + 11",
        "token": "token + 1",
    },
    "ledger": {
        "body": "body || ' '",
        "hash": "zeroblob(32)",
        "stream": "stream || 'x'",
        "key": "key || 'x'",
        "at_ms": "at_ms + 1",
    },
}


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table, columns in EDITS.items() for column in columns]
)
def test_any_column_of_any_row_that_is_edited_is_found(pristine: Pristine, table: str, column: str):
    pristine.restore()
    for number in ids(pristine.file, table):
        pristine.restore()
        with editing(pristine.file) as database:
            database.execute(f"update {table} set {column} = {EDITS[table][column]} where id = ?", (number,))
        assert pristine.checked().broken != [], (table, column, number)


@pytest.mark.parametrize("table", TABLES)
def test_any_two_neighbours_that_change_places_are_found(pristine: Pristine, table: str):
    pristine.restore()
    for number in ids(pristine.file, table)[:-1]:
        pristine.restore()
        with editing(pristine.file) as database:
            for old, new in ((number, -1), (number + 1, number), (-1, number + 1)):
                database.execute(f"update {table} set id = ? where id = ?", (new, old))
        assert pristine.checked().broken != [], (table, number)


COLUMNS = "id, run, seq, token, content, at, up, hash"
INSERTS = {
    "a record at the end": f"insert into record ({COLUMNS}) select max(id) + 1, run, max(seq) + 9, token, content, at, up, hash from record",
    "a record before the first": f"insert into record ({COLUMNS}) select 0, run, 0, token, content, at, up, hash from record where id = 1",
    "an entry at the end": "insert into ledger select max(id) + 1, stream, 'k', body, at_ms, hash from ledger",
    "an entry before the first": "insert into ledger select -5, 'other', 'k', body, at_ms, hash from ledger where id = 1",
    "an entry far away": "insert into ledger select 99, stream, 'k', body, at_ms, hash from ledger where id = 1",
}


@pytest.mark.parametrize("statement", INSERTS.values(), ids=INSERTS)
def test_a_row_that_is_put_in_is_found(pristine: Pristine, statement: str):
    pristine.restore()
    with editing(pristine.file) as database:
        assert database.execute(statement).rowcount == 1
    assert pristine.checked().broken != []


@pytest.mark.parametrize("heads", [False, True], ids=["the anchor", "a head kept elsewhere"])
def test_a_removal_that_numbers_the_rest_anew_is_found(pristine: Pristine, heads: bool):
    """The last entry of a stream goes, later entries move up, and another one is appended: every chain holds."""
    pristine.restore(anchor=not heads)
    with editing(pristine.file) as database:
        ((number,),) = database.execute("select max(id) from ledger where stream = 'tokens/t1'")
        database.execute("delete from ledger where id = ?", (number,))
        for (later,) in database.execute("select id from ledger where id > ? order by id", (number,)).fetchall():
            database.execute("update ledger set id = id - 1 where id = ?", (later,))
    found = pristine.checked(heads=heads)
    assert found.broken != []

    async def append() -> None:  # the file is as long as before again
        journal = SqliteJournal(pristine.file)
        await journal.open()
        await journal.commit(Post("audit/2", "", b"{}"))
        await journal.close()

    asyncio.run(append())
    assert pristine.checked(heads=heads).broken != []


OTHER = {
    "a run and all its records": "delete from record where run = 1; delete from run where id = 1;",
    "a run's line": "delete from run where id = 2;",
    "two runs change names": (
        "update run set name = 'x' where id = 1; update run set name = 'r-ann' where id = 2;"
        "update run set name = 'r-bob' where id = 1;"
    ),
    "a large body": "delete from payload;",
    "the namespace": "update meta set value = 'other' where name = 'namespace';",
    "the secret": "update meta set value = 'abcd' where name = 'secret';",
    "a run that waits is listed as completed": "update run set status = 'completed', waits = '[]' where id = 3;",
    "a run that has ended is listed as suspended": "update run set status = 'suspended' where id = 1;",
    "a trigger": "create trigger evil after insert on ledger begin delete from cell; end;",
    "a trigger that is gone": "drop trigger run_limits_changed;",
    "a view in the place of a table": "alter table cell rename to cell_; create view cell as select * from cell_;",
    "a counter of a shared budget": "insert into cell values ('counter', 'support 2027-01-02', 'effects', '[-1000,0]');",
    "the mark of trust": "update meta set value = 'doubtful' where name = 'trust';",
}


@pytest.mark.parametrize("script", OTHER.values(), ids=OTHER)
def test_what_belongs_to_the_log_is_bound_to_it(pristine: Pristine, script: str):
    pristine.restore()
    with editing(pristine.file) as database:
        database.executescript(script)
    assert pristine.checked().broken != []


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("update meta set value = 'zz' where name = 'secret'", "has a secret that is not a hexadecimal number"),
        *((f"delete from meta where name = '{name}'", f"lacks '{name}'") for name in ("secret", "namespace", "trust")),
    ],
)
@pytest.mark.parametrize("command", [["verify"], ["ps"], ["doctor", "--rebuild"]])
def test_a_damaged_identity_is_a_clear_error(pristine: Pristine, script: str, says: str, command: list[str]):
    pristine.restore()
    with editing(pristine.file) as database:
        database.execute(script)
    said = CliRunner().invoke(main, [*command, "--journal", str(pristine.file)])
    assert said.exit_code == 1
    assert f"is damaged: its table meta {says}" in " ".join(said.output.split())
    assert "restore a backup" in said.output


def test_many_changes_at_once_are_found(pristine: Pristine, seed: int):
    chance = random.Random(seed)
    changes: list[Callable[[str, int], str]] = [
        lambda table, number: f"delete from {table} where id = {number}",
        lambda table, number: f"update {table} set {BODY[table]} = {BODY[table]} || ' ' where id = {number}",
        lambda table, number: f"update {table} set hash = zeroblob(32) where id >= {number}",
    ]
    for _ in range(40):
        pristine.restore()
        with editing(pristine.file) as database:
            for _ in range(chance.randint(1, 4)):
                table = chance.choice(TABLES)
                database.execute(chance.choice(changes)(table, chance.randint(1, 8)))
        assert pristine.checked(heads=True).broken != []


def test_the_command_says_what_is_missing_and_ends_with_4(pristine: Pristine, tmp_path: Path):
    pristine.restore()
    heads = tmp_path / "kept.heads"
    arguments = ["verify", "--journal", str(pristine.file)]
    printed = CliRunner().invoke(main, ["heads", "--journal", str(pristine.file)])
    assert printed.exit_code == 0
    heads.write_text(printed.output * 2)
    assert CliRunner().invoke(main, [*arguments, "--heads", str(heads)]).exit_code == 0
    with editing(pristine.file) as database:
        database.execute("delete from ledger where stream = 'pause/pay'")
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 4
    assert "the log of ledger entries, number " in said.output
    assert "it followed an entry of tokens/t1 and came before an entry of audit/1" in said.output
