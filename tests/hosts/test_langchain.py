"""The adapter of LangChain, against the library itself: the cases are a program in the environment that has it."""

from pathlib import Path

import pytest

from tests.hosts.children import hosted, succeeds
from tests.hosts.environments import python_of

pytestmark = pytest.mark.deep  # what one framework does at its edges; `make test` has its cell in test_cells.py

CASES = [
    "parallel", "approval declined", "arguments that do not fit", "no such tool", "structured answer", "a checkpointer",
    "in a thread", "on the loop", "two conversations", "a graph of your own", "outside a run",
    "ids that cannot name a step", "explored", "an interrupt", "an interrupt, killed after the effect", "a command",
    "a thread without a checkpointer", "what was used", "approve names no tool", "approved outside a run",
    "a route", "values", "a human in the loop", "a model that is no chat model", "a graph with a model node",
    "a graph with a model node, in a thread", "a graph with a model node, a route",
    "a graph with a model node, a prompt with the time", "a graph with a model node, a prompt that differs on purpose",
]  # fmt: skip


@pytest.mark.parametrize("environment", ["hosts", "hosts-lowest"], ids=["newest", "lowest"])
@pytest.mark.parametrize("case", CASES)
def test_langchain(case: str, environment: str, tmp_path: Path):
    succeeds(hosted("langchain", python_of(environment)), tmp_path, "tests.hosts.langchain_cases", case, tmp_path)
