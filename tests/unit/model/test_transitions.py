"""The table of transitions: every record in every phase, and what each record changes."""

from __future__ import annotations

from typing import get_args

import pytest

from beforehand.model import records as r
from beforehand.model.outcome import Basis, Phase
from beforehand.model.policy import Ruling
from beforehand.model.transitions import ENDED, NEW, SAME, TRANSITIONS, IllegalTransition, apply
from tests.unit.model.stories import HOUR, MINUTE, REACHED, STEP, VERIFIABLE, Story

WAITING = ("planned", "ready", "gated", "held", "verifying", "awaiting")

LEGAL: dict[type, set[str]] = {
    r.OperationPlanned: {"new"},
    r.Ruled: {"planned", "ready", "gated", "verifying"},
    r.AttemptStarted: {"new", "planned", "ready", "verifying"},
    r.AttemptEnded: {"running", "verifying", "ready", "awaiting", "unknown", "gated", "held"},
    r.LateReport: {*WAITING, "running", "unknown", "succeeded", "failed", "cancelled"} - {"planned"},
    r.Verified: {*WAITING, "running", "unknown"},
    r.Reobserved: {*WAITING},
    r.WaitScheduled: {*WAITING, "unknown"},
    r.ApprovalGranted: {"gated"},
    r.ApprovalRefused: {"gated"},
    r.ArgumentsEdited: {"gated"},
    r.ResultGiven: {"gated"},
    r.OperationHeld: {"planned", "ready", "verifying"},
    r.HoldReleased: {"held"},
    r.OperationDeferred: {"running"},
    r.OperationParked: {*WAITING, "running"},
    r.OperationSettled: {*WAITING, "running", "unknown"},
    r.Resolved: {"unknown", "gated"},
    r.Contradicted: {"succeeded", "failed", "cancelled", "unknown"},
    r.OutcomeReused: {"new", *WAITING} - {"awaiting"},
    r.CompensationLinked: {"succeeded", "failed", "unknown"},
}


