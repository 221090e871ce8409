"""Rules about reading the world back: when, how often, how long, and what follows from it."""

from __future__ import annotations

from typing import Final, Literal

from beforehand.model.decision.evidence import (
    EVIDENCE,
    RULE,
    Case,
    checking_ms,
    hung_ms,
    quiet_ms,
    until_believable_ms,
    wait_left_ms,
)
from beforehand.model.decision.moves import Move, Park, Settle, Verify, Wait
from beforehand.model.outcome import RETURNED

LOOK_AGAIN_MS: Final = 60_000
"""How often to ask whether the process of an attempt that may still run is dead. The run is suspended in between."""
_HUNG_AT_LEAST_MS: Final = 120_000
_HUNG_PART: Final = 8  # while a process hangs, the next check comes after this part of the time that it has hung


def verify_or_unknown(case: Case, reason: str) -> Move:
    """Only proof can settle it: read back until that is hopeless, then ask a person."""
    if case.can_verify and not verification_over(case):
        return next_reading(case)
    if case.verifier_comes_late:
        return Wait("its verifier comes with the code of a host", why="code", until_woken=True)
    if hung_too_long(case):
        reason = f"{reason}; {case.situation.hung}"
    return Settle("could not be proven in time" if case.can_verify else "nothing can prove it", "unknown", RULE, reason)


def hung_too_long(case: Case) -> bool:
    """True if a live process may still run a call, and has for so long that a person has to look at it."""
    situation = case.situation
    return situation.hung != "" and hung_ms(case.operation.attempts, case.now) >= situation.hung_owner_ms


def until_over(case: Case, reason: str) -> Move:
    """Wait until no call can run any more. Once its process has hung too long, a person is asked, and checks go on."""
    waits = "an attempt without an answer may still run"
    if case.operation.phase == "unknown":
        again = _looks_apart_ms(case)
        return Wait(waits, again, again, "person")
    # Not until something wakes it: the death of that process wakes nothing.
    return ask_about_hung(case, reason) or Wait(waits, LOOK_AGAIN_MS, LOOK_AGAIN_MS, "end")


def ask_about_hung(case: Case, reason: str) -> Settle | None:
    """Ask a person to look at the process, where it has hung too long."""
    if not hung_too_long(case):
        return None
    return Settle("its process hangs", "unknown", RULE, f"{reason}; {case.situation.hung}")


def next_reading(case: Case) -> Move:
    """Verify now, or wait for the moment when that can prove more."""
    operation = case.operation
    if (pause := recorded_pause(case, "verify")) is not None:
        return pause if pause.high_ms > 0 else Verify("time to read back")
    if operation.verification.checked_since == 0:
        return Verify("read back at once: presence can be believed")
    pause_ms = case.contract.verify_every_ms
    until = until_believable_ms(operation, case.situation, case.now)
    if until:
        pause_ms = min(until, pause_ms)
    pause_ms = max(1, pause_ms)
    return Wait("until the next reading", pause_ms, pause_ms + pause_ms // 4, "verify")


def verification_over(case: Case) -> bool:
    """True if the time for verification has ended, counted from when absence could first be believed.

    It never ends without a reading after that moment. Where that moment cannot come (the window is
    unknown, or a call hangs in this process), or nothing was sent yet, it counts from the first
    reading. A call whose process is not proven dead yet is waited for: that proof is on its way, unless the
    process hangs for too long.
    """
    operation, situation, now = case.operation, case.situation, case.now
    limit, settle = case.contract.verify_deadline_ms, case.contract.settle_ms
    if operation.verification.checked_since == 0:
        return False
    quiet = quiet_ms(operation, situation, now)
    if settle is None or case.evidence.live:
        return checking_ms(operation, situation, now) >= limit
    if quiet is None:
        return hung_too_long(case)
    if operation.verification.believable_checks == 0:
        return False
    return (quiet - settle if operation.unproven else checking_ms(operation, situation, now)) >= limit


def look_for_forgotten(case: Case) -> Move:
    """A restored journal may have forgotten an attempt: only a reading, or a person, can say that there was none."""
    if case.situation.distrusted:
        return Wait("the journal is not trusted", why="trust", until_woken=True)
    if case.can_verify and not verification_over(case):
        return next_reading(case)
    why = "the world could not be read" if case.can_verify else "it may have been sent before the journal was restored"
    return Park("restored journal", why=why, forgotten=True)


def recorded_pause(case: Case, why: Literal["retry", "verify", "answer", "breaker"]) -> Wait | None:
    """The pause on record, with what is left of it, if it is one of that kind."""
    wait = case.operation.wait
    if wait is None or wait.why != why:
        return None
    left = wait_left_ms(case.operation, case.situation, case.now)
    return Wait(wait.rule, left, left, why, drawn=True)


# --- once a person was asked -----------------------------------------------------------------------------


def returned_after_all(case: Case) -> Move | None:
    """A late report says that it happened. Where evidence is expected, only that evidence (or a person) counts."""
    attempt = case.evidence.returned
    if attempt is None or case.contract.expects:
        return None
    return Settle("a late report", "succeeded", RETURNED, attempt=attempt.number)


def nothing_landed(case: Case) -> Move | None:
    """Nothing landed after all. A person was asked, so nothing is sent again on its own.

    Late reports speak of the attempts on record alone; a believable reading also of one that a restore has forgotten.
    """
    operation = case.operation
    read_back = 0 < len(operation.attempts) <= operation.verification.absent_through
    if operation.may_have_landed or (case.forgotten and not read_back):
        return None
    return Settle("proven that nothing landed", "failed", EVIDENCE, "it did not happen")


def slow_reading(case: Case) -> Move:
    """Parked operations are read back on a slow schedule; a person may settle them at any time."""
    if not case.can_verify:
        return Wait("a person is asked", why="person", until_woken=True)
    if (pause := recorded_pause(case, "verify")) is not None:
        return pause if pause.high_ms > 0 else Verify("slow schedule")
    slow = _looks_apart_ms(case)
    return Wait("slow schedule", slow, slow * 2, "verify")


def _looks_apart_ms(case: Case) -> int:
    """The pause between two checks after a person was asked. A process that hangs may end at any time."""
    slow = max(1, case.situation.slow_verify_ms)
    if case.situation.hung:
        return min(slow, max(_HUNG_AT_LEAST_MS, hung_ms(case.operation.attempts, case.now) // _HUNG_PART))
    # Where a call was proven over only now, its absence can soon be believed.
    return min(slow, until_believable_ms(case.operation, case.situation, case.now) or slow)
