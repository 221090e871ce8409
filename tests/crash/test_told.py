"""A run that is told something, and one that is handed over, whose processes are really killed: at every occurrence of
every point of telling, of hearing, of booking what is wanted then, of answering and of taking over. The booking is a
plain write, so a second one, or one of what nobody wants any more, would be noticed by nobody else.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.forks import Forks


@pytest.fixture(scope="module")
def lives() -> Iterator[Forks]:
    program = Forks("tests.crash.told")
    yield program
    program.end()


class Case:
    """One journal, and what was booked from it."""

    def __init__(self, lives: Forks, place: Path) -> None:
        self._lives = lives
        self._place = place
        place.parent.mkdir(exist_ok=True)
        for left in place.parent.iterdir():
            left.unlink()

    def live(self, what: str, point: str = "", number: int = 0) -> int:
        return self._lives.live(what, str(self._place), point, number)

    def says(self, what: str) -> Any:
        assert self.live(what) == 0
        return json.loads(Path(f"{self._place}.heard").read_text())[0]

    def points(self) -> list[tuple[str, int]]:
        reached = json.loads(Path(f"{self._place}.heard").read_text())[1]
        return [(point, number) for point, times in sorted(reached.items()) for number in range(1, times + 1)]

    def booked(self) -> list[str]:
        booked = Path(f"{self._place}.booked")
        return booked.read_text().splitlines() if booked.exists() else []


def asked(case: Case) -> Case:
    assert "JFK" in case.says("drive")
    return case


def told(case: Case) -> Case:
    assert asked(case).says("tell") == "done"
    return case


def heard(case: Case) -> Case:
    assert "LGA" in told(case).says("drive")
    return case


def handed(case: Case) -> Case:
    assert heard(case).says("approve") == "done"
    assert "take-over" in case.says("drive")
    return case


def taken(case: Case) -> Case:
    assert handed(case).says("take") == "done"
    return case


def finish(case: Case) -> None:
    """Nobody dies any more: it is told, hears once, and books what is wanted; it is given back, or it is somebody's."""
    said = case.says("drive")
    if "JFK" in said:  # it was not told yet
        assert case.says("tell") == "done"
        said = case.says("drive")
    if said.startswith("waits") and "LGA" in said:
        assert case.booked() == []
        assert case.says("approve") == "done"
        said = case.says("drive")
    if said.startswith("waits") and "take-over" in said:
        case.says("answer")
        said = case.says("drive")
    ended = "LGA, told ['LaGuardia'], then signed"
    assert said == ended or (said.startswith("handed_over") and "bea took it over" in said), said
    look = case.says("look")
    assert (look["received"], look["heard"], look["sent"]) == (1, ["book#1"], ["book#2"])
    assert case.booked() == ["LGA"]


@pytest.mark.parametrize(
    ("before", "what"),
    [(asked, "tell"), (told, "drive"), (handed, "answer"), (handed, "take"), (taken, "drive")],
    ids=["while it is told", "while it hears", "while it is answered", "while it is taken", "while it ends"],
)
def test_a_kill_at_every_point_changes_nothing(lives: Forks, tmp_path: Path, before: Callable[[Case], Case], what: str):
    case = before(Case(lives, tmp_path / "case" / "desk.db"))
    case.says(what)
    points = case.points()
    assert len(points) > 2, points
    for point, number in points:
        case = before(Case(lives, tmp_path / "case" / "desk.db"))
        assert case.live(what, point, number) == -9, f"{point} was not reached a {number}. time"
        finish(case)
