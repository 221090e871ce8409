"""What pauses, gates, holds, outcomes and persons' words change in an operation."""

from __future__ import annotations

from typing import get_args

import pytest

from beforehand.model import records as r
from beforehand.model.operation import OTHERWISE, OperationState
from beforehand.model.outcome import Basis, Phase
from beforehand.model.transitions import IllegalTransition, apply
from tests.unit.model.stories import HOUR, REACHED, STEP, VERIFIABLE, Story

# --- waiting, gates, holds ------------------------------------------------------------------------------------


def test_a_pause_is_kept_as_it_was_drawn():
    story = Story().planned().waits(7, "retry")
    wait = story.state.wait
    assert wait is not None
    assert (wait.boot, wait.up, wait.ms, wait.until, wait.why, wait.rule) == (
        story.boot, story.up, 7, story.wall + 7, "retry", "drawn",
    )  # fmt: skip
    assert (story.phase, story.state.waits_for) == ("ready", "retry")


@pytest.mark.parametrize("phase", ["ready", "gated", "held", "verifying", "awaiting", "unknown"])
def test_a_pause_moves_no_other_phase(phase):
    assert REACHED[phase]().waits(7, "verify").phase == phase


def test_a_gate_opens_by_an_approval():
    story = Story().planned().parked("a gate")
    assert (story.phase, story.state.approval.person_asked, story.state.reason, story.state.rule) == (
        "gated",
        True,
        "a gate",
        "parked",
    )
    assert (story.state.waits_for, story.state.wait) == ("a person", None)
    story.approved()
    state = story.state
    assert (
        story.phase,
        state.approval.person_asked,
        state.approval.approved_digest,
        state.reason,
        state.waits_for,
    ) == (
        "ready",
        False,
        "a1",
        "",
        "",
    )


@pytest.mark.parametrize(
    ("reading", "approved", "gated"),
    [("changed", True, True), ("unreadable", True, False), ("same", True, False), ("changed", False, False)],
)
def test_only_a_change_voids_an_approval(reading, approved, gated):
    story = Story().planned().parked()
    story = story.approved() if approved else story.person("retry")
    story.reobserved(reading)
    assert (story.phase == "gated") == gated
    assert (story.state.approval.approved_digest == "") == (gated or not approved)
    if gated:
        assert (story.state.reason, story.state.waits_for) == (
            "its preconditions changed after it was approved",
            "a person",
        )
    assert (story.state.approval.asked_digest == OTHERWISE) == gated, (
        "a word about what was asked before would end or begin it"
    )


def test_a_hold_waits_for_its_commit():
    story = Story().planned().held()
    assert (story.phase, story.state.waits_for, story.state.released) == ("held", "the commit of trip", False)
    story.released()
    assert (story.phase, story.state.waits_for, story.state.released) == ("ready", "", True)


def test_a_hold_may_renew_the_intent_and_what_was_seen_with_it():
    renewed = r.Intent("charge", r.Raw(b"{}"), "d", "c", generation=2, observed=r.Raw(b"5"))
    story = Story(observed=r.Raw(b"1")).planned().held(renewed)
    assert (story.state.intent.generation, bytes(story.state.observed)) == (2, b"5")


def test_a_hold_that_saw_nothing_keeps_what_was_seen_before():
    story = Story().planned().reobserved("same").parked().approved().reobserved("changed", b"7")
    assert bytes(story.approved().held().state.observed) == b"7"


def test_a_plan_says_when_it_was_made():
    story = Story().later(HOUR).planned()
    assert (story.state.planned_boot, story.state.planned_up) == (story.boot, story.up)


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("ambiguous", "unknown"),
        ("lost", "unknown"),
        ("returned", "unknown"),
        ("rejected", "gated"),
        ("not_sent", "gated"),
    ],
)
def test_a_parked_operation_is_unknown_if_anything_may_have_landed(kind, phase):
    assert Story().sent(kind).parked().phase == phase


def test_an_open_attempt_that_is_parked_is_unknown():
    assert Story().starts().parked().phase == "unknown"


# --- outcomes -------------------------------------------------------------------------------------------------


def test_an_outcome_keeps_everything_that_was_said():
    story = Story().starts().later(5)
    story.settled(
        "succeeded", rule="returned", reason="r", code="c", result=r.Raw(b"1"), lost=True, unverified=True,
        missing=("x",), number=1, end=r.End("returned"),
    )  # fmt: skip
    state = story.state
    assert (state.rule, state.reason, state.settlement.code, bytes(state.settlement.result)) == (
        "returned",
        "r",
        "c",
        b"1",
    )
    assert (state.settlement.lost, state.settlement.unverified, state.settlement.missing, state.settlement.at) == (
        True,
        True,
        ("x",),
        story.wall,
    )
    assert (state.settlement.basis, state.approval.person_asked, state.waits_for, state.wait) == (
        Basis("rule"),
        False,
        "",
        None,
    )
    assert state.attempts[0].end == r.End("returned")
    assert (state.attempts[0].over_boot, state.attempts[0].over_up) == (story.boot, story.up)


