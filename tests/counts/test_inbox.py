"""What a page of the inbox costs: a fixed number of questions to the journal, none of which reads a whole table."""

import asyncio
import sqlite3
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx2
import pytest

from beforehand import Beforehand
from beforehand.errors import RunSuspended
from beforehand.journal.sqlite.driver import StandardDatabase
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant, Principal
from beforehand_console.auth.passwords import Passwords
from beforehand_console.auth.site import cookie_name, loopback
from beforehand_console.web.app import web
from tests.e2e.desk import refunds, trips
from tests.unit.console.auth.keeping import Counting

ORIGIN = "http://127.0.0.1"
REFUND = "refund-ann/refund%231"


REQUESTS: ContextVar[bool] = ContextVar("requests", default=False)
"""True in the task that makes requests: the housekeeping of the app asks questions of its own meanwhile."""


class Asked(list[str]):
    """The questions of requests since it was cleared; `ever` holds all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: set[str] = set()

    def append(self, statement: str) -> None:
        if REQUESTS.get():
            self.ever.add(statement)
            super().append(statement)


async def visited(path: Path, asked: Asked, names: tuple[str, ...]) -> dict[str, int]:
    """Let runs wait for these people, then look and answer; how many statements each request took."""
    counted: dict[str, int] = {}
    async with Beforehand(path, agents=[refunds, trips], recover=False) as app:
        for name in names:
            for agent in (refunds, trips):
                with pytest.raises(RunSuspended):
                    await app.run(agent, name)
        authenticator = Authenticator(app.engine, Passwords(Counting()))
        secret = await authenticator.admit(Principal("bea", (Grant("admin"),)), "127.0.0.1")
        headers = {"origin": ORIGIN, "cookie": f"{cookie_name(ORIGIN)}={secret}"}
        transport = httpx2.ASGITransport(web(app.service, authenticator, loopback(80)))
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as client:
            await client.get("/inbox")
            REQUESTS.set(True)
            for address in ("/inbox", "/api/v1/items", f"/inbox/{REFUND}", "/runs", "/runs?status=suspended"):
                asked.clear()
                assert (await client.get(address)).status_code == 200
                counted[address] = len(asked)
                assert counted[address] > 0, address
            REQUESTS.set(False)
    return counted


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every question to the database, as it was put."""
    put, real = Asked(), StandardDatabase.rows

    def rows(self: StandardDatabase, statement: str, values: Any = ()) -> Any:
        put.append(statement)
        return real(self, statement, values)

    monkeypatch.setattr(StandardDatabase, "rows", rows)
    return put


def test_a_list_asks_the_journal_as_often_for_many_items_as_for_few(tmp_path: Path, asked: Asked):
    few = asyncio.run(visited(tmp_path / "few.db", asked, ("ann",)))
    many = asyncio.run(visited(tmp_path / "many.db", asked, ("ann", *(f"c{number}" for number in range(30)))))
    assert {address: many[address] for address in ("/inbox", "/api/v1/items")} == {
        address: few[address] for address in ("/inbox", "/api/v1/items")
    }


def test_no_question_reads_a_whole_table(tmp_path: Path, asked: Asked):
    path = tmp_path / "desk.db"
    asyncio.run(visited(path, asked, ("ann", "ben")))
    with closing(sqlite3.connect(path)) as database:
        plans = {one: _plan(database, one) for one in asked.ever if one.lstrip().startswith("select")}
    assert len(plans) > 5
    scans = {one: plan for one, plan in plans.items() if any(step.startswith("SCAN") for step in plan)}
    assert scans == {}
    listing = [plan for one, plan in plans.items() if "from run where" in one and "status = ?" in one]
    assert any("run_open" in step for plan in listing for step in plan), "runs that have ended cost nothing"
    asking = [plan for one, plan in plans.items() if "waits <> '[]'" in one]
    assert asking
    assert all("run_halted" in " ".join(plan) for plan in asking), "and of those that stopped, only who asks is read"


def _plan(database: sqlite3.Connection, statement: str) -> list[str]:
    values = [""] * statement.count("?")
    return [row[3] for row in database.execute(f"explain query plan {statement}", values)]
