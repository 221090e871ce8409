"""What one look for runs gives: slots in turn, keys counted once, and the runs behind those that are left out."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from beforehand.journal.port import Journal, QueuePlace, QueueState, RunChange, TakeRequest
from beforehand.queues.limits import Declaration, DeclaredLimits, QueueLimits
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


PROGRAMS = (("clerk", ""), ("desk", ""), ("desk", "a"), ("desk", "b"), ("desk", "c"), ("post", "b"))
LANES = {
    "priorities of tenants": (PROGRAMS[2:3], ("mail",), ("", "acme", "big"), (-9, 0, 1, 9)),
    "tenants of queues": (PROGRAMS[2:3], ("mail", "sms", "web"), ("", "acme", "big"), (0,)),
    "queues of programs": (PROGRAMS[1:5], ("mail", "sms", "web"), ("",), (0,)),
    "programs of agents": (PROGRAMS, ("mail", "web"), ("acme",), (0,)),
    "all": (PROGRAMS, ("mail", "web"), ("", "acme", "big"), (-9, 0, 9)),
}


@on_both
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("which", LANES)
def test_a_look_finds_the_first_of_every_lane_whichever_lanes_there_are(
    suite: Suite, number: int, which: str, tmp_path: Path
):
    """Lanes are sought one behind the other, so none may be skipped for what the one before it is called."""
    some = random.Random(number).sample(list(itertools.product(*LANES[which])), 6)
    agents = PROGRAMS[1:5]

    async def check(journal: Journal) -> None:
        for ready, ((agent, program), queue, tenant, priority) in enumerate(some, 1):
            place = QueuePlace(queue, tenant, priority=priority)
            await submit(journal, f"r{ready}", place, due_ms=ready, agent=agent, program=program)
        expected = []
        for queue in ("mail", "sms", "web"):
            ready = {n: one[0] for n, one in enumerate(some, 1) if one[1] == queue}
            if ready:
                expected.append(QueueState(queue, len(ready), 0, min(ready), tuple(sorted(set(ready.values())))))
        assert await journal.queues() == expected
        granted = await journal.commit(TakeRequest("bob", agents, 9, Declaration()))
        taken = {one.lease.run: one.ready_ms for one in granted}
        assert taken == {f"r{ready}": ready for ready, one in enumerate(some, 1) if one[0] in agents}

    on_journal(suite, tmp_path, check)


@on_both
@pytest.mark.parametrize("room", [1, 2, 3, 5])
def test_a_look_gives_no_more_slots_than_there_is_room_for_however_many_wait_behind_keys(
    suite: Suite, room: int, tmp_path: Path
):
    async def check(journal: Journal) -> None:
        for number in range(12):  # two of three have a key that another one has, or gets in this look
            await submit(journal, f"r{number:02}", QueuePlace("mail", key="k" if number % 3 else ""))
        expected = ["r00", "r01", "r03", "r06", "r09"]
        found = [name for _ in range(5) for name in await names(journal, "bob", room)]
        assert found == expected
        assert await names(journal, "bob", room) == []

    async def counted(journal: Journal) -> None:
        await check(journal)
        await end(journal, "r01")
        assert await names(journal, "bob", room) == ["r02"]

    on_journal(suite, tmp_path, counted)


@on_both
@pytest.mark.parametrize("room", [1, 2, 3])
def test_one_look_fills_its_room(suite: Suite, room: int, tmp_path: Path):
    async def check(journal: Journal) -> None:
        for number in range(9):
            await submit(journal, f"r{number}", QueuePlace("mail", key="k" if number < 5 else ""))
        assert await names(journal, "bob", room) == ["r0", "r5", "r6"][:room]

    on_journal(suite, tmp_path, check)
