"""The records of a transaction: the state of its boundary, and why."""

from __future__ import annotations

from typing import Literal, TypeAlias

from beforehand.model.records.common import Stamped

Pivot = Literal["one", "best effort"]


class TransactionOpened(Stamped, frozen=True):
    """A transaction began. The steps below its name belong to it."""

    transaction: str
    pivot: Pivot = "one"


class TransactionCommitting(Stamped, frozen=True):
    """The body ended: reservations are confirmed and held effects are sent. After the pivot nothing is compensated."""

    transaction: str


class TransactionAborting(Stamped, frozen=True):
    """The transaction failed. `participants` are the operations that may need compensation, in order of start."""

    transaction: str
    reason: str
    participants: tuple[str, ...] = ()
    by: str = ""


class TransactionCommitted(Stamped, frozen=True):
    """All effects are kept. An inner transaction passes its held effects to the outermost one."""

    transaction: str


class TransactionAbortedRecord(Stamped, frozen=True, tag="TransactionAborted"):
    """The transaction was aborted. `undone` was compensated; `still_standing` could not be compensated."""

    transaction: str
    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()


class TransactionParked(Stamped, frozen=True):
    """No rule can continue, so a person decides on the exact partial outcome. `stuck` lists the steps that block it.

    The answer is due at the wall clock `until` (in milliseconds; 0: no deadline). The transaction waits beyond it.
    """

    transaction: str
    why: str
    stuck: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()
    until: int = 0


class TransactionResolved(Stamped, frozen=True):
    """A named person's decision on a parked transaction: retry the stuck steps, or accept the transaction as it is."""

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
