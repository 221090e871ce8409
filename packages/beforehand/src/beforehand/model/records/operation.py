"""The records of one operation: its intent, attempts, readings, and people's decisions about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from beforehand.model.outcome import RETURNED, Basis, PendingEffect, VerdictKind
from beforehand.model.policy import OnExpiry, PolicyFacts, Ruling
from beforehand.model.records.common import NOTHING, Raw, Stamped
from beforehand.policies import Require

EndKind = Literal["returned", "rejected", "not_sent", "ambiguous", "key_in_progress", "lost"]


class Intent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The intended call. It is durable before the first attempt.

    The idempotency key is derived from `claim` and `outside` if there is a business key, otherwise from the step.
    """

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
    hold: str = ""  # the transaction for whose commit it waits
    compensates: str = ""  # the step that it compensates
    confirms: str = ""  # the reservation that it completes
    completes: str = ""  # the step whose effect it is a pending part of
    item: str = ""  # the tool's name for that part
    confidence: float | None = None  # the confidence of its caller, if stated
    thing: str = ""  # the digest of its subject, if the tool declares `pending`
    again: str = ""  # the reason to send it beside a pending effect on the same subject
    title: str = ""  # one sentence about it, for people; part of no digest
    taint: str = ""  # the source that touched its arguments, if its caller stated one
    late: bool = False  # only a host's code has the tool's body: the record alone never sends it
    price: str = ""  # what the tool declares that one call costs, with the currency
    asks_only: bool = False  # a yes is all that is asked for: nothing is ever sent
    covered: bool = False  # the yes to its plan covers it: a further send takes another yes

    @property
    def can_conflict(self) -> bool:
        """True if another operation may have the same effect, or the same wording."""
        return bool(self.claim or self.words or self.thing)

    @property
    def serves(self) -> str:
        """The step that it was made for by the runtime; empty where agent code called it."""
        return self.compensates or self.confirms or self.completes


