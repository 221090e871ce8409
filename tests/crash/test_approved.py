"""An approval whose processes are really killed: at every occurrence of every point of asking for it, of giving it, and
of sending what it lets through. The effect is a plain write, so a second one would be noticed by nobody else.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.forks import Forks


@pytest.fixture(scope="module")
def lives() -> Iterator[Forks]:
    program = Forks("tests.crash.approved")
    yield program
    program.end()


class Case:
    """One journal, and what was paid from it."""

    def __init__(self, lives: Forks, place: Path) -> None:
        self._lives = lives
        self._place = place
        place.parent.mkdir(exist_ok=True)
        for left in place.parent.iterdir():
            left.unlink()

    def live(self, what: str, point: str = "", number: int = 0) -> int:
        return self._lives.live(what, str(self._place), point, number)

    def heard(self) -> tuple[str, dict[str, int]]:
        said, points = json.loads(Path(f"{self._place}.heard").read_text())
        return said, points

    def points(self) -> list[tuple[str, int]]:
        return [(point, number) for point, times in sorted(self.heard()[1].items()) for number in range(1, times + 1)]

    def paid(self) -> int:
        paid = Path(f"{self._place}.paid")
        return len(paid.read_text().splitlines()) if paid.exists() else 0


def asked(case: Case) -> Case:
    assert case.live("drive") == 0
    assert case.heard()[0].startswith("waits: ")
    return case


def approved(case: Case) -> Case:
    assert asked(case).live("approve") == 0
    return case


def finish(case: Case) -> None:
    """Nobody dies any more: it is asked, approved where it was not, and paid once."""
    assert case.live("drive") == 0
    if case.heard()[0].startswith("waits: "):
        assert case.paid() == 0
        assert case.live("approve") == 0
        assert case.live("drive") == 0
    assert case.heard()[0] == "paid"
    assert case.paid() == 1


@pytest.mark.parametrize(
    ("before", "what"),
    [(lambda case: case, "drive"), (asked, "approve")],
    ids=["while it is asked for", "while it is given"],
)
def test_a_kill_at_every_point_before_anything_is_sent(
    lives: Forks, tmp_path: Path, before: Callable[[Case], Case], what: str
):
    case = before(Case(lives, tmp_path / "case" / "desk.db"))
    assert case.live(what) == 0
    points = case.points()
    assert len(points) > 3
    for point, number in points:
        case = before(Case(lives, tmp_path / "case" / "desk.db"))
        assert case.live(what, point, number) == -9, f"{point} was not reached a {number}. time"
        assert case.paid() == 0
        finish(case)


def test_a_kill_at_every_point_of_sending_what_was_approved(lives: Forks, tmp_path: Path):
    """Once an attempt may have left, the approval does not send another one: the write is plain, and a person is asked."""
    case = approved(Case(lives, tmp_path / "case" / "desk.db"))
    assert case.live("drive") == 0
    points = case.points()
    assert len(points) > 5
    ended: set[str] = set()
    for point, number in points:
        case = approved(Case(lives, tmp_path / "case" / "desk.db"))
        assert case.live("drive", point, number) == -9
        assert case.live("drive") == 0
        said = case.heard()[0]
        ended.add(said.partition(":")[0])
        assert case.paid() <= 1, f"paid twice after {point} {number}"
        assert (said == "paid") <= (case.paid() == 1)
    assert ended == {"paid", "waits"}
