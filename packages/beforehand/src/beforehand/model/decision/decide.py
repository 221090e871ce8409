"""The one function that decides what happens next to an operation.

`decide` is pure and total: for every reachable state and every situation it answers with one move and the rule behind
it. First attempts, retries and recovery after a crash all come through here. The rules are tried in order and judge
*all* attempts together: a clean end of the last attempt never hides an earlier one that may have landed.

`engine/previous_owner.py` gives each attempt of an earlier owner of the run the end `lost`. Its field `over` is true
where the death of the process is proven; an attempt that is not over may still land, and nothing is sent after it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from beforehand.model.decision.evidence import (
    EVIDENCE,
    RULE,
    Case,
    Rule,
    answer_left_ms,
    elapsed_ms,
    in_progress_ms,
    landing_ms,
)
from beforehand.model.decision.moves import Done, Move, Park, RequestApproval, Settle, Verify, Wait
from beforehand.model.decision.send_rules import after_ambiguity, arguments_missing, clear_to_send, policy_ruling
from beforehand.model.decision.situation import BLOCKED, Moment, Situation
from beforehand.model.decision.verify_rules import (
    look_for_forgotten,
    next_reading,
    nothing_landed,
    recorded_pause,
    returned_after_all,
    slow_reading,
    until_over,
    verification_over,
    verify_or_unknown,
)
from beforehand.model.operation import OperationState
from beforehand.model.outcome import EXPIRED, FINAL, INTERRUPTED, RETURNED
from beforehand.policies import milliseconds


def decide(operation: OperationState, situation: Situation, now: Moment) -> Move:
    """The next move of this operation. Pure; total; every move names its rule."""
    if operation.phase in FINAL:
        return Done("the outcome is final")
    case = Case(operation, situation, now)
    unknown = operation.phase == "unknown"
    rules = _AFTER_UNKNOWN if unknown else _OPEN if operation.attempts else _UNTRIED
    for rule in rules:
        if (move := rule(case)) is not None:
            if type(move) is not Settle:
                return move
            if move.status == "succeeded":
                return _once_landed(case, move)
            return look_for_forgotten(case) if _calls_unsent(move) and case.forgotten else move
    return slow_reading(case) if unknown else after_ambiguity(case)


def _once_landed(case: Case, success: Settle) -> Move:
    """The success of a natural write counts once no attempt of it can land any more, on top of a later write.

    Until then the operation is open: the run goes no further, and a business key stays taken.
    """
    if (window := case.contract.overtaken_ms) is None:
        return success
    left = landing_ms(case.evidence.ambiguous, window, case.situation, case.now)
    if case.forgotten and left is not None:  # the process that made it was gone when this one took the run
        left = max(left, window - max(0, case.now.up - case.situation.claimed_up))
    if left == 0:
        return success
    if left is None:
        return until_over(case, "an earlier attempt may still land on top of later writes")
    why: Literal["end", "person"] = "person" if case.operation.phase == "unknown" else "end"
    return Wait("an attempt without an answer may still land", left, left, why)


def _calls_unsent(move: Settle) -> bool:
    """True if the records alone prove that nothing happened, without an answer or a reading."""
    return move.basis == RULE and move.status in {"failed", "cancelled"}


# --- what the attempts already prove ---------------------------------------------------------------------


def _returned(case: Case) -> Move | None:
    """Some attempt returned, a late report included: it happened."""
    attempt = case.evidence.returned
    if attempt is None or attempt.end is None:
        return None
    seen = case.operation.verification
    if not (case.contract.expects and case.contract.effect == "write"):
        return Settle("returned", "succeeded", RETURNED, attempt=attempt.number)
    if seen.found is not None:
        return Settle("returned, evidence read back", "succeeded", EVIDENCE, attempt=attempt.number)
    if seen.conflict:
        return Park("returned, but something else is there", why=seen.conflict)
    if seen.absent_through >= attempt.number:
        return Settle("returned, but absent after the window", "unknown", RULE, "returned, but not there")
    if case.can_verify and not verification_over(case):
        return next_reading(case)
    if seen.absent_last:
        return Settle("returned, but absent until the deadline", "unknown", RULE, "returned, but not there")
    return Settle("returned, could not be read back", "succeeded", RETURNED, attempt=attempt.number, unverified=True)


def _happened(case: Case) -> Move | None:
    """A verifier found the effect itself."""
    if case.operation.verification.found is None:
        return None
    return Settle("found by verification", "succeeded", EVIDENCE)


def _refused(case: Case) -> Move | None:
    """Refused, and nothing else can have landed (or the refusal is the key's one stored answer)."""
    evidence, attempt = case.evidence, case.evidence.rejected
    if attempt is None or attempt.end is None or evidence.returned is not None:
        return None
    end = attempt.end
    if not (evidence.ambiguous or case.forgotten) or evidence.repeat_safety == "read":
        return Settle("refused, and nothing landed", "failed", RETURNED, end.why, end.code, attempt.number)
    key = case.contract.key
    one_answer = key is not None and key.stores == "all" and key.in_progress != "runs_twice"
    if one_answer and evidence.repeat_safety == "keyed":
        return Settle("refused: the key's one answer", "failed", RETURNED, end.why, end.code, attempt.number)
    return None


# --- what is waited for, whatever the attempts say -------------------------------------------------------


def _call_open(case: Case) -> Move | None:
    """A call of ours still runs within its time."""
    if not any(attempt.end is None and attempt.number in case.situation.live for attempt in case.operation.attempts):
        return None
    return Wait("a call is still open", why="call", until_woken=True)


def _waits_for_approval(case: Case) -> Move | None:
    """A person was asked before anything could land: only that person's answer, or the end of the run, moves it."""
    operation, situation = case.operation, case.situation
    if operation.phase != "gated" or situation.blocked:
        return None
    if (judged := policy_ruling(case)) is not None:
        return judged
    if operation.approval.asked_digest and situation.asks not in {"", operation.approval.asked_digest}:
        return RequestApproval("what a person was asked about has changed")
    if operation.approval.expired(case.now.wall):
        return _expired(operation)
    return Wait("a person is asked", why="person", until_woken=True)


def _expired(operation: OperationState) -> Move:
    """The question was not answered in time: it is refused, or the question goes on to others."""
    if operation.approval.on_expiry == "escalate":
        return RequestApproval("no answer came in time, so others are asked", escalated=True)
    if operation.may_have_landed:
        return Settle("no answer came in time", "unknown", RULE, "no yes or no to sending it again came in time")
    return Settle("no answer came in time", "failed", RULE, "no yes or no came in time", EXPIRED)


def _held(case: Case) -> Move | None:
    if case.operation.phase != "held" or case.situation.blocked:
        return None
    return Wait("held until its transaction commits", why="commit", until_woken=True)


def _unfit(case: Case) -> Move | None:
    """An answer arrived that the tool cannot have returned: verify the effect, or ask a person."""
    if case.operation.phase != "awaiting":
        return None
    end = case.operation.attempts[-1].end
    assert end is not None, "a deferral is the end of its attempt"
    return verify_or_unknown(case, end.why) if end.unfit else None


def _awaiting(case: Case) -> Move | None:
    """The system accepted it and answers later. Meanwhile it is not repeated; after its time, only if proven absent."""
    if case.operation.phase != "awaiting":
        return None
    left = answer_left_ms(case.operation, case.now)
    if left <= 0:
        return verify_or_unknown(case, "its answer did not come in time")
    every = case.operation.deferral.every_ms
    if not every or not case.can_verify:
        return Wait("the answer comes later", left, left, "answer", drawn=True)
    if (pause := recorded_pause(case, "verify")) is None:
        every = min(every, left)
        return Wait("until the next look for its answer", every, every, "verify")
    return pause if pause.high_ms > 0 else Verify("time to look for its answer")


# --- what blocks new attempts ----------------------------------------------------------------------------


def _conflict(case: Case) -> Move | None:
    """An effect is there that is not ours."""
    if not case.operation.verification.conflict or case.operation.phase == "gated":
        return None
    return Park("conflict", why=case.operation.verification.conflict)


def _sending_ended(case: Case) -> Move | None:
    """Cancel, deadline, a correction, a message, code that is gone, an aborting transaction; a late refusal."""
    reason = _why_blocked(case)
    if not reason:
        reads = case.situation.blocked and case.can_verify and not verification_over(case)
        return next_reading(case) if reads else None
    evidence = case.evidence
    if case.situation.blocked == "stopped" and not evidence.ambiguous:
        return Wait("the run has stopped", why="person", until_woken=True)
    if evidence.repeat_safety == "read" and not case.operation.intent.asks_only:
        return Settle("sending ended", "failed", RULE, reason)
    code = INTERRUPTED if case.situation.blocked == "message" else ""
    if evidence.unsent and case.situation.blocked in {"cancel", "aborting", "corrected", "message", "cut_off"}:
        return Settle("called off before it was sent", "cancelled", RULE, reason, code)
    if not evidence.ambiguous:
        return Settle("sending ended, nothing landed", "failed", RULE, reason, code)
    return verify_or_unknown(case, reason)


def _why_blocked(case: Case) -> str:
    operation = case.operation
    if case.situation.blocked and not _settled_under_key(case):
        return BLOCKED[case.situation.blocked]
    if operation.intent.completes:
        return "a part of an effect is never sent by itself"
    if operation.approval.extra_attempt or not operation.attempts:
        return ""
    end = operation.attempts[-1].end
    last = end.why if end is not None else "the last one has no end on record"
    if operation.approval.person_asked:
        return f"a person was asked before; {last}"
    if used_up := _used_up(case):
        return f"{used_up}; {last}"
    if case.evidence.rejected is not None:
        return "refused after an attempt that may have landed"
    return ""


def _settled_under_key(case: Case) -> bool:
    """True if a call of a transaction that is called off is sent again: under its key, to compensate what it then has.

    Once a person or the deadline has ended the run, only a person's order sends it.
    """
    operation, situation = case.operation, case.situation
    allowed = situation.way_back == "open" or (situation.way_back == "ended" and operation.approval.extra_attempt)
    if situation.blocked != "aborting" or not allowed or not operation.settled_by_key(case.contract):
        return False
    ambiguous = bool(case.evidence.ambiguous) and case.evidence.repeat_safety == "keyed"
    return ambiguous and situation.tool == "present" and arguments_missing(case) is None


def _used_up(case: Case) -> str:
    """The limit that the attempts have reached. While the system works on our key, a time of its own is the limit."""
    operation, contract = case.operation, case.contract
    retry, busy = contract.retries, operation.in_progress
    # Deaths are not among them, but a single attempt is the only one.
    spent = case.evidence.spent if retry.attempts > 1 else max(case.evidence.spent, operation.deaths)
    if spent >= retry.attempts:
        return f"{spent} of {retry.attempts} attempts were made"
    cost = sum(attempt.end.cost or 0 for attempt in operation.attempts if attempt.end is not None)
    if cost >= contract.budget.cost:
        return f"its budget of {contract.budget.cost:g} is spent ({cost:g})"
    if busy:
        waited, patience = in_progress_ms(operation, case.now), timedelta(milliseconds=contract.patience_ms)
        over = waited >= contract.patience_ms
        return f"the system has been working on it for {patience}, as it says itself" if over else ""
    used = elapsed_ms(operation, case.situation, case.now)
    if case.situation.breaker_ms <= 0 and used >= milliseconds(retry.elapsed):
        return f"the time for attempts is over ({retry.elapsed})"
    return ""


def _tool_gone(case: Case) -> Move | None:
    if case.situation.tool == "present":
        return None
    if case.operation.intent.late and not case.situation.at_hand:
        return None  # the host that calls again brings the tool: `arguments_missing` waits for it
    return Park("tool gone", why=f"the tool {case.operation.intent.tool} is no longer in this app")


def _contradicted(case: Case) -> Move | None:
    """It was compensated, whether it happened or not, and a report says that it did: a person decides about both."""
    return Done("contradicted: a person is asked") if case.operation.links.contradicted else None


def _compensated_unknown(case: Case) -> Move | None:
    """No person is asked about an effect that its transaction compensates whether it is there or not.

    Where a verifier may still find it, it is read on, and a person is asked: it may land after its compensation.
    """
    if case.operation.links.amended:
        return Done("compensated, whether it happened or not")
    if not case.situation.way_back or not case.contract.absent_safe or case.contract.verifies:
        return None
    return Wait("its transaction compensates it, whether it happened or not", why="commit", until_woken=True)


_OPEN: Final[tuple[Rule, ...]] = (
    _returned,
    _happened,
    _call_open,
    _refused,
    _waits_for_approval,
    _held,
    _unfit,
    _awaiting,
    _conflict,
    _sending_ended,
    _tool_gone,
    clear_to_send,
)
_ABOUT_ATTEMPTS: Final = (_returned, _call_open, _refused, _unfit, _awaiting)  # without an attempt they say nothing
_UNTRIED: Final = tuple(rule for rule in _OPEN if rule not in _ABOUT_ATTEMPTS)
_AFTER_UNKNOWN: Final[tuple[Rule, ...]] = (
    _contradicted,
    _happened,
    returned_after_all,
    _refused,
    nothing_landed,
    _compensated_unknown,
)