def record_of(kind: type, story: Story) -> r.OperationRecord:
    """A record of that kind that fits the attempts of the story."""
    number = story.number if story.operation else 0
    settled = {"status": "succeeded", "basis": Basis("rule")}
    more: dict[type, dict[str, object]] = {
        r.OperationPlanned: {"intent": story.intent},
        r.Ruled: {"policy": "desk@1", "ruling": Ruling("ask", "big")},
        r.AttemptStarted: {"number": number + 1, "token": 1, "send_by": 1, "intent": story.intent},
        r.AttemptEnded: {"number": number, "end": r.End("ambiguous")},
        r.LateReport: {"number": number, "end": r.End("ambiguous")},
        r.Verified: {"verdict": "cannot_tell"},
        r.Reobserved: {"reading": "same"},
        r.WaitScheduled: {"ms": 1, "until": 1, "why": "retry"},
        r.ApprovalGranted: {"approval": "a1", "by": "ann"},
        r.ApprovalRefused: {"approval": "a1", "by": "ann"},
        r.ArgumentsEdited: {"approval": "a1", "by": "ann", "changes": r.NOTHING, "intent": story.intent},
        r.ResultGiven: {"approval": "a1", "by": "ann", "result": r.NOTHING},
        r.OperationHeld: {"transaction": "trip"},
        r.OperationDeferred: {"number": number, "until": 1},
        r.OperationParked: {"why": "nobody knows"},
        r.OperationSettled: settled,
        r.Resolved: {"word": "happened", "by": "ann", "attempts": 1},
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
@pytest.mark.parametrize("kind", TRANSITIONS, ids=lambda kind: kind.__name__)
def test_a_record_applies_where_the_table_says_and_nowhere_else(kind, phase):
    story = REACHED[phase]()
    assert (story.operation.phase if story.operation else NEW) == phase
    record = record_of(kind, story)
    if phase in LEGAL[kind] and (kind, phase) not in REFUSED_FOR_OTHER_REASONS:
        after = apply(story.operation, record, story.boot)
        assert after.phase in TRANSITIONS[kind][1] or (after.phase == phase and SAME in TRANSITIONS[kind][1])
    else:
        with pytest.raises(IllegalTransition) as refused:
            apply(story.operation, record, story.boot)
        assert (refused.value.phase, refused.value.record) == (phase, record)


def test_the_table_names_exactly_these_phases():
    assert {kind: set(come_from) for kind, (come_from, _) in TRANSITIONS.items()} == LEGAL


def test_a_final_state_is_never_left():
    for kind, (come_from, lead_to) in TRANSITIONS.items():
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
    assert (attempt.number, attempt.token, attempt.timeout_ms, attempt.boot, attempt.up, attempt.at) == (
        1,
        4,
        5,
        "b1",
        6,
        7,
    )
    assert (attempt.contract, attempt.end, operation.approval.approved_digest, operation.contract) == (
        "c",
        None,
        "a",
        "c",
    )
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
    assert (
        story.state.verification.checked_since,
        story.state.verification.believable_checks,
        story.state.verification.checks,
    ) == (1, 1, 1)
    story.took(
        r.AttemptStarted(step=STEP, number=2, token=1, send_by=1, observed=r.Raw(b"5"), approval="a2", **story.stamp())
    )
    state = story.state
    assert (
        state.verification.checked_since,
        state.verification.believable_checks,
        state.verification.checks,
        state.wait,
        state.waits_for,
    ) == (
        0,
        0,
        1,
        None,
        "",
    )
    assert (bytes(state.observed), state.approval.approved_digest) == (b"5", "a2")


def test_a_further_attempt_keeps_preconditions_and_approval_that_it_does_not_name():
    story = Story().planned().parked().approved().starts()
    assert story.state.approval.approved_digest == "a1"
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
    assert (runs.state.attempts[0].over_up, runs.state.attempts[0].given_up) == (None, runs.up)
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
    assert (
        state.verification.checks,
        state.verification.checked_since,
        state.verification.believable_checks,
        state.wait,
    ) == (1, 1, 0, None)
    assert (state.verification.checked_boot, state.verification.checked_up) == (story.boot, story.up)
    first = story.up
    assert story.later(HOUR).verified("cannot_tell").state.verification.checked_up == first
    assert (
        story.state.verification.checks,
        story.state.verification.checked_since,
        story.state.verification.believable_checks,
    ) == (2, 2, 1)


def test_what_was_found_stays_found():
    story = Story(VERIFIABLE).sent("ambiguous").verified("happened", result=r.Raw(b"3"), lost=True, missing=("row 2",))
    story.verified("cannot_tell")
    assert (story.state.verification.found, story.state.settlement.lost, story.state.settlement.missing) == (
        r.Raw(b"3"),
        True,
        ("row 2",),
    )


def test_a_conflict_lasts_until_the_next_reading():
    story = Story(VERIFIABLE).sent("ambiguous").verified("conflict", evidence="theirs")
    assert story.state.verification.conflict == "theirs"
    assert Story(VERIFIABLE).sent("ambiguous").verified("conflict").state.verification.conflict == "conflict"
    assert story.verified("cannot_tell").state.verification.conflict == ""


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
    assert story.verified("did_not_happen").state.verification.absent_through == 1


def test_an_absence_before_the_first_attempt_is_remembered_by_what_it_was_worth():
    story = Story(VERIFIABLE).planned().verified("did_not_happen")
    assert (story.state.verification.verified_absent_first, story.state.verification.believed_absent_first) == (
        True,
        False,
    )
    story.later(HOUR).verified("did_not_happen").verified("cannot_tell")
    assert (story.state.verification.verified_absent_first, story.state.verification.believed_absent_first) == (
        True,
        True,
    )
    seen = Story(VERIFIABLE).planned().verified("cannot_tell")
    assert (seen.state.verification.verified_absent_first, seen.state.verification.believed_absent_first) == (
        False,
        False,
    )
    believed = Story(VERIFIABLE).planned().later(HOUR).verified("cannot_tell")
    assert not believed.state.verification.believed_absent_first
    after = Story(VERIFIABLE).sent("ambiguous").later(HOUR).verified("did_not_happen")
    assert (after.state.verification.verified_absent_first, after.state.verification.believed_absent_first) == (
        False,
        False,
    )


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


def test_unknown_is_judged_with_the_end_that_comes_with_it():
    """An outcome that folds in a proof of not-sent cannot be unknown, although the attempt was still open before."""
    story = Story().starts()
    record = r.OperationSettled(
        step=STEP, status="unknown", basis=Basis("rule"), number=1, end=r.End("not_sent"), **story.stamp()
    )
    with pytest.raises(IllegalTransition):
        apply(story.state, record, story.boot)
