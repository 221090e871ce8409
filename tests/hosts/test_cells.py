"""Each cell of the table of hosts, once. `make hosts` runs all of them twenty times."""

import sys

import pytest

from tests.hosts.cells import Cell, cells, trial
from tests.hosts.environments import python_of


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_pydantic_ai_keeps_every_effect_once(cell: Cell):
    ended = trial("pydantic_ai", sys.executable, cell)
    assert not ended.wrong, ended


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_langchain_keeps_every_effect_once(cell: Cell):
    ended = trial("langchain", python_of("host-langchain"), cell)
    assert not ended.wrong, ended


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_openai_agents_keeps_every_effect_once(cell: Cell):
    ended = trial("openai_agents", python_of("host-openai-agents"), cell)
    assert not ended.wrong, ended


def test_without_holdfast_an_effect_is_repeated():
    doubled = next(cell for cell in cells() if cell.name == "killed after the effect, one by one")
    assert trial("pydantic_ai", sys.executable, doubled, durable=False).wrong == "twice: a, b"
