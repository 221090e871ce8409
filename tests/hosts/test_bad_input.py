"""Bad input for each host: an error of its own, a next step that works, and nothing sent. A row for each host."""

import json
import os
import subprocess
import sys

import pytest

from tests.hosts.environments import ROOT, python_of


@pytest.mark.parametrize("host", ["pydantic_ai", "langchain", "openai_agents", "google_adk", "crewai"])
def test_bad_input_is_refused_and_nothing_is_sent(host: str):
    python = sys.executable if host == "pydantic_ai" else python_of(f"host-{host.replace('_', '-')}")
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "tests.hosts.bad_input"],
        env={**os.environ, "HOLDFAST_TEST_HOST": host},
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert len(row) > 10
    assert not {cell: wrong for cell, wrong in row.items() if wrong}
