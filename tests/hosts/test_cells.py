"""Each cell of the table of hosts, once. `make test` has one of each host, `python -m scripts.hosts` all of them many times."""

import pytest

from tests.hosts.cells import Cell, cells, trial
from tests.hosts.environments import ENVIRONMENT_OF, python_of

MIDST = "killed after the effect, one by one"
"""The cell of `make test`: the process dies between the effect and its record."""
EACH = [
    pytest.param(host, cell, id=f"{host}: {cell.name}", marks=() if cell.name == MIDST else pytest.mark.deep)
    for host in ENVIRONMENT_OF
    for cell in cells(host)
]


@pytest.mark.parametrize(("host", "cell"), EACH)
def test_every_effect_happens_once(host: str, cell: Cell):
    lowest = python_of("hosts-lowest") if cell.upgraded else ""
    ended = trial(host, python_of(ENVIRONMENT_OF[host]), cell, lowest=lowest)
    assert not ended.wrong, ended


def test_without_beforehand_an_effect_is_repeated():
    midst = next(cell for cell in cells("loop") if cell.name == MIDST)
    assert trial("loop", python_of("dev"), midst, durable=False).wrong == "twice: a, b"
