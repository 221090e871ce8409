"""`beforehand webhooks`, and a worker that sends to a real receiver."""

import asyncio
import base64
import json
import os
import subprocess
import threading
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from beforehand import Beforehand
from beforehand.inspect.monitors.findings import record_findings
from beforehand.inspect.monitors.rules import SilentFailure
from tests.cli.lab import Lab
from tests.unit.webhooks.receiver import receiving

GREET = """
from beforehand import Run, agent

@agent(run_id="r-{name}", tools=[])
async def greet(run: Run, name: str) -> str:
    return f"hello {name}"
"""


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    value = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    monkeypatch.setenv("OPS_SECRET", value)
    return value


def test_a_worker_tells_what_happened_and_the_listing_says_so(beforehand: Lab, secret: str):
    beforehand.write("desk.py", GREET)
    with receiving() as ops:
        added = beforehand("webhooks", "add", "ops", ops.url, "--secret-env", "OPS_SECRET", "--private")
        assert added.lines[0] == f"ops  {ops.url}  enabled"
        assert beforehand("run", "desk.py:greet", '"ann"').status == 0
        assert ops.came == []
        assert beforehand("worker", "desk.py:greet", "--once", "--private-webhooks").status == 0
    ((headers, body),) = ops.came
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    assert headers["webhook-signature"] == Webhook(secret).sign(headers["webhook-id"], at, body.decode())
    assert json.loads(body)["data"]["run"] == "r-ann"
    (listed,) = beforehand("webhooks", "--json").json["webhooks"]
    assert (listed["delivered"], listed["waiting"], listed["given_up"]) == (1, [], [])
    assert "1 notice delivered, 0 on the way, 0 given up" in beforehand("webhooks").out
    assert [one["run"] for one in beforehand("ps", "--json").json["runs"]] == ["r-ann"]
    sender, _ = (one["run"] for one in beforehand("ps", "--json", "--all").json["runs"])
    assert beforehand("resume", sender).json == "taken: 204"


def test_a_worker_announces_findings(beforehand: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("beforehand.cli.worker._WATCH_EVERY_MS", 0)
    beforehand.write("desk.py", GREET)
    over = SilentFailure("queue", "greet", 1, "1 run waits", ["r-ann waits"], "beforehand queues", "77aa00ff", 1)

    async def announced() -> None:
        async with Beforehand(beforehand.journal, agents=[]) as app:
            await record_findings(app.engine.journal, app.engine.outbox, [over], 1)

    asyncio.run(announced())
    with receiving() as ops:
        words = ("--secret-env", "OPS_SECRET", "--private", "--on", "finding.ended")
        assert beforehand("webhooks", "add", "ops", ops.url, *words).status == 0
        for _ in range(2):  # one announces it, the next one sends it
            assert beforehand("worker", "desk.py:greet", "--once", "--private-webhooks").status == 0
    ((_, body),) = ops.came
    assert json.loads(body)["data"]["id"] == over.id


def test_orders_about_endpoints_that_cannot_be_are_refused(beforehand: Lab, monkeypatch: pytest.MonkeyPatch):
    inside = beforehand("webhooks", "add", "ops", "https://127.0.0.1/", "--secret-env", "OPS_SECRET")
    assert (inside.status, "is a private or unencrypted address" in inside.err) == (2, True)
    monkeypatch.setenv("EMPTY", "")
    unsigned = beforehand("webhooks", "add", "ops", "https://example.com/", "--secret-env", "EMPTY")
    assert (unsigned.status, "holds no webhook secret" in unsigned.err) == (2, True)
    assert beforehand("webhooks", "enable", "ops").status == 2
    assert beforehand("webhooks", "enable").status == 2
    assert beforehand("webhooks").lines == ["No endpoint is registered."]


def test_an_endpoint_is_disabled_enabled_and_removed_by_name(beforehand: Lab):
    beforehand("webhooks", "add", "ops", "https://example.com/", "--secret-env", "OPS_SECRET", "--on", "run.stopped")
    disabled = beforehand("webhooks", "disable", "ops", "--why", "on holiday", "--by", "bea").lines
    assert disabled[0] == "ops  https://example.com/  disabled: on holiday"
    assert beforehand("webhooks", "enable", "ops").lines[0].endswith("enabled")
    assert beforehand("webhooks", "--json").json["webhooks"][0]["kinds"] == ["run.stopped"]
    assert beforehand("webhooks", "remove", "ops").lines == ["No endpoint is registered."]


def test_a_worker_that_is_killed_while_it_sends_is_followed_by_one_that_sends_the_same(beforehand: Lab):
    beforehand.write("desk.py", GREET)
    with receiving() as ops:
        beforehand("webhooks", "add", "ops", ops.url, "--secret-env", "OPS_SECRET", "--private")
        beforehand("run", "desk.py:greet", '"ann"')
        take, workers = ops.take, list[subprocess.Popen[str]]()

        def kill_whoever_sends(headers: dict[str, str], body: bytes) -> int:
            status = take(headers, body)
            if len(ops.came) == 1:
                started.wait()
                workers[0].kill()
            return status

        ops.take = kill_whoever_sends  # type: ignore[method-assign]  # a receiver that lets its sender die
        started = threading.Event()
        workers.append(beforehand.start("worker", "desk.py:greet", "--private-webhooks"))
        started.set()
        workers[0].communicate()
        assert workers[0].returncode == -9
        assert beforehand("webhooks", "--json").json["webhooks"][0]["delivered"] == 0
        while not beforehand("webhooks", "--json").json["webhooks"][0]["delivered"]:
            beforehand("worker", "desk.py:greet", "--once", "--private-webhooks")
    assert len(ops.came) >= 2
    assert len(set(ops.ids)) == 1, "the receiver had acted, and can tell"
