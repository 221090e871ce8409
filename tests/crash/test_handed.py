"""A run that is handed over to people, and then to another agent, whose processes are really killed: at every point of
each hand-off. It keeps its operations and their keys, asks once, hears the first answer, and books each seat once.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from beforehand.model import records as r
from tests.crash.desks import Case, killed

PROGRAM = "tests.crash.handed"
ASKED = [["handoff", "trip-ann/hand_off#1", "travel"]]


def asked(case: Case) -> Case:
    assert case.says("drive").startswith("waits: ")
    return case


def answered(case: Case) -> Case:
    assert asked(case).says("Lima") == "said"
    return case


def finish(case: Case) -> None:
    """No process dies any more: a second answer counts where the first does not, and the other agent goes on with it."""
    city = "Quito" if case.says("Quito") == "said" else "Lima"
    said = case.says("drive")
    if said.startswith("waits: "):
        assert case.says("look") == ASKED
        assert case.happened() == ["Oslo"]
        assert case.says(city) == "said"
        said = case.says("drive")
    assert said == f"{city} and Rome, needed for {city}"
    assert case.says("look") == []
    assert case.happened() == ["Oslo", city, "Rome"]
    told = Counter(type(one) for one in case.records("trip-ann"))
    assert (told[r.QuestionAsked], told[r.HandedOff], told[r.RunCompleted]) == (1, 1, 1)


@pytest.mark.deeper
@pytest.mark.parametrize(
    ("before", "what"),
    [pytest.param(lambda case: case, "drive", marks=pytest.mark.deep), (asked, "Lima"), (answered, "drive")],
    ids=["while people are asked", "while one of them answers", "while the other agent goes on"],
)
def test_a_kill_at_every_point_changes_nothing(fresh: Callable[[], Case], before: Callable[[Case], Case], what: str):
    for case in killed(lambda: before(fresh()), what):
        finish(case)
