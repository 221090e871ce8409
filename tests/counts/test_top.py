"""What a frame of `beforehand top` costs: as many statements among many runs as among few, and no scan of the records."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.cli.common import CommandCall
from beforehand.cli.top import Overview
from beforehand.inspect.prices import Prices
from beforehand.inspect.spending import Spending
from beforehand.journal.host import wall_ms
from beforehand.journal.sqlite.driver import StandardDatabase

MOST = 32  # measured on 10,000 runs: 30 statements, 4.5 ms


@agent(run_id="order-{number}")
async def desk(run: Run, number: int) -> int:
    if number % 10 == 9:
        await run.wait_for("paid")
    return number


async def filled(path: Path, runs: int) -> None:
    async with Beforehand(path, agents=[desk], recover=False) as app:
        for number in range(runs):
            task = asyncio.create_task(app.run(desk, number))
            await asyncio.wait([task])
            assert task.exception() is None or number % 10 == 9
            await app.submit(desk, runs + 10 * number)


async def second_frame(path: Path, statements: list[str]) -> list[str]:
    call = CommandCall(str(path), as_json=False)
    async with call.with_raw_reader() as (reader, journal):
        view = Overview(call, reader, Spending(journal, Prices()))
        await view.look(wall_ms())
        statements.clear()
        await view.look(wall_ms())
    return [*statements]


def test_a_frame_takes_as_many_statements_among_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    statements, real = list[str](), StandardDatabase.rows

    def rows(self: StandardDatabase, statement: str, values: Any = ()) -> Any:
        statements.append(statement)
        return real(self, statement, values)

    monkeypatch.setattr(StandardDatabase, "rows", rows)
    frames: list[list[str]] = []
    for runs in (10, 100):
        path = tmp_path / f"{runs}.db"
        asyncio.run(filled(path, runs))
        frames.append(asyncio.run(second_frame(path, statements)))
    few, many = frames
    assert few == many
    assert len(many) <= MOST
    with closing(sqlite3.connect(tmp_path / "100.db")) as database:
        plans = {
            one: "\n".join(row[3] for row in database.execute(f"explain query plan {one}", [""] * one.count("?")))
            for one in {*many}
            if one.lstrip().startswith(("select", "with"))
        }
    assert not [one for one, plan in plans.items() if "SCAN record" in plan or "SCAN ledger" in plan]
