"""Planted bugs in what people say: see `mutants.py`."""

from __future__ import annotations

from typing import Final

from simulator import (
    amends_twists,
    approval_twists,
    message_twists,
    permit_twists,
    question_twists,
    review_twists,
    twists,
)
from simulator.mutant import Mutant

PEOPLE: Final = (
    # What they approve.
    Mutant("nobody asked", "gates are not looked at", "engine.flight:Flight._gated", twists.always(False)),
    Mutant(
        "approval unbound", "a yes to one thing is one to all", "model.ids:approval_digest", approval_twists.unbound
    ),
    Mutant(
        "approval not compared",
        "what was approved is not compared with what would be sent",
        "model.sending:_approved",
        approval_twists.whatever_was_asked,
    ),
    Mutant(
        "approval for ever", "when a yes ends is not looked at", "model.sending:_approved", approval_twists.for_ever
    ),
    Mutant(
        "approval for ever once begun",
        "a yes that was asked for again after an attempt never ends",
        "model.sending:_approved",
        approval_twists.once_begun_for_ever,
    ),
    Mutant("one name is two", "who says yes counts twice", "model.transitions:_STEPS", approval_twists.one_name_is_two),
    Mutant("a no means yes", "a decline lets it be sent", "engine.approvals:verdict_of", approval_twists.no_means_yes),
    Mutant(
        "a no is lost", "a decline is taken down and lost", "engine.approvals:verdict_of", approval_twists.no_is_lost
    ),
    Mutant(
        "approval not consumed",
        "the record of an attempt does not carry the yes",
        "engine.executor:_started",
        approval_twists.not_in_the_record,
    ),
    Mutant(
        "too late is in time",
        "a yes after the time counts",
        "model.operation:OperationState.asked_too_long",
        twists.always(False),
    ),
    # What they would rather send, and what they answer themselves.
    Mutant(
        "an edit is not sent",
        "changes are taken down, and what code called with is sent",
        "engine.approvals:edited_intent",
        permit_twists.as_it_was_called,
    ),
    Mutant(
        "edited and unasked",
        "what was changed is sent without anybody's yes to it",
        "model.sending:_approved",
        permit_twists.edits_need_no_yes,
    ),
    Mutant(
        "an editor approves",
        "who edited the arguments approves them",
        "model.operation:OperationState.proposers",
        twists.always(()),
    ),
    Mutant(
        "answered and sent",
        "a person's answer is taken for a yes",
        "model.transitions:_STEPS",
        permit_twists.answered_and_sent,
    ),
    # What they allow beforehand.
    Mutant(
        "any call fits",
        "what a permission is for is not looked at",
        "engine.standing:_fitting",
        permit_twists.any_call_fits,
    ),
    Mutant(
        "uses not counted",
        "a permission is used as often as one likes",
        "engine.standing:use_post",
        permit_twists.not_counted,
    ),
    Mutant(
        "counted side by side",
        "two uses of a permission see the same sum",
        "engine.standing:use_post",
        permit_twists.counted_side_by_side,
    ),
    Mutant(
        "bounds not looked at",
        "more is spent than a permission allows",
        "engine.standing:why_not",
        permit_twists.boundless,
    ),
    Mutant(
        "permission for ever",
        "when a permission ends is not looked at",
        "engine.standing:why_not",
        permit_twists.endless,
    ),
    Mutant(
        "revoked in vain",
        "what was taken back still lets calls leave",
        "engine.standing:why_not",
        permit_twists.irrevocable,
    ),
    # What they tell a run.
    Mutant(
        "told in vain", "writes begin although somebody said something", "engine.flight:Flight._told", twists.always("")
    ),
    Mutant(
        "told again",
        "a branch hears the same message again",
        "engine.interrupting:hear",
        message_twists.forgotten_at_once,
    ),
    Mutant(
        "one ear for all",
        "what one branch heard no other has to hear",
        "engine.flight:news_for",
        message_twists.one_ear,
    ),
    Mutant(
        "stopped once",
        "after it was told to stop, code begins the next write",
        "engine.flight:news_for",
        message_twists.stops_once,
    ),
    Mutant(
        "what waits goes on",
        "a message does not call off what was not sent yet",
        "model.messages:Messages.receive",
        message_twists.calls_nothing_off,
    ),
    Mutant(
        "told twice",
        "a message that is given again is another one",
        "interfaces.service:Service.tell",
        message_twists.without_its_name,
    ),
    Mutant(
        "only the last is told",
        "of several messages code hears one",
        "model.messages:Messages.told_at",
        message_twists.only_the_last,
    ),
    # What they are asked, and what is handed over to them.
    Mutant(
        "any word is the first",
        "who answers second is told to be the first",
        "engine.questions:answer_post",
        question_twists.any_word_is_the_first,
    ),
    Mutant("impatient", "less time is waited than code says", "engine.questions:_put", question_twists.impatient),
    Mutant(
        "before its time",
        "a default stands in before the time is over",
        "engine.questions:_answered",
        question_twists.before_its_time,
    ),
    Mutant(
        "first choice by default",
        "another default stands in than the one on record",
        "engine.questions:_late",
        question_twists.first_choice_by_default,
    ),
    Mutant(
        "deaf by default",
        "code goes on with its default whatever was said",
        "engine.questions:ask",
        question_twists.by_default_and_not_said,
    ),
    Mutant(
        "taken for an answer",
        "taking a run over counts as an answer",
        "interfaces.service:Service.take_over",
        question_twists.taken_for_an_answer,
    ),
    Mutant(
        "handed more than one has",
        "another agent may use all tools",
        "agent.offering:tools_for",
        question_twists.with_all_tools,
    ),
    # What they say about what nobody could decide.
    Mutant(
        "given up and sent",
        "what did not happen is sent again unasked",
        "model.transitions:_STEPS",
        review_twists.given_up_and_sent,
    ),
    Mutant(
        "a no means happened",
        "that it did not happen is taken for a success",
        "model.transitions:_STEPS",
        review_twists.no_means_happened,
    ),
    Mutant(
        "under a forgotten key",
        "an order to send under the same key is taken for one to send whatever its age",
        "interfaces.people.answers:_review",
        review_twists.whatever_its_age,
    ),
    Mutant(
        "amends not ordered",
        "that amends are to be made is taken down as that it happened",
        "interfaces.people.answers:_compensate",
        amends_twists.only_happened,
    ),
    Mutant(
        "half a word",
        "a transaction is called off by a word of which the rest is refused",
        "interfaces.people.answers:_compensate",
        amends_twists.one_after_the_other,
    ),
    Mutant(
        "what stands is not told",
        "code hears of a part that stands as if it were undone",
        "engine.transactions:_error",
        amends_twists.as_if_all_were_undone,
    ),
)
"""By the promise that they break."""
