"""Looking at a journal that cannot be written: in a directory, or as a file, that is read-only."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.lab import Lab, Said
from tests.draws import daily

DROP_FROM_BOUNDING_SET, OVERRIDE, READ_SEARCH = 24, 1, 2
OPERATION = "ticket-1/restock#1"
LOOKS = [("ps",), ("show", "ticket-1"), ("why", OPERATION), ("verify",), ("doctor",)]


def _as_anybody() -> None:
    """The superuser may write what is read-only; from here on, this process may not."""
    if os.geteuid() == 0:
        library = ctypes.CDLL(None, use_errno=True)
        for capability in (OVERRIDE, READ_SEARCH):
            if library.prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "a capability could not be dropped")


@pytest.fixture
def kept(asking: Lab) -> Iterator[Lab]:
    """The desk with its journal in a directory of its own; whatever the test forbids is allowed again afterwards."""
    place = asking.directory / "kept"
    place.mkdir()
    for file in asking.directory.glob("beforehand.db*"):
        file.rename(place / file.name)
    yield asking
    place.chmod(0o755)


def look(lab: Lab, *arguments: str) -> Said:
    """Call a command in a process that has no power over permissions."""
    ended = subprocess.run(
        [sys.executable, *lab.command(*arguments)], cwd=lab.directory, env=lab.surroundings({"BEFOREHAND_JOURNAL": "kept/beforehand.db"}),
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False, preexec_fn=_as_anybody,
    )  # fmt: skip
    return Said(ended.returncode, ended.stdout, ended.stderr)


def forbid(place: Path, *, files: bool = True, directory: bool = True) -> dict[str, bytes]:
    """Take the right to write away; what is in the directory then."""
    if files:
        for file in place.iterdir():
            file.chmod(0o444)
    if directory:
        place.chmod(0o555)
    return {file.name: file.read_bytes() for file in place.iterdir() if not file.name.endswith("-shm")}


def without_notices(said: Said) -> object:
    """What a command printed, without what `doctor` says about the file as such."""
    printed = said.json
    printed.get("journal", {}).pop("notices", None)
    return printed


@pytest.mark.parametrize(
    "given",
    daily([*((look, "both") for look in LOOKS), (LOOKS[0], "directory"), (LOOKS[0], "file")], 4),
    ids=lambda given: f"{given[0][0]}-{given[1]}",
)
def test_looking_needs_no_right_to_write(kept: Lab, given: tuple[tuple[str, ...], str]):
    arguments, forbidden = given
    place = kept.directory / "kept"
    expected = without_notices(look(kept, *arguments, "--json"))
    before = forbid(place, files=forbidden != "directory", directory=forbidden != "file")
    said = look(kept, *arguments, "--json")
    assert (said.status, without_notices(said)) == (0, expected)
    assert "for reading only" in said.remarks or forbidden == "directory", "then nothing has to be made there"
    assert "may be missing" not in said.remarks
    place.chmod(0o755)
    assert {file.name: file.read_bytes() for file in place.iterdir() if not file.name.endswith("-shm")} == before


@pytest.mark.parametrize("arguments", [("show", "ticket-1"), ("doctor",)], ids=lambda arguments: arguments[0])
def test_a_log_that_cannot_be_opened_is_said(kept: Lab, arguments: tuple[str, ...]):
    """A copy of the file and its log on a read-only medium: SQLite cannot make the index that it reads a log by."""
    place = kept.directory / "kept"
    (place / "beforehand.db-shm").unlink()
    forbid(place)
    said = look(kept, *arguments)
    assert said.status == 0, said
    assert "what was written last may be missing" in said.remarks
    assert said.out


def test_a_whole_file_without_a_log_is_read_as_it_is(kept: Lab):
    place = kept.directory / "kept"
    for name in ("beforehand.db-shm", "beforehand.db-wal"):
        (place / name).unlink()
    forbid(place)
    said = look(kept, "verify")
    assert said.status == 0, said
    assert "All chains are intact" in said.out
    assert "may be missing" not in said.remarks


def test_an_end_that_only_the_log_has_is_no_damage(kept: Lab):
    """Its process died with everything in the log: read without the log, the file is old, and not cut."""
    place = kept.directory / "kept"
    whole = place / "whole"
    whole.mkdir()
    for file in place.glob("beforehand.db*"):
        shutil.copy(file, whole)
    assert kept.apart("run", "desk.py:desk", kept.ticket("2"), BEFOREHAND_JOURNAL="kept/beforehand.db").status == 0
    shutil.copy(whole / "beforehand.db", place / "beforehand.db")
    shutil.rmtree(whole)
    (place / "beforehand.db-shm").unlink()
    forbid(place)
    said = look(kept, "verify")
    assert said.status == 0, said
    assert "what was written last may be missing" in said.remarks


@pytest.mark.parametrize(
    "order", [("resolve", OPERATION, "--happened"), ("pause", "--all")], ids=lambda order: order[0]
)
def test_orders_say_that_the_journal_cannot_be_written(kept: Lab, order: tuple[str, ...]):
    forbid(kept.directory / "kept")
    said = look(kept, *order)
    assert said.status == 1
    assert "cannot be written" in said.remarks or "cannot be opened" in said.remarks
    assert not (kept.directory / "kept" / "beforehand.db").stat().st_mode & stat.S_IWUSR


@pytest.mark.parametrize("command", [("top", "--once"), ("ps",), ("queues",), ("doctor",), ("inbox",)])
def test_looking_makes_no_journal_of_an_empty_file(beforehand: Lab, command: tuple[str, ...]):
    beforehand.write("empty.db", "")
    said = beforehand(*command, "--journal", "empty.db")
    assert said.status == 2
    assert "the journal empty.db is an empty file" in said.err
    assert "a command that reads never creates one" in said.err
    assert [(one.name, one.stat().st_size) for one in beforehand.directory.glob("empty*")] == [("empty.db", 0)]


def test_a_file_that_is_no_journal_is_said_to_be_none(beforehand: Lab):
    place = beforehand.directory / "kept"
    place.mkdir()
    (place / "beforehand.db").write_text("hello")
    forbid(place)
    said = look(beforehand, "ps")
    place.chmod(0o755)
    assert said.status == 1
    assert "beforehand.db is not a SQLite database" in said.remarks
    assert "Traceback" not in said.err
