"""Planted bugs in approvals, edits, people's own answers and standing permissions."""

from __future__ import annotations

from typing import Final

from simulator.approval_twists import (
    for_ever,
    no_is_lost,
    no_means_yes,
    not_in_the_record,
    once_begun_for_ever,
    one_name_is_two,
    unbound,
    whatever_was_asked,
)
from simulator.mutant import Mutant, always
from simulator.permit_twists import (
    answered_and_sent,
    any_call_fits,
    as_it_was_called,
    boundless,
    counted_side_by_side,
    edits_need_no_yes,
    endless,
    irrevocable,
    not_counted,
)

APPROVALS: Final = (
    # What they approve.
    Mutant(
        "nobody asked",
        "gates are not looked at",
        "holdfast.engine.operation_driver:OperationDriver._gated",
        always(False),
    ),
    Mutant("approval unbound", "a yes to one thing is one to all", "holdfast.model.ids:approval_digest", unbound),
    Mutant(
        "approval not compared",
        "what was approved is not compared with what would be sent",
        "holdfast.model.decision.send_rules:_approved",
        whatever_was_asked,
    ),
    Mutant(
        "approval for ever",
        "when a yes ends is not looked at",
        "holdfast.model.decision.send_rules:_approved",
        for_ever,
    ),
    Mutant(
        "approval for ever once begun",
        "a yes that was asked for again after an attempt never ends",
        "holdfast.model.decision.send_rules:_approved",
        once_begun_for_ever,
    ),
    Mutant("one name is two", "who says yes counts twice", "holdfast.model.transitions:_STEPS", one_name_is_two),
    Mutant("a no means yes", "a decline lets it be sent", "holdfast.engine.approvals:verdict_of", no_means_yes),
    Mutant("a no is lost", "a decline is taken down and lost", "holdfast.engine.approvals:verdict_of", no_is_lost),
    Mutant(
        "approval not consumed",
        "the record of an attempt does not carry the yes",
        "holdfast.engine.executor:_started",
        not_in_the_record,
    ),
    Mutant(
        "too late is in time",
        "a yes after the time counts",
        "holdfast.model.operation:OperationState.asked_too_long",
        always(False),
    ),
    # What they would rather send, and what they answer themselves.
    Mutant(
        "an edit is not sent",
        "changes are taken down, and what code called with is sent",
        "holdfast.engine.approvals:edited_intent",
        as_it_was_called,
    ),
    Mutant(
        "edited and unasked",
        "what was changed is sent without anybody's yes to it",
        "holdfast.model.decision.send_rules:_approved",
        edits_need_no_yes,
    ),
    Mutant(
        "an editor approves",
        "who edited the arguments approves them",
        "holdfast.model.operation:OperationState.proposers",
        always(()),
    ),
    Mutant(
        "answered and sent",
        "a person's answer is taken for a yes",
        "holdfast.model.transitions:_STEPS",
        answered_and_sent,
    ),
    # What they allow beforehand.
    Mutant(
        "any call fits",
        "what a permission is for is not looked at",
        "holdfast.engine.approvals:_fitting",
        any_call_fits,
    ),
    Mutant(
        "uses not counted",
        "a permission is used as often as one likes",
        "holdfast.engine.approvals:use_post",
        not_counted,
    ),
    Mutant(
        "counted side by side",
        "two uses of a permission see the same sum",
        "holdfast.engine.approvals:use_post",
        counted_side_by_side,
    ),
    Mutant(
        "bounds not looked at",
        "more is spent than a permission allows",
        "holdfast.engine.approvals:why_not",
        boundless,
    ),
    Mutant(
        "permission for ever",
        "when a permission ends is not looked at",
        "holdfast.engine.approvals:why_not",
        endless,
    ),
    Mutant(
        "revoked in vain",
        "what was taken back still lets calls leave",
        "holdfast.engine.approvals:why_not",
        irrevocable,
    ),
)
