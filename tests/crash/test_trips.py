"""A transaction whose process is really killed: at every occurrence of every point of its commit, its calling off
and its undo. The airline, the hotel and the mailbox are files, and outlive the process.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.forks import Forks
from tests.crash.points import one_of_each, struck
from tests.draws import pick

EXPECTED = {
    "commit": {"flight": "booked", "hotel": "booked", "mail": "booked"},
    "abort": {"flight": "cancelled", "hotel": "cancelled"},
    "undo": {"flight": "cancelled", "hotel": "cancelled", "mail": "booked"},
}


@pytest.fixture(scope="module")
def lives() -> Iterator[Forks]:
    program = Forks("tests.crash.trips")
    yield program
    program.end()


def live(lives: Forks, scenario: str, place: Path, point: str = "", number: int = 0) -> int:
    """One life; how its process ended."""
    return lives.live(scenario, str(place / "trips.db"), str(place / "world"), point, number)


def world_of(place: Path) -> dict[str, str]:
    """What really is the case, by kind of booking. Raises where something was done twice."""
    found: dict[str, str] = {}
    for file in sorted((place / "world").glob("*.json")):
        kind = file.name.partition("-")[0]
        assert kind not in found, f"two bookings of a {kind}"
        found[kind] = json.loads(file.read_text())["status"]
    return found


def heard(place: Path) -> tuple[str, dict[str, int]]:
    said, points = json.loads((place / "trips.db.heard").read_text())
    return said, points


def begin(lives: Forks, scenario: str, place: Path) -> None:
    """A fresh world; to undo a trip, one has to have been made."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if scenario == "undo":
        assert live(lives, "commit", place) == 0


@pytest.mark.deeper
@pytest.mark.parametrize(
    "scenario",
    ["commit", *(pytest.param(name, marks=pytest.mark.deep) for name in sorted(EXPECTED) if name != "commit")],
)
def test_a_kill_at_every_point_changes_nothing(lives: Forks, tmp_path: Path, scenario: str):
    place = tmp_path / "trip"
    begin(lives, scenario, place)
    assert live(lives, scenario, place) == 0
    undisturbed, points = heard(place)
    assert world_of(place) == EXPECTED[scenario]
    assert points["before_closing"] >= 2
    places = [(point, number) for point, times in sorted(points.items()) for number in range(1, times + 1)]
    assert len(places) > 20
    kills = 0
    for point, number in pick(places, one_of_each(places)):
        begin(lives, scenario, place)
        if not struck(live(lives, scenario, place, point, number), point, number):
            continue
        kills += 1
        assert live(lives, scenario, place) == 0, f"{scenario}: no process could go on after {point} {number}"
        assert world_of(place) == EXPECTED[scenario], f"{scenario}: killed at {point} {number}"
        said, _ = heard(place)
        same = said.split(";")[0][:6] == undisturbed[:6] if scenario != "undo" else said in {"aborted", "undone"}
        assert same, f"{scenario}: {said!r} was heard after {point} {number}"
    assert kills > len(points) // 2, "most points are reached again"
