"""The records of a run: one frozen class per kind, named in the past tense.

Every record is one JSON object that a person can read with `sqlite3`. `at` is the wall clock in
milliseconds, for people; `up` is the journal's clock (milliseconds on the boot that the last
`Claimed` names), for windows, which must not move when somebody sets the clock.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.model.outcome import Basis, VerdictKind

Raw = msgspec.Raw
NOTHING = Raw(b"null")

EndKind = Literal["returned", "rejected", "not_sent", "ambiguous", "key_in_progress", "lost"]


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wanted: durable before the first attempt. `identity` is what the key is derived from."""

    tool: str
    arguments: Raw
    digest: str
    contract: str
    origin: Literal["code", "model"] = "code"
    claim: str = ""
    generation: int = 0
    outside: int = 0
    words: str = ""
    observed: Raw = NOTHING
    expected: Raw = NOTHING
    executable: bool = True
    compensates: str = ""


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one call ended. `key_read` is false where a keyed tool never looked at its key."""

    kind: EndKind
    why: str = ""
    code: str = ""
    result: Raw = NOTHING
    lost: bool = False  # the result could not be stored and read back; the effect still counts
    retry_after_ms: int | None = None
    key_read: bool = True


class _Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=str, kw_only=True):
    at: int = 0
    up: int = 0


# --- one operation -------------------------------------------------------------------------------------


class OperationPlanned(_Record, frozen=True):
    """The operation exists and waits (gate, hold, breaker, schedule, claim, guard). Nothing was sent."""

    step: str
    intent: Intent
    waits_for: str = ""


class ContractStored(_Record, frozen=True):
    """The clauses behind a contract digest; written once per run before the first use."""

    digest: str
    clauses: Raw


class AttemptStarted(_Record, frozen=True):
    """The write-ahead record of one send. After it the effect may have landed."""

    step: str
    number: int
    token: int
    send_by: int  # milliseconds after `up`
    intent: Intent | None = None
    observed: Raw = NOTHING
    approval: str = ""


class AttemptEnded(_Record, frozen=True):
    """The call of one attempt is over, its thread included, or its process is proven dead."""

    step: str
    number: int
    end: End
    over: bool = True  # false: the caller gave up waiting, the call still lives


class LateReport(_Record, frozen=True):
    """What a call answered after its attempt had been given up, or after its owner was fenced."""

    step: str
    number: int
    end: End


class Verified(_Record, frozen=True):
    """The world was read back. `believed`: an absence that covers attempts 1 to `through`."""

    step: str
    verdict: VerdictKind
    believable: bool = False
    through: int = 0
    evidence: str = ""
    result: Raw = NOTHING
    lost: bool = False
    missing: tuple[str, ...] = ()


class Reobserved(_Record, frozen=True):
    """The preconditions were read again. With a gate the new reading replaces the old one."""

    step: str
    reading: Literal["same", "changed", "unreadable"]
    observed: Raw = NOTHING


class WaitScheduled(_Record, frozen=True):
    """The operation waits `ms` milliseconds, until the wall clock says about `until`."""

    step: str
    ms: int
    until: int
    why: str
    rule: str = ""


class ApprovalGranted(_Record, frozen=True):
    """A person approved exactly this operation."""

    step: str
    approval: str
    by: str


class OperationHeld(_Record, frozen=True):
    """The effect waits for the commit of its transaction."""

    step: str
    transaction: str


class HoldReleased(_Record, frozen=True):
    """The transaction commits: the held effect may leave."""

    step: str


class OperationDeferred(_Record, frozen=True):
    """The system accepted and will answer later; the same intent is not repeated meanwhile."""

    step: str
    number: int
    until: int
    evidence: str = ""


class OperationParked(_Record, frozen=True):
    """No rule can decide: a person is asked. Nothing may have been sent yet."""

    step: str
    why: str
    rule: str = ""


class OperationSettled(_Record, frozen=True):
    """The outcome. `number` and `end` fold the end of the last attempt into the same record."""

    step: str
    status: Literal["succeeded", "failed", "unknown", "cancelled"]
    basis: Basis
    rule: str = ""
    reason: str = ""
    code: str = ""
    result: Raw = NOTHING
    lost: bool = False
    unverified: bool = False
    missing: tuple[str, ...] = ()
    number: int = 0
    end: End | None = None


class Resolved(_Record, frozen=True):
    """A named person's word on an operation that no rule could decide."""

    step: str
    word: Literal["happened", "did_not_happen", "retry"]
    by: str
    evidence: str = ""
    result: Raw = NOTHING
    entry: int = 0


