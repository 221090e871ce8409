"""Journals that were restored: what they may have forgotten is neither sent again nor called unsent on a guess."""

import itertools
from collections.abc import Callable

import pytest

from beforehand.model.contract import Contract, Key
from beforehand.model.decision import moves as m
from beforehand.model.outcome import FINAL
from beforehand.model.transitions import IllegalTransition
from tests.unit.model.stories import HOUR, KEYED, NATURAL, PLAIN, SETTLE, VERIFIABLE, Story, changed

CHECKS = changed(VERIFIABLE, check_first=True)


def test_after_a_restore_an_absence_must_be_believable_before_the_first_attempt():
    story = Story(VERIFIABLE).planned().verified("did_not_happen")
    assert story.says(began_doubtful=True).startswith("wait for verify")
    assert story.later(SETTLE).verified("did_not_happen").says(began_doubtful=True) == "send: first attempt"


def test_after_a_restore_a_reading_that_proves_nothing_is_no_absence():
    story = Story(VERIFIABLE).planned().verified("did_not_happen").later(SETTLE).verified("cannot_tell")
    assert story.says(began_doubtful=True).startswith("wait for verify")


@pytest.mark.parametrize("contract", [PLAIN, KEYED], ids=["plain", "a key that is forgotten one day"])
def test_after_a_restore_a_person_is_asked_where_nothing_can_be_read(contract):
    assert Story(contract).planned().says(began_doubtful=True) == "park: restored journal"


def test_after_a_restore_a_key_that_is_never_forgotten_dedupes():
    story = Story(changed(KEYED, idempotency=Key.forever())).planned()
    assert story.says(began_doubtful=True) == "send: first attempt"


def test_after_a_restore_a_business_key_may_have_passed_to_an_operation_that_is_forgotten():
    """The first attempt was refused after the backup, and another operation had the same effect since."""
    for contract in (KEYED, changed(KEYED, idempotency=Key.forever())):
        story = Story(contract, claim="seat 7")
        assert story.planned().says(began_doubtful=True) == "park: restored journal"
        story.sent("lost")
        assert story.says().startswith("wait for retry")
        assert story.says(began_doubtful=True) == "park: restored journal"
        assert story.parked(forgotten=True).person("same_key").says(began_doubtful=True).startswith("send")


def test_after_a_restore_check_first_still_counts_for_such_a_key():
    story = Story(changed(CHECKS, idempotency=Key.forever())).planned()
    assert story.says(began_doubtful=True) == "verify: read back at once: presence can be believed"
    assert story.verified("did_not_happen").says(began_doubtful=True) == "send: first attempt"


def test_after_a_restore_reads_are_just_read():
    assert Story(changed(PLAIN, effect="read")).planned().says(began_doubtful=True) == "send: first attempt"


def test_after_a_restore_a_person_may_order_the_attempt():
    assert Story().planned().parked().person("retry").says(began_doubtful=True) == "send: first attempt"


@pytest.mark.parametrize("stop", ["cancel", "deadline", "aborting", "message"])
@pytest.mark.parametrize("contract", [PLAIN, changed(KEYED, idempotency=Key.forever())], ids=["plain", "for ever"])
def test_after_a_restore_what_is_called_off_is_not_called_unsent(contract, stop):
    story = Story(contract).planned()
    assert story.says(began_doubtful=True, blocked=stop) == "park: restored journal"
    story.parked(forgotten=True)
    assert story.state.phase == "unknown"
    assert story.says(began_doubtful=True, blocked=stop).startswith("wait for person")
    assert story.person("happened").state.phase == "succeeded"


def test_before_anybody_has_looked_at_a_copy_nothing_is_called_unsent():
    story = Story(PLAIN).planned()
    assert story.says(distrusted="it is old", blocked="cancel") == "wait for trust: the journal is not trusted"
    assert (
        story.sent("not_sent").says(distrusted="it is old", blocked="message")
        == "wait for trust: the journal is not trusted"
    )


def test_after_a_restore_silence_about_an_approval_does_not_say_that_nothing_was_sent():
    story = Story(PLAIN).planned().asked(until=1, on_expiry="refuse")
    assert story.later(HOUR).says(began_doubtful=True, asks="a1") == "park: restored journal"
    assert story.says(asks="a1") == "failed(expired): no answer came in time"


def test_after_a_restore_a_reading_says_whether_what_is_called_off_was_sent():
    story = Story(VERIFIABLE).planned().later(SETTLE)
    assert story.says(began_doubtful=True, blocked="cancel").startswith("verify")
    story.verified("did_not_happen")
    assert story.says(began_doubtful=True, blocked="cancel") == "cancelled: called off before it was sent"
    found = Story(VERIFIABLE).planned().verified("happened")
    assert found.says(began_doubtful=True, blocked="cancel") == "succeeded: found by verification"


def test_after_a_restore_what_a_person_was_asked_about_is_read_back_meanwhile():
    story = Story(VERIFIABLE).planned().parked(forgotten=True)
    assert story.says(began_doubtful=True).startswith("wait for verify")
    story.later(SETTLE).verified("did_not_happen")
    assert story.says(began_doubtful=True) == "failed: proven that nothing landed"


