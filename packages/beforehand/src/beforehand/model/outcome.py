"""The durable outcome of an operation, and the answers that a verifier may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from beforehand.model.errors import BeforehandError, Interrupted, ParameterMismatch, ResultLost
from beforehand.model.shell import to_type

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Status = Literal["pending", "succeeded", "failed", "unknown", "cancelled"]
Phase = Literal[
    "planned", "ready", "gated", "held", "running", "verifying", "awaiting",
    "succeeded", "failed", "unknown", "cancelled",
]  # fmt: skip
FINAL: frozenset[Phase] = frozenset({"succeeded", "failed", "cancelled"})
SETTLED: frozenset[Phase] = frozenset({"succeeded", "failed", "cancelled", "unknown"})


class Basis(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The proof of an outcome: the return of the call, evidence that was read back, a named person, or a rule."""

    by: Literal["returned", "evidence", "person", "rule"]
    name: str = ""
    note: str = ""

    def __str__(self) -> str:
        who = f"{self.by}({self.name})" if self.name else self.by
        return f"{who}: {self.note}" if self.note else who


RETURNED = Basis("returned")
PARTS_AT_MOST: Final = 10_000
"""How many parts of one effect may be pending."""
MISMATCH = "mismatch"
"""The code of a failure: its business key names an effect with other arguments."""


class PendingEffect(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pending thing: the operation that left it, the names of its parts, and since when.

    A deferred outcome has no parts; `said` is what its system answered when it accepted the call.
    """

    source: str
    items: tuple[str, ...] = ()
    since_ms: int = 0
    said: str = ""

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        source = f"{self.source} ({self.said})" if self.said else self.source
        return f"{', '.join(self.items)} of {source} is pending since {since}".removeprefix(" of ")


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Proof that an effect happened, from the journal. Only the runtime builds it.

    `key` is the idempotency key under which the effect was sent, `at_ms` the wall clock of its outcome.
    """

    operation: str
    tool: str
    key: str
    basis: Basis
    at_ms: int


class Outcome(msgspec.Struct, Generic[R], frozen=True):
    """The current knowledge about one operation.

    `result` is the decoded result of a success. Reading it for any other status raises, so a failure is never mistaken
    for the value None. `pending` names the parts of a success that end later (see `run.wait_pending`), and `facts` are
    the facts that its tool reported. `arguments` are those that were sent. `edited_by` is the person who changed them,
    if any.
    """

    status: Status
    operation: str
    tool: str
    basis: Basis | None = None
    reason: str = ""
    code: str = ""
    reused: str = ""
    arguments: Mapping[str, Any] = {}
    receipt: Receipt | None = None
    value: R | None = None
    pending: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}
    edited_by: str = ""

    @property
    def result(self) -> R:
        """The decoded result. Raises `OperationFailed` or `OutcomeUnknown` if there is none."""
        if self.status != "succeeded":
            raise self.error()
        return self.value  # type: ignore[return-value]  # a success always carries R, which may be None

    def error(self) -> Exception:
        """The error that a plain `await` of this operation raises."""
        return error_of(self)

    def as_text(self) -> str:
        """The outcome as text for a model: what happened, and if it was reused."""
        return text_of(self)


DECLINED: Final = "declined"
"""The code of an operation that a person refused."""
ASKED_BACK: Final = "asked_back"
"""The code of an operation that a person asked about instead of approving it: the agent may propose it again."""
REFUSALS: Final = frozenset({DECLINED, ASKED_BACK, "expired", "refused"})
"""The codes of operations that were never sent: people did not approve them, or a policy refused them."""
REFUSED: Final = "refused"
"""The code of an operation that a policy refused."""
EXCEEDED: Final = "budget_exceeded"
"""The code of a call that was not sent because a limit of its run's budget is reached."""
UNPRICED: Final = "price_unknown"
"""The code of a model call that was not sent because a budget limits its cost and its price is not known."""
PENDING: Final = "pending"
"""The code of an operation that was not sent, since something is pending about the same thing."""
INTERRUPTED: Final = "interrupted"
"""The code of an operation that was called off before anything landed, since a message came for its run."""
STOPPED: Final = "stopped"
"""As `interrupted`, where the message requested a stop."""
WITHHELD: Final = "withheld"
"""The code of an attempt that was recorded and then not sent, since something had come meanwhile."""
EXPIRED: Final = "expired"
"""The code of an operation that was not approved in time."""


# --- verdicts: the answers of a verifier ---------------------------------------------------------------


