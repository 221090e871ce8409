"""Every answer of a person, in processes that are really killed: at every point of giving it, and at every point of what
it lets happen. The effect is a plain write, so a second one would be noticed by nobody else.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.forks import Forks
from tests.crash.test_approved import Case

PAID = {"edit": 1, "stand_in": 0, "ask_back": 0, "decline": 0}
HEARD = {"edit": "paid 7000", "stand_in": "by hand", "ask_back": "asked_back: why?", "decline": "declined: no"}


@pytest.fixture(scope="module")
def lives() -> Iterator[Forks]:
    program = Forks("tests.crash.answered")
    yield program
    program.end()


def new(lives: Forks, place: Path, *before: str) -> Case:
    """A journal after these lives, in which nobody died."""
    case = Case(lives, place / "case" / "desk.db")
    for what in before:
        assert case.live(what) == 0
    return case


def driven(case: Case) -> tuple[list[str], list[int]]:
    assert case.live("drive") == 0
    heard, used = json.loads(case.heard()[0])
    return heard, used


def points_of(case: Case, what: str) -> list[tuple[str, int]]:
    assert case.live(what) == 0
    points = case.points()
    assert len(points) > 1
    return points


@pytest.mark.parametrize("word", PAID)
def test_a_kill_while_it_is_said_leaves_it_said_or_not(lives: Forks, tmp_path: Path, word: str):
    for point, number in points_of(new(lives, tmp_path, "drive"), word):
        case = new(lives, tmp_path, "drive")
        assert case.live(word, point, number) == -9, f"{point} was not reached a {number}. time"
        heard, _ = driven(case)
        if "may pay" in heard[0]:
            assert case.paid() == 0
            assert case.live(word) == 0
            heard, _ = driven(case)
        assert heard[0] == HEARD[word]
        assert case.paid() == PAID[word]


@pytest.mark.parametrize("word", PAID)
def test_a_kill_between_the_answer_and_its_end(lives: Forks, tmp_path: Path, word: str):
    """Once an attempt may have left, no answer sends another one: the write is plain, and a person is asked."""
    ended: set[str] = set()
    for point, number in points_of(new(lives, tmp_path, "drive", word), "drive"):
        case = new(lives, tmp_path, "drive", word)
        assert case.live("drive", point, number) == -9
        heard, _ = driven(case)
        ended.add(heard[0].partition(":")[0])
        assert case.paid() <= PAID[word]
        if heard[0].startswith("waits: "):
            assert "may have landed" in heard[0]
        else:
            assert (heard[0], case.paid()) == (HEARD[word], PAID[word])
    assert HEARD[word].partition(":")[0] in ended
    assert ("waits" in ended) == (PAID[word] == 1)


def test_a_kill_while_several_are_said_leaves_all_said_or_none(lives: Forks, tmp_path: Path):
    said = 0
    for point, number in points_of(new(lives, tmp_path, "drive"), "both"):
        case = new(lives, tmp_path, "drive")
        assert case.live("both", point, number) == -9
        heard, _ = driven(case)
        assert heard in (["paid 9000", "paid 9000"], [one for one in heard if "may pay" in one])
        assert case.paid() == (2 if heard[0] == "paid 9000" else 0)
        said += case.paid() == 2
    assert said > 0


def test_a_kill_while_a_permission_is_used_counts_it_once_and_pays_no_more_than_once(lives: Forks, tmp_path: Path):
    for point, number in points_of(new(lives, tmp_path, "allow"), "drive"):
        case = new(lives, tmp_path, "allow")
        assert case.live("drive", point, number) == -9
        heard, used = driven(case)
        assert used == [1], "what may have left has used it, and nothing else has"
        assert case.paid() <= 1
        assert sum(one == "paid 9000" for one in heard) <= case.paid()
        assert any(one.startswith("waits: ") for one in heard)


def test_a_kill_while_a_permission_is_revoked_leaves_it_revoked_or_not(lives: Forks, tmp_path: Path):
    for point, number in points_of(new(lives, tmp_path, "allow"), "revoke"):
        case = new(lives, tmp_path, "allow")
        assert case.live("revoke", point, number) == -9
        case.live("revoke")
        heard, used = driven(case)
        assert (used, case.paid()) == ([0], 0)
        assert all("may pay" in one for one in heard)
