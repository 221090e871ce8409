"""An idle process reads the ledger once a look for all its runs: a thousand that wait cost as much as one."""

import asyncio
import sqlite3
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Run, agent
from holdfast.engine.settings import Settings

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
    """Every statement that a connection to SQLite runs from here on."""
    seen: list[str] = []
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:  # whatever sqlite3.connect takes
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(seen.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return seen


def all_wait(app: Holdfast, runs: int) -> bool:
    active = app.engine.active_runs.values()
    return len(active) == runs and all(one.waiters.at_rest() for one in active)


async def looks(path: Path, statements: list[str], runs: int, times: int = 16) -> Counter[str]:
    """The statements of some looks, while so many runs wait in this process."""
    async with Holdfast(path, agents=[desk], settings=QUIET, recover=False) as app:
        waiting = [asyncio.ensure_future(app.run(desk, number)) for number in range(runs)]
        while not all_wait(app, runs):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # what rides becomes durable
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
