"""What the journal in memory has beyond the port: planned failures, deaths and power losses."""

from __future__ import annotations

import asyncio

import pytest

from beforehand.errors import JournalUnavailable
from beforehand.journal.cells import read_hint
from beforehand.journal.memory import RIDE_MS, MemoryJournal
from beforehand.journal.port import Busy, ClaimRequest, HintRequest, LeaseGranted, Post, RunChange
from tests.unit.journal.journal_helpers import body, error_of, start_log, stored


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def test_every_call_of_a_workload_can_fail_and_nothing_of_it_is_then_stored() -> None:
    async def work(journal: MemoryJournal) -> None:
        await journal.open()
        log = await start_log(journal)
        await log.append([body(1)])
        await journal.commit(Post("s", "k", b"1"))
        await journal.commit(HintRequest("h", b"1", None))
        await log.append([body(2)], RunChange("completed", release=True))
        await stored(journal)
        await journal.runs()
        await journal.entries("s")
        await read_hint(journal, "h")

    async def main() -> None:
        calm = MemoryJournal(Clock())
        await work(calm)
        for number in range(1, calm.calls + 1):
            journal = MemoryJournal(Clock())
            journal.fail_next(number)
            assert isinstance(await error_of(work(journal)), JournalUnavailable)
            assert journal.calls == number

    asyncio.run(main())


def test_a_call_may_do_its_work_and_fail_afterwards() -> None:
    async def main() -> None:
        journal = MemoryJournal(Clock())
        await journal.open()
        journal.fail_next(1, stored=True)
        assert isinstance(await error_of(journal.commit(Post("s", "k", b"1"))), JournalUnavailable)
        assert [entry.body for entry in await journal.entries("s")] == [b"1"]

    asyncio.run(main())


@pytest.mark.parametrize(("waited", "kept"), [(RIDE_MS - 1, []), (RIDE_MS, [body(1)])])
def test_a_power_loss_takes_only_what_rode_too_short(waited: int, kept: list[bytes]) -> None:
    async def main() -> None:
        clock = Clock()
        journal = MemoryJournal(clock)
        await journal.open()
        log = await start_log(journal)
        log.ride([body(1)])
        assert await stored(journal) == []
        clock.now += waited
        journal.power_loss()
        assert await stored(journal) == kept

    asyncio.run(main())


def test_the_killed_are_proven_dead() -> None:
    async def main() -> None:
        journal = MemoryJournal(Clock())
        await journal.open()
        await start_log(journal)
        assert isinstance(await journal.commit(ClaimRequest("r", "v")), Busy)
        journal.kill("w")
        assert (await journal.fate("w")).fate == "dead"
        assert isinstance(await journal.commit(ClaimRequest("r", "v")), LeaseGranted)

    asyncio.run(main())


def test_the_calendar_may_differ_from_the_clock() -> None:
    async def main() -> None:
        journal = MemoryJournal(Clock(), wall=lambda: 77)
        await journal.open()
        assert (await journal.commit(Post("s", "", b"1"))).at_ms == 77
        assert journal.clock().earliest_ms == 0

    asyncio.run(main())
