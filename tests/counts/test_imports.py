"""The imports of commands that only look: they are most of the time that such a command takes."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand.journal.sqlite.journal import SqliteJournal

CALL = """
import json, sys
before = set(sys.modules)
from beforehand.cli.main import main
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
    "beforehand.agent.tool": "it runs nobody's code",
    "beforehand.app": "as above",
    "beforehand.engine": "and drives nothing",
    "beforehand.control.service": "and orders nothing",
    "beforehand.people.dossier": "one item in full is another call",
    "beforehand.journal.record_codec": "what is asked stands in the listing: no record is read",
    "beforehand.model.records": "as above",
    "importlib.metadata": "only `--version` asks for it",
    "importlib.resources": "it imports archives and temporary files",
    "random": "chance makes journals, and this one is there",
    "tomllib": "the journal is named",
}
# Raised by two for lessons in the inbox, and for amounts of money in counters of budgets; by one for what to install.
# By one for what refuses the former name, and by two for the words of calls and of waits.
MOST_OF_OURS = 60
MOST_OF_STORIES = {
    "show": 88,
    "why": 124,
}  # `why` for limits and their cells, amounts, relatives, and the words of calls and plans
"""The same for one run, whose records are read and folded, and for one operation, which is decided about as well."""
DRIVES = {
    "asyncio",
    "beforehand.agent.agent",
    "beforehand.agent.tool",
    "beforehand.app",
    "beforehand.control.service",
    "beforehand.engine.commands",
    "beforehand.engine.engine",
    "beforehand.engine.executor",
    "beforehand.engine.process",
}
ONE_RUN = """
from beforehand import Run, agent, tool
@tool
async def pay(cents: int) -> int:
    return cents
@agent(run_id="order-{name}")
async def desk(run: Run, name: str) -> int:
    return await pay(900)
"""


def imported_by(journal: Path, command: list[str], answer: str) -> set[str]:
    """Every module that a command imported, from the first one of ours on."""
    called = [sys.executable, "-c", CALL, "--journal", str(journal), *command]
    ended = subprocess.run(called, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith(answer)
    return set(json.loads(ended.stderr))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    async def make() -> None:
        journal = SqliteJournal(tmp_path / "desk.db")
        await journal.open()
        await journal.close()

    asyncio.run(make())
    return tmp_path / "desk.db"


@pytest.fixture
def imported(empty: Path) -> set[str]:
    return imported_by(empty, ["inbox"], "Nothing needs you.\n")


def test_the_list_imports_nothing_heavy(imported: set[str]):
    found = {heavy: why for heavy, why in HEAVY.items() if any(f"{name}.".startswith(f"{heavy}.") for name in imported)}
    assert found == {}


def test_the_list_imports_little_of_ours(imported: set[str]):
    assert len(ours_of(imported)) <= MOST_OF_OURS, ours_of(imported)


def test_the_list_of_runs_imports_no_code_that_drives_one(empty: Path):
    imported = imported_by(empty, ["ps"], "0 runs yet\n")
    assert not DRIVES & imported
    assert len(ours_of(imported)) <= MOST_OF_OURS, ours_of(imported)


@pytest.mark.parametrize(
    ("command", "answer"), [(["show", "order-17"], "order-17"), (["why", "order-17/pay#1"], "order-17/pay#1")]
)
def test_a_run_and_an_operation_are_told_without_the_code_that_drives_them(
    tmp_path: Path, command: list[str], answer: str
):
    program, journal = tmp_path / "desk.py", tmp_path / "desk.db"
    program.write_text(ONE_RUN)
    run = [sys.executable, "-m", "beforehand", "run", f"{program}:desk", '"17"', "--journal", str(journal)]
    subprocess.run(run, capture_output=True, timeout=60, check=True)
    imported = imported_by(journal, command, answer)
    assert not DRIVES & imported
    if command[0] == "why":
        assert not {"rich.table", "rich.console"} & imported, "its tables took a seventh of the command's time"
    assert len(ours_of(imported)) <= MOST_OF_STORIES[command[0]], ours_of(imported)


def ours_of(imported: set[str]) -> list[str]:
    return sorted(name for name in imported if name.startswith("beforehand."))


def test_an_agent_imports_nothing_that_only_an_error_needs():
    show = "import sys; from beforehand import Beforehand, agent; print(*sys.modules)"
    found = set(subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split())
    unused = {"importlib.metadata", "ctypes", "email.utils", "json", "difflib"}
    assert not found & unused, "archives and mail come with the first, mail with the third, and nothing uses them yet"
