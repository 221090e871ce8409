"""`beforehand submit`, `queues`, and what other commands say of runs in queues."""

import asyncio
import re
import subprocess

import pytest

from beforehand import Beforehand
from tests import forked
from tests.cli.lab import Lab

CODE = """
from pathlib import Path

from beforehand import Run, agent

READY = Path(__file__).with_name("ready")


@agent(run_id="greet-{name}")
async def greet(run: Run, name: str) -> str:
    if not READY.exists():
        raise ValueError("not ready")
    return name
"""


def test_a_stopped_run_of_a_queue_is_reopened_and_waits_for_a_slot(beforehand: Lab):
    beforehand.write("greet.py", CODE)
    assert beforehand("submit", "greet.py:greet", '"ann"').status == 0
    assert beforehand("worker", "greet.py:greet", "--once").status == 1
    beforehand.write("ready", "")
    resumed = beforehand("resume", "greet-ann")
    assert resumed.status == 3
    assert "greet-ann queued" in resumed.err
    assert "waits in the queue default for a slot" in resumed.err
    assert "Next: start it: beforehand worker" in resumed.err
    assert beforehand("worker", "greet.py:greet", "--once").status == 0
    assert beforehand("resume", "greet-ann").out.strip() == '"ann"'


def test_a_queue_is_paused_drained_and_resumed(beforehand: Lab):
    beforehand.write("greet.py", CODE)
    beforehand.write("ready", "")
    assert beforehand("submit", "greet.py:greet", '"ann"').status == 0
    paused = beforehand("queues", "pause", "default", "--why", "the bank is closed")
    assert (paused.status, paused.out) == (
        0,
        "default is paused by anna: the bank is closed.\nNext: beforehand queues resume default\n",
    )
    again = beforehand("queues", "pause", "default", "--by", "bob")
    assert again.status == 0
    assert again.out.startswith("Nothing was changed: default is paused by anna: the bank is closed.\n")
    stored = beforehand("submit", "greet.py:greet", '"bea"')
    assert "waits in the queue default; the queue is paused by anna: the bank is closed" in " ".join(stored.out.split())
    assert "beforehand queues resume default" in stored.out
    worked = beforehand("worker", "greet.py:greet", "--once")
    assert (worked.status, worked.out) == (0, "0 runs driven.\n")
    assert "Runs are left in queues" in worked.err
    assert {one["status"] for one in beforehand("ps", "--json").json["runs"]} == {"queued"}
    refused = beforehand("resume", "greet-ann")
    assert "the queue is paused by anna: the bank is closed" in " ".join(refused.err.split())
    assert "beforehand queues resume default" in refused.err
    (listed,) = beforehand("queues", "--json").json["queues"]
    assert (listed["waiting"], listed["mode"]["paused"]["by"]) == (2, "anna")
    shown = beforehand("queues")
    assert re.search(r"default is paused since \d.* UTC by anna: the bank is closed", " ".join(shown.out.split()))
    assert "beforehand worker" not in shown.err + shown.out
    assert beforehand("queues", "resume", "default").out == "default accepts submissions and starts them.\n"
    drained = beforehand("queues", "drain", "default", "--json").json
    assert (drained["changed"], list(drained["mode"])) == (True, ["draining"])
    refused = beforehand("submit", "greet.py:greet", '"cid"')
    assert refused.status == 1
    assert "the queue default is drained: it accepts no submissions" in refused.err
    assert "beforehand queues resume default" in refused.err
    assert beforehand("submit", "greet.py:greet", '"bea"').status == 0  # it was submitted before
    assert beforehand("worker", "greet.py:greet", "--once").status == 0
    assert {one["status"] for one in beforehand("ps", "--json").json["runs"]} == {"completed"}


def test_a_queue_that_does_not_exist_cannot_be_paused(beforehand: Lab):
    beforehand.write("greet.py", CODE)
    beforehand.write("queues.yaml", "queues: {mail: {}}")
    beforehand.write("pyproject.toml", '[tool.beforehand]\nqueues = "queues.yaml"\n')
    assert beforehand("submit", "greet.py:greet", '"ann"').status == 0
    for word in ("pause", "drain", "resume", "list"):
        refused = beforehand("queues", word, "mial")
        assert refused.status == 2
        assert "queue 'mial' does not exist" in refused.err
        assert "did you mean mail?" in refused.err
    assert "needs the name of a queue" in beforehand("queues", "drain").err
    assert beforehand("queues", "list", "mail", "--json").json["queues"][0]["mode"] == {}


