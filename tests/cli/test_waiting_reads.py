"""Commands that read work over a journal whose reads wait for something, as those of a database server do."""

import asyncio
import inspect
import re
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from beforehand.journal import backends
from beforehand.journal.port import LedgerEntry, Reader
from beforehand.journal.sqlite.backend import SqliteFiles
from beforehand.journal.sqlite.reader import SqliteReader
from tests.cli.lab import Lab

READING = [
    ("ps",),
    ("ps", "--json"),
    ("show", "ticket-1"),
    ("show", "ticket-1", "--at", "refund#1"),
    ("why", "ticket-1/restock#1"),
    ("pending",),
    ("inbox",),
    ("inbox", "--json"),
    ("inbox", "--item", "ticket-1/restock#1"),
    ("inbox", "--health"),
    ("figures",),
    ("standing", "list"),
    ("accounts", "list"),
    ("webhooks", "list"),
    ("export", "ticket-1", "-o", "-"),
    ("replay", "ticket-1", "--agent", "desk.py:desk"),
    ("verify",),
    ("heads",),
    ("doctor",),
]


class WaitingReader:
    """A reader whose every call suspends first, and then again, before it answers."""

    def __init__(self, inner: Reader) -> None:
        self._inner = inner
        self.waited = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, int)  # as a driver that needs the loop
            return await found(*args, **options)

        return call

    async def ledger(self) -> AsyncIterator[LedgerEntry]:
        async for entry in self._inner.ledger():
            await asyncio.sleep(0)
            yield entry


class WaitingFiles(SqliteFiles):
    reads_wait = True

    def reader(self, place: str) -> Any:
        return WaitingReader(SqliteReader(place))


@pytest.fixture
def waiting(asking: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    module = ModuleType("tests_waiting_backend")
    module.BACKEND = WaitingFiles("sqlite3")  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "tests_waiting_backend", module)
    monkeypatch.setitem(backends.BUILT_IN, "waiting", "tests_waiting_backend:BACKEND")
    return asking


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_command_that_reads_says_the_same_where_reads_wait(waiting: Lab, command: tuple[str, ...]):
    plain = waiting(*command)
    found = waiting(*command, "--journal", "waiting://beforehand.db")
    assert found.status == plain.status, found.err
    named = (found.out + found.err).replace("--journal waiting://beforehand.db ", "")
    if command != ("heads",):  # which has the moment in it
        assert worded(named) == worded(plain.out + plain.err)


def worded(said: str) -> list[str]:
    """The words, without the figures: some are times that pass between the two calls."""
    return re.sub(r"\d+", "0", said).split()


def test_the_test_above_does_wait(waiting: Lab):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WaitingFiles, "reads_wait", False)
        with pytest.raises(RuntimeError, match="needs a loop"):
            waiting("inbox", "--journal", "waiting://beforehand.db")
