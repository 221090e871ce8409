"""Group commit: who hears what, in which order, and what a failing statement does to the others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from beforehand.errors import JournalUnavailable, LeaseLost, RecordRefused
from beforehand.journal.port import (
    ClaimRequest,
    Lease,
    NewRun,
    Post,
    QueuePlace,
    Row,
    RunChange,
    TakeRequest,
    Worker,
    Write,
)  # fmt: skip
from beforehand.journal.run_log import RunLog, genesis, verify_chain
from beforehand.journal.sqlite import group_commit
from beforehand.journal.sqlite.group_commit import CommitPace, Committer, GroupCommit
from beforehand.journal.sqlite.opening import Parts
from beforehand.queues.limits import Declaration
from tests.unit.journal.journal_helpers import Plan, always, body, error_of, once, sqlite, start_log, stored

WAYS = pytest.mark.parametrize("parts", [Parts(commits="loop"), Parts(commits="thread")], ids=["loop", "thread"])
IOERR_FSYNC = sqlite3.SQLITE_IOERR_FSYNC


def commits(plan: Plan) -> list[str]:
    """The statements but those with which the journal's thread follows the log for the anchor, at a time of its own."""
    return [sql for sql in plan.statements if not sql.startswith("select")]


def test_one_append_alone_is_one_statement(tmp_path: Path) -> None:
    plan = Plan()

    async def main() -> None:
        journal = sqlite(tmp_path, plan, parts=Parts(commits="loop"))
        await journal.open()
        log = await start_log(journal)
        await log.append([body(1)])
        plan.statements.clear()
        for number in range(2, 5):
            await log.append([body(number)])
        assert len(commits(plan)) == 3
        log.ride([body(5)])
        await log.append([body(6)])
        assert len(commits(plan)) == 4
        await journal.close()

    asyncio.run(main())


def test_a_hundred_runs_share_a_transaction(tmp_path: Path) -> None:
    plan = Plan()

    async def main() -> None:
        journal = sqlite(tmp_path, plan, parts=Parts(commits="loop"))
        await journal.open()
        logs = [await start_log(journal, f"r{number}") for number in range(100)]
        await asyncio.gather(*(log.append([body(1)]) for log in logs))
        plan.statements.clear()
        await asyncio.gather(*(log.append([body(2)]) for log in logs))
        assert len([sql for sql in plan.statements if sql.startswith("insert into record")]) <= 2
        await journal.close()

    asyncio.run(main())


def test_the_branches_of_one_run_share_a_transaction_after_it_was_alone(tmp_path: Path) -> None:
    plan = Plan()

    async def main() -> None:
        journal = sqlite(tmp_path, plan, parts=Parts(commits="loop"))
        await journal.open()
        log = await start_log(journal)
        for number in range(30):
            await log.append([body(number)])
        plan.statements.clear()
        for _ in range(3):
            await asyncio.gather(*(log.append([body(number)]) for number in range(20)))
        assert len([sql for sql in plan.statements if sql.startswith("insert into record")]) == 3
        await journal.close()

    asyncio.run(main())


@WAYS
def test_other_tasks_come_in_between_the_appends_of_a_run_that_never_waits(tmp_path: Path, parts: Parts) -> None:
    async def main() -> None:
        journal = sqlite(tmp_path, parts=parts)
        await journal.open()
        log = await start_log(journal)
        heard: list[int] = []
        asyncio.get_running_loop().call_soon(heard.append, 1)
        for number in range(50):
            await log.append([body(number)])
        assert heard
        await journal.close()

    asyncio.run(main())


def test_what_rides_is_durable_although_the_loop_is_blocked(tmp_path: Path) -> None:
    """The loop spins until another connection sees the record: no time is waited for, only the fact."""

    async def main() -> None:
        journal = sqlite(tmp_path)
        await journal.open()
        log = await start_log(journal)
        other = sqlite3.connect(tmp_path / "journal.db", timeout=30)
        log.ride([body(1)])
        while not other.execute("select count(*) from record").fetchone()[0]:
            pass
        other.close()
        await journal.close()

    asyncio.run(main())


def test_riding_goes_on_after_the_thread_fell_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_IDLE_TICKS", 3)

    async def main() -> None:
        journal = sqlite(tmp_path)
        await journal.open()
        log = await start_log(journal)
        other = sqlite3.connect(tmp_path / "journal.db", timeout=30)
        thread = journal._running._background
        for number in range(1, 4):
            log.ride([body(number)])
            while other.execute("select count(*) from record").fetchone()[0] < number:
                pass
            while thread._ticking:
                pass
        other.close()
        await journal.close()

    asyncio.run(main())


@WAYS
@pytest.mark.parametrize("commit", ["insert into record", "commit"])
def test_a_commit_that_failed_but_happened_is_read_back(tmp_path: Path, parts: Parts, commit: str) -> None:
    plan = Plan()

    async def main() -> None:
        journal = sqlite(tmp_path, plan, parts=parts)
        await journal.open()
        log = await start_log(journal)
        plan.after = once(sqlite3.SQLITE_IOERR, commit)
        change = RunChange("running") if commit == "commit" else None
        await log.append([body(1)], change)
        assert await stored(journal) == [body(1)]
        await log.append([body(2)])
        await journal.close()

    asyncio.run(main())


