"""Planted bugs in messages to runs, questions, hand-overs and reviews."""

from __future__ import annotations

from typing import Final

from simulator.amends_twists import as_if_all_were_undone, one_after_the_other, only_happened
from simulator.message_twists import (
    calls_nothing_off,
    forgotten_at_once,
    one_ear,
    only_the_last,
    stops_once,
    without_its_name,
)
from simulator.mutant import Mutant, always
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

REVIEWS: Final = (
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
