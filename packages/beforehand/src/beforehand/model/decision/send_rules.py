"""Rules before a send: what blocks it, and when an attempt may follow one that may have landed."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from beforehand.model.decision.evidence import RULE, Case, Rule, until_believable_ms
from beforehand.model.decision.moves import Hold, Judge, Move, Observe, Park, RequestApproval, Reuse, Send, Settle, Wait
from beforehand.model.decision.situation import OtherEffect
from beforehand.model.decision.verify_rules import (
    ask_about_hung,
    look_for_forgotten,
    next_reading,
    recorded_pause,
    until_over,
    verification_over,
    verify_or_unknown,
)
from beforehand.model.outcome import MISMATCH, PENDING, REFUSED
from beforehand.policies import WRITE_RETRY, Retry, milliseconds

_SECOND: Final = timedelta(seconds=1)
_FIRST: Final = Send("first attempt")
_SPENT: Final = "the budget of the run is spent"


def clear_to_send(case: Case) -> Move | None:
    """Nothing can have landed: attempt, once everything that stands before it is out of the way."""
    if case.evidence.ambiguous:
        return None
    rules = _BEFORE_ANY if case.operation.attempts else _BEFORE_FIRST
    if case.situation.budget is not None:  # else its rule is not asked, so that runs without a budget pay nothing
        rules = _BEFORE_ANY_LIMITED if case.operation.attempts else _BEFORE_FIRST_LIMITED
    for rule in rules:
        if (move := rule(case)) is not None:
            return move
    return _send(case)


def after_ambiguity(case: Case) -> Move:
    """Some attempt may have landed; what may be done depends on what the tool promises."""
    repeat_safety, order = case.evidence.repeat_safety, case.operation.approval.extra_attempt
    if order and (asked := _approval_wanted(case)) is not None:
        return asked
    if order == "retry" or repeat_safety in {"read", "natural"}:
        return _send(case)
    if repeat_safety == "keyed":
        if order:
            return _send(case)
        return look_for_forgotten(case) if _may_have_passed_on(case) else _retry_under_key(case)
    return verify_or_unknown(case, "its key may be forgotten by now" if order else "an attempt may have landed")


def _may_have_passed_on(case: Case) -> bool:
    """True if an operation that a restored journal has forgotten may have taken over the business key, and landed."""
    return case.forgotten and case.operation.intent.claim != ""


# --- before the first attempt ----------------------------------------------------------------------------


def _other_effect(case: Case) -> Move | None:
    """Another operation has the same real-world effect, or the same words of a model."""
    other = case.situation.other
    if other is None or other.then == "allow" or case.operation.approval.extra_attempt:
        return None
    if other.pending_effect is not None:
        reason = f"{other.pending_effect}"
        return Settle(
            "the same thing is pending", "cancelled", RULE, reason, PENDING, pending_effect=other.pending_effect
        )
    if other.mismatch:
        intent = case.operation.intent
        reason = f"{intent.tool} {intent.claim!r} is already {other.source}, with other arguments"
        return Settle("other arguments under one business key", "failed", RULE, reason, MISMATCH)
    if other.state == "pending":
        return _pending(other)
    if other.then == "replay":
        return Reuse(f"{other.by} met a success", source=other.source)
    if other.then == "block":
        return Settle("repeat blocked", "failed", RULE, f"repeats {other.source}", "repeat")
    return None if _approved(case) else RequestApproval("a repeat has to be approved")


def _pending(other: OtherEffect) -> Move:
    """The conflicting operation has no final outcome: it runs, or is unknown, or deferred, for which no model waits."""
    if other.deferred and other.by == "guard":
        return Settle("repeats what is pending", "cancelled", RULE, f"{other.source} was accepted, and is not finished")
    if other.waited_out:
        return Park(f"{other.by} held too long", why=f"{other.source} has not been settled")
    return Wait(f"{other.by} held by {other.source}", why="claim", until_woken=True)


def policy_ruling(case: Case) -> Move | None:
    """The policy's decision, once it was asked. On an order of a person the ruling that there is counts."""
    operation = case.operation
    judged = operation.judgement.policy
    if case.situation.policy not in {"", judged} and not (judged and operation.approval.extra_attempt):
        return Judge("the policy has not judged it")
    ruling = operation.judgement.ruling
    if ruling is None or ruling.word != "refuse":
        return None
    reason = f"the rule {ruling.rule!r} of the policy {operation.judgement.policy} refuses it"
    return Settle("refused by the policy", "failed", RULE, reason, REFUSED)