@WAYS
def test_a_read_back_tells_the_late_owner_from_the_others(tmp_path: Path, parts: Parts) -> None:
    plan = Plan()

    async def main() -> None:
        journal = sqlite(tmp_path, plan, parts=parts)
        await journal.open()
        good, late = await start_log(journal, "good"), await start_log(journal, "late")
        late.lease = type(late.lease)(late.lease.run, late.lease.row, late.lease.token - 1, "w")
        plan.after = once(sqlite3.SQLITE_IOERR, "insert into record")
        answers = await asyncio.gather(good.append([body(1)]), late.append([body(1)]), return_exceptions=True)
        assert not isinstance(answers[0], Exception)
        assert isinstance(answers[1], LeaseLost)
        assert await stored(journal, "late") == []
        await journal.close()

    asyncio.run(main())


@WAYS
def test_a_failed_sync_ends_writing_for_good(tmp_path: Path, parts: Parts) -> None:
    plan = Plan()

    async def main() -> None:
        journal = sqlite(tmp_path, plan, parts=parts)
        await journal.open()
        log, other = await start_log(journal), await start_log(journal, "other")
        await log.append([body(1)])
        plan.before = once(IOERR_FSYNC, "insert into record")
        assert isinstance(await error_of(log.append([body(2)])), JournalUnavailable)
        plan.statements.clear()
        for call in (log.append([body(2)]), other.append([body(1)]), journal.commit(Post("s", "", b"1"))):
            assert isinstance(await error_of(call), JournalUnavailable)
        assert plan.statements == []
        assert await stored(journal) == [body(1)]
        await journal.close()
        again = sqlite(tmp_path)
        await again.open()
        assert await stored(again) == [body(1)]
        await again.close()

    asyncio.run(main())


@WAYS
def test_a_bad_statement_fails_its_own_write_only(tmp_path: Path, parts: Parts) -> None:
    """A constraint that only SQLite knows: the sequence check is led astray, the unique index is not."""

    async def main() -> None:
        journal = sqlite(tmp_path, parts=parts)
        await journal.open()
        logs = [await start_log(journal, run) for run in "abc"]
        for log in logs:
            await log.append([body(1)])
        batch = journal._store._batch
        assert batch is not None
        bad = logs[1].lease
        batch._next[bad.row] = (bad.token, 1)
        twice = Write(bad, (Row(1, body(9), b"h" * 32, bad.token),))
        answers = await asyncio.gather(
            logs[0].append([body(2)]), journal.commit(twice), logs[2].append([body(2)]), return_exceptions=True
        )
        assert [isinstance(answer, RecordRefused) for answer in answers] == [False, True, False]
        assert [await stored(journal, run) for run in "abc"] == [[body(1), body(2)], [body(1)], [body(1), body(2)]]
        await journal.close()

    asyncio.run(main())


def test_a_full_disk_lets_small_writes_pass_and_heals(tmp_path: Path) -> None:
    async def main() -> None:
        journal = sqlite(tmp_path)
        await journal.open()
        log, other = await start_log(journal), await start_log(journal, "other")
        files = journal._store._files
        assert files is not None
        ((pages,),) = files.writer.rows("pragma page_count")
        assert isinstance(pages, int)
        files.writer.rows(f"pragma max_page_count = {pages + 3}")
        large = b'"' + b"x" * 1_000_000 + b'"'
        answers = await asyncio.gather(log.append([large]), other.append([body(1)]), return_exceptions=True)
        assert isinstance(answers[0], JournalUnavailable)
        assert "no space" in str(answers[0])
        assert await stored(journal, "other") == [body(1)]
        files.writer.rows("pragma max_page_count = 1000000")
        again = await start_log(journal, "again")
        await again.append([large])
        assert await stored(journal, "again") == [large]
        await journal.close()

    asyncio.run(main())


def test_a_shell_that_locks_the_file_is_waited_for(tmp_path: Path) -> None:
    """It does not know of our lock; the loop must not stand still meanwhile, nor anybody see an error."""

    async def main() -> None:
        journal = sqlite(tmp_path, parts=Parts(commits="loop"))
        await journal.open()
        log = await start_log(journal)
        shell = sqlite3.connect(tmp_path / "journal.db", isolation_level=None, check_same_thread=False)
        shell.execute("begin immediate")
        waiting = asyncio.ensure_future(log.append([body(1)]))
        for _ in range(20):
            await asyncio.sleep(0)  # the loop goes on
        assert not waiting.done()
        shell.execute("commit")
        await waiting
        assert await stored(journal) == [body(1)]
        shell.close()
        await journal.close()

    asyncio.run(main())


