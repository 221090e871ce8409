"""`holdfast submit`, `queues`, and what other commands say of runs in queues."""

from tests.cli.lab import Lab

CODE = """
from pathlib import Path

from holdfast import Run, agent

READY = Path(__file__).with_name("ready")


@agent(run_id="greet-{name}")
async def greet(run: Run, name: str) -> str:
    if not READY.exists():
        raise ValueError("not ready")
    return name
"""


def test_a_stopped_run_of_a_queue_is_reopened_and_waits_for_a_slot(holdfast: Lab):
    holdfast.write("greet.py", CODE)
    assert holdfast("submit", "greet.py:greet", '"ann"').status == 0
    assert holdfast("worker", "greet.py:greet", "--once").status == 1
    holdfast.write("ready", "")
    resumed = holdfast("resume", "greet-ann")
    assert resumed.status == 3
    assert "greet-ann queued" in resumed.err
    assert "waits in the queue default for a slot" in resumed.err
    assert "Next: holdfast worker" in resumed.err
    assert holdfast("worker", "greet.py:greet", "--once").status == 0
    assert holdfast("resume", "greet-ann").out.strip() == '"ann"'


def test_a_limit_of_an_agent_that_does_not_exist_is_said(holdfast: Lab):
    holdfast.write("greet.py", CODE)
    holdfast.write("queues.yaml", "agents: {gret: {concurrency: 1}}")
    holdfast.write("pyproject.toml", '[tool.holdfast]\nqueues = "queues.yaml"\n')
    assert holdfast("submit", "greet.py:greet", '"ann"').status == 0
    listed = holdfast("queues")
    assert listed.status == 0
    assert "the limit of agent gret concerns no run" in " ".join(listed.err.split())
