"""Heads that are posted: to the endpoints that ask for them, once in a span of time, and good for `verify`."""

import asyncio
import base64
import contextlib
import json
import os
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from beforehand import Beforehand
from beforehand.cli.main import main
from beforehand.engine.settings import Settings
from tests.unit.engine.lab import Lab, virtual
from tests.unit.webhooks.receiver import receiving
from tests.unit.webhooks.test_outgoing import greet, tell


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_SECRET", "whsec_" + base64.b64encode(os.urandom(24)).decode())


@virtual
async def test_heads_go_to_an_endpoint_that_asks_for_them_once_in_a_span_and_are_stored_as_they_came(lab: Lab):
    with receiving() as elsewhere, receiving() as ops:
        async with lab.app(greet, recover=True, private_webhooks=True, heads_every_ms=600_000) as app:
            await tell(app, elsewhere.url, "journal.head", name="elsewhere")
            await tell(app, ops.url)
            await app.run(greet, "ann")
            await lab.pass_time(minutes=35)
            head, namespace = await app.engine.journal.head(), app.engine.identity.namespace
    bodies = [json.loads(body) for _, body in elsewhere.came]
    assert {body["type"] for body in bodies} == {"journal.head"}
    assert len(bodies) in {4, 5}, "one for each ten minutes"
    records = [body["data"]["head"]["records"] for body in bodies]
    assert records == sorted(records)
    assert 0 < records[-1] <= head.records
    assert {json.loads(body)["type"] for _, body in ops.came} == {"run.completed"}
    assert all(body["data"]["namespace"] == namespace for body in bodies)


def test_a_head_that_came_by_webhook_verifies_the_journal(tmp_path: Path):
    async def work() -> None:
        async with Beforehand(file, agents=[greet], settings=settings) as app:
            await tell(app, elsewhere.url, "journal.head")
            async with asyncio.timeout(30):
                while not elsewhere.came:  # noqa: ASYNC110 - a real server in a thread, which sets no event of this loop
                    await asyncio.sleep(0.02)

    file, kept = tmp_path / "journal.db", tmp_path / "kept.heads"
    settings = Settings(private_webhooks=True, recover_every_ms=20)
    with receiving() as elsewhere:
        asyncio.run(work())
    kept.write_bytes(b"".join(body + b"\n" for _, body in elsewhere.came))
    arguments = ["verify", "--journal", str(file), "--heads", str(kept), "--json"]
    said = CliRunner().invoke(main, arguments)
    assert (said.exit_code, json.loads(said.stdout)["signatures"]) == (0, 1), said.output
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("delete from ledger where id = 1")
        database.commit()
    assert CliRunner().invoke(main, arguments).exit_code == 4