def test_what_is_missing_stays_missing_in_the_outcome():
    story = Story(VERIFIABLE).sent("ambiguous").verified("happened", missing=("row 2",)).settled("succeeded")
    assert story.state.settlement.missing == ("row 2",)


def test_an_unknown_outcome_asks_a_person():
    story = Story().sent("ambiguous").waits(3, "verify").settled("unknown")
    assert (story.state.approval.person_asked, story.state.waits_for, story.state.wait) == (True, "a person", None)
    assert story.settled("succeeded").state.approval.person_asked


def test_the_question_of_an_unknown_outcome_says_since_when_and_never_closes_by_itself():
    story = Story().sent("ambiguous").later(5)
    until = story.wall + HOUR
    state = story.settled("unknown", until=until).state
    assert (state.approval.asked_at, state.approval.answer_by, state.approval.on_expiry) == (story.wall, until, "hold")
    assert not state.approval.expired(until)


def test_an_outcome_waits_for_nothing():
    state = Story().planned().waits(9, "retry").settled("cancelled").state
    assert (state.wait, state.waits_for) == (None, "")


@pytest.mark.parametrize("kind", ["ambiguous", "rejected", "returned", "lost"])
def test_only_what_was_never_sent_can_be_cancelled(kind):
    with pytest.raises(IllegalTransition):
        Story().sent("not_sent").sent(kind).settled("cancelled")
    assert Story().sent("not_sent").settled("cancelled").phase == "cancelled"


def test_an_absence_is_no_proof_that_it_was_never_sent():
    with pytest.raises(IllegalTransition):
        Story(VERIFIABLE).sent("ambiguous").later(HOUR).verified("did_not_happen").settled("cancelled")


def test_what_a_restored_journal_may_have_forgotten_is_not_cancelled_until_it_was_looked_for():
    def ordered() -> Story:
        return Story(VERIFIABLE).planned().parked(forgotten=True).person("retry")

    with pytest.raises(IllegalTransition):
        ordered().settled("cancelled")
    assert ordered().later(HOUR).verified("did_not_happen").settled("cancelled").phase == "cancelled"


def test_only_what_may_have_landed_is_unknown():
    for story in (Story().planned(), Story().sent("rejected"), Story().sent("not_sent").parked()):
        with pytest.raises(IllegalTransition):
            story.settled("unknown")
    assert Story().sent("returned").settled("unknown").phase == "unknown"


@pytest.mark.parametrize("status", ["unknown", "cancelled"])
def test_unknown_leads_to_succeeded_or_failed_only(status):
    with pytest.raises(IllegalTransition):
        Story().sent("lost").settled("unknown").late("not_sent").settled(status)


def test_a_person_s_words_are_kept_with_the_outcome():
    story = Story().sent("ambiguous").settled("unknown").waits(9, "verify")
    story.took(
        r.Resolved(
            step=STEP, word="happened", by="ann", attempts=1, evidence="saw it", result=r.Raw(b"8"), **story.stamp()
        )
    )
    state = story.state
    assert (state.settlement.basis, bytes(state.settlement.result)) == (Basis("person", "ann", "saw it"), b"8")
    assert (state.reason, state.rule, state.settlement.at) == ("", "a person settled it", story.wall)
    assert (state.wait, state.waits_for) == (None, "")
    denied = Story().sent("ambiguous").settled("unknown").person("did_not_happen").state
    assert (denied.phase, denied.reason) == ("failed", "ann says that it did not happen")


def test_an_order_clears_what_was_known_about_the_outcome():
    story = Story().sent("ambiguous").settled("unknown", code="c", reason="why").waits(9, "verify").person("retry")
    state = story.state
    assert (state.phase, state.approval.extra_attempt, state.approval.person_asked) == ("ready", "retry", True)
    assert (state.settlement.basis, state.settlement.code, state.reason, state.settlement.at) == (None, "", "", 0)
    assert (state.wait, state.waits_for) == (None, "")
    assert not story.starts().state.approval.extra_attempt


def test_contradictions_are_collected_beside_the_outcome():
    story = Story().sent("returned").settled("succeeded")
    for evidence in ("one", "two"):
        story.took(r.Contradicted(step=STEP, evidence=evidence))
    assert (story.phase, story.state.links.contradicted) == ("succeeded", ("one", "two"))