class Happened(msgspec.Struct, Generic[R_co], frozen=True, omit_defaults=True):
    """The effect exists and it is *ours*: found by our marker or key, or by authoritative state.

    This verdict asserts the identity of the effect; for mere similarity, return `CannotTell(evidence=...)`. `missing`
    names the missing parts of a partial effect: each part once, up to 10,000 of them. Raises `ValueError` for an
    invalid name.
    """

    result: R_co
    missing: tuple[str, ...] = ()
    evidence: str = ""

    def __post_init__(self) -> None:
        if self.missing != ():
            msgspec.structs.force_setattr(self, "missing", _part_names(self.missing))


class DidNotHappen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect does not exist *now*. The runtime decides if that can be believed yet."""

    evidence: str = ""


class CannotTell(msgspec.Struct, frozen=True, omit_defaults=True):
    """The system could not be read, or the reading proves nothing."""

    evidence: str = ""


class Conflict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another effect exists that is not ours and excludes ours."""

    evidence: str = ""


def _part_names(names: object) -> tuple[str, ...]:
    """The names of parts as a tuple. Text would be read letter by letter, and an empty name is the whole again."""
    parts = cast("Sequence[object]", names) if isinstance(names, (tuple, list)) else None
    if parts is None or not all(isinstance(name, str) for name in parts):
        raise ValueError(f"Happened(missing={names!r}) takes a tuple of names: missing=('seat',)")
    if len(parts) > PARTS_AT_MOST:
        raise ValueError(f"Happened(missing=...) has {len(parts):,} names, and takes at most {PARTS_AT_MOST:,}")
    found = cast("tuple[str, ...]", tuple(parts))
    for place, name in enumerate(found):
        if not name.strip():
            raise ValueError(
                f"Happened(missing=...) has an empty name at place {place + 1}: name the part that is missing"
            )
    if len(set(found)) < len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise ValueError(f"Happened(missing=...) names {twice!r} twice: name each missing part once")
    return found


Verdict: TypeAlias = Happened[R] | DidNotHappen | CannotTell | Conflict
VerdictKind = Literal["happened", "did_not_happen", "cannot_tell", "conflict"]


# --- errors that carry an outcome -------------------------------------------------------------------------------------


