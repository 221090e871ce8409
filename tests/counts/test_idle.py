"""An idle process reads the ledger once a look for all its runs: a thousand that wait cost as much as one."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.engine.recovery import Recovery
from beforehand.engine.settings import Settings
from beforehand.journal.sqlite.driver import StandardDatabase

QUIET = Settings(poll_ms=600_000, recover_every_ms=600_000, lease_ms=36_000_000)
SOON = timedelta(seconds=20)  # sooner than `hold_ms`: the run keeps its process


@agent(run_id="desk-{number}")
async def desk(run: Run, number: int) -> str:
    if number % 3 == 0:
        return str(await run.wait_for("paid", timeout=SOON))
    if number % 3 == 1:
        return str(await run.ask("May it go?", timeout=SOON))
    await run.sleep(SOON)
    return "slept"


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement from here on. A trace in SQLite would block where two threads share a connection."""
    seen: list[str] = []
    rows, change = StandardDatabase.rows, StandardDatabase.change

    def counted_rows(self: StandardDatabase, sql: str, values: Any = ()) -> Any:
        seen.append(sql)
        return rows(self, sql, values)

    def counted_change(self: StandardDatabase, sql: str, values: Any = ()) -> int:
        seen.append(sql)
        return change(self, sql, values)

    monkeypatch.setattr(StandardDatabase, "rows", counted_rows)
    monkeypatch.setattr(StandardDatabase, "change", counted_change)
    return seen


def all_wait(app: Beforehand, runs: int) -> bool:
    active = app.engine.active_runs.values()
    return len(active) == runs and all(one.waiters.at_rest() for one in active)


async def looks(path: Path, statements: list[str], runs: int, times: int = 16) -> Counter[str]:
    """The statements of some looks, while so many runs wait in this process."""
    async with Beforehand(path, agents=[desk], settings=QUIET, recover=False) as app:
        waiting = [asyncio.ensure_future(app.run(desk, number)) for number in range(runs)]
        while not all_wait(app, runs):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)
        await settled(app)
        statements.clear()
        for tick in range(1, times + 1):
            await app.engine.look(everything=tick % 8 == 0)
        found = Counter(statements)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return found


def test_a_look_is_one_statement_however_many_runs_wait(tmp_path: Path, statements: list[str]):
    few = asyncio.run(looks(tmp_path / "few.db", statements, 3))
    many = asyncio.run(looks(tmp_path / "many.db", statements, 90))
    assert few.total() == many.total() <= 16, (few, many)


IN_FIVE_SECONDS = 15
"""Statements of a process that only waits: three a second."""


async def five_seconds(path: Path, statements: list[str], runs: int) -> Counter[str]:
    """The statements of five seconds in which nothing comes in: looks, a renewed lease, a search for due runs."""
    async with Beforehand(path, agents=[desk], settings=QUIET, recover=False) as app:
        engine = app.engine
        recovery = Recovery(engine, app.drive, app.run_housekeeping)
        waiting = [asyncio.ensure_future(app.run(desk, number)) for number in range(runs)]
        while not all_wait(app, runs):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)
        store = app._journal._store  # type: ignore[attr-defined]  # the file under the journal
        await settled(app)
        await look_for_due_runs(recovery)
        await kept(store)
        statements.clear()
        for _ in range(3):  # one in two seconds, while the journal is unchanged
            await engine.look(everything=False)
        await engine.beat()
        await kept(store)
        await look_for_due_runs(recovery)
        found = Counter(statements)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return found


async def settled(app: Any) -> None:
    """Return when every question is in the listing, all that rode is durable, and the thread has kept house."""
    runs = list(app.engine.active_runs.values())
    while any(map(is_listing, runs)):  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.01)
    journal = app._journal
    await journal._running.settle_queue()
    await kept(journal._store)


def is_listing(active: Any) -> bool:
    """True while the questions of a run are about to be written into the listing."""
    listing = active.waiters._listing
    return bool(active.drivers.tasks) or (listing is not None and listing._scheduled)


async def look_for_due_runs(recovery: Recovery) -> None:
    for task in await recovery.look():
        await task


async def kept(store: Any) -> None:
    """Return when the thread behind the journal has kept house."""
    while store.anchor_is_old:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)  # rows are counted after the anchor


def test_an_idle_process_makes_three_statements_a_second(tmp_path: Path, statements: list[str]):
    found = asyncio.run(five_seconds(tmp_path / "idle.db", statements, 60))
    assert found.total() <= IN_FIVE_SECONDS, found
