"""A run that is told something, and one that is handed over, whose processes are really killed: at every occurrence of
every point of telling, of hearing, of booking what is wanted then, of answering and of taking over. The booking is a
plain write, so only this test would notice a second one, or one that is not wanted any more.
"""

from collections.abc import Callable

import pytest

from tests.crash.desks import Case, killed

PROGRAM = "tests.crash.told"


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
    assert "is handed over" in case.says("drive")
    return case


def taken(case: Case) -> Case:
    assert handed(case).says("take") == "done"
    return case


def finish(case: Case) -> None:
    """No process dies any more: it is told, hears once, and books what is wanted; it is given back, or it is somebody's."""
    said = case.says("drive")
    if "JFK" in said:  # it was not told yet
        assert case.says("tell") == "done"
        said = case.says("drive")
    if said.startswith("waits") and "LGA" in said:
        assert case.effects() == []
        assert case.says("approve") == "done"
        said = case.says("drive")
    if said.startswith("waits") and "is handed over" in said:
        case.says("answer")
        said = case.says("drive")
    ended = "LGA, told ['LaGuardia'], then signed"
    assert said == ended or (said.startswith("handed_over") and "bea took it over" in said), said
    look = case.says("look")
    assert (look["received"], look["heard"], look["sent"]) == (1, ["book#1"], ["book#2"])
    assert case.effects() == ["LGA"]


@pytest.mark.deeper
@pytest.mark.parametrize(
    ("before", "what"),
    [
        (asked, "tell"),
        (told, "drive"),
        pytest.param(handed, "answer", marks=pytest.mark.deep),
        pytest.param(handed, "take", marks=pytest.mark.deep),
        pytest.param(taken, "drive", marks=pytest.mark.deep),
    ],
    ids=["while it is told", "while it hears", "while it is answered", "while it is taken", "while it ends"],
)
def test_a_kill_at_every_point_changes_nothing(fresh: Callable[[], Case], before: Callable[[Case], Case], what: str):
    for case in killed(lambda: before(fresh()), what):
        finish(case)
