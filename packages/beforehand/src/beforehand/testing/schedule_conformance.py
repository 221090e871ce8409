"""The requirements of the port on schedules: each moment fires once, and only under the newest entry."""

from __future__ import annotations

import asyncio
from pathlib import Path

from beforehand.errors import QueueDraining, QueueFull
from beforehand.journal.backend_rules import FOREVER_MS
from beforehand.journal.cells import LastFiring, last_firing
from beforehand.journal.port import (
    Busy,
    ClaimRequest,
    Firing,
    Journal,
    LeaseGranted,
    NewRun,
    Post,
    QueuePlace,
    RunChange,
)
from beforehand.queues.schedules import STREAM
from beforehand.testing.queue_conformance import LATER_MS, QueueConformance, refused, requirement

CLAIMED = LeaseGranted | Busy | None
MAIL = QueuePlace("mail")


async def fire(
    journal: Journal,
    moment_ms: int,
    *,
    schedule: str = "nightly",
    entry: int = 0,
    run: str = "",
    place: QueuePlace = MAIL,
) -> CLAIMED:
    """Let a worker fire a schedule."""
    change, firing = RunChange("queued", due_ms=1, release=True), Firing(schedule, moment_ms, entry)
    new = NewRun("desk", (), change, place=place, firing=firing)
    return await journal.commit(ClaimRequest(run or f"{schedule}@{moment_ms}", "alice", new))


async def runs(journal: Journal) -> list[str]:
    """The ids of all runs."""
    return [line.run for line in await journal.runs()]


async def last(journal: Journal, schedule: str = "nightly") -> LastFiring | None:
    """The last firing of all."""
    return await last_firing(journal, schedule, FOREVER_MS)


class ScheduleConformance(QueueConformance):
    """The requirements on schedules, one test each."""

    @requirement
    async def test_a_firing_submits_a_run_and_is_stored_with_it(self, journal: Journal) -> None:
        assert await last(journal) is None
        fired = await fire(journal, 1)
        assert isinstance(fired, LeaseGranted)
        assert fired.fresh
        (line,) = await journal.runs()
        assert (line.run, line.status, line.owner, line.queue) == ("nightly@1", "queued", None, "mail")
        assert await last(journal) == LastFiring(1, "nightly@1")
        assert await last(journal, "hourly") is None

    @requirement
    async def test_a_moment_fires_once_and_none_fires_after_a_later_one(self, journal: Journal) -> None:
        first = await asyncio.gather(*(fire(journal, 2) for _ in range(5)))
        assert [isinstance(one, LeaseGranted) for one in first].count(True) == 1
        assert first.count(None) == 4
        assert await fire(journal, 1) is None
        assert await fire(journal, 2, run="another") is None
        assert await runs(journal) == ["nightly@2"]
        assert isinstance(await fire(journal, 3), LeaseGranted)
        assert isinstance(await fire(journal, 1, schedule="hourly"), LeaseGranted)
        assert await last(journal) == LastFiring(3, "nightly@3")
        assert [await last_firing(journal, "nightly", until) for until in (1, 2)] == [None, LastFiring(2, "nightly@2")]

    @requirement
    async def test_a_moment_to_come_is_not_fired(self, journal: Journal) -> None:
        assert await fire(journal, LATER_MS) is None
        assert (await runs(journal), await last(journal)) == ([], None)

    @requirement
    async def test_nothing_fires_under_an_entry_that_another_one_follows(self, journal: Journal) -> None:
        declared = await journal.commit(Post(STREAM, "", b"{}"))
        await journal.commit(Post("another", "", b"{}"))
        assert await fire(journal, 1) is None
        assert isinstance(await fire(journal, 1, entry=declared.id), LeaseGranted)
        paused = await journal.commit(Post(STREAM, "", b"{}"))
        assert await fire(journal, 2, entry=declared.id) is None
        assert await runs(journal) == ["nightly@1"]
        assert isinstance(await fire(journal, 2, entry=paused.id), LeaseGranted)

    @requirement
    async def test_a_run_that_exists_is_the_run_of_its_firing(self, journal: Journal) -> None:
        place = QueuePlace("mail")
        await journal.commit(
            ClaimRequest("mine", "bob", NewRun("desk", (), RunChange("queued", release=True), place=place))
        )
        before = await journal.runs()
        assert isinstance(await fire(journal, 1, run="mine"), Busy)
        assert await journal.runs() == before
        assert await last(journal) == LastFiring(1, "mine")

    @requirement
    async def test_a_full_queue_and_one_that_is_drained_refuse_a_firing_and_store_nothing(
        self, journal: Journal
    ) -> None:
        await fire(journal, 1)
        for place in (QueuePlace("mail", capacity=1), QueuePlace("mail", draining=True)):
            assert await refused(fire(journal, 2, place=place), QueueFull, QueueDraining)
        assert await last(journal) == LastFiring(1, "nightly@1")
        assert isinstance(await fire(journal, 2), LeaseGranted)

    def test_firings_outlive_the_process(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
            if await last(journal) is None:
                await fire(journal, 1)
            assert await fire(journal, 1) is None
            assert await last(journal) == LastFiring(1, "nightly@1")

        self.on_journal(tmp_path, check)
        self.on_journal(tmp_path, check)
