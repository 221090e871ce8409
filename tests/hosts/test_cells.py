"""Each cell of the table of hosts, once. `make hosts` runs all of them twenty times."""

import sys

import pytest

from tests.hosts.cells import Cell, cells, trial
from tests.hosts.environments import python_of

HERE = ("loop", "pydantic_ai")
HOSTS = (*HERE, "langchain", "openai_agents", "google_adk", "crewai")
EACH = [(host, cell) for host in HOSTS for cell in cells(host)]


@pytest.mark.parametrize(("host", "cell"), EACH, ids=[f"{host}: {cell.name}" for host, cell in EACH])
def test_every_effect_happens_once(host: str, cell: Cell):
    environment = f"host-{host.replace('_', '-')}"
    python = sys.executable if host in HERE else python_of(environment)
    ended = trial(host, python, cell, lowest=python_of(f"{environment}-lowest") if cell.upgraded else "")
    assert not ended.wrong, ended


@pytest.mark.parametrize("host", HERE)
def test_without_holdfast_an_effect_is_repeated(host: str):
    doubled = next(cell for cell in cells(host) if cell.name == "killed after the effect, one by one")
    assert trial(host, sys.executable, doubled, durable=False).wrong == "twice: a, b"
