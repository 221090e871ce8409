"""Whole stories in which an obvious rule goes wrong: what `decide` answers at each turn."""

from __future__ import annotations

from datetime import timedelta

from beforehand.model import records as r
from beforehand.model.contract import Key, stricter
from beforehand.policies import Retry
from tests.unit.model.stories import (
    DAY,
    HOUR,
    KEYED,
    MINUTE,
    NATURAL,
    PLAIN,
    SECOND,
    SETTLE,
    STEP,
    VERIFIABLE,
    Story,
    changed,
)

PATIENT = Retry(attempts=20, elapsed=timedelta(days=30))


def test_a_refusal_does_not_hide_an_attempt_that_lands_later():
    """A keyed refund times out and lands 20 s later; the same key is refused meanwhile."""
    story = Story(changed(KEYED, verifies=True, settle_ms=SETTLE)).sent("ambiguous").sent("rejected", code="402")
    assert story.says() == "verify: read back at once: presence can be believed"
    story.verified("did_not_happen").later(20 * SECOND).verified("happened")
    assert story.says() == "succeeded: found by verification"


def test_a_delete_that_is_not_found_was_perhaps_deleted_by_us():
    assert Story().sent("ambiguous").sent("rejected", code="404").says() == "unknown: nothing can prove it"


def test_an_attempt_that_was_not_sent_does_not_hide_an_earlier_one_when_the_budget_ends():
    story = Story(changed(KEYED, retry=Retry(attempts=2))).sent("ambiguous").sent("not_sent")
    assert story.says() == "unknown: nothing can prove it"


def test_closing_a_ticket_is_not_stale_because_we_closed_it():
    """The first attempt lands and its answer is lost; then the precondition reads `closed`."""
    closing = changed(NATURAL, observes=True, verifies=True, settle_ms=SETTLE)
    story = Story(closing).sent("ambiguous").waits(0, "retry")
    assert story.says(reading="changed") == "verify: read back at once: presence can be believed"
    story.verified("happened").later(SETTLE)
    assert story.says(reading="changed") == "succeeded: found by verification"
    assert Story(changed(NATURAL, observes=True)).sent("ambiguous").waits(0, "retry").says(reading="changed") == (
        "unknown: nothing can prove it"
    )


def test_a_worker_that_returns_at_night_does_not_repeat_a_natural_write_blindly():
    story = Story(changed(NATURAL, retry=PATIENT)).sent("lost").waits(0, "retry").rebooted(wall_ms=8 * HOUR)
    assert story.says() == "unknown: nothing can prove it"


def test_a_verifier_does_not_overtake_a_thread_that_outlived_its_time_limit():
    """The call timed out for its caller; its thread lives on and sends."""
    story = Story(VERIFIABLE).sent("ambiguous", over=False).later(HOUR).verified("did_not_happen")
    live = {"live": frozenset({1})}
    assert story.says(**live) == "wait for verify: until the next reading"
    assert story.late("returned").says() == "succeeded: returned"


def test_a_gateway_that_says_try_later_after_the_commit_is_not_tried_again():
    """503 with Retry-After, undeclared on a plain write."""
    assert Story().sent("ambiguous", retry_after_ms=1_000).says() == "unknown: nothing can prove it"
    declared = Story().sent("not_sent", retry_after_ms=1_000)
    assert declared.says() == "wait for retry: full jitter before the next attempt"


def test_a_replayed_error_of_a_key_is_no_new_evidence():
    """A service that stores every answer gives the first 500 again and again."""
    stores = changed(KEYED, idempotency=Key(ttl=timedelta(hours=24), stores="all"), retry=Retry(attempts=3))
    story = Story(stores)
    for _ in range(3):
        story.sent("ambiguous", code="500")
    assert story.says() == "unknown: nothing can prove it"


def test_clocks_that_disagree_never_shorten_a_window():
    """Eight minutes ahead, eight minutes behind, a step by the time server: only waiting counts."""
    for jump in (-8 * MINUTE, 8 * MINUTE, DAY):
        story = Story(VERIFIABLE).sent("lost").rebooted(wall_ms=jump).later(SETTLE - 1).verified("did_not_happen")
        assert story.state.verification.absent_through == 0


def test_a_laptop_that_slept_forgets_no_key_too_late():
    story = Story(changed(KEYED, retry=PATIENT)).sent("ambiguous").waits(0, "retry").later(DAY - 2 * MINUTE)
    assert story.says() == "unknown: nothing can prove it"


def test_planned_only_is_never_ambiguous_and_started_always_is():
    assert Story().planned().rebooted().says() == "send: first attempt"
    assert Story().starts().rebooted().ends("lost").says() == "unknown: nothing can prove it"


def test_an_approval_of_three_days_ago_does_not_send_on_stale_preconditions():
    story = Story(changed(PLAIN, observes=True)).planned().parked().later(3 * DAY).approved()
    assert story.says(gate="wanted") == "observe: preconditions before every attempt"
    story.reobserved("changed")
    assert story.says(gate="wanted", reading="changed") == "wait for person: a person is asked"


def test_one_approval_covers_every_attempt_of_its_operation():
    story = Story(KEYED).planned().parked().approved().starts("a1").ends("ambiguous").waits(0, "retry")
    assert story.says(gate="wanted") == "send: the same key is still remembered"


def test_redacted_arguments_are_never_sent_from_the_record():
    story = Story(KEYED, executable=False).sent("lost").waits(0, "retry").rebooted()
    assert story.says() == "wait for code: its arguments are not stored"
    assert story.says(at_hand=True) == "send: the same key is still remembered"


def test_a_deploy_that_drops_a_clause_does_not_reinterpret_old_attempts():
    before = changed(VERIFIABLE, settle_ms=90 * SECOND)
    story = Story(stricter(before, changed(before, settle_ms=0))).sent("ambiguous").later(89 * SECOND)
    assert story.verified("did_not_happen").state.verification.absent_through == 0
    without = Story(stricter(changed(KEYED), PLAIN)).sent("ambiguous")
    assert without.says() == "unknown: nothing can prove it"


def test_a_person_s_denial_is_a_word_and_late_evidence_is_kept_beside_it():
    story = Story().sent("ambiguous").settled("unknown").person("did_not_happen")
    assert story.state.settlement.basis is not None
    assert story.state.settlement.basis.by == "person"
    story.late("returned").took(r.Contradicted(step=STEP, evidence="attempt 1 reported late: returned"))
    assert (story.phase, story.state.links.contradicted) == ("failed", ("attempt 1 reported late: returned",))
    assert story.says() == "done: the outcome is final"


def test_what_is_parked_is_looked_at_again():
    story = Story(VERIFIABLE).sent("ambiguous").settled("unknown").waits(15 * MINUTE, "verify").later(15 * MINUTE)
    assert story.says() == "verify: slow schedule"


def test_reading_back_has_its_own_reserve_while_the_breaker_is_open():
    story = Story(VERIFIABLE).sent("ambiguous")
    assert story.says(breaker_ms=MINUTE) == "verify: read back at once: presence can be believed"


def test_a_cancelled_run_settles_what_is_in_flight_before_anything_else():
    story = Story(VERIFIABLE).starts()
    assert story.says(blocked="cancel", live=frozenset({1})) == "wait for call: a call is still open"
    assert story.ends("ambiguous").says(blocked="cancel") == "verify: read back at once: presence can be believed"


def test_an_operation_that_kills_its_worker_is_quarantined():
    story = Story(changed(KEYED, retry=PATIENT))
    for _ in range(5):
        story.sent("lost").rebooted()
    assert story.waits(0, "retry").says() == "park: quarantined"
