"""One transaction as its records describe it: a boundary in a run, and the table of what may follow what.

A boundary is named by the path of its steps: `book-trip/charge#1` belongs to `book-trip`, and to every
boundary around it. The whole run is one as well, named `""`: undoing a finished run is aborting that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from beforehand.model.errors import BeforehandError
from beforehand.model.records import transaction as r
from beforehand.model.records.common import kind_of

WHOLE_RUN: Final = ""
TransactionPhase = Literal["open", "committing", "committed", "aborting", "aborted", "parked"]

TRANSACTION_TRANSITIONS: Final[dict[type[r.TransactionRecord], tuple[tuple[str, ...], TransactionPhase | None]]] = {
    r.TransactionOpened: (("new",), "open"),
    r.TransactionCommitting: (("open",), "committing"),
    r.TransactionAborting: (("open", "committing", "parked"), "aborting"),
    r.TransactionCommitted: (("open", "committing", "parked"), "committed"),
    r.TransactionAbortedRecord: (("aborting", "parked"), "aborted"),
    r.TransactionParked: (("committing", "aborting", "aborted", "parked"), "parked"),
    r.TransactionResolved: (("parked",), None),
}


class IllegalBoundary(BeforehandError):
    """A record does not fit the transaction it meets: a programming error, or a journal that was edited."""

    def __init__(self, phase: str, record: r.TransactionRecord) -> None:
        super().__init__(f"{kind_of(record)} does not apply to a transaction that is {phase}: {record.transaction}")


class TransactionState(msgspec.Struct, frozen=True, gc=False):
    """The state of one boundary.

    `backward`: it is being called off, or was. `told` is how much code had received when that was decided: what
    was delivered later, its body never received. `accepted` are steps whose effects a person accepts, `tries` says how
    often a person asked for what is stuck to be tried again.
    """

    name: str
    phase: TransactionPhase = "open"
    pivot: r.Pivot = "one"
    backward: bool = False
    delivered: int = 0
    reason: str = ""
    by: str = ""
    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    why: str = ""
    accepted: tuple[str, ...] = ()
    tries: int = 1
    parked_at: int = 0
    asks_until: int = 0

    @property
    def question_changed(self) -> bool:
        """True if a person decided before about what is stuck in it."""
        return self.tries > 1 or bool(self.accepted)

    @property
    def over(self) -> bool:
        """True if it has ended: it was committed, or undone as far as possible."""
        return self.phase in {"committed", "aborted"}


def follow(before: TransactionState | None, record: r.TransactionRecord, delivered: int) -> TransactionState:
    """The transaction after `record`. Raises `IllegalBoundary` where the table does not allow it."""
    come_from, phase = TRANSACTION_TRANSITIONS[type(record)]
    if before is None and isinstance(record, r.TransactionAborting) and record.transaction == WHOLE_RUN:
        before = TransactionState(WHOLE_RUN)  # the run's own boundary is never opened
    if (before.phase if before is not None else "new") not in come_from:
        raise IllegalBoundary(before.phase if before is not None else "new", record)
    if isinstance(record, r.TransactionOpened):
        return TransactionState(record.transaction, pivot=record.pivot)
    assert before is not None, record
    after = before if phase is None else replace(before, phase=phase)
    match record:
        case r.TransactionAborting():
            return replace(
                after, backward=True, delivered=delivered, reason=record.reason, by=record.by, stuck=(), why=""
            )
        case r.TransactionAbortedRecord():
            return replace(after, undone=record.undone, still_standing=record.still_standing, stuck=(), why="")
        case r.TransactionParked():
            return replace(
                after, why=record.why, stuck=record.stuck, undone=record.undone, still_standing=record.still_standing,
                parked_at=record.at, asks_until=record.until,
            )  # fmt: skip
        case r.TransactionResolved():
            if record.word == "retry":
                return replace(after, tries=after.tries + 1)
            return replace(after, accepted=tuple(sorted({*after.accepted, *after.stuck})))
        case _:
            return after


def around(step: str, transactions: Mapping[str, TransactionState]) -> Iterator[TransactionState]:
    """The boundaries that `step` lies in, the outermost first."""
    if (whole := transactions.get(WHOLE_RUN)) is not None:
        yield whole
    at = step.find("/")
    while at >= 0:
        if (one := transactions.get(step[:at])) is not None:
            yield one
        at = step.find("/", at + 1)


def named(base: str, generation: int) -> str:
    """The name of a boundary that began anew `generation - 1` times: its steps and keys are new ones."""
    return base if generation == 1 else f"{base}~{generation}"


def base_of(name: str) -> str:
    """The name without its generation."""
    at = name.rfind("~")
    return name if at <= name.rfind("/") else name[:at]


def encloses(transaction: str, step: str) -> bool:
    """True if `step` (or the inner boundary of that name) lies inside `transaction`."""
    return transaction == WHOLE_RUN or step.startswith(transaction + "/")
