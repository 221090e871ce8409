"""`holdfast webhooks`, and a worker that sends to a real receiver."""

import asyncio
import base64
import json
import os
import subprocess
import threading
from datetime import UTC, datetime

import msgspec
import pytest
from standardwebhooks import Webhook

from holdfast import Holdfast
from holdfast.inspect.monitors.passes import ANNOUNCED, JudgedFindings
from holdfast.inspect.monitors.rules import SilentFailure
from tests.cli.lab import Lab
from tests.unit.webhooks.receiver import receiving

GREET = """
from holdfast import Run, agent

@agent(run_id="r-{name}", tools=[])
async def greet(run: Run, name: str) -> str:
    return f"hello {name}"
"""


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    value = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    monkeypatch.setenv("OPS_SECRET", value)
    return value


def test_a_worker_tells_what_happened_and_the_listing_says_so(holdfast: Lab, secret: str):
    holdfast.write("desk.py", GREET)
    with receiving() as ops:
        added = holdfast("webhooks", "add", "ops", ops.url, "--secret-env", "OPS_SECRET", "--private")
        assert added.lines[0] == f"ops  {ops.url}  enabled"
        assert holdfast("run", "desk.py:greet", '"ann"').status == 0
        assert ops.came == []
        assert holdfast("worker", "desk.py:greet", "--once", "--private-webhooks").status == 0
    ((headers, body),) = ops.came
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    assert headers["webhook-signature"] == Webhook(secret).sign(headers["webhook-id"], at, body.decode())
    assert json.loads(body)["data"]["run"] == "r-ann"
    (listed,) = holdfast("webhooks", "--json").json["webhooks"]
    assert (listed["delivered"], listed["waiting"], listed["given_up"]) == (1, [], [])
    assert "1 notice delivered, 0 on the way, 0 given up" in holdfast("webhooks").out
    assert [one["run"] for one in holdfast("ps", "--json").json["runs"]] == ["r-ann"]
    sender, _ = (one["run"] for one in holdfast("ps", "--json", "--all").json["runs"])
    assert holdfast("resume", sender).json == "taken: 204"


def test_a_worker_announces_findings(holdfast: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.cli.worker._WATCH_EVERY_MS", 0)
    holdfast.write("desk.py", GREET)
    over = SilentFailure("queue", "greet", 1, "1 run waits", ["r-ann waits"], "holdfast queues", "77aa00ff", 1)

    async def announced() -> None:
        async with Holdfast(holdfast.journal, agents=[]) as app:
            note = msgspec.json.encode(JudgedFindings(1, [over], {over.id: 1}))
            await app.engine.journal.put_hint(ANNOUNCED, note, None)

    asyncio.run(announced())
    with receiving() as ops:
        words = ("--secret-env", "OPS_SECRET", "--private", "--on", "finding.ended")
        assert holdfast("webhooks", "add", "ops", ops.url, *words).status == 0
        for _ in range(2):  # one announces it, the next one sends it
            assert holdfast("worker", "desk.py:greet", "--once", "--private-webhooks").status == 0
    ((_, body),) = ops.came
    assert json.loads(body)["data"]["id"] == over.id


def test_orders_about_endpoints_that_cannot_be_are_refused(holdfast: Lab, monkeypatch: pytest.MonkeyPatch):
    inside = holdfast("webhooks", "add", "ops", "https://127.0.0.1/", "--secret-env", "OPS_SECRET")
    assert (inside.status, "is a private or unencrypted address" in inside.err) == (2, True)
    monkeypatch.setenv("EMPTY", "")
    unsigned = holdfast("webhooks", "add", "ops", "https://example.com/", "--secret-env", "EMPTY")
    assert (unsigned.status, "holds no webhook secret" in unsigned.err) == (2, True)
    assert holdfast("webhooks", "enable", "ops").status == 2
    assert holdfast("webhooks", "enable").status == 2
    assert holdfast("webhooks").lines == ["No endpoint is registered."]


def test_an_endpoint_is_disabled_enabled_and_removed_by_name(holdfast: Lab):
    holdfast("webhooks", "add", "ops", "https://example.com/", "--secret-env", "OPS_SECRET", "--on", "run.stopped")
    disabled = holdfast("webhooks", "disable", "ops", "--why", "on holiday", "--by", "bea").lines
    assert disabled[0] == "ops  https://example.com/  disabled: on holiday"
    assert holdfast("webhooks", "enable", "ops").lines[0].endswith("enabled")
    assert holdfast("webhooks", "--json").json["webhooks"][0]["kinds"] == ["run.stopped"]
    assert holdfast("webhooks", "remove", "ops").lines == ["No endpoint is registered."]


def test_a_worker_that_is_killed_while_it_sends_is_followed_by_one_that_sends_the_same(holdfast: Lab):
    holdfast.write("desk.py", GREET)
    with receiving() as ops:
        holdfast("webhooks", "add", "ops", ops.url, "--secret-env", "OPS_SECRET", "--private")
        holdfast("run", "desk.py:greet", '"ann"')
        take, workers = ops.take, list[subprocess.Popen[str]]()

        def kill_whoever_sends(headers: dict[str, str], body: bytes) -> int:
            status = take(headers, body)
            if len(ops.came) == 1:
                started.wait()
                workers[0].kill()
            return status

        ops.take = kill_whoever_sends  # type: ignore[method-assign]  # a receiver that lets its sender die
        started = threading.Event()
        workers.append(holdfast.start("worker", "desk.py:greet", "--private-webhooks"))
        started.set()
        workers[0].communicate()
        assert workers[0].returncode == -9
        assert holdfast("webhooks", "--json").json["webhooks"][0]["delivered"] == 0
        while not holdfast("webhooks", "--json").json["webhooks"][0]["delivered"]:
            holdfast("worker", "desk.py:greet", "--once", "--private-webhooks")
    assert len(ops.came) >= 2
    assert len(set(ops.ids)) == 1, "the receiver had acted, and can tell"