class PendingItem(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A part of an effect that the system accepted and completes later, under a key.

    `within_ms` is its time limit, counted from the outcome of the whole effect, and `every_ms` the interval at which it
    is verified until then. `about` names the parameters that identify its subject, or gives the subject itself.
    """

    name: str
    key: str
    within_ms: int
    every_ms: int = 0
    about: tuple[str, ...] = ()


class Reported(msgspec.Struct, frozen=True, gc=False):
    """A fact that a call reported besides its result: its name, and its value as JSON."""

    name: str
    value: Raw


def values_of(facts: Iterable[Reported]) -> dict[str, Any]:
    """The reported values, by name."""
    return {fact.name: msgspec.json.decode(fact.value) for fact in facts}


class End(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The end of one call. `key_read` is false if a keyed tool never read its key.

    `cost` is what the call says that it spent; None if it says nothing. `pending` lists the parts of a call that
    returned and that complete later, and `facts` what the call reported about the world. With `died`, the call is lost
    and its process is proven dead; a process that only lost its lease may continue. `source` is the webhook sender, or
    the person, that delivered the end, if one did.
    """

    kind: EndKind = "returned"
    why: str = ""
    code: str = ""
    result: Raw = NOTHING
    lost: bool = False  # the result could not be stored and read back; the effect still counts
    unfit: bool = False  # an answer from outside does not fit the tool: it proves nothing alone
    retry_after_ms: int | None = None
    key_read: bool = True
    cost: float | None = None
    pending: tuple[PendingItem, ...] = ()
    facts: tuple[Reported, ...] = ()
    died: bool = False
    source: str = ""


class OperationPlanned(Stamped, frozen=True):
    """The operation exists and waits (gate, hold, breaker, schedule, claim, guard). Nothing was sent."""

    step: str
    intent: Intent
    waits_for: str = ""


class Ruled(Stamped, frozen=True):
    """The ruling of the policy on the operation, from these facts, before anything was sent.

    `policy` is the version of the policy. The ruling is final: later facts do not change it.
    """

    step: str
    policy: str
    ruling: Ruling
    facts: PolicyFacts | None = None


class AttemptStarted(Stamped, frozen=True):
    """The write-ahead record of one send. After it the effect may have landed.

    `shared` are the budgets of several runs that the operation is charged to from here on, each with its period.
    """

    step: str
    number: int = 1
    token: int = 1
    send_by: int = 0  # the attempt's own timeout, in milliseconds after `up`; 0: the contract's
    intent: Intent | None = None
    observed: Raw = NOTHING
    approval: str = ""
    standing: str = ""  # the standing permission that this uses
    shared: tuple[tuple[str, str], ...] = ()


class AttemptEnded(Stamped, frozen=True):
    """The call of one attempt is over, its thread included, or its process is proven dead."""

    step: str
    number: int
    end: End
    over: bool = True  # false: the caller gave up waiting, and the call still runs


class LateReport(Stamped, frozen=True):
    """The answer of a call that arrived after its attempt was given up or its owner was fenced.

    `token` is that of the lease under which the attempt was made: another owner has made the attempt of this number if
    it differs. It is 0 for an answer from outside, which belongs to the attempt on record; `by` is the person who
    delivered that, if it was one.
    """

    step: str
    number: int
    end: End
    token: int = 0
    by: str = ""


class Verified(Stamped, frozen=True):
    """The effect was looked up. A believed absence covers the attempts from 1 to `through`."""

    step: str
    verdict: VerdictKind
    believable: bool = False
    through: int = 0
    evidence: str = ""
    result: Raw = NOTHING
    lost: bool = False
    missing: tuple[str, ...] = ()


class Reobserved(Stamped, frozen=True):
    """The preconditions were read again. With a gate the new reading replaces the old one.

    The first reading is `same`. It is recorded if a person is asked about an operation that relies on it.
    """

    step: str
    reading: Literal["same", "changed", "unreadable"]
    observed: Raw = NOTHING


class WaitScheduled(Stamped, frozen=True):
    """The operation waits `ms` milliseconds, until about `until` on the wall clock.

    With `shut`, an open breaker blocks the operation, and the wait does not count as time used for attempts.
    """

    step: str
    ms: int
    until: int
    why: str
    rule: str = ""
    shut: bool = False


class ApprovalGranted(Stamped, frozen=True):
    """A person approved exactly this operation: `approval` is the digest of what was asked.

    The approval is valid until the wall clock `until` (in milliseconds; 0: without limit). Once an attempt has begun,
    the approval covers every attempt.
    """

    step: str
    approval: str
    by: str
    note: str = ""
    until: int = 0
    entry: int = 0


class ApprovalRefused(Stamped, frozen=True):
    """A person refused exactly this operation before anything was sent, or asked a question about it instead.

    `code` is the code that the agent receives; it is empty for a plain refusal.
    """

    step: str
    approval: str
    by: str
    reason: str = ""
    entry: int = 0
    code: str = ""


class ArgumentsEdited(Stamped, frozen=True):
    """A person proposed other arguments: `approval` is the digest of what was asked, `changes` the difference.

    `intent` is the call that will be sent; a process that has the tool's code adds it. The agent's code continues to
    call with its own arguments.
    """

    step: str
    approval: str
    by: str
    changes: Raw
    note: str = ""
    intent: Intent | None = None
    entry: int = 0


class ResultGiven(Stamped, frozen=True):
    """A person gave the result in place of the tool. Nothing was sent, and nothing will be sent."""

    step: str
    approval: str
    by: str
    result: Raw
    note: str = ""
    entry: int = 0


class OperationHeld(Stamped, frozen=True):
    """The effect waits for the commit of its transaction. `shared` as in `AttemptStarted`."""

    step: str
    transaction: str
    intent: Intent | None = None  # with the generation of the business key that it claimed
    approval: str = ""
    standing: str = ""  # the standing permission that this uses
    shared: tuple[tuple[str, str], ...] = ()


class HoldReleased(Stamped, frozen=True):
    """The transaction commits: the held effect may be sent."""

    step: str


class OperationDeferred(Stamped, frozen=True):
    """The system accepted the call and answers later. Until then the same intent is not sent again."""

    step: str
    number: int
    until: int
    evidence: str = ""
    key: str = ""  # of the answer; empty: only verification or a person settles it
    key_read: bool = True
    cost: float | None = None
    every_ms: int = 0  # the interval of verification until then; 0: none
    thing: str = ""  # the digest of its subject
    facts: tuple[Reported, ...] = ()


class OperationParked(Stamped, frozen=True):
    """A person is asked to approve the call or, if no rule can decide, to state what happened.

    `asks` is the digest of exactly what is to be approved, and `people` the number of approvals that it needs; `asks`
    is empty for other questions. The answer is due at the wall clock `until` (in milliseconds; 0: no deadline), and
    `on_expiry` says what happens then. With `forgotten`, the journal was restored, and an attempt that is not on record
    may have landed. `require` says how the approvers must have identified themselves.
    """

    step: str
    why: str
    rule: str = ""
    asks: str = ""
    forgotten: bool = False
    people: int = 1
    until: int = 0
    queue: str = ""
    on_expiry: OnExpiry = "refuse"
    require: Require | None = None


class OperationSettled(Stamped, frozen=True):
    """The outcome. `number` and `end` hold the end of the last attempt, in the same record.

    An unknown outcome is a question to a person, due at the wall clock `until` (in milliseconds; 0: no deadline).
    """

    step: str
    status: Literal["succeeded", "failed", "unknown", "cancelled"] = "succeeded"
    basis: Basis = RETURNED
    rule: str = ""
    reason: str = ""
    code: str = ""
    result: Raw = NOTHING
    lost: bool = False
    unverified: bool = False
    missing: tuple[str, ...] = ()
    number: int = 1
    end: End | None = None
    until: int = 0
    met: PendingEffect | None = None  # the pending effect on the same subject: nothing was sent


class Resolved(Stamped, frozen=True):
    """A named person's decision on an operation that no rule could decide, about so many `attempts` to send it."""

    step: str
    word: Literal["happened", "did_not_happen", "retry", "same_key"]
    by: str
    attempts: int
    evidence: str = ""
    result: Raw = NOTHING
    entry: int = 0

    @property
    def orders(self) -> Literal["", "retry", "same_key"]:
        """The attempt that it requests; empty where it states what became of those that were made."""
        match self.word:
            case "retry" | "same_key" as order:
                return order
            case _:
                return ""


class Contradicted(Stamped, frozen=True):
    """Evidence against a final outcome. The outcome is kept, and a review is opened."""

    step: str
    evidence: str


class OutcomeReused(Stamped, frozen=True):
    """A call would have repeated an existing effect, so nothing was sent. `source` is the operation of that effect.

    `by` is the person who said that it happened.
    """

    step: str
    source: str
    why: str
    result: Raw = NOTHING
    intent: Intent | None = None
    age_ms: int = 0
    by: str = ""


class CompensationLinked(Stamped, frozen=True):
    """`by` is the operation that compensates this one."""

    step: str
    by: str


OperationRecord: TypeAlias = (
    OperationPlanned
    | Ruled
    | AttemptStarted
    | AttemptEnded
    | LateReport
    | Verified
    | Reobserved
    | WaitScheduled
    | ApprovalGranted
    | ApprovalRefused
    | ArgumentsEdited
    | ResultGiven
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
