"""MCP: Holdfast's tools and runs inside a server, at both versions of its library, and a server under Pydantic AI.

The adapters whose cases are programs (`test_google_adk.py` and others) test servers there.
"""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.environments import ROOT, python_of


def run(environment: str, program: str, *words: str) -> None:
    done = subprocess.run(
        [python_of(environment), "-W", "ignore", "-m", f"tests.hosts.{program}", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("environment", ["host-openai-agents", "host-openai-agents-lowest"])
def test_tools_and_runs_in_a_server(environment: str, tmp_path: Path):
    run(environment, "mcp_program", str(tmp_path))


@pytest.mark.parametrize("case", ["", ", an error", ", an error, dynamic", ", no answer", ", an error of a read"])
def test_tools_of_a_server_under_pydantic_ai(case: str, tmp_path: Path):
    run("host-pydantic-ai", "pydantic_ai_cases", f"tools of an MCP server{case}", str(tmp_path))
