"""Evidence of all attempts of an operation together, and how much time may be credited to each.

Windows are durations. Time counts from a recorded moment only within the boot that recorded it;
across a reboot only the time that this process itself waited counts. Ages that *close* something
(a key's memory) are taken at their largest, and a clock that went backwards closes it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from beforehand.model.contract import remembered_until_ms
from beforehand.model.decision.moves import Move
from beforehand.model.decision.situation import Moment, Situation
from beforehand.model.operation import Attempt, AttemptStatus, OperationState
from beforehand.model.outcome import Basis
from beforehand.policies import milliseconds

RepeatSafety = Literal["read", "natural", "keyed", "verifiable", "none"]
"""The ground on which a call whose effect is uncertain may be repeated: `none` means on no ground."""
FOREVER_MS = 2**62


class AttemptEvidence:
    """The attempts, sorted by what they prove, and on what ground a call may be repeated.

    `open`: some call has no end on record; it runs, or the death of its process is not proven yet.
    `live`: some call still runs in this process, given up or not. `unsent`: every attempt is proven
    unsent, or there is none. `spent` counts the attempts that are charged to the budget.
    """

    __slots__ = ("_of", "_repeat_safety", "ambiguous", "live", "open", "rejected", "returned", "spent", "unsent")

    def __init__(self, operation: OperationState, situation: Situation, now: Moment) -> None:
        self._of = (operation, situation, now)
        self._repeat_safety: RepeatSafety | None = None
        self.returned: Attempt | None = None
        self.rejected: Attempt | None = None
        self.ambiguous: tuple[Attempt, ...] = ()
        self.open = self.live = False
        self.unsent = True
        self.spent = 0
        for attempt in operation.attempts:
            self._add(attempt, attempt.standing(operation.verification.absent_through), situation.live)

    @property
    def repeat_safety(self) -> RepeatSafety:
        """The ground on which a call may be repeated, worked out when a rule first asks for it: most steps never do."""
        if self._repeat_safety is None:
            self._repeat_safety = _repeat_safety(*self._of)
        return self._repeat_safety

    def _add(self, attempt: Attempt, standing: AttemptStatus, live: frozenset[int]) -> None:
        if standing == "returned":
            self.returned = attempt
        elif standing == "rejected":
            self.rejected = attempt
        elif standing in {"ambiguous", "open"}:
            self.ambiguous = (*self.ambiguous, attempt)
        self.unsent = self.unsent and standing == "unsent"
        self.open = attempt.end is None  # only the last one can be
        self.live = self.live or attempt.number in live
        end = attempt.end  # deaths of processes have a limit of their own: `deaths_allowed`
        excused = end is not None and (end.died or (standing == "unsent" and end.retry_after_ms is not None))
        self.spent += not (excused or attempt.in_progress)


def evidence_of(operation: OperationState, situation: Situation, now: Moment) -> AttemptEvidence:
    """Sort the attempts."""
    return AttemptEvidence(operation, situation, now)


def _repeat_safety(operation: OperationState, situation: Situation, now: Moment) -> RepeatSafety:
    contract = situation.contract
    if contract.effect == "read":
        return "read"
    if contract.natural is not None and (contract.observes or natural_left_ms(operation, situation, now) > 0):
        return "natural"
    if not operation.key_unread and key_left_ms(operation, situation, now) > 0:
        return "keyed"
    return "verifiable" if contract.verifies else "none"


def _first_sent(operation: OperationState) -> Attempt | None:
    """The first attempt that may have arrived."""
    return next((attempt for attempt in operation.attempts if not attempt.unsent), None)


def age_ms(operation: OperationState, now: Moment) -> int:
    """The largest age the first attempt that may have arrived can have; 0 if there is none."""
    first = _first_sent(operation)
    if first is None:
        return 0
    if first.boot == now.boot:
        return now.up - first.up if now.up >= first.up else FOREVER_MS
    # Over a reboot only the wall clock counts. It may have been set back before that: between two attempts of one boot
    # the clock that cannot be set tells.
    moments = [(one.boot, one.up, one.at) for one in operation.attempts if one.number >= first.number]
    pairs = pairwise([*moments, (now.boot, now.up, now.wall)])
    steps = [up - since if boot == before else wall - at for (before, since, at), (boot, up, wall) in pairs]
    age = max(sum(steps), now.wall - first.at)
    return age if min(steps) >= 0 else FOREVER_MS


def natural_left_ms(operation: OperationState, situation: Situation, now: Moment) -> int:
    """How much longer the effect may be repeated without a reading; zero or less: not any more."""
    natural, first = situation.contract.natural, _first_sent(operation)
    if natural is None:
        return 0
    doubt = 0 if first is None or first.boot == now.boot else situation.clock_error_ms
    return milliseconds(natural.within) - age_ms(operation, now) - doubt


def key_left_ms(operation: OperationState, situation: Situation, now: Moment) -> int:
    """How much longer the key is trusted to be remembered; zero or less: it may be forgotten."""
    key = situation.contract.key
    if key is None:
        return 0
    until = remembered_until_ms(key, situation.contract.timeout_ms, situation.clock_error_ms)
    unused = _first_sent(operation) is None and situation.key_age_ms == 0  # the first use starts its time
    if until is None or unused:
        return FOREVER_MS
    return until - max(age_ms(operation, now), situation.key_age_ms)


def attempt_timeout_ms(operation: OperationState, situation: Situation, now: Moment) -> int:
    """How long the next attempt may take to send: its time limit, and no later than its key is remembered.

    A key that is forgotten already binds nothing: what is sent then relies on other proof.
    """
    timeout_ms, left = situation.contract.timeout_ms, key_left_ms(operation, situation, now)
    return min(timeout_ms, left) if left > 0 else timeout_ms


def elapsed_ms(operation: OperationState, situation: Situation, now: Moment) -> int:
    """Time used for attempts, which `Retry.elapsed` limits: the calls, and the pauses drawn between them.

    Neither counts for longer than it could last. So no time counts in which nothing could be attempted: between two
    processes, while a clock jumped, behind an open breaker, or while a person or another operation was waited for. Nor
    does a call whose process died: when it ended is not known, and deaths have a limit of their own.
    """
    limit = situation.contract.timeout_ms
    counted = [one for one in operation.attempts if not (one.in_progress or (one.end is not None and one.end.died))]
    calls = sum(min(limit, _call_ms(one, now, limit)) for one in counted)
    if operation.intent.late:  # its present pause lasts until its host calls it again, which alone can do so
        return calls + operation.pauses.attempts_ms
    return calls + operation.pauses_until(now.boot, now.up, now.wall).attempts_ms


def in_progress_ms(operation: OperationState, now: Moment) -> int:
    """Time waited because the system answered that it already works on our key."""
    return operation.pauses_until(now.boot, now.up, now.wall).in_progress_ms


def _call_ms(attempt: Attempt, now: Moment, unknown: int) -> int:
    """How long the call of this attempt took, or has taken so far; `unknown` where no one clock saw both ends."""
    boot, up = (now.boot, now.up) if attempt.end is None else (attempt.over_boot, attempt.over_up)
    return unknown if up is None or boot != attempt.boot else max(0, up - attempt.up)


def _credited(up: int, boot: str, situation: Situation, now: Moment) -> int:
    """Time since `up` on `boot`, as far as this process may count it: on another boot only its own."""
    return max(0, now.up - (up if boot == now.boot else situation.claimed_up))


def over_ms(attempt: Attempt, situation: Situation, now: Moment) -> int | None:
    """How long the call is known to be over, as far as it may be credited; None: it may still run."""
    if attempt.over_up is None:
        return None
    span = _credited(attempt.over_up, attempt.over_boot, situation, now)
    return span if attempt.over_boot == now.boot else max(0, min(span, now.wall - attempt.over_at))


def hung_ms(attempts: tuple[Attempt, ...], now: Moment) -> int:
    """How long the call that was given up first may have run on since; 0 where none can. A reboot ends every call."""
    spans = (now.up - one.given_up for one in attempts if one.end and one.over_up is None and one.over_boot == now.boot)
    return max(spans, default=0)


def landing_ms(attempts: tuple[Attempt, ...], window_ms: int, situation: Situation, now: Moment) -> int | None:
    """Milliseconds until none of these attempts can land any more; 0: now; None: a call may still run."""
    left = 0
    for attempt in attempts:
        span = over_ms(attempt, situation, now)
        if span is None:
            return None
        left = max(left, window_ms - span)
    return left


def quiet_ms(operation: OperationState, situation: Situation, now: Moment) -> int | None:
    """How long every call that may have landed is known to be over; None while one may still run.

    Without any such call it is the time since this process took the run.
    """
    spans: list[int] = []
    for attempt in operation.attempts:
        if attempt.standing(operation.verification.absent_through) in {"rejected", "unsent", "absent"}:
            continue
        span = over_ms(attempt, situation, now)
        if span is None:
            return None
        spans.append(span)
    return min(spans, default=max(0, now.up - situation.claimed_up))


def until_believable_ms(operation: OperationState, situation: Situation, now: Moment) -> int | None:
    """Milliseconds until an absence may be believed; 0: now; None: not known, or never.

    What is promised for later may land until then, however short the window after it is.
    """
    settle = situation.contract.settle_ms
    quiet = quiet_ms(operation, situation, now)
    if operation.phase == "awaiting" and settle is not None and (left := answer_left_ms(operation, now)) > 0:
        return left + settle
    return None if settle is None or quiet is None else max(0, settle - quiet)


def checking_ms(operation: OperationState, situation: Situation, now: Moment) -> int:
    """How long the world has been read back since the last attempt."""
    return _credited(operation.verification.checked_up, operation.verification.checked_boot, situation, now)


def answer_left_ms(operation: OperationState, now: Moment) -> int:
    """How long a deferred answer may still take; 0 when its time is over."""
    attempt = operation.attempts[-1]
    assert attempt.over_up is not None, "a deferral says when its answer is due"
    return max(0, attempt.over_up - now.up if attempt.over_boot == now.boot else attempt.over_at - now.wall)


def wait_left_ms(operation: OperationState, situation: Situation, now: Moment) -> int:
    """The rest of the recorded pause; 0 when there is none or it is over.

    On another boot the wall clock may end it early, and waiting here ends it whatever that clock says.
    """
    wait = operation.wait
    if wait is None:
        return 0
    left = wait.ms - _credited(wait.up, wait.boot, situation, now)
    return max(0, left if wait.boot == now.boot else min(left, wait.until - now.wall))


# --- one decision in the making, and the shape of a rule ------------------------------------------------------------


EVIDENCE: Final = Basis("evidence", "read back")
RULE: Final = Basis("rule")


class Case:
    """The operation, the situation, the moment, and what the attempts prove."""

    __slots__ = ("contract", "evidence", "now", "operation", "situation")

    def __init__(self, operation: OperationState, situation: Situation, now: Moment) -> None:
        self.operation = operation
        self.situation = situation
        self.contract = situation.contract
        self.now = now
        self.evidence = AttemptEvidence(operation, situation, now)

    @property
    def forgotten(self) -> bool:
        """True if a restored journal may have forgotten an attempt, and no person or reading ruled that out."""
        operation, situation = self.operation, self.situation
        if operation.verification.believed_absent_first:
            return False
        restored = situation.began_doubtful or situation.distrusted != ""
        return operation.verification.forgotten or (restored and self.contract.effect == "write")

    @property
    def can_verify(self) -> bool:
        """True if there is a verifier to ask."""
        return self.contract.verifies and self.situation.tool == "present"

    @property
    def verifier_comes_late(self) -> bool:
        """True if the code of a host has yet to bring the verifier. A run that is ending calls no code any more."""
        late = self.operation.intent.late and self.contract.verifies and not self.situation.blocked
        return late and self.situation.tool == "gone" and not self.situation.at_hand


Rule: TypeAlias = Callable[[Case], Move | None]