def test_a_reuse_is_cancelled_and_points_at_its_source():
    for before in (None, Story().planned().waits(3, "claim").operation):
        intent = Story().intent
        record = r.OutcomeReused(step=STEP, source="x/y", why="claim", result=r.Raw(b"4"), intent=intent, at=11)
        after = apply(before, record)
        assert (after.phase, after.links.reused, bytes(after.settlement.result), after.reason) == (
            "cancelled",
            "x/y",
            b"4",
            "claim",
        )
        assert (after.settlement.at, after.settlement.basis, after.step) == (11, Basis("rule", "reused", "x/y"), STEP)
        assert (after.wait, after.waits_for, after.contract) == (None, "", "contract")


def test_a_reuse_needs_an_intent_and_no_attempt():
    with pytest.raises(IllegalTransition):
        apply(None, r.OutcomeReused(step=STEP, source="x/y", why="claim"))
    with pytest.raises(IllegalTransition):
        Story().sent("not_sent").took(r.OutcomeReused(step=STEP, source="x/y", why="claim"))


def test_amends_point_back():
    story = Story().sent("returned").settled("succeeded").took(r.CompensationLinked(step=STEP, by="desk/refund#1"))
    assert story.state.links.compensated_by == "desk/refund#1"


# --- what the value says of itself --------------------------------------------------------------------------


@pytest.mark.parametrize("phase", get_args(Phase))
def test_the_public_state_has_five_values(phase):
    state = REACHED[phase]().state
    final = phase in {"succeeded", "failed", "cancelled"}
    assert state.status == (phase if final or phase == "unknown" else "pending")
    assert state.final == final
    assert state.settled == (final or phase == "unknown")


def test_apply_changes_nothing_in_place():
    before = Story().planned().state
    copy = OperationState(**{name: getattr(before, name) for name in before.__struct_fields__})
    apply(before, r.AttemptStarted(step=STEP, number=1, token=1, send_by=1))
    assert before == copy


def test_deaths_are_counted():
    assert Story().sent("lost").sent("ambiguous").sent("lost").starts().state.deaths == 2


# --- small print ------------------------------------------------------------------------------------------


def test_a_refused_attempt_names_the_phase_it_met():
    with pytest.raises(IllegalTransition, match="an operation that is planned"):
        Story().planned().took(r.AttemptStarted(step=STEP, number=3, token=1, send_by=1))


def test_preconditions_that_an_attempt_does_not_name_stay_those_of_the_intent():
    story = Story(observed=r.Raw(b"1")).sent("not_sent").starts()
    assert bytes(story.state.observed) == b"1"


def test_without_a_boot_a_record_belongs_to_none():
    record = r.AttemptStarted(step=STEP, number=1, token=1, send_by=1, intent=Story().intent)
    assert apply(None, record).attempts[0].boot == ""


def test_the_first_reading_after_an_attempt_keeps_its_boot():
    story = Story(VERIFIABLE).sent("ambiguous").verified("cannot_tell").rebooted().verified("cannot_tell")
    assert story.state.verification.checked_boot == "monday"


def test_a_reading_is_verifying_although_an_earlier_attempt_is_in_doubt():
    story = Story(VERIFIABLE).sent("ambiguous").sent("not_sent")
    assert story.phase == "ready"
    assert story.verified("cannot_tell").phase == "verifying"


def test_a_deferral_ends_with_the_news_about_its_own_attempt():
    story = Story().sent("ambiguous").starts().deferred(HOUR)
    assert story.late("rejected", number=1).phase == "awaiting"
    assert story.late("not_sent", number=2).phase == "ready"
    assert story.state.waits_for == ""


def test_a_deferral_keeps_what_was_said():
    story = Story().starts()
    story.took(r.OperationDeferred(step=STEP, number=1, until=story.wall, evidence="job 7", **story.stamp()))
    end = story.state.attempts[0].end
    assert end is not None
    assert end.why == "accepted, answer later: job 7"


def test_unknown_is_not_settled_as_unknown_again():
    with pytest.raises(IllegalTransition):
        Story().sent("ambiguous").settled("unknown").settled("unknown")


def test_a_person_s_word_settles_when_it_is_given():
    story = Story().sent("ambiguous").settled("unknown").later(HOUR).person("happened")
    assert story.state.settlement.at == story.wall


def test_parking_ends_every_pause_and_order():
    story = Story().planned().parked().person("retry").waits(9, "retry").parked()
    assert (story.state.wait, story.state.approval.extra_attempt) == (None, "")


def test_a_late_report_is_marked_only_where_it_was_late():
    assert Story().sent("ambiguous", over=False).ends("lost").state.attempts[0].late is False
