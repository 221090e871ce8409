"""A run that cannot go on, whose processes are really killed while it stops and while a person says how it goes on:
the item is there until a person answers, the first word counts, and nothing is done twice.
"""

from collections.abc import Callable

import pytest

from beforehand.model import records as r
from tests.crash.desks import Case, killed
from tests.draws import daily

PROGRAM = "tests.crash.halted"
HALTED = [["handoff", "trip-ann"]]
ENDS = {"resume": "waits", "take over": "handed_over", "call off": "cancelled"}


def begun(case: Case) -> Case:
    assert case.says("drive").startswith("waits: ")
    return case


def halted(case: Case) -> Case:
    assert begun(case).says("drive changed") == "diverged"
    return case


@pytest.mark.deeper
def test_a_kill_while_it_stops_leaves_it_to_a_person(fresh: Callable[[], Case]):
    for case in killed(lambda: begun(fresh()), "drive changed"):
        assert case.says("drive changed") == "diverged"
        assert case.says("look") == HALTED
        assert case.happened() == ["Oslo"]


@pytest.mark.deeper
@pytest.mark.parametrize("word", daily(ENDS))
def test_a_kill_while_somebody_says_how_it_goes_on_loses_no_word(fresh: Callable[[], Case], word: str):
    other = "call off" if word == "resume" else "resume"
    for case in killed(lambda: halted(fresh()), word):
        counts = other if case.says(other) == "said" else word
        ended = case.says("drive")
        assert ended.startswith(ENDS[counts])
        assert case.says("look") != HALTED
        assert case.happened() == ["Oslo"]
        stops = [one.reason for one in case.records("trip-ann") if isinstance(one, r.RunStoppedRecord)]
        assert stops == (["diverged"] if counts == "resume" else ["diverged", ENDS[counts]])
