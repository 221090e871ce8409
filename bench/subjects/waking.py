"""One wake-up among very many runs that wait: an answer is delivered, an event is signalled, a timer is due.

The runs that are woken are real. The crowd around them is copied in the file from one of each kind (its line in the
listing, its last record, its ledger entries), since a million real ones would take an hour to make; none is opened.
A wake-up is what brings the news, what finds the run, and driving it to its end. Beside the time it reports how many
steps of SQLite's virtual machine one takes: a scan of anything that grows with the crowd would show there.
"""

import argparse
import asyncio
import contextlib
import functools
import itertools
import sqlite3
import statistics
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from measure import report, settled_size
from msgspec.structs import replace

from beforehand import Beforehand, Deferred, Run, RunSuspended, agent, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.engine.environment import Environment, SystemClock, system_environment
from beforehand.engine.recovery import Recovery
from beforehand.engine.settings import Settings
from beforehand.journal.host import this_host
from beforehand.journal.sqlite.group_commit import CommitThread
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.model.records import Raw

KINDS: Final = ("answer", "event", "timer")
WOKEN: Final = 24  # of each kind: half of them are timed, half are counted
FIRST_HOUR: Final = 48
QUIET: Final = Settings(poll_ms=600_000, recover_every_ms=600_000)  # what housekeeping reads is not part of a wake-up

counter = [0]