def _budget(case: Case) -> Move | None:
    """A limit of the run is reached. A person's command for one more attempt overrides it."""
    spent = case.situation.budget
    if spent is None or case.operation.approval.extra_attempt:
        return None
    if spent.then == "ask":
        return Wait(_SPENT, why="budget", until_woken=True)
    return Settle(_SPENT, "failed", RULE, spent.reason, spent.code)


def _approval_wanted(case: Case) -> Move | None:
    """Ask a person where the tool's gate, the policy or an edit requires it.

    An edit requires it whatever gate and policy say. A command to send once more does not replace an approval: else one
    yes would be good for any number of sends.
    """
    operation, ruling = case.operation, case.operation.judgement.ruling
    order, again = operation.approval.extra_attempt, operation.approval.orders > 0
    asks = again or (ruling is not None and ruling.asks)
    wanted = case.situation.gate == "wanted" or (asks and not case.situation.permitted)
    if _approved(case) or not (operation.edits or wanted):
        return None
    if case.contract.observes and case.situation.reading in {"unread", "unreadable"} and not order:
        if case.situation.reading == "unread":
            return Observe("an approval is bound to what it relies on", kept=True)
        return _preconditions(case)
    if operation.edits:
        return RequestApproval("its arguments were edited")
    if again:
        return RequestApproval("each order to send it again takes a yes of its own")
    return RequestApproval(
        "the contract asks for a person" if case.situation.gate == "wanted" else "the policy asks for a person"
    )


def _approved(case: Case) -> bool:
    """True if a person approved exactly this; the approval closes early by the error of the clocks.

    The first attempt after it was given ends its expiry (`Approval.used`); from then on it covers every retry.
    """
    operation, situation = case.operation, case.situation
    if not operation.approval.approved_digest or (
        situation.asks and operation.approval.approved_digest != situation.asks
    ):
        return False
    until = operation.approval.approved_until
    return not until or case.now.wall < until - situation.clock_error_ms


def _hold(case: Case) -> Move | None:
    if case.situation.hold and not case.operation.released:
        return Hold("irreversible inside a transaction")
    return None


def _check_first(case: Case) -> Move | None:
    """Verify before the first attempt: declared, or the journal was restored and may have forgotten one."""
    operation, contract = case.operation, case.contract
    if case.forgotten and operation.approval.extra_attempt != "retry":
        key = contract.key
        if key is None or key.ttl is not None or key.in_progress == "runs_twice" or _may_have_passed_on(case):
            return look_for_forgotten(case)
        # else the system dedupes it, whenever it was sent first
    if not contract.check_first or operation.approval.extra_attempt or operation.verification.verified_absent_first:
        return None
    if not case.can_verify or verification_over(case):
        return Park("cannot tell whether it was already sent", why="the world could not be read")
    return next_reading(case)


def _check_again(case: Case) -> Move | None:
    """All attempts on record are proven unsent, and a restored journal may have forgotten one after them."""
    return _check_first(case) if case.situation.began_doubtful else None


# --- conditions of any send ------------------------------------------------------------------------------


