"""Planted bugs in single operations and runs: the replacement functions, then the list.

Everything here is typed loosely, because each function replaces any function of the product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from msgspec.structs import replace

from beforehand.engine.durable_waits import event_stream
from beforehand.engine.exceptions.call_end import describe
from beforehand.errors import JournalError, KeyInProgress
from beforehand.journal.port import Write
from beforehand.model import records as r
from beforehand.model.decision.evidence import EVIDENCE
from beforehand.model.decision.moves import Send, Settle
from beforehand.model.outcome import RETURNED, DidNotHappen
from beforehand.model.secret import Secret
from simulator.generator.queues import HELD
from simulator.mutations.mutation import Mutant, Twist, always, never_mind, replaced

# --- twists of one mutant each -----------------------------------------------------------------------------------


def stale_token_accepted(original: Any) -> Any:
    def perform(self: Any, request: Any) -> Any:
        if not isinstance(request, Write):
            return original(self, request)
        found = self._runs[self._names[request.lease.row]]
        fits = not request.rows or request.rows[0].seq == len(found.rows) + 1
        lease = replace(request.lease, token=found.listing.token) if fits else request.lease
        return original(self, replace(request, lease=lease))

    return perform


def intent_rides(original: Any) -> Any:
    def append(self: Any, bodies: Any, change: Any = None, posts: Any = ()) -> Any:
        if change is None and not posts and any(b'"AttemptStarted"' in body for body in bodies):
            self.ride(bodies)
            return never_mind(None)()
        return original(self, bodies, change, posts)

    return append


def journal_errors_swallowed(original: Any) -> Any:
    async def append(self: Any, *records: Any, **rest: Any) -> None:
        with contextlib.suppress(JournalError):
            await original(self, *records, **rest)

    return append


def only_this_owner_counts(original: Any) -> Any:
    def init(self: Any, operation: Any, situation: Any, now: Any) -> None:
        original(self, operation, situation, now)
        if operation.attempts:
            self.spent = sum(attempt.token == operation.attempts[-1].token for attempt in operation.attempts)

    return init


def nothing_is_spent(original: Any) -> Any:
    def init(self: Any, operation: Any, situation: Any, now: Any) -> None:
        original(self, operation, situation, now)
        self.spent = 0

    return init


def only_the_last_attempt(original: Any) -> Any:
    def init(self: Any, operation: Any, situation: Any, now: Any) -> None:
        last = replace(operation, attempts=operation.attempts[-1:])
        original(self, last, situation, now)
        self.spent = len(operation.attempts)

    return init


def sends_again(*columns: str) -> Twist:
    def twist(original: Any) -> Any:
        sending = vars(import_module("beforehand.model.decision.send_rules"))

        def after_ambiguity(case: Any) -> Any:
            if case.evidence.repeat_safety not in columns:
                return original(case)
            return sending["_earlier_call"](case) or sending["_backoff"](case) or Send("sent again")

        return after_ambiguity

    return twist


def key_of_the_attempt(original: Any) -> Any:
    return property(lambda self: f"{original.fget(self)}-{self.attempt}")


def ends_as(kind: str, *errors: type[BaseException]) -> Twist:
    def twist(original: Any) -> Any:
        def end(contract: Any, error: BaseException, sends: int = 0) -> r.End:
            planted_kind: Any = kind
            return (
                r.End(planted_kind, why=describe(error))
                if isinstance(error, errors)
                else original(contract, error, sends)
            )

        return end

    return twist


def returned_is_enough(original: Any) -> Any:
    def returned(case: Any) -> Any:
        attempt = case.evidence.returned
        if attempt is None:
            return original(case)
        return Settle("returned", "succeeded", RETURNED, attempt=attempt.number)

    return returned


def refusal_ends_it(original: Any) -> Any:
    def refused(case: Any) -> Any:
        attempt = case.evidence.rejected
        if attempt is None or attempt.end is None:
            return original(case)
        return Settle("refused", "failed", RETURNED, attempt.end.why, attempt.end.code, attempt.number)

    return refused


def stale_means_failed(original: Any) -> Any:
    def preconditions(case: Any) -> Any:
        move = original(case)
        changed = case.situation.reading == "changed" and not case.operation.approval.extra_attempt
        if move is None or not changed or case.evidence.repeat_safety == "read":
            return move
        return Settle("stale", "failed", EVIDENCE, "its preconditions changed", "stale")

    return preconditions


def arguments_drift(original: Any) -> Any:
    def decoded(self: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = dict(original(self))
        if len(self.operation.attempts) > 1 and "thing" in arguments:
            arguments["thing"] += " again"
        return arguments

    return decoded


def unknown_means_failed(original: Any) -> Any:
    def verify_or_unknown(case: Any, reason: str) -> Any:
        move = original(case, reason)
        settled = isinstance(move, Settle) and move.status == "unknown"
        return Settle("given up", "failed", EVIDENCE, reason) if settled else move

    return verify_or_unknown


def verdict_is(verdict: Any) -> Twist:
    def twist(original: Any) -> Any:
        async def ask(flight: Any, handler: str) -> Any:
            answer = await original(flight, handler)
            return verdict if type(answer).__name__ == "CannotTell" else answer

        return ask

    return twist


def wall_clock_windows(_original: Any) -> Any:
    def over_ms(attempt: Any, situation: Any, now: Any) -> int | None:
        del situation
        return None if attempt.over_up is None else max(0, now.wall - attempt.over_at)

    return over_ms


def open_is_over(original: Any) -> Any:
    def over_ms(attempt: Any, situation: Any, now: Any) -> int | None:
        known: int | None = original(attempt, situation, now)
        return max(0, now.up - attempt.up) if known is None else known

    return over_ms


def lost_means_unsent(original: Any) -> Any:
    def started(self: Any, record: Any) -> None:
        end = getattr(record, "end", None)
        if type(record) is r.AttemptEnded and end is not None and end.kind == "lost":
            record = replace(record, end=r.End("not_sent", why="its process died"), over=True)
        original(self, record)

    return started


def found_without_result(original: Any) -> Any:
    def result(move: Any, operation: Any, proof: Any) -> Any:
        if move.rule == "found by verification":
            return r.NOTHING, False, ""
        return original(move, operation, proof)

    return result


def chain_skips_the_body(original: Any) -> Any:
    def rows(self: Any, bodies: Any) -> Any:
        return tuple(replace(row, hash=row.hash[::-1]) for row in original(self, bodies))

    return rows


def fate_is_dead(_original: Any) -> Any:
    async def fate(*_args: object) -> tuple[bool, str]:
        return True, "its process died"

    return fate


def attempts_again(_original: Any) -> Any:
    def slow_reading(_case: Any) -> Send:
        return Send("enough time has passed")

    return slow_reading


def early_events_dropped(original: Any) -> Any:
    async def rings(instance: Any, name: str, event: Any, watch: Any) -> Any:
        if event is not None and name in instance.history.steps.timers:
            set_at = instance.history.steps.timers[name].at
            for entry in await instance.process.journal.entries(event_stream(instance.run, *event)):
                if entry.at_ms <= set_at:
                    instance.history.steps.events_taken[entry.id] = None
        return await original(instance, name, event, watch)

    return rings


def end_not_listed(original: Any) -> Any:
    def write(self: Any, bodies: Any, change: Any, posts: Any) -> Any:
        if change is not None and change.status == "completed":
            change = replace(change, status="running")
        return original(self, bodies, change, posts)

    return write


def not_kept(_original: Any) -> Any:
    return property(lambda _self: False)


def kept(_original: Any) -> Any:
    return property(lambda _self: True)


def now_only(_original: Any) -> Any:
    def measured_since(_self: Any, now: Any, **_rest: Any) -> int:
        up: int = now.up
        return up

    return measured_since


def only_released(_original: Any) -> Any:
    def wants_worker(line: Any, wall_ms: int, gone: Callable[[str], bool]) -> bool:
        due = line.status == "running" or (line.due_ms is not None and line.due_ms <= wall_ms)
        return line.status in {"running", "suspended"} and due and (line.owner is None or gone(line.owner))

    return wants_worker


def knocks_in_vain(_original: object) -> Any:
    async def knock(*_args: object) -> bool:
        return True

    return knock


def secrets_revealed(original: Any) -> Any:
    def revealed(_walk: object, value: Secret) -> Any:
        life = import_module("simulator.processes.worker").LIFE.get()
        return {"$secret": value.name, "value": life.world.secret(value.name)}

    return {**original, Secret: revealed}


def asked_again(original: Any) -> Any:
    async def decide(scope: Any, settings: Any, *question: Any) -> Any:
        scope.active.history.steps.answers.pop(settings.step, None)
        return await original(scope, settings, *question)

    return decide


# --- the list ---------------------------------------------------------------------------------------------------------


OPERATIONS: Final = (
    Mutant(
        "fence removed",
        "the journal accepts a late owner",
        "beforehand.testing.world.disk:Store._perform",
        stale_token_accepted,
    ),
    Mutant(
        "effect before intent",
        "an attempt is sent before it is durable",
        "beforehand.journal.run_log:RunLog.append",
        intent_rides,
    ),
    Mutant(
        "journal errors swallowed",
        "a refused record is taken for a stored one",
        "beforehand.engine.active_run.log:RunRecorder.append",
        journal_errors_swallowed,
    ),
    Mutant(
        "flush vouches blindly",
        "what a cancelled caller wrote is taken for durable",
        "beforehand.journal.run_log:RunLog.flush",
        never_mind,
    ),
    Mutant(
        "settle window skipped",
        "absence is believed at once",
        "beforehand.model.decision.evidence:until_believable_ms",
        always(0),
    ),
    Mutant(
        "open call counted as over",
        "absence is believed while a call still runs",
        "beforehand.model.decision.evidence:over_ms",
        open_is_over,
    ),
    Mutant(
        "every process is dead",
        "a living process's call counts as over",
        "beforehand.engine.previous_owner:_fate",
        fate_is_dead,
    ),
    Mutant(
        "windows by the wall clock",
        "a clock jump shortens a settle window",
        "beforehand.model.decision.evidence:over_ms",
        wall_clock_windows,
    ),
    Mutant(
        "key per attempt",
        "each attempt has its own idempotency key",
        "beforehand.engine.current_operation:CurrentOperation.key",
        key_of_the_attempt,
    ),
    Mutant(
        "key never forgotten",
        "a key is used after the system forgot it",
        "beforehand.model.decision.evidence:key_left_ms",
        always(2**62),
    ),
    Mutant(
        "budget reset on restart",
        "each owner counts its own attempts only",
        "beforehand.model.decision.evidence:AttemptEvidence.__init__",
        only_this_owner_counts,
    ),
    Mutant(
        "no budget",
        "attempts are not counted",
        "beforehand.model.decision.evidence:AttemptEvidence.__init__",
        nothing_is_spent,
    ),
    Mutant(
        "the last attempt decides",
        "a clean end hides an earlier ambiguous one",
        "beforehand.model.decision.evidence:AttemptEvidence.__init__",
        only_the_last_attempt,
    ),
    Mutant(
        "plain writes retried",
        "an ambiguous plain write is sent again",
        "beforehand.model.decision.send_rules:after_ambiguity",
        sends_again("none"),
    ),
    Mutant(
        "verifiable writes retried",
        "an ambiguous verifiable write is sent again unread",
        "beforehand.model.decision.send_rules:after_ambiguity",
        sends_again("verifiable"),
    ),
    Mutant(
        "lost means unsent",
        "a call whose process died counts as never sent",
        "beforehand.model.run_history:RunHistory.add",
        lost_means_unsent,
    ),
    Mutant(
        "error means refused",
        "a 500 after the effect counts as a refusal",
        "beforehand.engine.exceptions.call_end:end_of_error",
        ends_as("rejected", RuntimeError),
    ),
    Mutant(
        "in progress means refused",
        "a 409 counts as a refusal",
        "beforehand.engine.exceptions.call_end:end_of_error",
        ends_as("rejected", KeyInProgress),
    ),
    Mutant(
        "timeout means unsent",
        "a timeout counts as never sent",
        "beforehand.engine.exceptions.call_end:end_of_error",
        ends_as("not_sent", TimeoutError),
    ),
    Mutant(
        "unreadable means unsent",
        "an answer that cannot be read counts as never sent",
        "beforehand.engine.exceptions.call_end:end_of_error",
        ends_as("not_sent", ValueError),
    ),
    Mutant(
        "a refusal ends it",
        "a refusal of the last attempt fails an ambiguous operation",
        "beforehand.model.decision.decide:_OPEN",
        replaced("_refused", refusal_ends_it),
    ),
    Mutant(
        "unknown means failed",
        "what cannot be proven is called failed",
        "beforehand.model.decision.verify_rules:verify_or_unknown",
        unknown_means_failed,
    ),
    Mutant(
        "unknown sent again",
        "what a person was asked about is sent by itself",
        "beforehand.model.decision.verify_rules:slow_reading",
        attempts_again,
    ),
    Mutant(
        "cannot tell means absent",
        "a verifier that cannot read counts as absence",
        "beforehand.engine.verification:_ask",
        verdict_is(DidNotHappen()),
    ),
    Mutant(
        "returned is enough",
        "expected evidence is not read back",
        "beforehand.model.decision.decide:_OPEN",
        replaced("_returned", returned_is_enough),
    ),
    Mutant(
        "preconditions unread",
        "a natural write is repeated over another party's change",
        "beforehand.model.decision.send_rules:_preconditions",
        always(None),
    ),
    Mutant(
        "stale means failed",
        "preconditions that our own effect changed fail it",
        "beforehand.model.decision.send_rules:_preconditions",
        stale_means_failed,
    ),
    Mutant(
        "send-by ignored",
        "a call is sent after its deadline",
        "beforehand.engine.current_operation:CurrentOperation.check_send",
        always(None),
    ),
    Mutant(
        "arguments drift",
        "a retry is sent with other arguments",
        "beforehand.engine.operation_driver:decoded",
        arguments_drift,
    ),
    Mutant(
        "business key ignored", "two runs may do one thing", "beforehand.engine.tool_protocol:ToolCode.claims", not_kept
    ),
    Mutant(
        "everything rides",
        "the outcome of a plain write is returned before it is durable",
        "beforehand.model.contract:Contract.rides",
        kept,
    ),
    Mutant(
        "found without its result",
        "the agent does not receive what was found",
        "beforehand.engine.executor:_result",
        found_without_result,
    ),
    Mutant(
        "broken chain",
        "records are not chained to each other",
        "beforehand.journal.run_log:RunLog.rows",
        chain_skips_the_body,
    ),
    Mutant(
        "early events dropped",
        "a webhook before its wait is lost",
        "beforehand.engine.durable_waits:_rings",
        early_events_dropped,
    ),
    Mutant(
        "end not listed",
        "a completed run is driven for ever",
        "beforehand.journal.run_log:RunLog._write",
        end_not_listed,
    ),
    Mutant(
        "wake-up not noticed",
        "an event at the moment of suspension is lost",
        "beforehand.engine.suspension:notify_owner",
        knocks_in_vain,
    ),
    Mutant(
        "late reports dropped",
        "a fenced owner does not report what it knows",
        "beforehand.engine.late_reports:file_late",
        never_mind,
        test="tests/unit/engine/test_late.py",
    ),
    Mutant(
        "leases kept",
        "a lease that could not be given back stays",
        "beforehand.engine.process:Leases.give_back",
        always(None),
    ),
    Mutant(
        "windows begin anew",
        "each owner measures every window from its own claim",
        "beforehand.model.run_history:Ownership.measured_since",
        now_only,
    ),
    Mutant(
        "waiting runs forgotten",
        "a waiting run whose owner died is left alone",
        "beforehand.journal.backend_rules:wants_worker",
        only_released,
        from_seed=HELD,
    ),
    Mutant(
        "claims awaited for ever",
        "no person is asked about a business key that is held",
        "beforehand.engine.conflicts:_waited_ms",
        always(0),
    ),
    Mutant(
        "secrets stored",
        "the value of a secret is written down with its name",
        "beforehand.model.canonical.forms:_EXACT_FORMS",
        secrets_revealed,
    ),
    Mutant(
        "model asked again",
        "a recorded decision is not used",
        "beforehand.agent.model_decisions:decide",
        asked_again,
    ),
)