class Calendar(SystemClock):
    """The wall clock, which can be put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@tool
async def transfer(number: int) -> str:
    raise Deferred("accepted by the bank", within=timedelta(days=365), key=f"bank-{number}")


@agent()
async def waiting(run: Run, job: tuple[str, int]) -> str:
    kind, number = job
    if kind == "answer":
        return await transfer(number)
    if kind == "event":
        return str(await run.wait_for("paid"))
    await run.sleep(timedelta(hours=FIRST_HOUR + number))
    return "slept"


class Scene:
    """One app over one file, on a calendar of ours."""

    def __init__(self, path: Path) -> None:
        self.calendar = Calendar()
        machine = replace(this_host(), wall_ms=self.calendar.wall_ms)
        real = system_environment()
        environment = Environment(self.calendar, real.rng, real.threads, real.crash)
        journal = SqliteJournal(path, parts=Parts(here=machine))
        self.desk = Beforehand(journal, agents=[waiting], settings=QUIET, environment=environment, recover=False)

    async def begin(self) -> None:
        """Start every run that will be woken, until it holds no process any more."""
        async with self.desk as desk:
            for kind, number in itertools.product(KINDS, range(WOKEN)):
                with contextlib.suppress(RunSuspended):
                    await desk.run(waiting, (kind, number), run_id=f"{kind}-{number}")

    async def wake(self, kind: str, number: int) -> None:
        """Bring the news, find who is due, and drive it to its end."""
        service = self.desk.service
        if kind == "answer":
            await service.deliver(f"bank-{number}", ArrivedAnswer("only", result=Raw(b'"done"')))
        elif kind == "event":
            await service.signal(f"event-{number}", "paid", payload=number)
        else:
            self.calendar.ahead_ms = (FIRST_HOUR + number) * 3_600_000 + 60_000
        (driven,) = await Recovery(self.desk.engine, self.desk.drive).look()
        await driven
        assert (await service.row(f"{kind}-{number}")).status == "completed", (kind, number)


def add_crowd(path: Path, size: int) -> None:
    """Copy runs that wait until there are `size`, a third of each kind."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("pragma synchronous = off")
    database.execute("begin")
    for kind in KINDS:
        pattern = f"{kind}-{WOKEN - 1}"
        wanted = {"pattern": pattern, "kind": kind, "count": size // len(KINDS)}
        database.execute(
            "with recursive number(i) as (select 1 union all select i + 1 from number where i < :count)"
            " insert into run (name, agent, program, status, reason, due_ms, waits, token, owner, created_ms,"
            " updated_ms) select printf('crowd-%s-%07d', :kind, i), agent, program, status, reason,"
            " due_ms + 1000 * i, waits, token, owner, created_ms, updated_ms from number, run where name = :pattern",
            wanted,
        )
        database.execute(
            "insert into record (run, seq, token, content, at, up, hash)"
            " select crowd.id, seq, record.token, content, at, up, hash"
            " from run pattern join record on record.run = pattern.id, run crowd where pattern.name = :pattern"
            " and seq = (select max(seq) from record where run = pattern.id)"
            " and crowd.name between 'crowd-' || :kind || '-' and 'crowd-' || :kind || '-a'",
            wanted,
        )
        database.execute(
            "insert into ledger (stream, key, body, at_ms, hash) select replace(stream, :pattern, crowd.name), key,"
            " body, at_ms, hash from ledger, run crowd where stream like '%/' || :pattern || '%'"
            " and crowd.name between 'crowd-' || :kind || '-' and 'crowd-' || :kind || '-a'",
            wanted,
        )
    database.execute(  # under which keys the answers are awaited
        "insert into ledger (stream, key, body, at_ms, hash) select 'awaited/' || crowd.name, key, body, at_ms, hash"
        " from ledger, run crowd where stream = 'awaited/bank-0' and crowd.name between 'crowd-answer-' and"
        " 'crowd-answer-a'"
    )
    database.execute("commit")
    database.execute("pragma wal_checkpoint(truncate)").fetchall()
    database.close()


async def timed(path: Path) -> dict[str, float]:
    """Microseconds of one wake-up of each kind: medians."""
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    async with (scene := Scene(path)).desk:
        for kind in KINDS:
            for number in range(WOKEN // 2):
                start = time.perf_counter()
                await scene.wake(kind, number)
                took[kind].append((time.perf_counter() - start) * 1e6)
    return {f"{kind}_us": statistics.median(each) for kind, each in took.items()}


async def counted(path: Path) -> dict[str, float]:
    """Steps of SQLite's virtual machine that one wake-up of each kind takes: medians."""
    steps: dict[str, list[int]] = {kind: [] for kind in KINDS}
    count_steps()
    async with (scene := Scene(path)).desk:
        for kind in KINDS:
            for number in range(WOKEN // 2, WOKEN - 1):
                before = counter[0]
                await scene.wake(kind, number)
                steps[kind].append(counter[0] - before)
    return {f"{kind}_steps": statistics.median(each) for kind, each in steps.items()}


def _nothing(_: CommitThread) -> None:
    """Instead of keeping house."""


def count_steps() -> None:
    """Every connection made from here on adds each step of its virtual machine to `counter`.

    The journal's thread must not read meanwhile: it would hold a connection and wait for the interpreter, to count,
    while the loop holds the interpreter and waits for the connection.
    """
    connect = sqlite3.connect
    CommitThread.keep_house = CommitThread._clean_up = _nothing  # type: ignore[method-assign]  # noqa: SLF001  # the anchor can wait

    def step() -> None:
        counter[0] += 1

    @functools.wraps(connect)
    def counting(*arguments: Any, **settings: Any) -> sqlite3.Connection:  # whatever sqlite3.connect takes
        connection: sqlite3.Connection = connect(*arguments, **settings)
        connection.set_progress_handler(step, 1)
        return connection

    sqlite3.connect = counting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--crowd", type=int, default=1000)
    options = parser.parse_args()
    path = options.directory / "waking.db"
    asyncio.run(Scene(path).begin())
    began = time.perf_counter()
    add_crowd(path, options.crowd)
    filled = time.perf_counter() - began
    figures = {**asyncio.run(timed(path)), **asyncio.run(counted(path))}
    report(crowd=options.crowd, filled_s=filled, mib=settled_size(path) / 2**20, **figures)


if __name__ == "__main__":
    main()
