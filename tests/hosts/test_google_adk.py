"""The adapter of Google ADK, against the library itself: the cases are a program in the environment that has it."""

from pathlib import Path

import pytest

from tests.hosts.children import hosted, succeeds
from tests.hosts.environments import python_of

pytestmark = pytest.mark.deep  # what one framework does at its edges; `make test` has its cell in test_cells.py

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


@pytest.mark.parametrize("environment", ["hosts", "hosts-lowest"], ids=["newest", "lowest"])
@pytest.mark.parametrize("case", CASES)
def test_google_adk(case: str, environment: str, tmp_path: Path):
    succeeds(hosted("google_adk", python_of(environment)), tmp_path, "tests.hosts.google_adk_cases", case, tmp_path)
