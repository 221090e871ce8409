"""What the former name has left behind is refused or named, never read and never changed."""

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beforehand import journal
from beforehand.cli.main import main
from beforehand.errors import JournalError
from beforehand.journal.backends import address_of
from beforehand.journal.sqlite.schema import APPLICATION_ID

HOLD = 0x484F4C44
SAYS = "was written by Holdfast, the former name of Beforehand"


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """A journal of the former name whose process was killed: a part of it is in the log beside it."""
    live, left = tmp_path / "live.db", tmp_path / "left" / "desk.db"
    left.parent.mkdir()
    database = sqlite3.connect(live)
    database.execute(f"pragma application_id = {HOLD}")
    database.execute("create table meta (name text primary key, value text)")
    database.commit()
    database.execute("pragma journal_mode = wal")
    database.execute("insert into meta values ('namespace', 'n')")
    database.commit()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{live}{suffix}", f"{left}{suffix}")
    database.close()
    assert left.with_name("desk.db-wal").stat().st_size
    return left


def contents(path: Path) -> dict[str, bytes]:
    """The file and its log."""
    return {one.name: one.read_bytes() for one in path.parent.iterdir() if one.name in (path.name, f"{path.name}-wal")}


def called(*arguments: str, **variables: str | None) -> Result:
    return CliRunner().invoke(main, arguments, env=variables)


def test_the_application_id_is_another():
    assert APPLICATION_ID != HOLD


@pytest.mark.parametrize("scheme", ["", "sqlite+apsw://"])
def test_an_app_refuses_a_journal_of_the_former_name_and_leaves_it(former: Path, scheme: str):
    before = contents(former)
    for _ in range(2):
        with pytest.raises(JournalError, match=SAYS) as refused:
            asyncio.run(journal.open(f"{scheme}{former}").open())
        assert type(refused.value) is JournalError
        assert "name another file" in refused.value.next_step
    assert contents(former) == before


def test_a_reader_of_a_file_that_it_cannot_write_refuses_it_too(former: Path, monkeypatch: pytest.MonkeyPatch):
    reader = address_of(former).reader()
    monkeypatch.setattr(reader, "_untouched", True)
    before = contents(former)
    with pytest.raises(JournalError, match=SAYS):
        asyncio.run(reader.open())
    assert contents(former) == before


@pytest.mark.parametrize(
    "command",
    [
        ("ps",),
        ("inbox",),
        ("show", "r"),
        ("verify",),
        ("doctor",),
        ("doctor", "--trust", "restored"),
        ("doctor", "--rebuild"),
        ("heads",),
    ],
    ids=" ".join,
)
def test_a_command_says_whose_it_is_and_finds_no_tampering(former: Path, command: tuple[str, ...]):
    before = contents(former)
    said = called("--journal", str(former), *command)
    assert said.exit_code == 1, said.output
    words = " ".join(said.stderr.split())
    assert SAYS in words
    assert "read it with the Holdfast that wrote it" in words
    assert not [word for word in ("tamper", "broken", "damaged", "distrust", "removed") if word in said.output]
    assert contents(former) == before


def test_a_directory_with_nothing_else_has_no_journal(former: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(former.parent)
    said = called("ps")
    assert said.exit_code != 0
    assert "does not exist" in said.stderr
    assert not (former.parent / "beforehand.db").exists()


@pytest.mark.parametrize("command", [("ps",), ("ps", "--json"), ("doctor",)], ids=" ".join)
def test_a_variable_of_the_former_name_is_named_once_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
):
    asyncio.run(_made(tmp_path / "beforehand.db"))
    monkeypatch.chdir(tmp_path)
    plain = called(*command)
    said = called(*command, HOLDFAST_JOURNAL=str(tmp_path / "other.db"), HOLDFAST_POLICY="p.yaml")
    assert (said.exit_code, said.stdout) == (plain.exit_code, plain.stdout)
    assert said.exit_code == 0, said.output
    named = [line for line in said.stderr.splitlines() if "not read any more" in line]
    assert named == [
        "HOLDFAST_JOURNAL is not read any more; set BEFOREHAND_JOURNAL",
        "HOLDFAST_POLICY is not read any more; set BEFOREHAND_POLICY",
    ]


def test_a_section_of_the_former_name_is_named_once_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asyncio.run(_made(tmp_path / "beforehand.db"))
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\njournal = "other.db"\n')
    monkeypatch.chdir(tmp_path)
    said = called("ps")
    assert said.exit_code == 0, said.output
    wanted = f"[tool.holdfast] in {Path.cwd() / 'pyproject.toml'} is not read any more; write [tool.beforehand]"
    assert [line for line in said.stderr.splitlines() if "not read any more" in line] == [wanted]


async def _made(path: Path) -> None:
    made = journal.open(path)
    await made.open()
    await made.close()