def _send(case: Case) -> Move:
    """Attempt, unless something blocks it. Meanwhile the world is read back where that can help."""
    attempts = case.operation.attempts
    for obstacle in _OBSTACLES if attempts else _OBSTACLES_AT_FIRST:
        if (move := obstacle(case)) is not None:
            return _verify_meanwhile(case, move)
    limited = case.situation.limit is not None  # a call without a limit pays nothing
    for rule in (_backoff, _breaker, _limit, _preconditions) if limited else (_backoff, _breaker, _preconditions):
        if (move := rule(case)) is not None:
            return move
    if case.situation.misfit:  # the executor finds it out after the first Send, and asks again
        return Park("arguments", why=case.situation.misfit)
    return Send(_why_again(case)) if attempts else _FIRST


def _verify_meanwhile(case: Case, otherwise: Move) -> Move:
    """Reading back goes on while a send has to wait: it has a reserve of its own."""
    unproven = case.evidence.ambiguous and case.evidence.repeat_safety != "read"
    return next_reading(case) if unproven and case.can_verify and not verification_over(case) else otherwise


def _earlier_call(case: Case) -> Move | None:
    if case.evidence.live:
        asked = ask_about_hung(case, "an earlier call still runs") if case.evidence.repeat_safety != "read" else None
        return asked or Wait("an earlier call still runs", why="call", until_woken=True)
    if case.evidence.open:
        return Wait("the end of an earlier call is not on record yet", why="end", until_woken=True)
    return None


def _journal_distrusted(case: Case) -> Move | None:
    if not case.situation.distrusted:
        return None
    return Wait("the journal is not trusted", why="trust", until_woken=True)


def _pause(case: Case) -> Move | None:
    if not case.situation.paused:
        return None
    return Wait(f"paused: {case.situation.paused}", why="paused", until_woken=True)


def _poison(case: Case) -> Move | None:
    deaths = case.operation.deaths
    if deaths < case.situation.deaths_allowed or case.operation.approval.extra_attempt:
        return None
    return Park("quarantined", why=f"{deaths} processes died during an attempt of it")


def arguments_missing(case: Case) -> Move | None:
    """Redacted arguments, and the body of a host's tool, are not on record; the agent's code brings them back."""
    intent = case.operation.intent
    if case.situation.at_hand:
        return None
    if intent.late:
        return Wait("its body comes with the code of a host", why="code", until_woken=True)
    if intent.executable:
        return None
    if intent.compensates:  # its arguments come from a record, and not from code
        return Park("arguments not stored", why="its arguments are not stored, so a person has to undo it")
    return Wait("its arguments are not stored", why="code", until_woken=True)


def _breaker(case: Case) -> Move | None:
    """Wait while the breaker is open. The operation does not fail, and the wait uses up no time for attempts."""
    left = case.situation.breaker_ms
    if left <= 0:
        return None
    pause = recorded_pause(case, "breaker")
    if pause is not None and pause.high_ms > 0:
        left = min(left, pause.high_ms)
        return _verify_meanwhile(case, replace(pause, low_ms=left, high_ms=left))
    move = _verify_meanwhile(case, Wait("the breaker is open", left, left, "breaker"))
    return replace(move, shut=True) if isinstance(move, Wait) else move


def _limit(case: Case) -> Move | None:
    """Wait until the limit permits another call. As behind a breaker, this is no time for attempts."""
    limit = case.situation.limit
    assert limit is not None, case
    return _verify_meanwhile(case, Wait(limit.reason, limit.ms, limit.ms, "limit"))


def _backoff(case: Case) -> Move | None:
    """The pause before a further attempt: drawn once after each end, then waited out.

    A pause until the next reading, or behind a breaker, is one, too: drawing another would take its place, and nothing
    were ever read.
    """
    operation = case.operation
    if operation.wait is not None:
        if recorded_pause(case, "verify") is not None or recorded_pause(case, "breaker") is not None:
            return None
        if (pause := recorded_pause(case, "retry")) is not None:
            return pause if pause.high_ms > 0 else None
    if not operation.attempts or operation.approval.extra_attempt:
        return None
    end = operation.attempts[-1].end
    least = (end.retry_after_ms or 0) if end is not None else 0
    busy = operation.times_in_progress
    if operation.in_progress:
        # The default over an outage is about attempts; while the system works on our key, the shorter pauses hold.
        return _until_it_is_done(case.contract.retry or WRITE_RETRY, busy, least)
    ceiling = case.contract.retries.ceiling_ms(len(operation.attempts) - busy - 1)
    return Wait("full jitter before the next attempt", least, least + ceiling)


