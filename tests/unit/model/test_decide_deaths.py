"""Which deaths of processes count, and against which limit."""

from __future__ import annotations

from beforehand.policies import Retry
from tests.unit.model.stories import AGAIN, KEYED, PATIENT, Story, changed


def test_a_process_that_only_lost_its_lease_is_no_death():
    story = Story(changed(KEYED, retry=PATIENT))
    for _ in range(8):
        story.sent("lost", over=False)
    assert story.state.deaths == 0
    assert story.waits(0, "retry").says() == AGAIN
    for _ in range(5):
        story.sent("lost")
    assert story.waits(0, "retry").says() == "park: quarantined"


def test_deaths_spend_no_attempts_unless_there_is_only_one():
    four = Story(KEYED)
    for _ in range(4):
        four.sent("lost")
    assert four.waits(0, "retry").says() == AGAIN
    one = Story(changed(KEYED, retry=Retry(attempts=1))).sent("lost").waits(0, "retry")
    assert one.says() == "unknown: nothing can prove it"
