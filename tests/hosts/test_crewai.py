"""The adapter of CrewAI, against the library itself: the cases are a program in the environment that has it."""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.environments import ROOT, python_of

CASES = [
    "parallel", "natively asynchronous", "equal calls, and ids that repeat",
    "equal calls, one after the other", "answers in plain text", "approval",
    "approval declined", "arguments that do not fit", "feedback of a flow", "a tool that raises",
    "clauses that do not exist", "what no record holds", "outside a run",
    "approval of a tool that is durable already", "a guardrail in words", "what was used",
    "what was used, natively asynchronous", "tools of an MCP server", "tools of an MCP server, natively asynchronous",
    "tools of an MCP server, approval", "tools of an MCP server, approval of its own name",
    "tools of an MCP server, misspelled", "tools of an MCP server, an error", "tools of an MCP server, no answer",
    "tools of an MCP server, an error of a read",
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "environment"),
    [(case, environment) for case in CASES for environment in ("host-crewai", "host-crewai-lowest")]
    + [("a failure that is a result", "host-crewai")],  # which earlier versions do not have
)
def test_crewai(case: str, environment: str, tmp_path: Path):
    done = subprocess.run(
        [python_of(environment), "-W", "ignore", "-m", "tests.hosts.crewai_cases", case, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
