"""The adapter of CrewAI, against the library itself: the cases are a program in the environment that has it."""

from pathlib import Path

import pytest

from tests.hosts.children import hosted, succeeds
from tests.hosts.environments import python_of

pytestmark = pytest.mark.deep  # what one framework does at its edges; `make test` has its cell in test_cells.py

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
    [(case, environment) for case in CASES for environment in ("host-crewai", "hosts-lowest")]
    + [("a failure that is a result", "host-crewai")],  # which earlier versions do not have
)
def test_crewai(case: str, environment: str, tmp_path: Path):
    succeeds(hosted("crewai", python_of(environment)), tmp_path, "tests.hosts.crewai_cases", case, tmp_path)
