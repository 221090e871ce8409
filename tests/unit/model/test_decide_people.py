"""A person's word: what it allows, and that nothing else sends once a person was asked."""

from __future__ import annotations

import pytest

from beforehand.model.contract import Key
from beforehand.model.decision import moves as m
from beforehand.model.decision.situation import OtherEffect
from beforehand.model.outcome import EXPIRED, Basis
from beforehand.policies import Retry
from tests.unit.model.decision_rows import KEYED_READ_BACK, NATURAL_READ_BACK
from tests.unit.model.stories import DAY, HOUR, KEYED, NATURAL, PLAIN, SETTLE, VERIFIABLE, Story, changed

PATIENT = Retry(attempts=50)
A_PERSON_IS_ASKED = "wait for person: a person is asked"


@pytest.mark.parametrize("word", ["happened", "did_not_happen"])
def test_a_person_settles_what_is_unknown(word):
    story = Story().sent("ambiguous").settled("unknown").person(word)
    assert story.phase == ("succeeded" if word == "happened" else "failed")
    assert story.state.settlement.basis is not None
    assert (story.state.settlement.basis.by, story.state.settlement.basis.name, story.state.settlement.basis.note) == (
        "person",
        "ann",
        "looked",
    )


def test_an_order_gives_exactly_one_more_attempt():
    story = Story(changed(KEYED, retry=PATIENT)).sent("ambiguous").settled("unknown").person("retry")
    assert story.says() == "send: a person ordered one more attempt"
    assert story.sent("ambiguous").says() == "unknown: nothing can prove it"


def test_what_is_ordered_under_the_same_key_is_sent_only_while_the_key_is_remembered():
    story = Story(changed(KEYED, retry=PATIENT)).sent("ambiguous").settled("unknown").person("same_key")
    assert story.says() == "send: a person ordered one more attempt"
    story.later(10 * DAY)
    assert story.says() == "unknown: nothing can prove it"
    asked = story.settled("unknown")
    assert not asked.state.approval.extra_attempt
    assert asked.person("retry").says() == "send: a person ordered one more attempt", "who says it did not happen"


def test_what_is_ordered_under_a_forgotten_key_is_read_back_where_that_can_prove_it():
    story = Story(changed(KEYED_READ_BACK, retry=PATIENT)).sent("ambiguous").settled("unknown").person("same_key")
    assert story.later(10 * DAY).says().startswith("verify: ")


def test_what_is_ordered_under_the_same_key_is_sent_although_the_first_request_may_still_run():
    key = Key(ttl=None, in_progress="runs_twice")
    story = Story(changed(KEYED, idempotency=key, settle_ms=SETTLE)).sent("ambiguous")
    assert story.says().startswith("wait for retry: the system runs a key twice")
    assert story.settled("unknown").person("same_key").says() == "send: a person ordered one more attempt"


def test_a_key_that_was_forgotten_is_named_where_the_order_cannot_be_followed():
    story = Story(KEYED).sent("ambiguous").settled("unknown").person("same_key").later(2 * DAY)
    move = story.decide()
    assert isinstance(move, m.Settle)
    assert (move.status, move.reason) == ("unknown", "its key may be forgotten by now")


def test_edited_arguments_are_asked_about_even_after_an_order_to_send_once_more():
    edited = Story().planned().asked().edited(b'{"cents":7}')
    assert edited.says(asks="a2") == "request approval: its arguments were edited"
    ordered = edited.parked("another run holds its business key").person("retry")
    assert ordered.state.approval.extra_attempt
    assert ordered.says(asks="a2") == "request approval: its arguments were edited"


def test_a_question_that_nobody_answered_goes_on_to_others():
    story = Story().planned().asked(until=1, on_expiry="escalate").later(HOUR)
    assert story.decide(asks="a1") == m.RequestApproval("no answer came in time, so others are asked", escalated=True)


@pytest.mark.parametrize(
    ("story", "asks"),
    [
        (Story().planned().asked(), True),
        (Story().planned().parked(), False),
        (Story().planned(), False),
        (Story().sent("ambiguous").asked(), False),
    ],
)
def test_an_approval_is_wanted_while_somebody_is_asked_for_one(story, asks):
    assert story.state.wants_approval is asks