@pytest.mark.parametrize("when", ["999999999h", "9999-12-31T23:59-12:00"])
def test_a_time_that_no_clock_reaches_is_refused(beforehand: Lab, when: str):
    beforehand.write("greet.py", CODE)
    refused = beforehand("submit", "greet.py:greet", '"ann"', "--at", when)
    assert (refused.status, refused.err.partition(" write ")[0]) == (
        2, f"UsageError: the time '{when}' is not within the years 1 to 9999\nNext:",
    )  # fmt: skip


def test_a_limit_of_an_agent_that_does_not_exist_is_said(beforehand: Lab):
    beforehand.write("greet.py", CODE)
    beforehand.write("queues.yaml", "agents: {gret: {concurrency: 1}}")
    beforehand.write("pyproject.toml", '[tool.beforehand]\nqueues = "queues.yaml"\n')
    assert beforehand("submit", "greet.py:greet", '"ann"').status == 0
    listed = beforehand("queues")
    assert listed.status == 0
    assert "the limit of agent gret concerns no run" in " ".join(listed.err.split())


def test_the_server_that_takes_submissions_knows_the_queues_of_the_project(beforehand: Lab):
    async def opened() -> None:
        async with Beforehand(beforehand.directory / "desk.db"):
            pass

    asyncio.run(opened())
    beforehand.write("greet.py", CODE)
    beforehand.write("queues.yaml", "queues:\n  refunds: {concurrency: 2}\ntenants:\n  acme: {concurrency: 1}\n")
    beforehand.write("pyproject.toml", '[tool.beforehand]\nqueues = "queues.yaml"\n')
    command = ["-m", "beforehand", "serve", "greet.py:greet", "--journal", "desk.db", "--port", "0"]
    with forked.start(command, cwd=beforehand.directory, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as serving:
        assert serving.stderr is not None
        assert any("The inbox" in line for line in serving.stderr)
        listed = beforehand("queues", "--json", "--journal", "desk.db").json["queues"]
        serving.terminate()
    assert [one["queue"] for one in listed] == ["refunds"]


def test_a_run_that_waits_for_a_slot_again_is_seen_to_wait(beforehand: Lab):
    beforehand.write("greet.py", CODE)
    assert beforehand("submit", "greet.py:greet", '"ann"').status == 0
    assert beforehand("worker", "greet.py:greet", "--once").status == 1
    assert beforehand("resume", "greet-ann").status == 3
    shown = beforehand("queues")
    assert "beforehand worker" in shown.out + shown.err
    assert "queue default: runs wait for a slot again, and none of them runs" in beforehand("top", "--once").words


def test_a_submission_that_a_queue_refuses_for_now_is_not_a_usage_error(beforehand: Lab):
    beforehand.write("greet.py", CODE)
    beforehand.write("queues.yaml", "queues:\n  default: {capacity: 1}\n")
    beforehand.write("pyproject.toml", '[tool.beforehand]\nqueues = "queues.yaml"\n')
    assert beforehand("submit", "greet.py:greet", '"ann"').status == 0
    full = beforehand("submit", "greet.py:greet", '"bea"')
    assert (full.status, "QueueFull: the queue default is full" in full.err) == (1, True), full.err
    assert beforehand("queues", "drain", "default").status == 0
    draining = beforehand("submit", "greet.py:greet", '"bea"', "--json")
    assert (draining.status, draining.json["error"]["error"]) == (1, "QueueDraining")
    assert beforehand("submit", "greet.py:greet", '"bea"', "--queue", "x").status == 2, "the command itself is wrong"


def test_a_key_that_cannot_name_a_run_is_named_as_the_key(beforehand: Lab):
    beforehand.write("greet.py", CODE)
    said = beforehand("submit", "greet.py:greet", '"ann"', "--key", "")
    assert (said.status, said.err.splitlines()[0]) == (2, "UsageError: key='' cannot name a run")
    assert said.err.splitlines()[-1] == "Next: give a key of these characters; without one, the agent makes it"
