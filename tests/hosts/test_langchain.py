"""The adapter of LangChain, against the library itself: the cases are a program in the environment that has it."""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.environments import ROOT, python_of

CASES = [
    "parallel", "approval declined", "arguments that do not fit", "no such tool", "structured answer", "a checkpointer",
    "in a thread", "on the loop", "two conversations", "a graph of your own", "outside a run",
    "ids that cannot name a step", "explored", "an interrupt", "an interrupt, killed after the effect", "a command",
    "a thread without a checkpointer", "what was used", "approve names no tool", "approved outside a run",
    "a route",
]  # fmt: skip


@pytest.mark.parametrize("environment", ["host-langchain", "host-langchain-lowest"], ids=["newest", "lowest"])
@pytest.mark.parametrize("case", CASES)
def test_langchain(case: str, environment: str, tmp_path: Path):
    done = subprocess.run(
        [python_of(environment), "-W", "ignore", "-m", "tests.hosts.langchain_cases", case, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
