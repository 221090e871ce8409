"""MCP: Beforehand's tools and runs inside a server, at both versions of its library, and a server under Pydantic AI.

The adapters whose cases are programs (`test_google_adk.py` and others) test servers there.
"""

from pathlib import Path

import pytest

from tests.hosts.children import hosted, succeeds
from tests.hosts.environments import python_of

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("environment", ["hosts", "hosts-lowest"])
def test_tools_and_runs_in_a_server(environment: str, tmp_path: Path):
    succeeds(hosted("openai_agents", python_of(environment)), tmp_path, "tests.hosts.mcp_program", tmp_path)


@pytest.mark.parametrize("case", ["", ", an error", ", an error, dynamic", ", no answer", ", an error of a read"])
def test_tools_of_a_server_under_pydantic_ai(case: str, tmp_path: Path):
    program = ("tests.hosts.pydantic_ai_cases", f"tools of an MCP server{case}", tmp_path)
    succeeds(hosted("pydantic_ai", python_of("hosts")), tmp_path, *program)