class Contradicted(_Record, frozen=True):
    """Evidence against a final outcome. The state stays; a review opens."""

    step: str
    evidence: str


class OutcomeReused(_Record, frozen=True):
    """A call met an effect that stands already. `source` is that operation; nothing was sent."""

    step: str
    source: str
    why: str
    result: Raw = NOTHING
    intent: Intent | None = None
    age_ms: int = 0


class CompensationLinked(_Record, frozen=True):
    """`by` is the operation that makes amends for this one."""

    step: str
    by: str


# --- one run -------------------------------------------------------------------------------------------


class RunStarted(_Record, frozen=True):
    """The run exists: its agent, its input, and which version of the agent's code began it."""

    agent: str
    input: Raw
    digest: str
    version: str = ""


class Claimed(_Record, frozen=True):
    """A worker took the lease. `boot` names the clock of every `up` that follows."""

    worker: str
    token: int
    boot: str
    number: int = 1  # claims since the last progress


class ReadRecorded(_Record, frozen=True):
    """A read: its outcome is all there is to remember."""

    step: str
    tool: str
    arguments: Raw
    digest: str
    status: Literal["succeeded", "failed"] = "succeeded"
    reason: str = ""
    code: str = ""
    result: Raw = NOTHING
    attempts: int = 1


class DecisionStarted(_Record, frozen=True):
    """A model call was begun: its reservation is durable before the money can be spent."""

    step: str
    function: str
    number: int = 1


class DecisionRecorded(_Record, frozen=True):
    """What a model decided: what it saw (digest, and only the new part), why, how sure, what it cost."""

    step: str
    function: str
    digest: str
    seen: Raw = NOTHING
    status: Literal["succeeded", "failed"] = "succeeded"
    reason: str = ""
    result: Raw = NOTHING
    why: str = ""
    confidence: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    ms: int = 0


class ValueRecorded(_Record, frozen=True):
    """A journaled value: the time, chance, an identifier, a version marker."""

    step: str
    what: str
    value: Raw


class TimerSet(_Record, frozen=True):
    """The run sleeps, or waits for an event until a time limit."""

    step: str
    until: int
    event: str = ""
    key: str = ""


class TimerFired(_Record, frozen=True):
    """The time is over."""

    step: str


class EventReceived(_Record, frozen=True):
    """A ledger entry reached the code that waited for it."""

    step: str
    event: str
    key: str
    payload: Raw
    entry: int


class Delivered(_Record, frozen=True):
    """The code was told something other than the outcome that stands now: an unknown, a promise."""

    step: str
    told: str
    detail: str = ""


class CallerLeft(_Record, frozen=True):
    """The caller was cancelled while the operation was in flight; replay raises at the same point."""

    step: str


class CommandApplied(_Record, frozen=True):
    """A command from outside (cancel, pause, unpause) was taken from the ledger."""

    command: str
    by: str
    entry: int
    note: str = ""


class RunSuspended(_Record, frozen=True):
    """Nothing can go on without a person, an event or a timer."""

    reason: str


class RunReopened(_Record, frozen=True):
    """A stopped run goes on under the same id after a fix."""

    by: str
    version: str = ""
    note: str = ""


class RunCompleted(_Record, frozen=True):
    """The agent returned."""

    result: Raw


class RunStopped(_Record, frozen=True):
    """The run ended before its end. `open` lists the operations that are not settled."""

    reason: Literal["error", "diverged", "quarantined", "budget", "cancelled"]
    error: str = ""
    detail: str = ""
    open: tuple[str, ...] = ()


OperationRecord: TypeAlias = (
    OperationPlanned
    | AttemptStarted
    | AttemptEnded
    | LateReport
    | Verified
    | Reobserved
    | WaitScheduled
    | ApprovalGranted
    | OperationHeld
    | HoldReleased
    | OperationDeferred
    | OperationParked
    | OperationSettled
    | Resolved
    | Contradicted
    | OutcomeReused
    | CompensationLinked
)
RunRecord: TypeAlias = (
    RunStarted
    | Claimed
    | ContractStored
    | ReadRecorded
    | DecisionStarted
    | DecisionRecorded
    | ValueRecorded
    | TimerSet
    | TimerFired
    | EventReceived
    | Delivered
    | CallerLeft
    | CommandApplied
    | RunSuspended
    | RunReopened
    | RunCompleted
    | RunStopped
)
Record: TypeAlias = OperationRecord | RunRecord
