"""What it costs to find an effect: by business key, as much among many runs as among few; by tool, the newest records."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beforehand import Beforehand, Run, agent, tool
from beforehand.inspect import effects as searching
from beforehand.inspect.effects import EffectQuery, EffectsFound, find_effects
from beforehand.inspect.reader import JournalReader
from beforehand.journal.backends import address_of
from beforehand.journal.sqlite.driver import StandardDatabase


@tool(claim="order")
async def charge(order: str) -> str:
    return f"paid {order}"


@tool
async def mail(to: str) -> None: ...


@agent(run_id="order-{number}")
async def desk(run: Run, number: int) -> None:
    await charge(f"ORDER-{number}")
    await mail(f"c{number}@mail.test")


async def filled(path: Path, runs: int) -> None:
    async with Beforehand(path, agents=[desk], recover=False) as app:
        for number in range(runs):
            await app.run(desk, number)


async def asked_for(path: Path, query: EffectQuery, limit: int = 5) -> EffectsFound:
    journal = address_of(str(path)).reader()
    identity = await journal.open()
    try:
        return await find_effects(JournalReader(journal, identity), journal, query, limit)
    finally:
        await journal.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that was put to the database."""
    statements, real = list[str](), StandardDatabase.rows

    def rows(self: StandardDatabase, statement: str, values: Sequence[Any] = ()) -> Any:
        statements.append(statement)
        return real(self, statement, values)

    monkeypatch.setattr(StandardDatabase, "rows", rows)
    return statements


def test_a_business_key_takes_as_many_statements_among_many_runs_and_no_scan(tmp_path: Path, asked: list[str]):
    statements: list[list[str]] = []
    for runs in (2, 40):
        path = tmp_path / f"{runs}.db"
        asyncio.run(filled(path, runs))
        asked.clear()
        found = asyncio.run(asked_for(path, EffectQuery(key="ORDER-1")))
        assert [one.operation for one in found.effects] == ["order-1/charge#1"]
        statements.append([*asked])
    few, many = statements
    assert few == many
    with closing(sqlite3.connect(tmp_path / "40.db")) as database:
        own = [one for one in many if " ledger " in one or " record " in one]
        plans = {one: plan_of(database, one) for one in own if one.lstrip().startswith("select")}
    assert len(plans) > 2
    assert not [one for one, plan in plans.items() if "SCAN record" in plan or "SCAN ledger" in plan]


def test_the_newest_of_a_tool_are_found_without_reading_the_older_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(searching, "_AT_ONCE", 20)
    path = tmp_path / "40.db"
    asyncio.run(filled(path, 40))
    found = asyncio.run(asked_for(path, EffectQuery(tool="mail"), limit=2))
    assert [one.operation for one in found.effects] == ["order-39/mail#1", "order-38/mail#1"]
    assert found.more
    assert found.searched <= 40 < found.records


def plan_of(database: sqlite3.Connection, statement: str) -> str:
    values = [""] * statement.count("?")
    return "\n".join(row[3] for row in database.execute(f"explain query plan {statement}", values))
