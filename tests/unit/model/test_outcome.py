"""Outcomes as errors for agent code, and an operation as a handler sees it."""

from __future__ import annotations

import pytest

from beforehand.errors import (
    Declined,
    OperationCancelled,
    OperationFailed,
    OutcomeUnknown,
    ParameterMismatch,
    PreconditionsChanged,
    Rejected,
    ResultLost,
    UsageError,
)
from beforehand.model.outcome import ASKED_BACK, DECLINED, EXPIRED, LOST, MISMATCH, Basis, Outcome, error_of
from beforehand.model.view import Operation


def outcome(status, by="rule", **more) -> Outcome:
    return Outcome(status, "desk/charge#1", "charge", basis=Basis(by), reason="why", **more)


@pytest.mark.parametrize(
    ("told", "error", "text"),
    [
        (outcome("unknown"), OutcomeUnknown, "charge (desk/charge#1): why"),
        (outcome("cancelled"), OperationCancelled, "charge (desk/charge#1) was called off: why"),
        (outcome("failed"), OperationFailed, "charge (desk/charge#1) failed: why"),
        (outcome("failed", by="returned"), Rejected, "why"),
        (outcome("failed", code=MISMATCH), ParameterMismatch, "desk/charge#1: why"),
        (outcome("failed", code="stale"), PreconditionsChanged, "charge (desk/charge#1) was not sent: why"),
        (outcome("failed", by="person", code=DECLINED), Declined, "why"),
        (outcome("failed", by="person", code=ASKED_BACK), Declined, "why"),
        (outcome("failed", code=EXPIRED), Declined, "why"),
        (outcome("failed", by="returned", code=DECLINED), Rejected, "why"),
        (outcome("succeeded", code=LOST), ResultLost, "charge (desk/charge#1) succeeded, but why"),
    ],
)
def test_an_outcome_without_a_result_is_raised_as_what_it_is(told: Outcome, error: type, text: str):
    raised = error_of(told)
    assert type(raised) is error
    assert raised.message == text


def seen(status, value: object = None) -> Operation:
    return Operation("desk/charge#1", "desk", "charge#1", "charge", "key", status, {}, value=value)


def test_only_a_success_has_a_result():
    assert seen("succeeded", 7).result == 7
    with pytest.raises(UsageError, match="desk/charge#1 is failed: it has no result"):
        _ = seen("failed").result


def test_a_model_is_asked_back_in_words_that_ask_for_another_proposal():
    said = outcome("failed", by="person", code=ASKED_BACK).as_text()
    assert said == "Not sent yet: a person asks: why\nNothing was changed. Answer, and propose it anew."


def test_a_model_reads_what_a_person_sent_in_place_of_what_it_chose():
    told = Outcome("succeeded", "d/charge#1", "charge", value="ok", arguments={"cents": 7}, edited_by="ann")
    assert told.as_text() == 'ok\nA person changed the call before it was sent. These were sent: {"cents":7}.'
