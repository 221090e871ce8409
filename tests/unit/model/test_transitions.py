"""The table of transitions: every record in every phase, and what each record changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from holdfast.model import records as r
from holdfast.model.operation import OperationState
from holdfast.model.outcome import Basis, Phase
from holdfast.model.transitions import ENDED, MOVES, NEW, SAME, IllegalTransition, apply
from tests.unit.model.stories import HOUR, MINUTE, STEP, VERIFIABLE, Story

WAITING = ("planned", "ready", "gated", "held", "verifying", "awaiting")

LEGAL: dict[type, set[str]] = {
    r.OperationPlanned: {"new"},
    r.AttemptStarted: {"new", "planned", "ready", "verifying"},
    r.AttemptEnded: {"running", "verifying", "ready", "awaiting", "unknown", "gated", "held"},
    r.LateReport: {*WAITING, "running", "unknown", "succeeded", "failed", "cancelled"} - {"planned"},
    r.Verified: {*WAITING, "running", "unknown"},
    r.Reobserved: {*WAITING},
    r.WaitScheduled: {*WAITING, "unknown"},
    r.ApprovalGranted: {"gated"},
    r.OperationHeld: {"planned", "ready", "verifying"},
    r.HoldReleased: {"held"},
    r.OperationDeferred: {"running"},
    r.OperationParked: {*WAITING, "running"},
    r.OperationSettled: {*WAITING, "running", "unknown"},
    r.Resolved: {"unknown", "gated"},
    r.Contradicted: {"succeeded", "failed", "cancelled"},
    r.OutcomeReused: {"new", *WAITING} - {"awaiting"},
    r.CompensationLinked: {"succeeded", "failed", "unknown"},
}


def sent(kind: r.EndKind = "ambiguous") -> Story:
    """An attempt whose call is not known to be over."""
    return Story(VERIFIABLE).sent(kind, over=False)


# A story for each phase, reached by records alone.
REACHED: dict[str, Callable[[], Story]] = {
    "new": Story,
    "planned": lambda: Story(VERIFIABLE).planned(),
    "ready": lambda: sent("not_sent"),
    "running": lambda: Story(VERIFIABLE).starts(),
    "verifying": sent,
    "gated": lambda: sent("not_sent").parked(),
    "held": lambda: sent("not_sent").held(),
    "awaiting": lambda: Story(VERIFIABLE).starts().deferred(HOUR),
    "unknown": lambda: sent().settled("unknown"),
    "cancelled": lambda: sent("not_sent").settled("cancelled"),
    "succeeded": lambda: sent().settled("succeeded"),
    "failed": lambda: sent().settled("failed"),
}


def record_of(kind: type, story: Story) -> r.OperationRecord:
    """A record of that kind that fits the attempts of the story."""
    number = story.number if story.operation else 0
    settled = {"status": "succeeded", "basis": Basis("rule")}
    more: dict[type, dict[str, object]] = {
        r.OperationPlanned: {"intent": story.intent},
        r.AttemptStarted: {"number": number + 1, "token": 1, "send_by": 1, "intent": story.intent},
        r.AttemptEnded: {"number": number, "end": r.End("ambiguous")},
        r.LateReport: {"number": number, "end": r.End("ambiguous")},
        r.Verified: {"verdict": "cannot_tell"},
        r.Reobserved: {"reading": "same"},
        r.WaitScheduled: {"ms": 1, "until": 1, "why": "retry"},
        r.ApprovalGranted: {"approval": "a1", "by": "ann"},
        r.OperationHeld: {"transaction": "trip"},
        r.OperationDeferred: {"number": number, "until": 1},
        r.OperationParked: {"why": "nobody knows"},
        r.OperationSettled: settled,
        r.Resolved: {"word": "happened", "by": "ann"},
        r.Contradicted: {"evidence": "a webhook"},
        r.OutcomeReused: {"source": "x/y", "why": "claim", "intent": story.intent},
        r.CompensationLinked: {"by": "desk/refund#1"},
    }
    return kind(step=STEP, **more.get(kind, {}))


PHASES = (NEW, *get_args(Phase))
REFUSED_FOR_OTHER_REASONS = {
    (r.AttemptEnded, "awaiting"),  # the deferral was that attempt's end
    *((r.OutcomeReused, phase) for phase in ("ready", "gated", "held", "verifying")),  # they have attempts
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", MOVES, ids=lambda kind: kind.__name__)
def test_a_record_applies_where_the_table_says_and_nowhere_else(kind, phase):
    story = REACHED[phase]()
    assert (story.operation.phase if story.operation else NEW) == phase
    record = record_of(kind, story)
    if phase in LEGAL[kind] and (kind, phase) not in REFUSED_FOR_OTHER_REASONS:
        after = apply(story.operation, record, story.boot)
        assert after.phase in MOVES[kind][1] or (after.phase == phase and SAME in MOVES[kind][1])
    else:
        with pytest.raises(IllegalTransition) as refused:
            apply(story.operation, record, story.boot)
        assert (refused.value.phase, refused.value.record) == (phase, record)


def test_the_table_names_exactly_these_phases():
    assert {kind: set(come_from) for kind, (come_from, _) in MOVES.items()} == LEGAL


def test_a_final_state_is_never_left():
    for kind, (come_from, lead_to) in MOVES.items():
        if set(come_from) & set(ENDED):
            assert SAME in lead_to, kind


def test_the_message_of_a_refusal_names_record_phase_and_step():
    with pytest.raises(IllegalTransition, match=f"HoldReleased does not apply to an operation that is new: {STEP}"):
        apply(None, r.HoldReleased(step=STEP))


# --- attempts ---------------------------------------------------------------------------------------------


def test_planned_keeps_intent_preconditions_and_what_it_waits_for():
    intent = r.Intent("charge", r.Raw(b"{}"), "d", "c", observed=r.Raw(b"1"))
    planned = apply(None, r.OperationPlanned(step=STEP, intent=intent, waits_for="a gate"))
    assert (planned.step, planned.intent, planned.contract, planned.waits_for) == (STEP, intent, "c", "a gate")
    assert bytes(planned.observed) == b"1"


def test_a_first_attempt_carries_its_intent():
    intent = r.Intent("charge", r.Raw(b"{}"), "d", "c", observed=r.Raw(b"1"))
    record = r.AttemptStarted(step=STEP, number=1, token=4, send_by=5, intent=intent, approval="a", at=7, up=6)
    operation = apply(None, record, "b1")
    attempt = operation.attempts[0]
    assert (attempt.number, attempt.token, attempt.send_by_ms, attempt.boot, attempt.up, attempt.at) == (
        1,
        4,
        5,
        "b1",
        6,
        7,
    )
    assert (attempt.contract, attempt.end, operation.approval, operation.contract) == ("c", None, "a", "c")
    assert (bytes(operation.observed), operation.step) == (b"1", STEP)


def test_a_first_attempt_without_intent_is_refused():
    with pytest.raises(IllegalTransition):
        apply(None, r.AttemptStarted(step=STEP, number=1, token=1, send_by=1))


def test_an_attempt_of_a_planned_operation_may_renew_its_intent_until_something_was_sent():
    first = r.Intent("charge", r.Raw(b"{}"), "d", "c", generation=1)
    second = r.Intent("charge", r.Raw(b"{}"), "d", "c2", generation=2)
    planned = apply(None, r.OperationPlanned(step=STEP, intent=first))
    started = apply(planned, r.AttemptStarted(step=STEP, number=1, token=1, send_by=1, intent=second))
    assert (started.intent.generation, started.contract) == (2, "c2")
    kept = apply(planned, r.AttemptStarted(step=STEP, number=1, token=1, send_by=1))
    assert kept.intent.generation == 1
    ended = apply(started, r.AttemptEnded(step=STEP, number=1, end=r.End("not_sent")))
    again = apply(ended, r.AttemptStarted(step=STEP, number=2, token=1, send_by=1, intent=first))
    assert (again.intent.generation, again.contract) == (2, "c")


@pytest.mark.parametrize("number", [0, 2, 3])
def test_attempts_are_numbered_without_gaps(number):
    with pytest.raises(IllegalTransition):
        Story().planned().took(r.AttemptStarted(step=STEP, number=number, token=1, send_by=1))


def test_no_attempt_starts_while_another_is_open():
    story = Story(VERIFIABLE).starts().verified("conflict").parked().person("retry")
    with pytest.raises(IllegalTransition):
        story.starts()


def test_a_further_attempt_starts_with_a_clean_slate():
    story = Story(VERIFIABLE).sent("ambiguous").later(HOUR).verified("cannot_tell").waits(1, "retry")
    assert (story.state.checked_since, story.state.believable_checks, story.state.checks) == (1, 1, 1)
    story.took(
        r.AttemptStarted(step=STEP, number=2, token=1, send_by=1, observed=r.Raw(b"5"), approval="a2", **story.stamp())
    )
    state = story.state
    assert (state.checked_since, state.believable_checks, state.checks, state.wait, state.waits_for) == (
        0,
        0,
        1,
        None,
        "",
    )
    assert (bytes(state.observed), state.approval) == (b"5", "a2")


def test_a_further_attempt_keeps_preconditions_and_approval_that_it_does_not_name():
    story = Story().planned().parked().approved().starts()
    assert story.state.approval == "a1"
    assert story.state.observed == r.NOTHING


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("returned", "ready"),
        ("rejected", "ready"),
        ("not_sent", "ready"),
        ("ambiguous", "verifying"),
        ("key_in_progress", "verifying"),
        ("lost", "verifying"),
    ],
)
def test_the_end_of_an_attempt_decides_between_ready_and_verifying(kind, phase):
    assert Story().sent(kind).phase == phase
    assert Story().starts().late(kind).phase == phase


def test_an_end_says_when_its_call_was_over():
    over = Story().starts().later(3).ends("ambiguous")
    assert (over.state.attempts[0].over_boot, over.state.attempts[0].over_up) == (over.boot, over.up)
    runs = Story().sent("ambiguous", over=False)
    assert (runs.state.attempts[0].over_boot, runs.state.attempts[0].over_up) == ("", None)
    runs.later(9).ends("ambiguous")
    assert runs.state.attempts[0].over_up == runs.up


def test_an_end_is_told_once():
    with pytest.raises(IllegalTransition):
        Story().sent("ambiguous").ends("ambiguous")


@pytest.mark.parametrize("number", [0, 2])
def test_an_end_belongs_to_an_attempt(number):
    story = Story().starts()
    with pytest.raises(IllegalTransition):
        story.took(r.AttemptEnded(step=STEP, number=number, end=r.End("ambiguous")))


def test_the_end_of_an_earlier_call_does_not_end_the_open_one():
    story = Story().sent("ambiguous", over=False).starts().ends("ambiguous", number=1)
    assert story.phase == "running"


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("lost", "returned", "returned"),
        ("ambiguous", "rejected", "rejected"),
        ("lost", "not_sent", "not_sent"),
        ("returned", "ambiguous", "returned"),
        ("returned", "rejected", "returned"),
        ("rejected", "not_sent", "rejected"),
        ("not_sent", "lost", "not_sent"),
        ("not_sent", "rejected", "rejected"),
        ("lost", "ambiguous", "ambiguous"),
    ],
)
def test_what_is_proven_stays_proven(first, second, kept):
    story = Story().sent(first).late(second)
    end = story.state.attempts[0].end
    assert end is not None
    assert (end.kind, story.state.attempts[0].late) == (kept, True)


def test_an_equal_proof_that_comes_later_is_the_one_that_is_kept():
    story = Story().sent("returned", why="first").late("returned", why="second")
    end = story.state.attempts[0].end
    assert end is not None
    assert end.why == "second"
    assert not Story().sent("returned").state.attempts[0].late


def test_a_late_report_moves_no_other_phase():
    assert Story().sent("ambiguous").late("returned").phase == "verifying"
    assert Story().sent("ambiguous").settled("succeeded").late("rejected").phase == "succeeded"


# --- readings ---------------------------------------------------------------------------------------------


def test_a_reading_counts_and_ends_the_pause():
    story = Story(VERIFIABLE).sent("ambiguous").waits(5, "verify").later(5).verified("cannot_tell")
    state = story.state
    assert (state.checks, state.checked_since, state.believable_checks, state.wait) == (1, 1, 0, None)
    assert (state.checked_boot, state.checked_up) == (story.boot, story.up)
    first = story.up
    assert story.later(HOUR).verified("cannot_tell").state.checked_up == first
    assert (story.state.checks, story.state.checked_since, story.state.believable_checks) == (2, 2, 1)


def test_what_was_found_stays_found():
    story = Story(VERIFIABLE).sent("ambiguous").verified("happened", result=r.Raw(b"3"), lost=True, missing=("row 2",))
    story.verified("cannot_tell")
    assert (story.state.found, story.state.lost, story.state.missing) == (r.Raw(b"3"), True, ("row 2",))


def test_a_conflict_lasts_until_the_next_reading():
    story = Story(VERIFIABLE).sent("ambiguous").verified("conflict", evidence="theirs")
    assert story.state.conflict == "theirs"
    assert Story(VERIFIABLE).sent("ambiguous").verified("conflict").state.conflict == "conflict"
    assert story.verified("cannot_tell").state.conflict == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"verdict": "did_not_happen", "believable": True, "through": 2},
        {"verdict": "did_not_happen", "believable": False, "through": 1},
        {"verdict": "cannot_tell", "believable": True, "through": 1},
    ],
    ids=["more attempts than there are", "not believable", "no absence"],
)
def test_an_absence_covers_only_what_it_may(wrong):
    with pytest.raises(IllegalTransition):
        Story(VERIFIABLE).sent("ambiguous").took(r.Verified(step=STEP, **wrong))


def test_an_absence_that_was_believed_stays_believed():
    story = Story(VERIFIABLE).sent("ambiguous").later(HOUR).verified("did_not_happen").sent("ambiguous")
    assert story.verified("did_not_happen").state.absent_through == 1


def test_an_absence_before_the_first_attempt_is_remembered_by_what_it_was_worth():
    story = Story(VERIFIABLE).planned().verified("did_not_happen")
    assert (story.state.verified_absent_first, story.state.believed_absent_first) == (True, False)
    story.later(HOUR).verified("did_not_happen").verified("cannot_tell")
    assert (story.state.verified_absent_first, story.state.believed_absent_first) == (True, True)
    seen = Story(VERIFIABLE).planned().verified("cannot_tell")
    assert (seen.state.verified_absent_first, seen.state.believed_absent_first) == (False, False)
    believed = Story(VERIFIABLE).planned().later(HOUR).verified("cannot_tell")
    assert not believed.state.believed_absent_first
    after = Story(VERIFIABLE).sent("ambiguous").later(HOUR).verified("did_not_happen")
    assert (after.state.verified_absent_first, after.state.believed_absent_first) == (False, False)


@pytest.mark.parametrize("phase", ["running", "gated", "held", "unknown", "awaiting"])
def test_a_reading_leaves_these_phases_alone(phase):
    assert REACHED[phase]().verified("cannot_tell").phase == phase


@pytest.mark.parametrize("phase", ["planned", "ready", "verifying"])
def test_a_reading_is_verifying(phase):
    assert REACHED[phase]().verified("cannot_tell").phase == "verifying"


def test_a_deferral_is_over_once_its_absence_is_believed_or_it_is_proven_otherwise():
    absent = Story(VERIFIABLE).starts().deferred(MINUTE).later(HOUR).verified("did_not_happen")
    assert absent.phase == "verifying"
    assert Story().starts().deferred(MINUTE).late("not_sent").phase == "ready"
    assert Story().starts().deferred(MINUTE).late("ambiguous").phase == "awaiting"
    assert Story().starts().deferred(MINUTE).late("returned").state.wait is None


def test_a_deferral_waits_as_long_as_was_said():
    story = Story().starts().deferred(HOUR)
    wait, end = story.state.wait, story.state.attempts[0].end
    assert wait is not None
    assert end is not None
    assert (wait.ms, wait.until, wait.why, wait.up, wait.boot) == (
        HOUR,
        story.wall + HOUR,
        "answer",
        story.up,
        story.boot,
    )
    assert (end.kind, story.state.waits_for) == ("ambiguous", "its answer")
    past = Story().starts().deferred(-5).state.wait
    assert past is not None
    assert past.ms == 0


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
    assert (story.phase, story.state.asked, story.state.reason, story.state.rule) == ("gated", True, "a gate", "parked")
    assert (story.state.waits_for, story.state.wait) == ("a person", None)
    story.approved()
    state = story.state
    assert (story.phase, state.asked, state.approval, state.reason, state.waits_for) == ("ready", False, "a1", "", "")


@pytest.mark.parametrize(
    ("reading", "approved", "gated"),
    [("changed", True, True), ("unreadable", True, False), ("same", True, False), ("changed", False, False)],
)
def test_only_a_change_voids_an_approval(reading, approved, gated):
    story = Story().planned().parked()
    story = story.approved() if approved else story.person("retry")
    story.reobserved(reading)
    assert (story.phase == "gated") == gated
    assert (story.state.approval == "") == (gated or not approved)
    if gated:
        assert (story.state.reason, story.state.waits_for) == (
            "its preconditions changed after it was approved",
            "a person",
        )


def test_a_hold_waits_for_its_commit():
    story = Story().planned().held()
    assert (story.phase, story.state.waits_for, story.state.released) == ("held", "the commit of trip", False)
    story.released()
    assert (story.phase, story.state.waits_for, story.state.released) == ("ready", "", True)


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
    assert (state.rule, state.reason, state.code, bytes(state.result)) == ("returned", "r", "c", b"1")
    assert (state.lost, state.unverified, state.missing, state.settled_at) == (True, True, ("x",), story.wall)
    assert (state.basis, state.asked, state.waits_for, state.wait) == (Basis("rule"), False, "", None)
    assert state.attempts[0].end == r.End("returned")
    assert (state.attempts[0].over_boot, state.attempts[0].over_up) == (story.boot, story.up)


def test_what_is_missing_stays_missing_in_the_outcome():
    story = Story(VERIFIABLE).sent("ambiguous").verified("happened", missing=("row 2",)).settled("succeeded")
    assert story.state.missing == ("row 2",)


def test_an_unknown_outcome_asks_a_person():
    story = Story().sent("ambiguous").waits(3, "verify").settled("unknown")
    assert (story.state.asked, story.state.waits_for, story.state.wait) == (True, "a person", None)
    assert story.settled("succeeded").state.asked


@pytest.mark.parametrize("kind", ["ambiguous", "rejected", "returned", "lost"])
def test_only_what_was_never_sent_can_be_cancelled(kind):
    with pytest.raises(IllegalTransition):
        Story().sent("not_sent").sent(kind).settled("cancelled")
    assert Story().sent("not_sent").settled("cancelled").phase == "cancelled"


def test_an_absence_is_no_proof_that_it_was_never_sent():
    with pytest.raises(IllegalTransition):
        Story(VERIFIABLE).sent("ambiguous").later(HOUR).verified("did_not_happen").settled("cancelled")


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
    story.took(r.Resolved(step=STEP, word="happened", by="ann", evidence="saw it", result=r.Raw(b"8"), **story.stamp()))
    state = story.state
    assert (state.basis, bytes(state.result)) == (Basis("person", "ann", "saw it"), b"8")
    assert (state.reason, state.rule, state.settled_at) == ("", "a person settled it", story.wall)
    assert (state.wait, state.waits_for) == (None, "")
    denied = Story().sent("ambiguous").settled("unknown").person("did_not_happen").state
    assert (denied.phase, denied.reason) == ("failed", "ann says that it did not happen")


def test_an_order_clears_what_was_known_about_the_outcome():
    story = Story().sent("ambiguous").settled("unknown", code="c", reason="why").waits(9, "verify").person("retry")
    state = story.state
    assert (state.phase, state.one_more, state.asked) == ("ready", True, True)
    assert (state.basis, state.code, state.reason, state.settled_at) == (None, "", "", 0)
    assert (state.wait, state.waits_for) == (None, "")
    assert not story.starts().state.one_more


def test_contradictions_are_collected_beside_the_outcome():
    story = Story().sent("returned").settled("succeeded")
    for evidence in ("one", "two"):
        story.took(r.Contradicted(step=STEP, evidence=evidence))
    assert (story.phase, story.state.contradicted) == ("succeeded", ("one", "two"))


def test_a_reuse_is_cancelled_and_points_at_its_source():
    for before in (None, Story().planned().waits(3, "claim").operation):
        intent = Story().intent
        record = r.OutcomeReused(step=STEP, source="x/y", why="claim", result=r.Raw(b"4"), intent=intent, at=11)
        after = apply(before, record)
        assert (after.phase, after.reused, bytes(after.result), after.reason) == ("cancelled", "x/y", b"4", "claim")
        assert (after.settled_at, after.basis, after.step) == (11, Basis("rule", "reused", "x/y"), STEP)
        assert (after.wait, after.waits_for, after.contract) == (None, "", "contract")


def test_a_reuse_needs_an_intent_and_no_attempt():
    with pytest.raises(IllegalTransition):
        apply(None, r.OutcomeReused(step=STEP, source="x/y", why="claim"))
    with pytest.raises(IllegalTransition):
        Story().sent("not_sent").took(r.OutcomeReused(step=STEP, source="x/y", why="claim"))


def test_amends_point_back():
    story = Story().sent("returned").settled("succeeded").took(r.CompensationLinked(step=STEP, by="desk/refund#1"))
    assert story.state.compensated_by == "desk/refund#1"


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
    assert story.state.checked_boot == "monday"


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


def test_parking_ends_every_pause_and_order():
    story = Story().planned().parked().person("retry").waits(9, "retry").parked()
    assert (story.state.wait, story.state.one_more) == (None, False)


def test_a_late_report_is_marked_only_where_it_was_late():
    assert Story().sent("ambiguous", over=False).ends("lost").state.attempts[0].late is False
