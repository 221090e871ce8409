"""The adapter of Google ADK, against the library itself: the cases are a program in the environment that has it."""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.environments import ROOT, python_of

CASES = [
    "parallel", "ids that repeat, or cannot name a step", "state of the session", "no result", "a transfer",
    "agents that are tools, in parallel", "agents beside each other", "a tool that only steers", "a tool that runs long",
    "confirmation", "confirmation of a declared tool", "confirmation declined", "a tool that asks for a confirmation",
    "arguments that do not fit", "no such tool", "callbacks before and after a tool", "a stream",
    "a limit of model calls", "a model that fails", "a host that swallows", "sessions in a database",
    "a session of before", "clauses that do not exist", "clauses of no tool", "long ids", "outside a run",
    "every boundary", "tools of an MCP server", "tools of an MCP server, an error", "tools of an MCP server, no answer",
    "tools of an MCP server, an error of a read",
]  # fmt: skip


@pytest.mark.parametrize("environment", ["host-google-adk", "host-google-adk-lowest"], ids=["newest", "lowest"])
@pytest.mark.parametrize("case", CASES)
def test_google_adk(case: str, environment: str, tmp_path: Path):
    done = subprocess.run(
        [python_of(environment), "-W", "ignore", "-m", "tests.hosts.google_adk_cases", case, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
