"""Measure queues: submissions beside the raw inserts they need, looks for work with all limits beside none, and steps
under budgets beside those under none.

`make bench-queues`. Figures are processor time, in pairs within one process, so other work on the machine matters
little. Exit status 0 when all goals are met, 1 when one is missed. Two figures have no goal, because the budget adds a
commit to each step: calls of models, which reserve before they are sent, and effects under a budget that runs share.
"""

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

from beforehand import Beforehand, Natural, Run, agent, tool
from beforehand.journal.port import TakeRequest
from beforehand.policies import RunBudget
from beforehand.queues.limits import ConcurrencyLimit, DeclaredLimits, QueueLimits, SharedBudget, TenantLimits

SUBMITTED_TO_RAW, LIMITED_TO_NONE, BUDGETED_TO_NONE = 0.5, 0.8, 0.95
AT_ONCE, TENANTS, ROUNDS = 500, 10, 5
ALL_LIMITS = DeclaredLimits(
    {"mail": QueueLimits(concurrency=1_000, per_tenant=500, key="{job[about]}", per_key=1)},
    {"desk": ConcurrencyLimit(2_000)},
    {"*": TenantLimits(1_000)},
)
NO_LIMITS = DeclaredLimits({"mail": QueueLimits()})
STEPS = 500
OWN = RunBudget(tokens=10**9, effects=10**9)
SHARED = DeclaredLimits(budgets={"all": SharedBudget(tokens=10**9, effects=10**9)})


@agent(run_id="job-{job[number]}", program="bench")
async def desk(_run: Run, job: dict[str, str]) -> str:
    return job["about"]


async def fill(path: Path, count: int, limits: DeclaredLimits) -> float:
    """Submit so many runs, and return the processor time of the submissions."""
    async with Beforehand(path, agents=[desk], queues=limits, recover=False) as app:
        began = time.process_time()
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(count, first + AT_ONCE))
            jobs = ((number, {"number": str(number), "about": f"order-{number}"}) for number in numbers)
            await asyncio.gather(
                *(app.submit(desk, job, queue="mail", tenant=f"t{number % TENANTS}") for number, job in jobs)
            )
        return time.process_time() - began


def insert_raw(filled: Path, path: Path) -> float:
    """Insert the rows of a filled journal into an empty one of the same schema, in commits of the same size."""
    source = sqlite3.connect(filled)
    names = [row[1] for row in source.execute("pragma table_info(run)")]
    schema = [sql for (sql,) in source.execute("select sql from sqlite_master where sql is not null order by rowid")]
    runs = source.execute(f"select {', '.join(names)} from run order by id").fetchall()
    columns = "id, run, seq, token, content, at, up, hash"
    records = source.execute(f"select {columns} from record order by id").fetchall()
    source.close()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("pragma journal_mode = wal")
    raw.execute("pragma synchronous = full")
    for sql in schema:
        raw.execute(sql)
    began = time.process_time()
    for first in range(0, len(runs), AT_ONCE):
        raw.execute("begin immediate")
        places = ", ".join("?" * len(names))
        raw.executemany(f"insert into run ({', '.join(names)}) values ({places})", runs[first : first + AT_ONCE])
        raw.executemany(
            f"insert into record ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?)",
            records[first : first + AT_ONCE],
        )
        raw.execute("commit")
    spent = time.process_time() - began
    raw.close()
    return spent


async def take_all(path: Path, most: int) -> float:
    """Take all slots that there are, ten at a time, and return the processor time for each."""
    async with Beforehand(path, agents=[desk], recover=False) as app:
        journal, newest = app.engine.journal, app.engine.queues.newest
        assert newest is not None
        request = TakeRequest(app.engine.worker.id, [("desk", "bench")], 10, newest)
        taken, began = 0, time.process_time()
        while taken < most and (granted := await journal.commit(request)):
            taken += len(granted)
        assert taken == most, f"{taken} of {most} slots were taken"
        return (time.process_time() - began) / taken


@tool(idempotency=Natural())
async def note(number: int) -> int:
    return number


async def judge(_question: str) -> dict[str, object]:
    return {"usage": {"input_tokens": 10, "output_tokens": 10}}


@agent(run_id="steps-{kind}", tools=[note], program="bench")
async def steps(run: Run, kind: str) -> None:
    for number in range(STEPS):
        await (note(number) if kind == "effects" else run.decide(judge, str(number)))


async def stepped(path: Path, kind: str, budget: RunBudget | None, limits: DeclaredLimits | None) -> float:
    """Make steps of one kind under these budgets, and return the processor time."""
    async with Beforehand(path, agents=[steps], queues=limits, recover=False) as app:
        began = time.process_time()
        await app.run(steps, kind, budget=budget)
        return time.process_time() - began


def budgeted(kind: str, place: Path) -> tuple[float, float]:
    """How fast steps are under a budget of the run, and under one that runs share, to those under none."""
    own: list[float] = []
    shared: list[float] = []
    for number in range(ROUNDS * 2):
        without, with_own, with_shared = (
            asyncio.run(stepped(place / f"{kind}-{name}-{number}.db", kind, budget, limits))
            for name, budget, limits in (("none", None, None), ("own", OWN, None), ("shared", None, SHARED))
        )
        own.append(without / with_own)
        shared.append(without / with_shared)
    return statistics.median(own), statistics.median(shared)


def measured(count: int, slots: int, place: Path) -> tuple[float, float]:
    """Both ratios, medians of pairs."""
    submitted: list[float] = []
    limited: list[float] = []
    for number in range(ROUNDS):
        filled, free = place / f"limited-{number}.db", place / f"free-{number}.db"
        product = asyncio.run(fill(filled, count, ALL_LIMITS))
        submitted.append(insert_raw(filled, place / f"raw-{number}.db") / product)
        asyncio.run(fill(free, slots * 2, NO_LIMITS))
        without = asyncio.run(take_all(free, slots))
        limited.append(without / asyncio.run(take_all(filled, slots)))
    return statistics.median(submitted), statistics.median(limited)


def main() -> int:
    """Measure, print, and compare with the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="runs that are submitted in each of five rounds")
    parser.add_argument("--slots", type=int, default=500, help="slots that are taken of them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="beforehand-") as place:
        submitted, limited = measured(given.runs, given.slots, Path(place))
        under = {kind: budgeted(kind, Path(place)) for kind in ("effects", "calls")}
    print(f"{given.runs} runs submitted, to their raw inserts: {submitted:.2f} (at least {SUBMITTED_TO_RAW})")
    print(f"slots taken with all limits, to none: {limited:.2f} (at least {LIMITED_TO_NONE})")
    effects, calls = under["effects"], under["calls"]
    print(f"effects under a budget of the run, to none: {effects[0]:.2f} (at least {BUDGETED_TO_NONE})")
    print(f"effects under a budget that runs share: {effects[1]:.2f}")
    print(f"calls of a model that answers at once, under a budget: {calls[0]:.2f}; under a shared one: {calls[1]:.2f}")
    met = effects[0] >= BUDGETED_TO_NONE
    return 0 if met and submitted >= SUBMITTED_TO_RAW and limited >= LIMITED_TO_NONE else 1


if __name__ == "__main__":
    sys.exit(main())
