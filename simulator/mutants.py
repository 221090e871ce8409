"""Planted bugs: each takes one safeguard out of the product, and the simulator has to notice.

`make mutants` plants them all, one process each. These are about single operations and runs; those about what belongs
together, comes later or is planned stand in `mutants_together.py`, those about people in `mutants_people.py`.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import KeyInProgress
from holdfast.model.outcome import DidNotHappen
from simulator.mutant import Mutant
from simulator.mutants_people import PEOPLE
from simulator.mutants_policy import POLICY
from simulator.mutants_processes import PROCESSES
from simulator.mutants_timing import TIMING
from simulator.mutants_together import TOGETHER
from simulator.twists import (
    always,
    arguments_drift,
    asked_again,
    attempts_again,
    chain_skips_the_body,
    early_events_dropped,
    end_not_listed,
    ends_as,
    fate_is_dead,
    found_without_result,
    intent_rides,
    journal_errors_swallowed,
    kept,
    key_of_the_attempt,
    knocks_in_vain,
    lost_means_unsent,
    never_mind,
    not_kept,
    nothing_is_spent,
    now_only,
    only_released,
    only_the_last_attempt,
    only_this_owner_counts,
    open_is_over,
    refusal_ends_it,
    replaced,
    returned_is_enough,
    secrets_revealed,
    sends_again,
    stale_means_failed,
    stale_token_accepted,
    unknown_means_failed,
    verdict_is,
    wall_clock_windows,
)

MUTANTS: Final = (
    Mutant(
        "fence removed",
        "the journal accepts a late owner",
        "holdfast.testing.world.disk:Store._commit",
        stale_token_accepted,
    ),
    Mutant(
        "effect before intent",
        "an attempt is sent before it is durable",
        "holdfast.journal.log:RunLog.append",
        intent_rides,
    ),
    Mutant(
        "journal errors swallowed",
        "a refused record is taken for a stored one",
        "holdfast.engine.active_run.run:ActiveRun.append",
        journal_errors_swallowed,
    ),
    Mutant(
        "flush vouches blindly",
        "what a cancelled caller wrote is taken for durable",
        "holdfast.journal.log:RunLog.flush",
        never_mind,
    ),
    Mutant(
        "settle window skipped",
        "absence is believed at once",
        "holdfast.model.decision.evidence:until_believable_ms",
        always(0),
    ),
    Mutant(
        "open call counted as over",
        "absence is believed while a call still runs",
        "holdfast.model.decision.evidence:over_ms",
        open_is_over,
    ),
    Mutant(
        "everybody is dead",
        "a living process's call counts as over",
        "holdfast.engine.previous_owner:_fate",
        fate_is_dead,
    ),
    Mutant(
        "windows by the wall clock",
        "a clock jump shortens a settle window",
        "holdfast.model.decision.evidence:over_ms",
        wall_clock_windows,
    ),
    Mutant(
        "key per attempt",
        "each attempt has its own idempotency key",
        "holdfast.engine.current_operation:CurrentOperation.key",
        key_of_the_attempt,
    ),
    Mutant(
        "key never forgotten",
        "a key is used after the system forgot it",
        "holdfast.model.decision.evidence:key_left_ms",
        always(2**62),
    ),
    Mutant(
        "budget reset on restart",
        "each owner counts its own attempts only",
        "holdfast.model.decision.evidence:AttemptEvidence.__init__",
        only_this_owner_counts,
    ),
    Mutant(
        "no budget",
        "attempts are not counted",
        "holdfast.model.decision.evidence:AttemptEvidence.__init__",
        nothing_is_spent,
    ),
    Mutant(
        "the last attempt decides",
        "a clean end hides an earlier ambiguous one",
        "holdfast.model.decision.evidence:AttemptEvidence.__init__",
        only_the_last_attempt,
    ),
    Mutant(
        "plain writes retried",
        "an ambiguous plain write is sent again",
        "holdfast.model.decision.send_rules:after_ambiguity",
        sends_again("none"),
    ),
    Mutant(
        "verifiable writes retried",
        "an ambiguous verifiable write is sent again unread",
        "holdfast.model.decision.send_rules:after_ambiguity",
        sends_again("verifiable"),
    ),
    Mutant(
        "lost means unsent",
        "a call whose process died counts as never sent",
        "holdfast.model.run_history:RunHistory.add",
        lost_means_unsent,
    ),
    Mutant(
        "error means refused",
        "a 500 after the effect counts as a refusal",
        "holdfast.engine.exceptions.call_end:end_of_error",
        ends_as("rejected", RuntimeError),
    ),
    Mutant(
        "in progress means refused",
        "a 409 counts as a refusal",
        "holdfast.engine.exceptions.call_end:end_of_error",
        ends_as("rejected", KeyInProgress),
    ),
    Mutant(
        "timeout means unsent",
        "a timeout counts as never sent",
        "holdfast.engine.exceptions.call_end:end_of_error",
        ends_as("not_sent", TimeoutError),
    ),
    Mutant(
        "unreadable means unsent",
        "an answer that cannot be read counts as never sent",
        "holdfast.engine.exceptions.call_end:end_of_error",
        ends_as("not_sent", ValueError),
    ),
    Mutant(
        "a refusal ends it",
        "a refusal of the last attempt fails an ambiguous operation",
        "holdfast.model.decision.decide:_OPEN",
        replaced("_refused", refusal_ends_it),
    ),
    Mutant(
        "unknown means failed",
        "what nobody can prove is called failed",
        "holdfast.model.decision.verify_rules:verify_or_unknown",
        unknown_means_failed,
    ),
    Mutant(
        "unknown sent again",
        "what a person was asked about is sent by itself",
        "holdfast.model.decision.verify_rules:slow_reading",
        attempts_again,
    ),
    Mutant(
        "cannot tell means absent",
        "a verifier that cannot read counts as absence",
        "holdfast.engine.verification:_ask",
        verdict_is(DidNotHappen()),
    ),
    Mutant(
        "returned is enough",
        "expected evidence is not read back",
        "holdfast.model.decision.decide:_OPEN",
        replaced("_returned", returned_is_enough),
    ),
    Mutant(
        "preconditions unread",
        "a natural write is repeated over somebody's change",
        "holdfast.model.decision.send_rules:_preconditions",
        always(None),
    ),
    Mutant(
        "stale means failed",
        "preconditions that our own effect changed fail it",
        "holdfast.model.decision.send_rules:_preconditions",
        stale_means_failed,
    ),
    Mutant(
        "send-by ignored",
        "a call is sent after its deadline",
        "holdfast.engine.current_operation:CurrentOperation.check_send",
        always(None),
    ),
    Mutant(
        "arguments drift",
        "a retry is sent with other arguments",
        "holdfast.engine.operation_driver:OperationDriver.decoded",
        arguments_drift,
    ),
    Mutant("business key ignored", "two runs may do one thing", "holdfast.agent.tool:Tool.claims", not_kept),
    Mutant(
        "everything rides",
        "the outcome of a plain write is told before it is durable",
        "holdfast.model.contract:Contract.rides",
        kept,
    ),
    Mutant(
        "found without its result",
        "the agent does not hear what was found",
        "holdfast.engine.executor:_result",
        found_without_result,
    ),
    Mutant(
        "broken chain",
        "records are not chained to each other",
        "holdfast.journal.log:RunLog.rows",
        chain_skips_the_body,
    ),
    Mutant(
        "early events dropped",
        "a webhook before its wait is lost",
        "holdfast.engine.timers:_rings",
        early_events_dropped,
    ),
    Mutant(
        "end not listed", "a completed run is driven for ever", "holdfast.journal.log:RunLog._write", end_not_listed
    ),
    Mutant(
        "nobody hears the knock",
        "an event at the moment of rest is lost",
        "holdfast.engine.leases:notify_owner",
        knocks_in_vain,
    ),
    Mutant(
        "late words dropped",
        "a fenced owner keeps what it knows to itself",
        "holdfast.engine.engine:Engine.file_late",
        never_mind,
    ),
    Mutant(
        "leases kept",
        "a lease that could not be given back stays",
        "holdfast.engine.leases:Leases.give_back",
        always(None),
    ),
    Mutant(
        "windows begin anew",
        "each owner measures every window from its own claim",
        "holdfast.model.run_history:RunHistory.measured_since",
        now_only,
    ),
    Mutant(
        "waiting runs forgotten",
        "a waiting run whose owner died is left alone",
        "holdfast.journal.rules:wants_worker",
        only_released,
    ),
    Mutant(
        "claims waited for for ever",
        "nobody is asked about a business key that is held",
        "holdfast.engine.claims:_waited_ms",
        always(0),
    ),
    Mutant(
        "secrets stored",
        "the value of a secret is written down with its name",
        "holdfast.model.canonical.forms:_EXACT_FORMS",
        secrets_revealed,
    ),
    Mutant(
        "model asked again",
        "a recorded decision is not looked at",
        "holdfast.agent.decisions:decide",
        asked_again,
    ),
    *TOGETHER,
    *PEOPLE,
    *POLICY,
    *TIMING,
    *PROCESSES,
)
"""The planted bugs, by the promise that they break."""
