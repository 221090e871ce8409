"""Planted bugs in what belongs together, what comes later, and what is planned."""

from __future__ import annotations

from typing import Final

from holdfast.model.decision.moves import Settle
from simulator.answer_twists import (
    about_anything,
    acknowledged_unstored,
    answers_mixed_up,
    counted_each_time,
    failed_by_time,
    key_of_another_taken,
    never_released,
    other_words_taken,
    pending_is_final,
    refusal_is_success,
    sent_again,
)
from simulator.mutant import Mutant, always, never_mind, replaced
from simulator.proposal_twists import chosen_in_memory_only, never_called_off, next_one_unless_it_succeeded, not_waiting
from simulator.trip_twists import (
    any_order,
    nothing_amendable,
    refusal_at_once,
    settles_nothing_first,
    unknown_is_refused,
)

TOGETHER: Final = (
    # Transactions.
    Mutant("held leaves at once", "a held effect does not wait", "holdfast.engine.steps:_holder_of", always("")),
    Mutant(
        "compensated too early",
        "what is on its way or unknown is compensated",
        "holdfast.model.saga:_back",
        settles_nothing_first,
    ),
    Mutant(
        "in any order",
        "compensations do not wait for later ones",
        "holdfast.engine.saga:Members._member",
        any_order,
    ),
    Mutant("never confirmed", "reservations are not confirmed", "holdfast.model.saga:_confirm", always(None)),
    Mutant(
        "nothing to undo",
        "what landed is left standing",
        "holdfast.engine.saga:Members._member",
        nothing_amendable,
    ),
    Mutant(
        "called off and not heard",
        "what is called off goes on being sent",
        "holdfast.model.run_history:RunHistory.called_off",
        always(None),
    ),
    Mutant(
        "body decides again",
        "after a crash the body's own end decides, not the record",
        "holdfast.engine.saga:resume_closing",
        always(None),
    ),
    Mutant(
        "turned back at once",
        "a commit turns back while another confirmation is on its way",
        "holdfast.model.saga:_confirm",
        refusal_at_once,
    ),
    Mutant(
        "unknown is refused",
        "a commit turns back while it is unknown whether a held effect was sent",
        "holdfast.model.saga:_forward",
        unknown_is_refused,
    ),
    Mutant(
        "held and forgotten",
        "what is let go of, or cancelled, at the end of a transaction has no driver",
        "holdfast.engine.saga:_drive_held",
        always(None),
    ),
    # Outcomes that come later.
    Mutant(
        "answers mixed up",
        "any answer counts for any operation",
        "holdfast.engine.deferred:arrived_stream",
        answers_mixed_up,
    ),
    Mutant(
        "an answer counted each time",
        "a message that comes again is a new one",
        "holdfast.engine.deferred:_answer_command",
        counted_each_time,
    ),
    Mutant(
        "early answers forgotten",
        "what came before it was awaited is not looked for",
        "holdfast.engine.executor:collect_answers",
        never_mind,
    ),
    Mutant(
        "number of another taken",
        "two operations wait under one number",
        "holdfast.engine.deferred:_without_the_key",
        key_of_another_taken,
    ),
    Mutant(
        "acknowledged unstored",
        "a webhook is acknowledged that the journal did not take",
        "holdfast.control.service:Service.deliver",
        acknowledged_unstored,
    ),
    Mutant(
        "other words taken",
        "a known message may come back with other words",
        "holdfast.control.service:Service.deliver",
        other_words_taken,
    ),
    Mutant(
        "progress is success",
        "a word about progress counts as the answer",
        "holdfast.engine.deferred:_answer_command",
        pending_is_final,
    ),
    Mutant(
        "refusal is success",
        "an answer that says no counts as yes",
        "holdfast.engine.deferred:_answer_command",
        refusal_is_success,
    ),
    Mutant(
        "accepted and sent again",
        "what is pending is sent again",
        "holdfast.model.decision.decide:_OPEN",
        replaced("_awaiting", sent_again),
    ),
    Mutant(
        "failed by time alone",
        "no answer in time counts as a refusal",
        "holdfast.model.decision.decide:_OPEN",
        replaced("_awaiting", failed_by_time),
    ),
    Mutant(
        "deadline ignored",
        "an answer is awaited for ever",
        "holdfast.model.decision.decide:answer_left_ms",
        always(60_000),
    ),
    Mutant(
        "pending asked for again",
        "a further call about what is only accepted is sent",
        "holdfast.engine.pending:find_pending",
        never_mind,
    ),
    Mutant(
        "pending about anything",
        "whatever is pending holds back every call of its tool",
        "holdfast.engine.pending:thing_stream",
        about_anything,
    ),
    Mutant(
        "pending never released",
        "the outcome of what was pending does not end that it holds back others",
        "holdfast.engine.pending:releasing_posts",
        never_released,
    ),
    # Restored journals.
    Mutant(
        "restored and trusted",
        "a restored journal sends before anybody has looked",
        "holdfast.model.decision.send_rules:_OBSTACLES_AT_FIRST",
        replaced("_distrust", always(None)),
    ),
    Mutant(
        "doubt forgotten",
        "what an old journal has forgotten is sent again unread",
        "holdfast.model.decision.send_rules:_BEFORE_FIRST",
        replaced("_check_first", always(None)),
    ),
    Mutant(
        "a copy's word",
        "what an old journal knows nothing of is called unsent",
        "holdfast.model.decision.decide:look_for_forgotten",
        always(Settle("sending ended, nothing landed", "failed")),
    ),
    # Plans.
    Mutant(
        "fallback on unknown",
        "a fallback is tried while nobody knows about the primary",
        "holdfast.agent.course:Course._after_failure",
        next_one_unless_it_succeeded,
    ),
    Mutant(
        "a choice not journaled",
        "what was chosen, and why, is in no record",
        "holdfast.agent.course:Course._chose",
        chosen_in_memory_only,
    ),
    Mutant(
        "never called off",
        "conditions that end a plan are not looked at",
        "holdfast.agent.course:Course._holds",
        never_called_off,
    ),
    Mutant(
        "steps do not wait",
        "a step of a plan begins before what it waits for is over",
        "holdfast.model.plan:Plan.waits_for",
        not_waiting,
    ),
)
"""By the promise that they break."""
