"""What one look for runs gives: slots in turn, keys counted once, and the runs behind those that are left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from beforehand.journal.port import Journal, QueuePlace, RunChange
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from beforehand.testing.conformance import JournalConformance
from beforehand.testing.queue_conformance import BOB, LONG_MS, end, names, submit
from tests.conformance.test_journals import TestMemoryJournal as InMemory
from tests.conformance.test_journals import TestSqliteJournal as OnSqlite

Suite = type[JournalConformance]
on_both = pytest.mark.parametrize("suite", [InMemory, OnSqlite])


def on_journal(suite: Suite, place: Path, check: Callable[[Journal], Awaitable[None]]) -> None:
    """Check something on an open, empty journal in which the worker `bob` lives."""

    async def whole() -> None:
        journal = suite.make_journal(place)
        await journal.open()
        await journal.beat(BOB, LONG_MS)
        await check(journal)
        await journal.close()

    asyncio.run(whole())


@on_both
@pytest.mark.parametrize("room", [1, 2])
def test_runs_that_are_left_out_hide_none_behind_them(suite: Suite, room: int, tmp_path: Path):
    """A worker leaves out what it could not drive just now. All of it may be in front of one lane."""

    async def check(journal: Journal) -> None:
        for number in range(8):
            await submit(journal, f"r{number}", QueuePlace("mail"), due_ms=1 + number)
        left_out = {f"r{number}" for number in range(5)}
        assert await names(journal, "bob", room, skip=left_out) == ["r5", "r6"][:room]

    on_journal(suite, tmp_path, check)


@on_both
def test_a_run_that_goes_on_counts_once_under_its_key(suite: Suite, tmp_path: Path):
    two = DeclaredLimits({"mail": QueueLimits(key="order-{order}", per_key=2)})

    async def check(journal: Journal) -> None:
        await submit(journal, "first", QueuePlace("mail", key="order-1"))
        assert await names(journal, "bob", 9, two) == ["first"]
        await end(journal, "first", RunChange("suspended", due_ms=1, release=True))
        for name in ("second", "third"):
            await submit(journal, name, QueuePlace("mail", key="order-1"), due_ms=2)
        assert await names(journal, "bob", 9, two) == ["first", "second"], "it has its key already"
        await end(journal, "first")
        assert await names(journal, "bob", 9, two) == ["third"]

    on_journal(suite, tmp_path, check)


@on_both
@pytest.mark.parametrize("room", [1, 4])
def test_a_queue_that_was_served_in_this_look_is_the_last_among_equals(suite: Suite, room: int, tmp_path: Path):
    """Whether a worker takes its slots in one look or in four, the queues get theirs in the same turn."""

    async def check(journal: Journal) -> None:
        await submit(journal, "mail 0", QueuePlace("mail"))
        assert await names(journal, "bob", 1) == ["mail 0"]
        for number in (1, 2):
            await submit(journal, f"mail {number}", QueuePlace("mail"), due_ms=1 + number)
        for number in range(3):
            await submit(journal, f"web {number}", QueuePlace("web"), due_ms=1 + number)
        found = [name for _ in range(4 // room) for name in await names(journal, "bob", room)]
        assert found == ["web 0", "mail 1", "web 1", "mail 2"]

    on_journal(suite, tmp_path, check)
