"""Planted bugs: each takes one safeguard out of the product, and the simulator has to notice.

A mutant is data: a name, what it breaks, and the places in the product that it replaces while it is planted. None
of this is in the product's own code path. `make mutants` plants them all, one process each.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from importlib import import_module
from typing import Any, Final

import msgspec

from holdfast.errors import KeyInProgress
from holdfast.model.outcome import DidNotHappen
from holdfast.testing.simulator import answer_twists, trip_twists, twists


class Mutant(msgspec.Struct, frozen=True):
    """One planted bug: `place` is `module:attribute`, and `twist` what becomes of it."""

    name: str
    breaks: str
    place: str
    twist: twists.Twist


@contextlib.contextmanager
def planted(mutant: Mutant) -> Generator[None]:
    """Plant the bug everywhere where its names were imported, and take it out again."""
    owner, name = _owner(mutant.place)
    original: Any = owner.__dict__[name]
    twisted = mutant.twist(original)
    holders = _holders(owner, name, original)
    try:
        for holder in holders:
            setattr(holder, name, twisted)
        yield
    finally:
        for holder in holders:
            setattr(holder, name, original)


def _owner(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    owner: Any = import_module(f"holdfast.{module}")
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    return owner, name


def _holders(owner: Any, name: str, original: object) -> list[Any]:
    """The owner, and every module of the product that imported the same object under that name."""
    names = sorted(name for name in (*sys.modules,) if name.startswith("holdfast."))
    modules = [sys.modules[name] for name in names]
    return [owner, *(module for module in modules if module is not owner and vars(module).get(name) is original)]


MUTANTS: Final = (
    Mutant(
        "fence removed",
        "the journal accepts a late owner",
        "testing.simulator.disk:Store._commit",
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
    Mutant("everybody is dead", "a living process's call counts as over", "engine.executor:_fate", twists.fate_is_dead),
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
    # Transactions.
    Mutant("held leaves at once", "a held effect does not wait", "engine.steps:_holder_of", twists.always("")),
    Mutant(
        "compensated too early",
        "what is on its way or unknown is compensated",
        "model.closing:_back",
        trip_twists.settles_nothing_first,
    ),
    Mutant("in any order", "compensations do not wait for later ones", "model.closing:_back", trip_twists.any_order),
    Mutant("never confirmed", "reservations are not confirmed", "model.closing:_confirm", twists.always(None)),
    Mutant(
        "nothing to undo", "what landed is left standing", "engine.members:Members.now", trip_twists.nothing_amendable
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
        "a model may repeat what is only accepted",
        "engine.meetings:last_write",
        answer_twists.asked_twice,
    ),
)
"""The planted bugs, by the promise that they break."""
