"""Planted bugs in what people say: see `mutants.py`."""

from __future__ import annotations

from typing import Final

from simulator.amends_twists import as_if_all_were_undone, one_after_the_other, only_happened
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
from simulator.message_twists import (
    calls_nothing_off,
    forgotten_at_once,
    one_ear,
    only_the_last,
    stops_once,
    without_its_name,
)
from simulator.mutant import Mutant
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
from simulator.question_twists import (
    any_word_is_the_first,
    before_its_time,
    by_default_and_not_said,
    first_choice_by_default,
    impatient,
    taken_for_an_answer,
    with_all_tools,
)
from simulator.review_twists import given_up_and_sent, no_means_happened, whatever_its_age
from simulator.twists import always

PEOPLE: Final = (
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
    # What they tell a run.
    Mutant(
        "told in vain",
        "writes begin although somebody said something",
        "holdfast.engine.operation_driver:OperationDriver._told",
        always(""),
    ),
    Mutant(
        "told again",
        "a branch hears the same message again",
        "holdfast.engine.messages:deliver_messages",
        forgotten_at_once,
    ),
    Mutant(
        "one ear for all",
        "what one branch heard no other has to hear",
        "holdfast.engine.operation_driver:has_undelivered_message",
        one_ear,
    ),
    Mutant(
        "stopped once",
        "after it was told to stop, code begins the next write",
        "holdfast.engine.operation_driver:has_undelivered_message",
        stops_once,
    ),
    Mutant(
        "what waits goes on",
        "a message does not call off what was not sent yet",
        "holdfast.model.messages:Messages.receive",
        calls_nothing_off,
    ),
    Mutant(
        "told twice",
        "a message that is given again is another one",
        "holdfast.control.service:Service.tell",
        without_its_name,
    ),
    Mutant(
        "only the last is told",
        "of several messages code hears one",
        "holdfast.model.messages:Messages.told_at",
        only_the_last,
    ),
    # What they are asked, and what is handed over to them.
    Mutant(
        "any word is the first",
        "who answers second is told to be the first",
        "holdfast.engine.questions:answer_post",
        any_word_is_the_first,
    ),
    Mutant("impatient", "less time is waited than code says", "holdfast.engine.questions:_put", impatient),
    Mutant(
        "before its time",
        "a default stands in before the time is over",
        "holdfast.engine.questions:_answered",
        before_its_time,
    ),
    Mutant(
        "first choice by default",
        "another default stands in than the one on record",
        "holdfast.engine.questions:_late",
        first_choice_by_default,
    ),
    Mutant(
        "deaf by default",
        "code goes on with its default whatever was said",
        "holdfast.engine.questions:ask",
        by_default_and_not_said,
    ),
    Mutant(
        "taken for an answer",
        "taking a run over counts as an answer",
        "holdfast.control.service:Service.take_over",
        taken_for_an_answer,
    ),
    Mutant(
        "handed more than one has",
        "another agent may use all tools",
        "holdfast.agent.offering:tools_for",
        with_all_tools,
    ),
    # What they say about what nobody could decide.
    Mutant(
        "given up and sent",
        "what did not happen is sent again unasked",
        "holdfast.model.transitions:_STEPS",
        given_up_and_sent,
    ),
    Mutant(
        "a no means happened",
        "that it did not happen is taken for a success",
        "holdfast.model.transitions:_STEPS",
        no_means_happened,
    ),
    Mutant(
        "under a forgotten key",
        "an order to send under the same key is taken for one to send whatever its age",
        "holdfast.people.answers:_review",
        whatever_its_age,
    ),
    Mutant(
        "amends not ordered",
        "that amends are to be made is taken down as that it happened",
        "holdfast.people.answers:_compensate",
        only_happened,
    ),
    Mutant(
        "half a word",
        "a transaction is called off by a word of which the rest is refused",
        "holdfast.people.answers:_compensate",
        one_after_the_other,
    ),
    Mutant(
        "what stands is not told",
        "code hears of a part that stands as if it were undone",
        "holdfast.engine.transactions:_error",
        as_if_all_were_undone,
    ),
)
"""By the promise that they break."""
