"""The records of one operation: its intent, attempts, readings, and people's decisions about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.model.outcome import RETURNED, Basis, PendingEffect, VerdictKind
from holdfast.model.policy import OnExpiry, PolicyFacts, Ruling
from holdfast.model.records.common import NOTHING, Raw, Stamped
from holdfast.policies import Require

EndKind = Literal["returned", "rejected", "not_sent", "ambiguous", "key_in_progress", "lost"]


class Intent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The intended call: durable before the first attempt.

    The key is derived from `claim` and `outside` where there is a business key, else from the step.
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
    completes: str = ""  # the step of whose effect it is a pending part
    item: str = ""  # what its tool calls that part
    confidence: float | None = None  # how sure its chooser was, where that was stated
    thing: str = ""  # the digest of what it is about, where its tool declares what it leaves pending
    again: str = ""  # why it is sent although something is pending about the same thing
    title: str = ""  # one sentence about it, for people; part of no digest
    taint: str = ""  # what its arguments were touched by, where its caller stated it
    late: bool = False  # only the code of a host has its tool's body: it is never sent from the record alone

    @property
    def can_conflict(self) -> bool:
        """True if another operation may have the same effect, or the same wording."""
        return bool(self.claim or self.words or self.thing)

    @property
    def serves(self) -> str:
        """The step that it was made for by the runtime; empty where agent code called it."""
        return self.compensates or self.confirms or self.completes


class PendingItem(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A part of an effect that is accepted, and whose end comes later, under a key.

    `within_ms` counts from the outcome of the whole; `every_ms` is how often to look for it meanwhile.
    `about` names the parameters that say what it is about, or that thing itself.
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
    """How one call ended. `key_read` is false where a keyed tool never looked at its key; `cost` is what it spent.

    `pending` are the parts whose end comes later, where it returned; `facts` is what it reported about the world.
    `died`: it is lost, and the death of its process is proven; a process that only lost its lease may go on.
    `source` is the webhook sender that brought it, where one did.
    """

    kind: EndKind = "returned"
    why: str = ""
    code: str = ""
    result: Raw = NOTHING
    lost: bool = False  # the result could not be stored and read back; the effect still counts
    unfit: bool = False  # an answer brought from outside that is not what the tool returns: it proves nothing alone
    retry_after_ms: int | None = None
    key_read: bool = True
    cost: float = 0
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
    """The policy of that version judged the operation by these facts, before anything was sent.

    The ruling holds from here on: nothing is judged again by other facts.
    """

    step: str
    policy: str
    ruling: Ruling
    facts: PolicyFacts | None = None


class AttemptStarted(Stamped, frozen=True):
    """The write-ahead record of one send. After it the effect may have landed."""

    step: str
    number: int = 1
    token: int = 1
    send_by: int = 0  # the attempt's own timeout, in milliseconds after `up`; 0: the contract's
    intent: Intent | None = None
    observed: Raw = NOTHING
    approval: str = ""
    standing: str = ""  # the standing permission that this uses


class AttemptEnded(Stamped, frozen=True):
    """The call of one attempt is over, its thread included, or its process is proven dead."""

    step: str
    number: int
    end: End
    over: bool = True  # false: the caller gave up waiting, the call still lives


class LateReport(Stamped, frozen=True):
    """A call's answer after its attempt had been given up, or after its owner was fenced."""

    step: str
    number: int
    end: End


class Verified(Stamped, frozen=True):
    """The world was read back. `through`: a believed absence covers attempts 1 to that number."""

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

    The first reading is `same`: it is recorded where a person is asked about what relies on it.
    """

    step: str
    reading: Literal["same", "changed", "unreadable"]
    observed: Raw = NOTHING


class WaitScheduled(Stamped, frozen=True):
    """The operation waits `ms` milliseconds, until the wall clock says about `until`.

    `shut`: an open breaker blocks it meanwhile, so the time does not count for attempts.
    """

    step: str
    ms: int
    until: int
    why: str
    rule: str = ""
    shut: bool = False


class ApprovalGranted(Stamped, frozen=True):
    """A person approved exactly this operation: `approval` is the digest of what was asked.

    It holds `until` that wall clock (milliseconds; 0: for ever), and for every attempt once one has begun.
    """

    step: str
    approval: str
    by: str
    note: str = ""
    until: int = 0
    entry: int = 0


class ApprovalRefused(Stamped, frozen=True):
    """A person refused exactly this operation, before anything was sent; or asked something about it instead.

    `code` is what the agent receives: empty for a plain no.
    """

    step: str
    approval: str
    by: str
    reason: str = ""
    entry: int = 0
    code: str = ""


class ArgumentsEdited(Stamped, frozen=True):
    """A person proposed other arguments: `approval` is the digest of what was asked, `changes` the difference.

    `intent` is what will be sent, put in where the tool's code is; code keeps calling with its own arguments.
    """

    step: str
    approval: str
    by: str
    changes: Raw
    note: str = ""
    intent: Intent | None = None
    entry: int = 0


class ResultGiven(Stamped, frozen=True):
    """A person answered in place of the tool: nothing was sent, and nothing will be."""

    step: str
    approval: str
    by: str
    result: Raw
    note: str = ""
    entry: int = 0


class OperationHeld(Stamped, frozen=True):
    """The effect waits for the commit of its transaction."""

    step: str
    transaction: str
    intent: Intent | None = None  # with the generation of the business key that it took now
    approval: str = ""
    standing: str = ""  # the standing permission that this uses


class HoldReleased(Stamped, frozen=True):
    """The transaction commits: the held effect may be sent."""

    step: str


class OperationDeferred(Stamped, frozen=True):
    """The system accepted and will answer later; the same intent is not repeated meanwhile."""

    step: str
    number: int
    until: int
    evidence: str = ""
    key: str = ""  # under which the answer will come; empty: only a reading or a person can bring it
    key_read: bool = True
    cost: float = 0
    every_ms: int = 0  # how often to look for it meanwhile; 0: the answer is only waited for
    thing: str = ""  # the digest of what it is about
    facts: tuple[Reported, ...] = ()


class OperationParked(Stamped, frozen=True):
    """A person is asked: to approve the call, or, where no rule can decide, what happened. Maybe nothing was sent yet.

    `asks` is the digest of exactly what is to be approved, by that many `people`; empty if it is not an approval. An
    answer is wanted `until` that wall clock (milliseconds; 0: whenever), and `on_expiry` says what happens then.
    `forgotten`: the journal was restored, and an attempt that is not on record may have landed. `require` says how
    those who approve it have to be known.
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
    """The outcome. `number` and `end` fold the end of the last attempt into the same record.

    What is unknown is a question to people: an answer is wanted `until` that wall clock (milliseconds; 0: whenever).
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
    met: PendingEffect | None = None  # what was pending about the same thing, so that nothing was sent


class Resolved(Stamped, frozen=True):
    """A named person's decision on an operation that no rule could decide."""

    step: str
    word: Literal["happened", "did_not_happen", "retry", "same_key"]
    by: str
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
    """Evidence against a final outcome. The state stays; a review opens."""

    step: str
    evidence: str


class OutcomeReused(Stamped, frozen=True):
    """A call met an effect that exists already. `source` is that operation; nothing was sent."""

    step: str
    source: str
    why: str
    result: Raw = NOTHING
    intent: Intent | None = None
    age_ms: int = 0


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
