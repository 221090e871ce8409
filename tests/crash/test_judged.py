"""A ruling whose processes are really killed: at every occurrence of every point of a run that a policy judges.

The process that goes on has another policy. What was ruled stands once anything could have been sent by it; before that nothing
was sent, and the new policy judges.
"""

from collections.abc import Callable

import pytest

from beforehand.model import records as r
from tests.crash.desks import Case, killed

PROGRAM = "tests.crash.judged"


@pytest.mark.deeper
@pytest.mark.parametrize("then", [pytest.param("refuse", marks=pytest.mark.deep), "ask"])
def test_a_kill_at_every_point_leaves_one_ruling_for_each_policy_that_had_a_say(fresh: Callable[[], Case], then: str):
    undisturbed = fresh()
    assert (undisturbed.says("auto"), len(undisturbed.effects())) == ("paid", 1)
    assert {"before_commit", "after_commit", "after_intent", "before_outcome"} <= dict(undisturbed.points()).keys()
    for case in killed(fresh, "auto"):
        said = case.says(then)
        told = case.records("refund-ann")
        rulings = [one.ruling.word for one in told if isinstance(one, r.Ruled)]
        kinds = [type(one) for one in told]
        if r.AttemptStarted in kinds:
            assert (rulings, said) == (["auto"], "paid")
            assert len(case.effects()) in {1, 2}  # an attempt that was cut short is repeated under its key
            assert kinds.index(r.Ruled) < kinds.index(r.AttemptStarted)
        else:
            assert case.effects() == []
            assert rulings[-1:] == [then]
            assert said == "refused" if then == "refuse" else said.startswith("waits: ")