def test_a_file_that_stays_locked_is_reported(tmp_path: Path) -> None:
    plan = Plan()

    async def main() -> None:
        journal = sqlite(tmp_path, plan)
        await journal.open()
        log = await start_log(journal)
        plan.before = always(sqlite3.SQLITE_BUSY, "insert into record")
        error = await error_of(log.append([body(1)]))
        assert isinstance(error, JournalUnavailable)
        assert "has been locked for" in str(error)
        plan.before = lambda _: None
        await (await start_log(journal, "other")).append([body(1)])
        await journal.close()

    asyncio.run(main())


def test_two_journals_of_one_process_take_turns(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = sqlite(tmp_path), sqlite(tmp_path)
        await one.open()
        await two.open()
        logs = [await start_log(one, "one", "w1"), await start_log(two, "two", "w2")]

        async def work(log: RunLog) -> None:
            for number in range(50):
                await log.append([body(number)])

        await asyncio.gather(*map(work, logs))
        assert len(await stored(one, "two")) == len(await stored(two, "one")) == 50
        await two.close()
        await one.close()

    asyncio.run(main())


def test_a_run_that_went_to_another_process_and_came_back_goes_on_there(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = sqlite(tmp_path), sqlite(tmp_path)
        await one.open()
        await two.open()
        for number, (journal, worker) in enumerate([(one, "w1"), (two, "w2"), (one, "w1"), (two, "w2")], 1):
            log = await start_log(journal, "r", worker)
            await log.append([body(number)])
            await log.append([body(number)], RunChange("suspended", release=True))
        assert len(await stored(one)) == 8
        await two.close()
        await one.close()

    asyncio.run(main())


def test_a_run_of_a_queue_that_another_process_took_and_lost_goes_on_where_that_one_wrote(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = sqlite(tmp_path), sqlite(tmp_path)
        await one.open()
        await two.open()
        new = NewRun("desk", change=RunChange("queued", due_ms=1, release=True), place=QueuePlace("mail"))
        await one.commit(ClaimRequest("r", "w1", new))
        for number, (journal, worker) in enumerate([(one, "w1"), (two, "w2"), (one, "w1"), (two, "w2")], 1):
            (granted,) = await journal.commit(TakeRequest(worker, (("desk", ""),), 1, Declaration()))
            log = RunLog(journal, granted.lease, granted.last, genesis("n", "r"))
            await log.append([body(number)], RunChange("running"))
            await log.append([body(number)])
            await journal.beat(Worker(worker), -1_000)  # its lease is over, and it has released nothing
        assert verify_chain(await one.read("r"), genesis("n", "r")) is None
        assert len(await stored(one)) == 8
        await two.close()
        await one.close()

    asyncio.run(main())


def test_a_bug_inside_a_commit_is_heard_by_all_who_wait(tmp_path: Path) -> None:
    async def main() -> None:
        journal = sqlite(tmp_path)
        await journal.open()
        log = await start_log(journal)

        def bug(_: object) -> None:
            raise ZeroDivisionError

        answers = await asyncio.gather(journal._running.run(bug), log.append([body(1)]), return_exceptions=True)
        assert all("ZeroDivisionError" in str(answer) for answer in answers)
        await journal.close()

    asyncio.run(main())


def test_close_ends_the_thread_and_a_second_open_starts_none(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        journal = sqlite(tmp_path)
        assert await journal.open() == await journal.open()
        await journal.close()

    asyncio.run(main())
    assert not [thread.name for thread in set(threading.enumerate()) - before]


def test_a_flush_waits_for_what_rides_even_if_a_cancelled_append_ends_before_its_caller_knows():
    """The count of unfinished writes was one short meanwhile, and the flush returned at once."""
    asyncio.run(flush_after_a_cancelled_append())


async def flush_after_a_cancelled_append() -> None:
    durable: list[Write] = []

    class Store:
        def settle(self, items, *, patient):
            durable.extend(item.write for item in items if item.write is not None)
            return True

    class Behind:
        def __init__(self, *_):
            pass

        def start(self):
            pass

        commit_soon = watch_rides = keep_house = stop = start

    def write(row: int) -> Write:
        return Write(Lease(f"r-{row}", row, 1, "w"), (Row(1, b"{}", b"h" * 32, 1),))

    committer = Committer(Store(), CommitPace("thread"))
    commits = GroupCommit(committer, Behind)
    first, second = write(1), write(2)

    async def append() -> None:
        waiting = commits.append(first)
        try:
            await waiting
        except asyncio.CancelledError:
            commits.left(first, waiting)
            raise

    task = asyncio.create_task(append())
    for _ in range(2):
        await asyncio.sleep(0)
    committed, loop = committer.commit_patiently(), asyncio.get_running_loop()
    flushing, waits = commits.flush(second.lease), False

    def ride_and_flush() -> None:
        nonlocal waits
        commits.ride(second)
        flushing.send(None)  # raises StopIteration where it does not wait
        waits = True

    loop.call_soon(task.cancel)
    loop.call_soon(commits._deliver, committed)
    loop.call_soon(ride_and_flush)
    await asyncio.gather(task, return_exceptions=True)
    flushing.close()
    assert durable == [first]
    assert waits
