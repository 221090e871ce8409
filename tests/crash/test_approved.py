"""An approval whose processes are really killed: at every occurrence of every point of asking for it, of giving it, and
of sending what it lets through. The effect is a plain write, so only this test would notice a second one.
"""

from collections.abc import Callable

import pytest

from tests.crash.desks import Case, killed

PROGRAM = "tests.crash.approved"


def asked(case: Case) -> Case:
    assert case.says("drive").startswith("waits: ")
    return case


def finish(case: Case) -> None:
    """No process dies any more: it is asked, approved where it was not, and paid once."""
    said = case.says("drive")
    if said.startswith("waits: "):
        assert case.effects() == []
        assert case.live("approve") == 0
        said = case.says("drive")
    assert (said, case.effects()) == ("paid", ["9000"])


@pytest.mark.deeper
@pytest.mark.parametrize(
    ("before", "what"),
    [(lambda case: case, "drive"), (asked, "approve")],
    ids=["while it is asked for", "while it is given"],
)
def test_a_kill_at_every_point_before_anything_is_sent(
    fresh: Callable[[], Case], before: Callable[[Case], Case], what: str
):
    for case in killed(lambda: before(fresh()), what):
        assert case.effects() == []
        finish(case)


@pytest.mark.deeper
def test_a_kill_at_every_point_of_sending_what_was_approved(fresh: Callable[[], Case]):
    """Once an attempt may have left, the approval does not send another one: the write is plain, and a person is asked."""

    def approved() -> Case:
        case = asked(fresh())
        assert case.says("approve") == "approved"
        return case

    ended: set[str] = set()
    for case in killed(approved, "drive"):
        said = case.says("drive")
        ended.add(said.partition(":")[0])
        assert len(case.effects()) <= 1
        assert (said == "paid") <= (case.effects() == ["9000"])
    assert ended == {"paid", "waits"}