@pytest.mark.parametrize(
    "contract", [KEYED, NATURAL, PLAIN, VERIFIABLE], ids=["keyed", "natural", "plain", "verifiable"]
)
def test_an_ordered_attempt_that_was_not_sent_is_not_sent_again(contract):
    story = Story(contract).planned().parked().person("retry").sent("not_sent")
    assert story.says() == "failed: sending ended, nothing landed"


def test_an_ordered_attempt_that_is_proven_absent_is_not_sent_again():
    story = Story(changed(VERIFIABLE, retry=PATIENT)).sent("ambiguous").settled("unknown").person("retry")
    story.sent("ambiguous").later(SETTLE).verified("did_not_happen")
    assert story.says() == "failed: sending ended, nothing landed"


@pytest.mark.parametrize(
    "contract", [KEYED_READ_BACK, NATURAL_READ_BACK, VERIFIABLE], ids=["keyed", "natural", "verifiable"]
)
@pytest.mark.parametrize("verdict", ["did_not_happen", "cannot_tell", "conflict"])
def test_neither_time_nor_evidence_sends_once_a_person_was_asked(contract, verdict):
    story = Story(changed(contract, retry=PATIENT)).sent("ambiguous").settled("unknown").later(DAY).verified(verdict)
    assert story.says().split(":")[0] in {"wait for verify", "failed"}


def test_an_order_survives_a_restart():
    story = Story().sent("lost").settled("unknown").person("retry").rebooted()
    assert story.says() == "send: a person ordered one more attempt"


def test_an_order_that_a_person_takes_back_by_cancelling_sends_nothing():
    story = Story(VERIFIABLE).sent("ambiguous").settled("unknown").person("retry")
    assert story.says(blocked="cancel") == "verify: read back at once: presence can be believed"


def test_an_order_ends_with_the_next_time_a_person_is_asked():
    story = Story().sent("ambiguous").settled("unknown").person("retry").settled("unknown")
    assert not story.state.approval.extra_attempt
    parked = Story().sent("ambiguous").parked().person("retry").parked()
    assert not parked.state.approval.extra_attempt


def test_an_order_forgets_the_conflict_that_a_person_looked_at():
    story = Story(VERIFIABLE).sent("ambiguous").verified("conflict").parked().person("retry")
    assert story.says() == "send: a person ordered one more attempt"


def test_a_conflict_after_an_order_is_brought_back_to_the_person():
    story = Story(VERIFIABLE).sent("ambiguous").verified("conflict").parked().person("retry").sent("ambiguous")
    assert story.verified("conflict").says() == "park: conflict"
    assert story.parked().says() == "wait for verify: slow schedule"


def test_a_claim_that_is_free_again_does_not_send_by_itself():
    story = Story().planned()
    waited = OtherEffect("claim", "pending", "x/y", waited_out=True)
    assert story.says(other=waited) == "park: claim held too long"
    assert story.parked().later(HOUR).says() == "wait for person: a person is asked"


def test_an_approval_is_not_a_doubt():
    story = Story(changed(KEYED, retry=PATIENT)).planned().parked().approved().starts("a1").ends("ambiguous")
    assert story.waits(0, "retry").says() == "send: the same key is still remembered"


# --- a question waits for its answer --------------------------------------------------------------------------


def test_a_question_is_over_at_the_moment_it_was_limited_to():
    story = Story().planned()
    story.asked(until=story.wall + HOUR).later(HOUR - 1)
    assert story.says() == A_PERSON_IS_ASKED
    assert story.later(1).decide() == m.Settle(
        "no answer came in time", "failed", Basis("rule"), "no yes or no came in time", EXPIRED
    )


def test_any_limit_is_a_limit_and_none_is_for_ever():
    assert Story().planned().asked(until=1).says() == "failed(expired): no answer came in time"
    assert Story().planned().asked(until=0).later(DAY).says() == A_PERSON_IS_ASKED


def test_a_question_stands_while_nobody_can_tell_what_would_be_asked_now():
    assert Story().planned().asked("a1").says(asks="") == A_PERSON_IS_ASKED


def test_a_doubt_is_not_asked_anew_because_there_is_something_to_approve():
    assert Story().planned().parked("tool gone").says(asks="a1") == A_PERSON_IS_ASKED
