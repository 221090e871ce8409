"""What is durably known about an operation, and what a verifier may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

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
    """Who proved an outcome: the call returned, evidence was read back, or a named person said so."""

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


class Met(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is pending: the operation that left it, the names of its parts, and since when.

    A deferred outcome has no parts; `said` is what its system said when it accepted the call.
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
    """Proof that an effect happened, as the journal holds it. Built by the runtime only.

    `key` is the idempotency key under which the effect was sent, `at_ms` the wall clock of its outcome.
    """

    operation: str
    tool: str
    key: str
    basis: Basis
    at_ms: int


class Outcome(msgspec.Struct, Generic[R], frozen=True):
    """What is known about one operation now.

    `result` is the decoded result of a success; reading it on anything else raises, so that a
    failure is never mistaken for a value of type None. `pending` names the parts of a success whose end comes
    later (see `run.wait_pending`), and `facts` what its tool said about the world besides. `arguments` are those that
    were sent: where a person changed what was called, `edited_by` is that person.
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
        """The decoded result. Raises `OperationFailed` or `OutcomeUnknown` where there is none."""
        if self.status != "succeeded":
            raise self.error()
        return self.value  # type: ignore[return-value]  # a success always carries R, which may be None

    def error(self) -> Exception:
        """The error that a plain `await` of this operation raises."""
        from holdfast.model.reports import error_of  # noqa: PLC0415  # reports needs this module's types

        return error_of(self)

    def as_text(self) -> str:
        """The outcome for a model to read: what happened, and whether it was reused."""
        from holdfast.model.reports import text_of  # noqa: PLC0415  # reports needs this module's types

        return text_of(self)


DECLINED: Final = "declined"
"""The code of an operation that a person said no to."""
ASKED_BACK: Final = "asked_back"
"""The code of an operation that a person asked something about instead of saying yes: the agent may propose it anew."""
REFUSALS: Final = frozenset({DECLINED, ASKED_BACK, "expired", "refused"})
"""The codes of what was never sent because people did not say yes, or a policy refused it."""
REFUSED: Final = "refused"
"""The code of an operation that a policy does not let through."""
PENDING: Final = "pending"
"""The code of an operation that was not sent, since something is pending about the same thing."""
INTERRUPTED: Final = "interrupted"
"""The code of an operation that was called off before anything landed, since a message came for its run."""
STOPPED: Final = "stopped"
"""As `interrupted`, where the message said to stop."""
EXPIRED: Final = "expired"
"""The code of an operation that nobody said yes to in time."""


# --- verdicts: what a verifier may answer --------------------------------------------------------------


class Happened(msgspec.Struct, Generic[R_co], frozen=True, omit_defaults=True):
    """The effect is there and it is *ours*: found by our marker or key, or by authoritative state.

    Constructing it asserts identity; a mere likeness is `CannotTell(evidence=...)`. `missing` names
    what is not there yet when the effect is ours but partial: each part once, up to 10,000 of them.
    Raises `ValueError` for names that name no part.
    """

    result: R_co
    missing: tuple[str, ...] = ()
    evidence: str = ""

    def __post_init__(self) -> None:
        if self.missing != ():
            msgspec.structs.force_setattr(self, "missing", _part_names(self.missing))


class DidNotHappen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect is not there *now*. The runtime decides whether that may be believed yet."""

    evidence: str = ""


class CannotTell(msgspec.Struct, frozen=True, omit_defaults=True):
    """The world could not be read, or what was read proves nothing."""

    evidence: str = ""


class Conflict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something is there that is not ours and excludes ours."""

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