@pytest.mark.parametrize("word", ["retry", "same_key"])
def test_after_a_restore_a_refusal_of_what_a_person_ordered_does_not_say_what_is_forgotten(word):
    story = Story(changed(KEYED, idempotency=Key.forever())).planned().parked(forgotten=True).person(word)
    assert story.says(began_doubtful=True) == "send: first attempt"
    assert story.sent("rejected").says(began_doubtful=True) == "park: restored journal"


def test_after_a_restore_changed_preconditions_may_be_changed_by_what_is_forgotten():
    contract = changed(KEYED, idempotency=Key.forever(), observes=True)
    assert Story(contract).planned().says(reading="changed").startswith("failed(stale)")
    assert Story(contract).planned().says(reading="changed", began_doubtful=True) == "park: restored journal"


@pytest.mark.parametrize("contract", [PLAIN, KEYED], ids=["no key", "a key of unknown age"])
def test_after_a_restore_an_order_to_send_under_the_same_key_holds_only_where_that_key_is_known_for_ever(contract):
    story = Story(contract).planned().parked(forgotten=True).person("same_key")
    assert story.says(began_doubtful=True) == "park: restored journal"
    assert story.says(began_doubtful=True, blocked="cancel") == "park: restored journal"


def test_after_a_restore_a_key_that_runs_twice_while_in_progress_dedupes_nothing():
    story = Story(changed(KEYED, idempotency=Key.forever(in_progress="runs_twice"))).planned()
    assert story.says(began_doubtful=True) == "park: restored journal"


def test_after_a_restore_an_attempt_that_was_not_sent_does_not_vouch_for_what_is_forgotten():
    story = Story(VERIFIABLE).sent("not_sent").waits(0, "retry")
    assert story.says(began_doubtful=True) == "verify: read back at once: presence can be believed"
    story.later(SETTLE).verified("did_not_happen").waits(0, "retry")
    assert story.says(began_doubtful=True) == "send: nothing landed: attempt again"


def test_what_may_be_forgotten_stays_so_where_the_journal_is_trusted_later():
    story = Story(PLAIN).planned().parked(forgotten=True).person("retry")
    assert story.says(blocked="cancel") == "park: restored journal"


def test_after_a_restore_what_was_answered_or_read_counts_as_ever():
    assert Story(PLAIN).sent("ambiguous").says(began_doubtful=True) == "unknown: nothing can prove it"
    assert Story(PLAIN).sent("ambiguous").says(began_doubtful=True, blocked="cancel") == "unknown: nothing can prove it"
    absent = Story(VERIFIABLE).sent("ambiguous").parked().later(SETTLE).verified("did_not_happen")
    assert absent.says(began_doubtful=True) == "failed: proven that nothing landed"


def test_after_a_restore_a_late_report_does_not_vouch_for_what_is_forgotten():
    story = Story(changed(KEYED, idempotency=Key.forever())).sent("lost").sent("not_sent").parked()
    story.late("not_sent")
    assert story.says() == "failed: proven that nothing landed"
    assert story.says(began_doubtful=True) == "wait for person: a person is asked"


EVENTS: dict[str, Callable[[Story], Story]] = {
    "lost": lambda story: story.sent("lost"),
    "not sent": lambda story: story.sent("not_sent"),
    "ambiguous": lambda story: story.sent("ambiguous"),
    "parked": Story.parked,
    "a late report": lambda story: story.late("not_sent", story.number),
    "an hour": lambda story: story.later(HOUR),
    "an order": lambda story: story.person("retry"),
}


@pytest.mark.parametrize("contract", [KEYED, changed(KEYED, idempotency=Key.forever()), PLAIN, NATURAL, VERIFIABLE])
@pytest.mark.parametrize("blocked", ["", "cancel"])
def test_after_a_restore_nothing_but_a_reading_or_an_answer_says_that_it_did_not_happen(contract: Contract, blocked):
    """Every story of up to four events without a reading: no outcome is drawn from the attempts on record alone."""
    told = 0
    for events in itertools.chain(*(itertools.product(EVENTS, repeat=many) for many in range(5))):
        story = Story(contract).planned()
        try:
            for event in events:
                EVENTS[event](story)
        except (IllegalTransition, IndexError):
            continue
        move = story.decide(began_doubtful=True, blocked=blocked) if story.state.phase not in FINAL else None
        assert not (isinstance(move, m.Settle) and move.status in {"failed", "cancelled"}), (events, move)
        told += 1
    assert told > 300


def test_after_a_restore_a_person_is_told_that_the_world_could_not_be_read():
    story = Story(VERIFIABLE).planned().later(HOUR).verified("cannot_tell").later(HOUR)
    assert story.decide(began_doubtful=True) == m.Park(
        "restored journal", why="the world could not be read", forgotten=True
    )


def test_whether_something_may_have_been_sent():
    assert not Story(PLAIN).planned().state.may_have_been_sent
    assert Story(PLAIN).sent("not_sent").state.may_have_been_sent
    assert Story(PLAIN).planned().parked(forgotten=True).state.may_have_been_sent


def test_what_may_be_forgotten_cannot_be_settled_as_called_off():
    story = Story(PLAIN).planned().parked(forgotten=True).person("retry")
    with pytest.raises(IllegalTransition):
        story.settled("cancelled")


def test_what_may_be_forgotten_stays_so_when_a_person_is_asked_about_something_else():
    story = Story(PLAIN).planned().parked(forgotten=True).person("retry").parked("its tool is gone")
    assert story.state.phase == "unknown"
    assert story.state.may_have_been_sent
