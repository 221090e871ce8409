"""The adapter of OpenAI Agents, against the library itself: the cases are a program in the environment that has it."""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.environments import ROOT, python_of

CASES = [
    "approval", "an exception is no success", "arguments that do not fit", "a stream", "outside a run",
    "servers and local tools", "tools of holdfast, and a handoff", "an id that cannot name a step", "a stream with such an id",
    "clauses of no tool", "approval outside a run", "a stored state",
    "explored", "an agent behind a handoff object", "a model of the run", "durable twice", "a late tool", "a session on disk",
    "tools of an MCP server", "tools of an MCP server, approval", "tools of an MCP server, an error",
    "tools of an MCP server, an error, late",
    "tools of an MCP server, an error of a read",
    "what was used", "a route", "a stream of a route",
]  # fmt: skip


@pytest.mark.parametrize("environment", ["host-openai-agents", "host-openai-agents-lowest"], ids=["newest", "lowest"])
@pytest.mark.parametrize("case", CASES)
def test_openai_agents(case: str, environment: str, tmp_path: Path):
    done = subprocess.run(
        [python_of(environment), "-W", "ignore", "-m", "tests.hosts.openai_agents_cases", case, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
