"""Standing permissions as data: what is spent of them, what they cover, and what a record that uses one leaves behind."""

from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.standing_permission import Spent, StandingPermission, Use, spent_by, uses_stream, why_not
from tests.unit.model.stories import STEP, Story

GIVEN = StandingPermission("s-1", "refund", "bea", until_ms=100, times=3, total=20, amount="cents")


def test_uses_are_numbered_and_carry_the_sum():
    uses = [Use("r/a", 5, 5), Use("r/b", 7, 12)]
    assert spent_by(uses) == Spent(2, 2, 12, "", ("r/a", "r/b"))
    ended = spent_by([*uses, Use(sum=12, revoked_by="cid")])
    assert (ended.number, ended.times, ended.sum, ended.revoked_by) == (3, 2, 12, "cid")
    permission = replace(GIVEN, times=0)
    assert why_not(permission, spent_by(uses), 8, 5) == ""
    assert why_not(permission, spent_by(uses), 9, 5) == "12 of 20 are spent"
    assert why_not(permission, Spent(), -1, 5) == "cents is negative"
    assert why_not(permission, ended, 0, 5) == "it was revoked by cid"
    assert why_not(permission, Spent(), 0, 100) == "it has expired"


def test_without_a_bound_only_its_time_and_its_end_count():
    free = StandingPermission("s-1", "refund", "bea", until_ms=100)
    assert spent_by([]) == Spent()
    assert why_not(free, Spent(9, 9, 1e9), 1e9, 99) == ""
    assert why_not(GIVEN, Spent(3, 3, 5), 1, 99) == "it was used 3 times"
    assert uses_stream("s/1") == "standing/s%2F1/used"


def test_an_attempt_and_a_hold_say_which_permission_they_use():
    story = Story()
    used = r.AttemptStarted(step=STEP, intent=story.intent, approval="d", standing="s-1")
    assert (story.took(used).state.approval.approved_digest, story.state.approval.permission) == ("d", "s-1")
    planned = Story().planned()
    again = planned.took(r.AttemptStarted(step=STEP, intent=planned.intent, approval="d", standing="s-1")).state
    assert (again.approval.approved_digest, again.approval.permission) == ("d", "s-1")
    held = Story().planned().took(r.OperationHeld(step=STEP, transaction="trip", approval="d", standing="s-1"))
    assert (held.state.approval.approved_digest, held.state.approval.permission) == ("d", "s-1")
    assert held.released().state.approval.permission == "s-1"
