"""Claims of one process: two at once must not take each other's lease for a forgotten one."""

import asyncio
import contextlib
import sqlite3
import threading
from datetime import timedelta

import pytest

from beforehand import Beforehand, Run, agent, tool
from beforehand.engine.process import unchanged_listing
from beforehand.engine.run_driver import drive_run
from beforehand.engine.settings import Settings
from beforehand.errors import RunBusy, RunSuspended
from beforehand.journal import host
from beforehand.journal.host import JournalClock
from beforehand.journal.port import ClaimRequest, LeaseGranted, RunRow, RunStatus
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import RunLog
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.model import records as r
from beforehand.testing import run_virtual, simulated_environment, virtual_journal_clock
from beforehand.testing.clock import virtual_loop


@tool
async def note() -> None:
    """A write of no consequence."""


@agent(run_id="wait-{number}")
async def waiter(run: Run, number: int) -> str:
    await note()
    return str(await run.wait_for("go"))


def test_two_claims_at_once_leave_the_lease_with_one(tmp_path):
    async def main():
        async with Beforehand(tmp_path / "j.db", agents=[waiter], recover=False) as app:
            with contextlib.suppress(RunSuspended):
                await app.run(waiter, 1)
            for _ in range(20):
                found = await asyncio.gather(*(app.engine.leases.claim("wait-1") for _ in range(3)))
                claimed = [one for one in found if isinstance(one, LeaseGranted)]
                assert len(claimed) == 1, found
                row = await app.service.row("wait-1")
                assert row.token == claimed[0].lease.token, "the lease was given back under its owner"
                app.engine.leases.let_go("wait-1")

    asyncio.run(main())


def test_a_signal_and_a_run_at_once_end_well(tmp_path):
    async def main():
        for number in range(10):
            async with Beforehand(tmp_path / "j.db", agents=[waiter]) as app:
                with contextlib.suppress(RunSuspended):
                    await app.run(waiter, number)
            async with Beforehand(tmp_path / "j.db", agents=[waiter]) as app:
                _, told = await asyncio.gather(
                    app.service.signal(f"wait-{number}", "go", payload="now"), go_on(app, number)
                )
                assert told == "now"

    async def go_on(app, number):
        while True:
            try:
                return await app.run(waiter, number)
            except RunSuspended:
                continue

    asyncio.run(main())


class Shifted:
    """A journal's clock that a test moves on."""

    def __init__(self) -> None:
        self.ms = 0

    def clock(self) -> JournalClock:
        return JournalClock("shifted", lambda: host.uptime_ms() + self.ms, lambda: host.wall_ms() + self.ms)


def test_no_step_under_a_lost_lease_raises_what_agent_code_could_catch(tmp_path):
    """Its lease ends, another process records more of the run, and every branch of the first one goes on writing."""
    caught, reached = [], []
    shifted, going, taken = Shifted(), asyncio.Event(), asyncio.Event()

    @tool
    async def wait_until_taken() -> None:
        reached.append(1)
        if len(reached) == 4:
            going.set()
        await taken.wait()

    @agent(run_id="many-{number}")
    async def many(run: Run, number: int) -> None:
        async def branch() -> None:
            for step in (wait_until_taken, note, run.now, note.outcome, note):
                try:
                    await step()
                except Exception as error:  # noqa: BLE001 - the point: nothing of the kind may arrive here
                    caught.append(error)

        await run.gather(*(branch() for _ in range(4)))

    def app():
        journal = SqliteJournal(tmp_path / "j.db", clock=shifted.clock())
        settings = Settings(poll_ms=10, grace_ms=100)
        return Beforehand(journal, agents=[many], tools=[note, wait_until_taken], recover=False, settings=settings)

    async def take_over(second):
        await second.engine.beat()
        claimed = await second.engine.journal.commit(ClaimRequest("many-1", second.engine.worker.id))
        assert isinstance(claimed, LeaseGranted)
        log = RunLog(second.engine.journal, claimed.lease, claimed.last, claimed.last.hash)
        stamp = {"worker": second.engine.worker.id, "token": claimed.lease.token, "boot": "shifted", "number": 1}
        await log.append([encode(r.Claimed(**stamp, at=0, up=0))] * 3)

    async def main():
        async with app() as first, app() as second:
            given = many.stored_input(1, first.engine.identity.secret)
            driving = asyncio.create_task(drive_run(first.engine, "many-1", many, given))
            await going.wait()
            first.engine._beating.cancel()
            shifted.ms += 16_000
            await take_over(second)
            taken.set()
            (ended,) = await asyncio.gather(driving, return_exceptions=True)
            assert isinstance(ended, RunBusy), ended

    asyncio.run(main())
    assert caught == []


@tool(effect="read")
async def look() -> int:
    return 1


@agent(run_id="slow-{number}")
async def slow(run: Run, number: int) -> int:
    await run.sleep(timedelta(minutes=5))
    return await look()


@pytest.mark.slow
def test_a_journal_in_a_file_runs_on_the_clock_it_is_given(tmp_path):
    async def main():
        loop = virtual_loop()
        journal = SqliteJournal(tmp_path / "j.db", clock=virtual_journal_clock(loop))
        settings = Settings(hold_ms=3_600_000)
        async with Beforehand(
            journal, agents=[slow], environment=simulated_environment(loop), settings=settings
        ) as app:
            before = journal.clock()
            assert await app.run(slow, 1) == 1
            assert journal.clock().epoch == before.epoch
            assert 300_000 <= journal.clock().earliest_ms - before.earliest_ms < 3_600_000

    run_virtual(main())


def test_virtual_time_stands_still_while_the_thread_of_a_journal_commits(tmp_path):
    """Otherwise a slow disk makes a test's deadlines pass: each time the loop is idle, it jumps to the next timer."""
    path = tmp_path / "j.db"

    async def main() -> None:
        loop = virtual_loop()
        journal = SqliteJournal(path, clock=virtual_journal_clock(loop), parts=Parts(commits="thread"))
        await journal.open()
        slow = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        slow.execute("BEGIN IMMEDIATE")  # the disk of another process, until the timer below
        passing = asyncio.create_task(asyncio.sleep(3600))
        release = threading.Timer(0.05, slow.rollback)
        release.start()
        await journal.beat(host.this_process("w"), 60_000)
        assert loop.time() == 0
        passing.cancel()
        release.join()
        await journal.close()
        slow.close()

    run_virtual(main())


@pytest.mark.parametrize("status", ["queued", "running", "suspended", "stopped"])
def test_a_run_that_waits_or_stopped_is_due_when_it_is_given_back(status: RunStatus):
    """A command may have come while it was held: its sender relied on the holder, which may have lost the journal."""
    row = RunRow("run-1", 1, "desk", "", status, "", None, b"[]", 1, "w", 0, 0)
    assert unchanged_listing(row, 5_000).due_ms == (5_000 if status in {"suspended", "stopped"} else None)
