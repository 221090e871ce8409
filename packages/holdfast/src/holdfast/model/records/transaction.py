"""The records of a transaction: the state of its boundary, and why."""

from __future__ import annotations

from typing import Literal, TypeAlias

from holdfast.model.records.common import Stamped

Pivot = Literal["one", "best effort"]


class TransactionOpened(Stamped, frozen=True):
    """A boundary was entered: the steps below its name belong together."""

    transaction: str
    pivot: Pivot = "one"


class TransactionCommitting(Stamped, frozen=True):
    """The body came to its end: reservations are confirmed and held effects are sent. No way back after the pivot."""

    transaction: str


class TransactionAborting(Stamped, frozen=True):
    """The boundary failed. `participants` are the operations that may have to be compensated, in order of start."""

    transaction: str
    reason: str
    participants: tuple[str, ...] = ()
    by: str = ""


class TransactionCommitted(Stamped, frozen=True):
    """All its effects are kept. An inner boundary passes its held effects to the outermost one."""

    transaction: str


class TransactionAbortedRecord(Stamped, frozen=True, tag="TransactionAborted"):
    """It was called off: `undone` was compensated, `still_standing` was not and could not be."""

    transaction: str
    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()


class TransactionParked(Stamped, frozen=True):
    """No rule gets further: the exact partial outcome, for a person. `stuck` are the steps in the way.

    An answer is wanted `until` that wall clock (milliseconds; 0: whenever); it is waited for beyond it.
    """

    transaction: str
    why: str
    stuck: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()
    until: int = 0


class TransactionResolved(Stamped, frozen=True):
    """A named person's decision on a parked transaction: try what is stuck again, or accept it as it is."""

    transaction: str
    word: Literal["retry", "accept"]
    by: str
    note: str = ""
    entry: int = 0


TransactionRecord: TypeAlias = (
    TransactionOpened
    | TransactionCommitting
    | TransactionAborting
    | TransactionCommitted
    | TransactionAbortedRecord
    | TransactionParked
    | TransactionResolved
)