def _until_it_is_done(retry: Retry, times: int, least: int) -> Wait:
    """The pause before the system is asked again that works on our key: a second or more, growing, half of it drawn."""
    slow = replace(retry, base=max(_SECOND, retry.base))
    half = max(milliseconds(_SECOND), slow.ceiling_ms(times) // 2)
    least = max(least, half)
    return Wait("the system is working on our key", least, least + half)


def _preconditions(case: Case) -> Move | None:
    """Preconditions are read before every attempt; a person's command for one more overrides them."""
    reading, operation = case.situation.reading, case.operation
    if not case.contract.observes or case.evidence.repeat_safety == "read":
        return None
    if reading == "unread":
        return Observe("preconditions before every attempt")
    if reading == "same" or operation.approval.extra_attempt:
        return None
    why = f"its preconditions are {reading}"
    if case.evidence.ambiguous:
        return verify_or_unknown(case, why)
    return Settle("preconditions, nothing landed", "failed", RULE, why, "stale" if reading == "changed" else reading)


def _why_again(case: Case) -> str:
    if case.operation.approval.extra_attempt:
        return "a person ordered one more attempt"
    if not case.evidence.ambiguous:
        return "nothing landed: attempt again"
    return _AGAIN[case.evidence.repeat_safety]


_AGAIN: Final[dict[str, str]] = {
    "read": "a read may be repeated",
    "natural": "repeating changes nothing",
    "keyed": "the same key is still remembered",
}


def _retry_under_key(case: Case) -> Move:
    """Retry under the same key; read back first where that can prove something now."""
    key, until = case.contract.key, until_believable_ms(case.operation, case.situation, case.now)
    if key is not None and key.in_progress == "runs_twice" and until != 0:
        return _runs_twice(case, until)
    if case.can_verify and until == 0 and case.operation.verification.believable_checks == 0:
        return next_reading(case)
    return _send(case)


def _runs_twice(case: Case, until: int | None) -> Move:
    """The system runs a key twice while the first request is in progress: that must be over."""
    if case.contract.settle_ms is None:
        return verify_or_unknown(case, "the system may run the key twice, and its window is unknown")
    if until is None:
        return _verify_meanwhile(case, _earlier_call(case) or until_over(case, "the system may run the key twice"))
    pause = recorded_pause(case, "retry")
    left = pause if pause is not None and pause.high_ms > 0 else None
    return _verify_meanwhile(case, left or Wait("the system runs a key twice while in progress", until, until, "retry"))


_BEFORE_ANY: Final[tuple[Rule, ...]] = (_approval_wanted, _hold, _check_again)
_BEFORE_FIRST: Final[tuple[Rule, ...]] = (_other_effect, policy_ruling, _approval_wanted, _hold, _check_first)
_BEFORE_ANY_LIMITED: Final[tuple[Rule, ...]] = (_budget, *_BEFORE_ANY)
_BEFORE_FIRST_LIMITED: Final[tuple[Rule, ...]] = (*_BEFORE_FIRST[:2], _budget, *_BEFORE_FIRST[2:])
_OBSTACLES: Final[tuple[Rule, ...]] = (_earlier_call, _journal_distrusted, _pause, _poison, arguments_missing)
_OBSTACLES_AT_FIRST: Final[tuple[Rule, ...]] = (
    _journal_distrusted,
    _pause,
    arguments_missing,
)  # the others are about attempts
