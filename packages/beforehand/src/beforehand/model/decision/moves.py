"""The moves that `decide` can answer with. Each names the rule that decided; the executor performs it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from beforehand.model.outcome import Basis, PendingEffect


class _Move(msgspec.Struct, frozen=True, tag=True, gc=False):
    rule: str


class Send(_Move, frozen=True):
    """Send, once."""


class Observe(_Move, frozen=True):
    """Read the preconditions. `kept`: the first reading is recorded, because a person is shown it."""

    kept: bool = False


class Verify(_Move, frozen=True):
    """Read the world back."""


class Wait(_Move, frozen=True):
    """Pause between `low_ms` and `high_ms`; the executor draws and records. `until_woken`: no clock ends it.

    `drawn` waits are recorded already: only the rest is left. `shut`: a breaker is open meanwhile. `why` names what
    is waited for: a retry, a reading, a deferred answer, a call that runs here, the end of a call that is not on
    record yet, a breaker, a limit of calls, another operation's claim, a commit, the agent's code with its
    arguments, the end of a pause, trust in the journal, a higher budget, or a person.
    """

    low_ms: int = 0
    high_ms: int = 0
    why: Literal[
        "retry", "verify", "answer", "call", "end", "breaker", "limit", "claim", "commit", "code", "paused", "trust",
        "budget", "person",
    ] = "retry"  # fmt: skip
    drawn: bool = False
    shut: bool = False
    until_woken: bool = False


class Judge(_Move, frozen=True):
    """Let the policy judge it, and record what it says."""


class RequestApproval(_Move, frozen=True):
    """Ask a person before sending. `escalated`: others than were asked before, who did not answer in time."""

    escalated: bool = False


class Hold(_Move, frozen=True):
    """Keep the effect for the commit of its transaction."""


class Reuse(_Move, frozen=True):
    """Answer with the outcome of `source`; nothing is sent."""

    source: str = ""


class Settle(_Move, frozen=True):
    """Record an outcome. `unknown` is not final: an unknown operation is read back, and a person is asked."""

    status: Literal["succeeded", "failed", "unknown", "cancelled"] = "unknown"
    basis: Basis = Basis("rule")
    reason: str = ""
    code: str = ""
    attempt: int = 0  # whose result is the result
    unverified: bool = False
    pending_effect: PendingEffect | None = None


class Park(_Move, frozen=True):
    """Leave it to a person. `forgotten`: a restored journal may have forgotten an attempt that landed."""

    why: str = ""
    forgotten: bool = False


class Done(_Move, frozen=True):
    """Nothing is left to do."""


Move: TypeAlias = Send | Observe | Verify | Wait | Judge | RequestApproval | Hold | Reuse | Settle | Park | Done
