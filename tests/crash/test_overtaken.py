"""A natural write whose first attempt lands late, in processes that are really killed: the last value stays."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.forks import Forks
from tests.crash.points import struck


@pytest.fixture(scope="module")
def lives() -> Iterator[Forks]:
    program = Forks("tests.crash.overtaken")
    yield program
    program.end()


def landed(register: Path) -> list[str]:
    """The values in the order in which they landed."""
    lines = (line.split() for line in register.read_text().splitlines())
    return [value for _, value in sorted(lines, key=lambda line: float(line[0]))]


@pytest.mark.deep
def test_a_kill_at_every_point_leaves_the_last_value(lives: Forks, tmp_path: Path):
    journal = tmp_path / "whole.db"
    assert lives.live(str(journal), str(tmp_path / "whole"), "", 0) == 0
    assert landed(tmp_path / "whole") == ["on", "on", "off"]
    _, reached = json.loads(Path(f"{journal}.result").read_text())
    points = [(point, number) for point, times in sorted(reached.items()) for number in range(1, times + 1)]
    assert len(points) > 20
    for point, number in points:
        journal, register = tmp_path / f"{point}-{number}.db", tmp_path / f"{point}-{number}"
        if not struck(lives.live(str(journal), str(register), point, number), point, number):
            continue
        assert lives.live(str(journal), str(register), "", 0) == 0
        assert json.loads(Path(f"{journal}.result").read_text())[0] == "off"
        assert landed(register)[-1] == "off", f"{point} {number}: {landed(register)}"
