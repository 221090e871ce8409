"""Holdfast's tools and runs inside an MCP server, at both versions of its library."""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.environments import ROOT, python_of


@pytest.mark.parametrize("environment", ["host-openai-agents", "host-openai-agents-lowest"])
def test_tools_and_runs_in_a_server(environment: str, tmp_path: Path):
    done = subprocess.run(
        [python_of(environment), "-W", "ignore", "-m", "tests.hosts.mcp_program", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
