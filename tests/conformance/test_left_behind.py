"""Runs of queues whose process is gone: each waits for a slot again, whatever it was doing and whatever its queue does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from beforehand.journal.port import ClaimRequest, LeaseGranted, QueuePlace, QueueState, RunChange, TakeRequest, Write
from beforehand.queues.limits import Declaration
from beforehand.testing.conformance import JournalConformance
from beforehand.testing.queue_conformance import (
    AGENTS,
    ALICE,
    BOB,
    LATER_MS,
    LONG_MS,
    OVER_MS,
    PAUSED,
    end,
    names,
    submit,
)
from tests.conformance.test_journals import TestMemoryJournal as InMemory
from tests.conformance.test_journals import TestSqliteJournal as OnSqlite

DOES = {
    "begins": [],
    "goes on": [RunChange("running", release=True)],
    "wakes up": [RunChange("suspended", due_ms=1, release=True)],
    "wakes up with its key": [RunChange("suspended", due_ms=1, release=True)],
}
"""What a run was given back with before the process took it that then dies."""
ENDED = (RunChange("completed", release=True), RunChange("stopped", release=True))
ASLEEP = RunChange("suspended", due_ms=LATER_MS, release=True)


@pytest.mark.parametrize("suite", [InMemory, OnSqlite])
@pytest.mark.parametrize("newest", [Declaration(), PAUSED], ids=["open", "paused"])
@pytest.mark.parametrize("does", DOES)
def test_what_a_process_that_is_gone_held_is_taken_by_another_one_once(
    suite: type[JournalConformance], newest: Declaration, does: str, tmp_path: Path
):
    async def taken(worker: str) -> list[str]:
        return [one.lease.run for one in await journal.commit(TakeRequest(worker, AGENTS, 9, newest))]

    async def check() -> None:
        await journal.open()
        await journal.beat(ALICE, LONG_MS)
        await submit(journal, "held", QueuePlace("mail", key="k" if "key" in does else ""))
        for change in DOES[does]:
            assert await names(journal, "alice", 9) == ["held"]
            await end(journal, "held", change)
        assert await names(journal, "alice", 9) == ["held"]
        assert await taken("bob") == [], "its process lives"
        assert await journal.queues() == [QueueState("mail", 0, 1)]
        since = (await journal.runs())[0].updated_ms
        await journal.beat(ALICE, OVER_MS)
        await journal.beat(BOB, LONG_MS)
        assert await journal.queues() == [QueueState("mail", 0, 0, since, AGENTS)], "it is ready, and waits for a slot"
        assert await taken("bob") == ["held"]
        assert await journal.queues() == [QueueState("mail", 0, 1)]
        assert await taken("carol") == []
        await journal.close()

    journal = suite.make_journal(tmp_path)
    asyncio.run(check())


@pytest.mark.parametrize("suite", [InMemory, OnSqlite])
def test_what_it_had_ended_or_put_to_sleep_is_left_alone(suite: type[JournalConformance], tmp_path: Path):
    async def check() -> None:
        await journal.open()
        await journal.beat(ALICE, LONG_MS)
        for number, change in enumerate((*ENDED, ASLEEP)):
            await submit(journal, f"r{number}", QueuePlace("mail"))
            assert await names(journal, "alice", 9) == [f"r{number}"]
            await end(journal, f"r{number}", change)
        await journal.beat(ALICE, OVER_MS)
        assert await names(journal, "bob", 9) == []
        await journal.close()

    journal = suite.make_journal(tmp_path)
    asyncio.run(check())


@pytest.mark.parametrize("suite", [InMemory, OnSqlite])
def test_a_reopened_run_whose_process_is_gone_waits_for_those_of_its_key(
    suite: type[JournalConformance], tmp_path: Path
):
    """It gave its key away when it stopped. It has to wait for it without keeping a look from its end."""

    async def check() -> None:
        await journal.open()
        await journal.beat(ALICE, LONG_MS)
        await journal.beat(BOB, LONG_MS)
        for name in ("first", "second", "third"):
            await submit(journal, name, QueuePlace("mail", key="k"))
        assert await names(journal, "bob", 9) == ["first"]
        await end(journal, "first", RunChange("stopped", release=True))
        assert await names(journal, "bob", 9) == ["second"]
        reopened = await journal.commit(ClaimRequest("first", "alice"))
        assert isinstance(reopened, LeaseGranted)
        await journal.commit(Write(reopened.lease, (), RunChange("running")))
        await journal.beat(ALICE, OVER_MS)
        assert await names(journal, "bob", 9) == []
        await end(journal, "second")
        found = await names(journal, "bob", 9)
        assert len(found) == 1
        await end(journal, found[0])
        found += await names(journal, "bob", 9)
        assert sorted(found) == ["first", "third"]
        await journal.close()

    journal = suite.make_journal(tmp_path)
    asyncio.run(check())


@pytest.mark.parametrize("suite", [InMemory, OnSqlite])
@pytest.mark.parametrize("newest", [Declaration(), PAUSED], ids=["open", "paused"])
@pytest.mark.parametrize("due_ms", [1, LATER_MS], ids=["ready", "later"])
def test_a_queued_run_is_not_lost_with_a_process_that_had_asked_for_it(
    suite: type[JournalConformance], newest: Declaration, due_ms: int, tmp_path: Path
):
    """Who drives or cancels a run claims it first. If that process dies, the run begins as if it had never asked."""

    async def taken(worker: str) -> list[str]:
        return [one.lease.run for one in await journal.commit(TakeRequest(worker, AGENTS, 9, newest))]

    async def check() -> None:
        await journal.open()
        await journal.beat(ALICE, LONG_MS)
        await submit(journal, "asked for", QueuePlace("mail"), due_ms=due_ms)
        assert isinstance(await journal.commit(ClaimRequest("asked for", "alice")), LeaseGranted)
        assert await taken("bob") == [], "its process lives"
        await journal.beat(ALICE, OVER_MS)
        await journal.beat(BOB, LONG_MS)
        begins = due_ms == 1 and newest is not PAUSED
        assert await taken("bob") == ["asked for"] * begins
        assert await taken("carol") == []
        assert [(one.waiting, one.running) for one in await journal.queues()] == [(int(not begins), int(begins))]
        await journal.close()

    journal = suite.make_journal(tmp_path)
    asyncio.run(check())