class OperationFailed(BeforehandError):
    """An operation is proven to have failed: nothing landed. `outcome` holds the proof."""

    def __init__(self, message: str, *, outcome: Outcome[object] | None = None, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.outcome = outcome


class DecisionFailed(OperationFailed):
    """A model gave no answer to `run.decide`; `run` and `step` say where.

    The failure is on record, and a replay raises it again. Where it stops the run, reopening asks the model again.
    """

    def __init__(self, message: str, *, run: str, step: str, outcome: Outcome[object] | None = None) -> None:
        super().__init__(message, outcome=outcome, next_step=to_type("resume", run))
        self.known = "where this stops the run, reopening it asks the model again"
        self.run = run
        self.step = step


class BudgetExceeded(OperationFailed):
    """A limit of the run's budget is reached, so this call was not sent. `run` is the run.

    Raised where the budget says `then="stop"`. If it stops the run, and the run is resumed with a higher budget, a
    model is asked after all. The refusal of an effect is its outcome, and final.
    """

    def __init__(self, message: str, *, run: str, outcome: Outcome[object] | None = None) -> None:
        super().__init__(message, outcome=outcome, next_step=to_type("budget", run))
        self.known = "nothing was sent for this call"
        self.run = run


class Rejected(OperationFailed):
    """The system refused the call, and nothing landed. Tools raise it; agents catch it.

    `code` is the system's own name for the refusal (for example `"card_declined"`).
    """

    def __init__(self, message: str = "refused", *, code: str = "", outcome: Outcome[object] | None = None) -> None:
        super().__init__(message, outcome=outcome)
        self.code = code


class Declined(Rejected):
    """A person refused the operation before it was sent."""


class OperationCancelled(OperationFailed):
    """The operation was called off before anything was sent."""


class PreconditionsChanged(OperationFailed):
    """The preconditions of the effect changed before it could be sent: the plan must be remade."""


class OutcomeUnknown(BeforehandError):
    """An effect may or may not have happened, and no rule can find out. `outcome` says what is known."""

    def __init__(
        self, message: str, *, outcome: Outcome[object] | None = None, known: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message, known=known, next_step=next_step)
        self.outcome = outcome


class OutcomePending(BeforehandError):
    """The call was not sent, because an effect on the same subject is pending. `outcome` names it and its start."""

    def __init__(
        self, message: str, *, outcome: Outcome[object] | None = None, known: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message, known=known, next_step=next_step)
        self.outcome = outcome


# --- an outcome as an error for code, and as text for a model ---------------------------------------------------------

LOST = "result lost"


def error_of(outcome: Outcome[Any]) -> Exception:
    """The error that a plain `await` raises for an outcome without a result."""
    name = f"{outcome.tool} ({outcome.operation})"
    if outcome.code == LOST:
        return ResultLost(
            f"{name} succeeded, but {outcome.reason}",
            known="the effect is done and counted",
            next_step="give the tool a return annotation that its result fits",
        )
    if outcome.status == "unknown":
        return OutcomeUnknown(
            f"{name}: {outcome.reason or 'it is not known whether it happened'}",
            outcome=outcome,
            known="intent and attempt are recorded, the outcome is not",
            next_step=to_type("why", outcome.operation),
        )
    if (message := message_basis(outcome)) is not None:
        run, stop = outcome.operation.partition("/")[0], outcome.code == STOPPED
        return Interrupted(message.note, run=run, sender=message.name, facts=outcome.facts, stop=stop)
    if outcome.code == PENDING:
        return OutcomePending(
            f"{name} was not sent: {outcome.reason}", outcome=outcome, known="nothing was sent for this call",
            next_step=f"send it on purpose with {outcome.tool}.options(again=REASON); {to_type('why', outcome.reused)}",
        )  # fmt: skip
    if outcome.status == "cancelled":
        return OperationCancelled(f"{name} was called off: {outcome.reason}", outcome=outcome)
    if outcome.code == MISMATCH:
        return ParameterMismatch(
            f"{outcome.operation}: {outcome.reason}", run=outcome.operation.partition("/")[0],
            known="nothing was sent for this call", next_step=to_type("why", outcome.operation),
        )  # fmt: skip
    if outcome.code == "stale":
        return PreconditionsChanged(f"{name} was not sent: {outcome.reason}", outcome=outcome)
    return _failure(outcome, name)


def _failure(outcome: Outcome[Any], name: str) -> OperationFailed:
    """The error of a failed outcome, by its proof."""
    by = "" if outcome.basis is None else outcome.basis.by
    if outcome.code == EXCEEDED and by == "rule":
        run = outcome.operation.partition("/")[0]
        return BudgetExceeded(f"{name} was not sent: {outcome.reason}", run=run, outcome=outcome)
    if outcome.code in REFUSALS and by in {"person", "rule"}:
        return Declined(outcome.reason, code=outcome.code, outcome=outcome)
    if by == "returned":
        return Rejected(outcome.reason or "refused", code=outcome.code, outcome=outcome)
    return OperationFailed(
        f"{name} failed: {outcome.reason}", outcome=outcome, next_step=to_type("why", outcome.operation)
    )


def text_of(outcome: Outcome[Any]) -> str:
    """One text for a model: what is true now, what is still to come, and whether something was done again."""
    lines = [_summary(outcome)]
    if outcome.edited_by:
        lines.append(f"A person changed the call before it was sent. These were sent: {_shown(outcome.arguments)}.")
    if outcome.pending and outcome.code != PENDING:
        lines.append(
            f"Not finished yet: {', '.join(outcome.pending)}. Do not repeat them: their outcomes are delivered later."
        )
    lines.extend(f"{name} is now {_shown(value)}." for name, value in outcome.facts.items())
    return "\n".join(lines)


def message_basis(outcome: Outcome[Any]) -> Basis | None:
    """The sender and text of the message to the run that called this off, if one did."""
    called_off = outcome.code in {INTERRUPTED, STOPPED} and outcome.basis is not None and outcome.basis.by == "person"
    return outcome.basis if called_off else None


def _summary(outcome: Outcome[Any]) -> str:
    if (message := message_basis(outcome)) is not None:
        do = "Do not call tools that change anything any more" if outcome.code == STOPPED else "Decide again"
        return f"Not sent: {message.name or 'a person'} says: {message.note}. {do}."
    reason = outcome.reason.removesuffix(".")  # a sentence of ours goes on behind it
    match outcome.status:
        case "succeeded":
            shown = _shown(outcome.value)
            if outcome.reused:
                return f"Already done, not done again ({outcome.reason}). Result: {shown}"
            return shown
        case "failed":
            if outcome.code == ASKED_BACK:
                return (
                    f"Not sent yet: a person asks: {outcome.reason}\nNothing was changed. Answer, and propose it anew."
                )
            code = f" [{outcome.code}]" if outcome.code else ""
            return f"Failed{code}: {reason}. Nothing was changed."
        case "cancelled":
            return f"Called off before anything was sent: {reason}."
        case "unknown":
            return f"It is not known whether this happened: {reason}. Do not repeat it; a person was asked."
        case _ if outcome.code == PENDING:
            run, other = outcome.operation.partition("/")[0], outcome.reused.partition("/")[0]
            where = "later" if run == other else f"to run {other}, and not here"
            return f"Not sent: {reason}. Do not repeat it: its outcome is delivered {where}."
        case _:
            reason_given = f" ({outcome.reason})" if outcome.reason else ""
            return f"Accepted{reason_given}, and not finished yet. Do not repeat it: the answer comes by itself."


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=str).decode()
