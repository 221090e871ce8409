"""Planted bugs: each takes one safeguard out of the product, and the simulator has to notice.

`make mutants` plants them all, one process each. These are about single operations and runs; those about what belongs
together, comes later or is planned stand in `mutants_together.py`, those about people in `mutants_people.py`.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import KeyInProgress
from holdfast.model.outcome import DidNotHappen
from simulator import twists
from simulator.mutant import Mutant
from simulator.mutants_people import PEOPLE
from simulator.mutants_policy import POLICY
from simulator.mutants_processes import PROCESSES
from simulator.mutants_timing import TIMING
from simulator.mutants_together import TOGETHER

MUTANTS: Final = (
    Mutant(
        "fence removed",
        "the journal accepts a late owner",
        "testing.world.disk:Store._commit",
        twists.stale_token_accepted,
    ),
    Mutant(
        "effect before intent",
        "an attempt is sent before it is durable",
        "journal.log:RunLog.append",
        twists.intent_rides,
    ),
    Mutant(
        "journal errors swallowed",
        "a refused record is taken for a stored one",
        "engine.instance:Instance.append",
        twists.journal_errors_swallowed,
    ),
    Mutant(
        "flush vouches blindly",
        "what a cancelled caller wrote is taken for durable",
        "journal.log:RunLog.flush",
        twists.never_mind,
    ),
    Mutant("settle window skipped", "absence is believed at once", "model.weigh:until_believable_ms", twists.always(0)),
    Mutant(
        "open call counted as over",
        "absence is believed while a call still runs",
        "model.weigh:over_ms",
        twists.open_is_over,
    ),
    Mutant("everybody is dead", "a living process's call counts as over", "engine.owners:_fate", twists.fate_is_dead),
    Mutant(
        "windows by the wall clock",
        "a clock jump shortens a settle window",
        "model.weigh:over_ms",
        twists.wall_clock_windows,
    ),
    Mutant(
        "key per attempt",
        "each attempt has its own idempotency key",
        "engine.current:CurrentOperation.key",
        twists.key_of_the_attempt,
    ),
    Mutant(
        "key never forgotten",
        "a key is used after the system forgot it",
        "model.weigh:key_left_ms",
        twists.always(2**62),
    ),
    Mutant(
        "budget reset on restart",
        "each owner counts its own attempts only",
        "model.weigh:Weight.__init__",
        twists.only_this_owner_counts,
    ),
    Mutant("no budget", "attempts are not counted", "model.weigh:Weight.__init__", twists.nothing_is_spent),
    Mutant(
        "the last attempt decides",
        "a clean end hides an earlier ambiguous one",
        "model.weigh:Weight.__init__",
        twists.only_the_last_attempt,
    ),
    Mutant(
        "plain writes retried",
        "an ambiguous plain write is sent again",
        "model.sending:after_ambiguity",
        twists.sends_again("none"),
    ),
    Mutant(
        "verifiable writes retried",
        "an ambiguous verifiable write is sent again unread",
        "model.sending:after_ambiguity",
        twists.sends_again("verifiable"),
    ),
    Mutant(
        "lost means unsent",
        "a call whose process died counts as never sent",
        "model.run:RunHistory.add",
        twists.lost_means_unsent,
    ),
    Mutant(
        "error means refused",
        "a 500 after the effect counts as a refusal",
        "engine.ends:end_of_error",
        twists.ends_as("rejected", RuntimeError),
    ),
    Mutant(
        "in progress means refused",
        "a 409 counts as a refusal",
        "engine.ends:end_of_error",
        twists.ends_as("rejected", KeyInProgress),
    ),
    Mutant(
        "timeout means unsent",
        "a timeout counts as never sent",
        "engine.ends:end_of_error",
        twists.ends_as("not_sent", TimeoutError),
    ),
    Mutant(
        "unreadable means unsent",
        "an answer that cannot be read counts as never sent",
        "engine.ends:end_of_error",
        twists.ends_as("not_sent", ValueError),
    ),
    Mutant(
        "a refusal ends it",
        "a refusal of the last attempt fails an ambiguous operation",
        "model.decide:_OPEN",
        twists.replaced("_refused", twists.refusal_ends_it),
    ),
    Mutant(
        "unknown means failed",
        "what nobody can prove is called failed",
        "model.proving:verify_or_unknown",
        twists.unknown_means_failed,
    ),
    Mutant(
        "unknown sent again",
        "what a person was asked about is sent by itself",
        "model.proving:slow_reading",
        twists.attempts_again,
    ),
    Mutant(
        "cannot tell means absent",
        "a verifier that cannot read counts as absence",
        "engine.readings:_ask",
        twists.verdict_is(DidNotHappen()),
    ),
    Mutant(
        "returned is enough",
        "expected evidence is not read back",
        "model.decide:_OPEN",
        twists.replaced("_returned", twists.returned_is_enough),
    ),
    Mutant(
        "preconditions unread",
        "a natural write is repeated over somebody's change",
        "model.sending:_preconditions",
        twists.always(None),
    ),
    Mutant(
        "stale means failed",
        "preconditions that our own effect changed fail it",
        "model.sending:_preconditions",
        twists.stale_means_failed,
    ),
    Mutant(
        "send-by ignored",
        "a call is sent after its deadline",
        "engine.current:CurrentOperation.check_send",
        twists.always(None),
    ),
    Mutant(
        "arguments drift",
        "a retry is sent with other arguments",
        "engine.flight:Flight.decoded",
        twists.arguments_drift,
    ),
    Mutant("business key ignored", "two runs may do one thing", "agent.tool:Tool.claims", twists.not_kept),
    Mutant(
        "everything rides",
        "the outcome of a plain write is told before it is durable",
        "model.contract:Contract.rides",
        twists.kept,
    ),
    Mutant(
        "found without its result",
        "the agent does not hear what was found",
        "engine.executor:_result",
        twists.found_without_result,
    ),
    Mutant(
        "broken chain", "records are not chained to each other", "journal.log:RunLog.rows", twists.chain_skips_the_body
    ),
    Mutant(
        "early events dropped", "a webhook before its wait is lost", "engine.timers:_rings", twists.early_events_dropped
    ),
    Mutant("end not listed", "a completed run is driven for ever", "journal.log:RunLog._write", twists.end_not_listed),
    Mutant(
        "nobody hears the knock", "an event at the moment of rest is lost", "engine.door:knock", twists.knocks_in_vain
    ),
    Mutant(
        "late words dropped",
        "a fenced owner keeps what it knows to itself",
        "engine.engine:Engine.file_late",
        twists.never_mind,
    ),
    Mutant(
        "leases kept",
        "a lease that could not be given back stays",
        "engine.leases:Leases.give_back",
        twists.always(None),
    ),
    Mutant(
        "windows begin anew",
        "each owner measures every window from its own claim",
        "model.run:RunHistory.measured_since",
        twists.now_only,
    ),
    Mutant(
        "waiting runs forgotten",
        "a waiting run whose owner died is left alone",
        "journal.rules:wants_worker",
        twists.only_released,
    ),
    Mutant(
        "claims waited for for ever",
        "nobody is asked about a business key that is held",
        "engine.meetings:_waited_ms",
        twists.always(0),
    ),
    Mutant(
        "secrets stored",
        "the value of a secret is written down with its name",
        "model.canonical_forms:_EXACT_FORMS",
        twists.secrets_revealed,
    ),
    Mutant(
        "model asked again",
        "a recorded decision is not looked at",
        "agent.decisions:decide",
        twists.asked_again,
    ),
    *TOGETHER,
    *PEOPLE,
    *POLICY,
    *TIMING,
    *PROCESSES,
)
"""The planted bugs, by the promise that they break."""
