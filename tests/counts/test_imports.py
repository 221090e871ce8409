"""What `holdfast inbox` imports: half of its time was that, and half of it was never used."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.journal.sqlite.journal import SqliteJournal

CALL = """
import json, sys
before = set(sys.modules)
from holdfast.cli.main import main
try:
    main(sys.argv[1:])
finally:
    json.dump(sorted(set(sys.modules) - before), sys.stderr)
"""
HEAVY = {
    "asyncio": "reading waits for nothing",
    "concurrent": "and needs no thread",
    "rich": "a list has no tables",
    "rfc8785": "it has no arguments to bring into their canonical form",
    "holdfast.agent.tool": "it runs nobody's code",
    "holdfast.app": "as above",
    "holdfast.engine": "and drives nothing",
    "holdfast.control.service": "and orders nothing",
    "holdfast.people.dossier": "one item in full is another call",
    "holdfast.journal.record_codec": "what is asked stands in the listing: no record is read",
    "holdfast.model.records": "as above",
    "importlib.metadata": "only `--version` asks for it",
    "importlib.resources": "it imports archives and temporary files",
    "random": "chance makes journals, and this one is there",
    "tomllib": "the journal is named",
}
MOST_OF_OURS = 53


def imported_by(tmp_path: Path, command: str, answer: str) -> set[str]:
    """Every module that a command imported, from the first one of ours on."""

    async def make() -> None:
        journal = SqliteJournal(tmp_path / "desk.db")
        await journal.open()
        await journal.close()

    asyncio.run(make())
    called = [sys.executable, "-c", CALL, "--journal", str(tmp_path / "desk.db"), command]
    ended = subprocess.run(called, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == answer
    return set(json.loads(ended.stderr))


@pytest.fixture
def imported(tmp_path: Path) -> set[str]:
    return imported_by(tmp_path, "inbox", "Nothing needs you.\n")


def test_the_list_imports_nothing_heavy(imported: set[str]):
    found = {heavy: why for heavy, why in HEAVY.items() if any(f"{name}.".startswith(f"{heavy}.") for name in imported)}
    assert found == {}


def test_the_list_imports_little_of_ours(imported: set[str]):
    ours = sorted(name for name in imported if name.startswith("holdfast."))
    assert len(ours) <= MOST_OF_OURS, ours


def test_the_list_of_runs_imports_no_code_that_drives_one(tmp_path: Path):
    imported = imported_by(tmp_path, "ps", "0 runs yet\n")
    ours = sorted(name for name in imported if name.startswith("holdfast."))
    assert not {"holdfast.agent.agent", "holdfast.engine.executor", "holdfast.engine.engine"} & imported
    assert len(ours) <= MOST_OF_OURS, ours
