"""Which boundaries of a run are open, being closed or raised again, and what belongs to each: read off its fold."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.operation import OperationState
from holdfast.model.run import RunHistory
from holdfast.model.transactions import Transaction, around, encloses


def open_boundaries(history: RunHistory) -> list[Transaction]:
    """Boundaries that have not come to their end and lie in no other such one."""
    return _outermost(one for one in history.transactions.values() if not one.over)


def closing_boundaries(history: RunHistory) -> list[Transaction]:
    """Boundaries whose end was begun and has not come, and that lie in no other such one."""
    return _outermost(one for one in history.transactions.values() if not one.over and one.phase != "open")


def members_of(history: RunHistory, transaction: str) -> list[OperationState]:
    """The operations of code inside a boundary, in order of start.

    Those of inner ones that were called off are theirs, unless they turned out otherwise since.
    """
    gone = [
        one.name
        for one in history.transactions.values()
        if one.backward and one.over and one.name != transaction and encloses(transaction, one.name)
    ]
    return [
        operation
        for step, operation in history.operations.items()
        if not operation.intent.serves
        and encloses(transaction, step)
        and (step in history.raised or not any(encloses(inner, step) for inner in gone))
    ]


def reopened(history: RunHistory) -> list[Transaction]:
    """Boundaries that were called off, and have to be closed once more for what turned out otherwise since."""
    found: dict[str, Transaction] = {}
    for step in sorted(history.raised):
        if (
            all(one.over for one in around(step, history.transactions))
            and (gone := history.called_off(step)) is not None
        ):
            found[gone.name] = gone
    return list(found.values())


def _outermost(boundaries: Iterable[Transaction]) -> list[Transaction]:
    found = list(boundaries)
    return [one for one in found if not any(other is not one and encloses(other.name, one.name) for other in found)]
