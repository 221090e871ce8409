"""A look for the next run of a queue costs the same, however many runs wait; counted in steps of SQLite's machine."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.journal.port import ClaimRequest, TakeRequest
from beforehand.journal.sqlite import ledger, queues
from beforehand.queues.limits import DeclaredLimits, QueueLimits

FEW, MANY = 40, 2_000
TENANTS = 4
LIMITS = DeclaredLimits({"mail": QueueLimits(concurrency=3, key="k{n}", per_key=1)})
SLACK = 1.3  # a tree of more pages is a little deeper, and a step of the machine is no page


@agent(run_id="job-{n}", program="shop")
async def job(run: Run, n: int) -> int:
    return n


async def filled(path: Path, count: int) -> None:
    async with Beforehand(str(path), agents=[job], queues=LIMITS, recover=False) as app:
        for first in range(0, count, 500):
            some = range(first, min(count, first + 500))
            await asyncio.gather(*(app.submit(job, n, queue="mail", tenant=f"t{n % TENANTS}") for n in some))
        request = TakeRequest(app.engine.worker.id, [("job", "shop")], 99, app.engine.queues.newest)
        taken = await app.engine.journal.commit(request)
        assert len(taken) == 3


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    place = tmp_path_factory.mktemp("queues")
    for count in (FEW, MANY):
        asyncio.run(filled(place / f"{count}.db", count))
    return place


def steps(path: Path, sql: str, values: tuple[object, ...]) -> int:
    """How many instructions of SQLite's machine a statement takes."""
    connection = sqlite3.connect(path)
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 1)
    connection.execute(sql, values).fetchall()
    connection.set_progress_handler(None, 1)
    connection.close()
    return taken


LANE = ("job", "shop", "mail", "t1", 0)
LOOKS = {
    **{f"next lane {n}": (sql, LANE[: 5 - n]) for n, sql in enumerate(queues.NEXT_LANE)},
    "first in lane": (queues.FIRST_IN_LANE, (*LANE, 2**52, 5)),
    "begun, in a paused queue": (queues.BEGUN, ("mail", 2**52, "mail", 2**52)),
    "slots": (queues.SLOTS, ()),
    "holders": (queues.HOLDERS, ("mail", "k1")),
    "limits": (ledger.NEWEST, ("queues",)),
    "served": (queues.SERVED, ("mail", "t1")),
    "turn": (queues.TURN, ("mail",)),
    "oldest": (queues.OLDEST, LANE),
    "depth": ("select waiting from queue where name = ?", ("mail",)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_no_statement_reads_the_runs_that_wait(journals, look):
    sql, values = LOOKS[look]
    few, many = (steps(journals / f"{count}.db", sql, values) for count in (FEW, MANY))
    assert many <= SLACK * few, f"{few} steps for {FEW} waiting runs, {many} for {MANY}"


def test_a_look_makes_as_many_statements_for_many_runs_as_for_few(journals):
    async def statements(count: int) -> int:
        async with Beforehand(str(journals / f"{count}.db"), agents=[job], recover=False) as app:
            made = 0
            reader = app.engine.journal._store.reader
            rows = reader.rows

            class Counting:
                def rows(self, sql, values=()):
                    nonlocal made
                    made += 1
                    return rows(sql, values)

            request = TakeRequest("bob", [("job", "shop")], 1, app.engine.queues.newest)
            app.engine.journal._slots.wants(Counting(), request)
            return made

    assert asyncio.run(statements(FEW)) == asyncio.run(statements(MANY))


class Counting:
    """A database that counts the statements of one kind of work."""

    def __init__(self, database, made):
        self._database, self._made = database, made

    def rows(self, sql, values=()):
        self._made.append(sql)
        return self._database.rows(sql, values)

    def change(self, sql, values=()):
        self._made.append(sql)
        return self._database.change(sql, values)


def test_a_submission_costs_five_statements_and_reads_nothing_before(tmp_path):
    """Find the run; compare the limits in force; compare the room; insert the run and its record."""

    async def submitted(count: int) -> tuple[int, int]:
        async with Beforehand(str(tmp_path / f"{count}.db"), agents=[job], queues=LIMITS, recover=False) as app:
            journal, made, reads = app.engine.journal, [], []
            batch, read = journal._store._batch, journal.read
            perform = batch._perform_request

            def performing(database, request, place):  # what else the process writes is not counted
                counted = Counting(database, made) if isinstance(request, ClaimRequest) else database
                return perform(counted, request, place)

            async def reading(*args, **options):
                reads.append(args)
                return await read(*args, **options)

            batch._perform_request, journal.read = performing, reading
            await asyncio.gather(*(app.submit(job, n, queue="mail") for n in range(count)))
            return len(made), len(reads)

    assert [asyncio.run(submitted(count)) for count in (1, 100)] == [(5, 0), (500, 0)]
