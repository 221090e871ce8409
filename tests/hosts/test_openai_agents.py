"""The adapter of OpenAI Agents, against the library itself: the cases are a program in the environment that has it."""

from pathlib import Path

import pytest

from tests.hosts.children import hosted, succeeds
from tests.hosts.environments import python_of

pytestmark = pytest.mark.deep  # what one framework does at its edges; `make test` has its cell in test_cells.py

CASES = [
    "approval", "an exception is no success", "arguments that do not fit", "a stream", "outside a run",
    "servers and local tools", "tools of beforehand, and a handoff", "an id that cannot name a step", "a stream with such an id",
    "clauses of no tool", "approval outside a run", "a stored state",
    "explored", "an agent behind a handoff object", "a model of the run", "durable twice", "a late tool", "a session on disk",
    "tools of an MCP server", "tools of an MCP server, approval", "tools of an MCP server, an error",
    "tools of an MCP server, an error, late",
    "tools of an MCP server, an error of a read",
    "what was used", "a route", "a stream of a route",
]  # fmt: skip


@pytest.mark.parametrize("environment", ["hosts", "hosts-lowest"], ids=["newest", "lowest"])
@pytest.mark.parametrize("case", CASES)
def test_openai_agents(case: str, environment: str, tmp_path: Path):
    succeeds(
        hosted("openai_agents", python_of(environment)), tmp_path, "tests.hosts.openai_agents_cases", case, tmp_path
    )
