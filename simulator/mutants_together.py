"""Planted bugs in what belongs together, what comes later, and what is planned: see `mutants.py`."""

from __future__ import annotations

from typing import Final

from holdfast.model.moves import Settle
from simulator import answer_twists, proposal_twists, trip_twists, twists
from simulator.mutant import Mutant

TOGETHER: Final = (
    # Transactions.
    Mutant("held leaves at once", "a held effect does not wait", "engine.steps:_holder_of", twists.always("")),
    Mutant(
        "compensated too early",
        "what is on its way or unknown is compensated",
        "model.closing:_back",
        trip_twists.settles_nothing_first,
    ),
    Mutant(
        "in any order",
        "compensations do not wait for later ones",
        "engine.members:Members._member",
        trip_twists.any_order,
    ),
    Mutant("never confirmed", "reservations are not confirmed", "model.closing:_confirm", twists.always(None)),
    Mutant(
        "nothing to undo",
        "what landed is left standing",
        "engine.members:Members._member",
        trip_twists.nothing_amendable,
    ),
    Mutant(
        "called off and not heard",
        "what is called off goes on being sent",
        "model.run:RunHistory.called_off",
        twists.always(None),
    ),
    Mutant(
        "body decides again",
        "after a crash the body's own end decides, not the record",
        "engine.closing:resume_closing",
        twists.always(None),
    ),
    Mutant(
        "turned back at once",
        "a commit turns back while another confirmation is on its way",
        "model.closing:_confirm",
        trip_twists.refusal_at_once,
    ),
    Mutant(
        "unknown is refused",
        "a commit turns back while it is unknown whether a held effect was sent",
        "model.closing:_forward",
        trip_twists.unknown_is_refused,
    ),
    Mutant(
        "held and forgotten",
        "what is let go of, or cancelled, at the end of a transaction has no driver",
        "engine.closing:_drive_held",
        twists.always(None),
    ),
    # Outcomes that come later.
    Mutant(
        "answers mixed up",
        "any answer counts for any operation",
        "engine.awaiting:arrived_stream",
        answer_twists.answers_mixed_up,
    ),
    Mutant(
        "an answer counted each time",
        "a message that comes again is a new one",
        "engine.awaiting:_order",
        answer_twists.counted_each_time,
    ),
    Mutant(
        "early answers forgotten",
        "what came before it was awaited is not looked for",
        "engine.executor:collect",
        twists.never_mind,
    ),
    Mutant(
        "number of another taken",
        "two operations wait under one number",
        "engine.awaiting:_without_the_key",
        answer_twists.key_of_another_taken,
    ),
    Mutant(
        "acknowledged unstored",
        "a webhook is acknowledged that the journal did not take",
        "interfaces.service:Service.deliver",
        answer_twists.acknowledged_unstored,
    ),
    Mutant(
        "other words taken",
        "a known message may come back with other words",
        "interfaces.service:Service.deliver",
        answer_twists.other_words_taken,
    ),
    Mutant(
        "progress is success",
        "a word about progress counts as the answer",
        "engine.awaiting:_order",
        answer_twists.pending_is_final,
    ),
    Mutant(
        "refusal is success",
        "an answer that says no counts as yes",
        "engine.awaiting:_order",
        answer_twists.refusal_is_success,
    ),
    Mutant(
        "accepted and sent again",
        "what is pending is sent again",
        "model.decide:_OPEN",
        twists.replaced("_awaiting", answer_twists.sent_again),
    ),
    Mutant(
        "failed by time alone",
        "no answer in time counts as a refusal",
        "model.decide:_OPEN",
        twists.replaced("_awaiting", answer_twists.failed_by_time),
    ),
    Mutant("deadline ignored", "an answer is awaited for ever", "model.decide:answer_left_ms", twists.always(60_000)),
    Mutant(
        "pending asked for again",
        "a further call about what is only accepted is sent",
        "engine.pendings:look_for_pending",
        twists.never_mind,
    ),
    Mutant(
        "pending about anything",
        "whatever is pending holds back every call of its tool",
        "engine.pendings:thing_stream",
        answer_twists.about_anything,
    ),
    Mutant(
        "pending never released",
        "the outcome of what was pending does not end that it holds back others",
        "engine.pendings:releasing_posts",
        answer_twists.never_released,
    ),
    # Restored journals.
    Mutant(
        "restored and trusted",
        "a restored journal sends before anybody has looked",
        "model.sending:_OBSTACLES_AT_FIRST",
        twists.replaced("_distrust", twists.always(None)),
    ),
    Mutant(
        "doubt forgotten",
        "what an old journal has forgotten is sent again unread",
        "model.sending:_BEFORE_FIRST",
        twists.replaced("_check_first", twists.always(None)),
    ),
    Mutant(
        "a copy's word",
        "what an old journal knows nothing of is called unsent",
        "model.decide:look_for_forgotten",
        twists.always(Settle("sending ended, nothing landed", "failed")),
    ),
    # Plans.
    Mutant(
        "fallback on unknown",
        "a fallback is tried while nobody knows about the primary",
        "agent.course:Course._after_failure",
        proposal_twists.next_one_unless_it_succeeded,
    ),
    Mutant(
        "a choice not journaled",
        "what was chosen, and why, is in no record",
        "agent.course:Course._chose",
        proposal_twists.chosen_in_memory_only,
    ),
    Mutant(
        "never called off",
        "conditions that end a plan are not looked at",
        "agent.course:Course._holds",
        proposal_twists.never_called_off,
    ),
    Mutant(
        "steps do not wait",
        "a step of a plan begins before what it waits for is over",
        "model.plan:Plan.waits_for",
        proposal_twists.not_waiting,
    ),
)
"""By the promise that they break."""
