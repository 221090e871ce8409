"""One boundary as its records tell it, what may follow what, and which boundaries a step lies in."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.records.common import kind_of
from beforehand.model.transaction import (
    WHOLE_RUN,
    IllegalBoundary,
    TransactionState,
    around,
    base_of,
    encloses,
    follow,
    named,
)

PHASES: Final = ("new", "open", "committing", "committed", "aborting", "aborted", "parked")
RECORDS: Final[tuple[r.TransactionRecord, ...]] = (
    r.TransactionOpened(transaction="trip"),
    r.TransactionCommitting(transaction="trip"),
    r.TransactionAborting(transaction="trip", reason="no room"),
    r.TransactionCommitted(transaction="trip"),
    r.TransactionAbortedRecord(transaction="trip"),
    r.TransactionParked(transaction="trip", why="unknown"),
    r.TransactionResolved(transaction="trip", word="retry", by="ann"),
)
FOLLOWS: Final[dict[type[r.TransactionRecord], dict[str, str]]] = {
    r.TransactionOpened: {"new": "open"},
    r.TransactionCommitting: {"open": "committing"},
    r.TransactionAborting: {"open": "aborting", "committing": "aborting", "parked": "aborting"},
    r.TransactionCommitted: {"open": "committed", "committing": "committed", "parked": "committed"},
    r.TransactionAbortedRecord: {"aborting": "aborted", "parked": "aborted"},
    r.TransactionParked: {"committing": "parked", "aborting": "parked", "aborted": "parked", "parked": "parked"},
    r.TransactionResolved: {"parked": "parked"},
}
"""What may follow what, stated a second time."""


def before(phase: str) -> TransactionState | None:
    return None if phase == "new" else TransactionState("trip", phase)  # type: ignore[arg-type]  # a phase of the list above


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize("phase", PHASES)
def test_what_may_follow_what(record: r.TransactionRecord, phase: str):
    if phase in FOLLOWS[type(record)]:
        assert follow(before(phase), record, delivered=0).phase == FOLLOWS[type(record)][phase]
        return
    with pytest.raises(IllegalBoundary) as refused:
        follow(before(phase), record, delivered=0)
    assert str(refused.value) == f"{kind_of(record)} does not apply to a transaction that is {phase}: trip."


def test_it_is_opened_with_what_it_says_about_pivots():
    opened = follow(None, r.TransactionOpened(transaction="trip", pivot="best effort"), delivered=5)
    assert opened == TransactionState("trip", "open", pivot="best effort")


def test_nobody_opens_the_boundary_of_the_whole_run():
    whole = follow(None, r.TransactionAborting(transaction=WHOLE_RUN, reason="undo", by="ann"), delivered=3)
    assert whole == TransactionState(WHOLE_RUN, "aborting", backward=True, delivered=3, reason="undo", by="ann")
    for other in (
        r.TransactionAborting(transaction="trip", reason="undo"),
        r.TransactionCommitting(transaction=WHOLE_RUN),
    ):
        with pytest.raises(IllegalBoundary):
            follow(None, other, delivered=3)


def test_undoing_a_run_goes_on_from_where_it_was_parked():
    parked = TransactionState(WHOLE_RUN, "parked", backward=True, tries=3, accepted=("a",))
    again = follow(parked, r.TransactionAborting(transaction=WHOLE_RUN, reason="undo", by="ann"), delivered=3)
    assert (again.tries, again.accepted) == (3, ("a",))


PARKED: Final = TransactionState(
    "trip", "parked", delivered=2, reason="no room", stuck=("b", "a"), why="it is unknown", undone=("c",),
    still_standing=("a",), accepted=("d",), parked_at=7, asks_until=9,
)  # fmt: skip


def test_calling_it_off_forgets_what_it_was_parked_for():
    record = r.TransactionAborting(transaction="trip", reason="the customer left", by="ann")
    assert follow(PARKED, record, delivered=11) == replace(
        PARKED, phase="aborting", backward=True, delivered=11, reason="the customer left", by="ann", stuck=(), why=""
    )


def test_its_end_says_what_was_undone():
    record = r.TransactionAbortedRecord(transaction="trip", undone=("a", "c"), still_standing=("d",))
    assert follow(PARKED, record, delivered=11) == replace(
        PARKED, phase="aborted", undone=("a", "c"), still_standing=("d",), stuck=(), why=""
    )


def test_parking_says_what_is_stuck_and_until_when_it_asks():
    record = r.TransactionParked(
        transaction="trip", why="it failed", stuck=("a",), undone=("b",), still_standing=("a", "c"), until=40, at=30
    )
    assert follow(TransactionState("trip", "aborting", backward=True), record, delivered=1) == TransactionState(
        "trip", "parked", backward=True, why="it failed", stuck=("a",), undone=("b",), still_standing=("a", "c"),
        parked_at=30, asks_until=40,
    )  # fmt: skip


def test_a_person_has_it_tried_again_or_lets_it_stand():
    again = follow(PARKED, r.TransactionResolved(transaction="trip", word="retry", by="ann"), delivered=1)
    assert again == replace(PARKED, tries=2)
    stands = follow(PARKED, r.TransactionResolved(transaction="trip", word="accept", by="ann"), delivered=1)
    assert stands == replace(PARKED, accepted=("a", "b", "d"))


def test_a_commit_changes_nothing_else():
    assert follow(PARKED, r.TransactionCommitted(transaction="trip"), delivered=1) == replace(PARKED, phase="committed")


@pytest.mark.parametrize("phase", PHASES[1:])
def test_it_is_over_when_it_stands_or_was_undone(phase: str):
    boundary = before(phase)
    assert boundary is not None
    assert boundary.over is (phase in {"committed", "aborted"})


def test_the_boundaries_around_a_step_are_the_outermost_first():
    names = ("a", "a/b", "a/b/c#1", "ab", WHOLE_RUN)
    found = {name: TransactionState(name) for name in names}
    assert [one.name for one in around("a/b/c#1", found)] == [WHOLE_RUN, "a", "a/b"]
    assert [one.name for one in around("a/x/c#1", found)] == [WHOLE_RUN, "a"]
    assert [one.name for one in around("abc#1", found)] == [WHOLE_RUN]
    assert list(around("c#1", {"c#1": TransactionState("c#1")})) == []


@pytest.mark.parametrize(
    ("transaction", "step", "inside"),
    [
        ("a", "a/b#1", True),
        ("a", "ab/c#1", False),
        ("a", "a", False),
        (WHOLE_RUN, "b#1", True),
        ("a/b", "a/c#1", False),
    ],
)
def test_a_boundary_encloses_the_steps_under_its_name(transaction: str, step: str, *, inside: bool):
    assert encloses(transaction, step) is inside


@pytest.mark.parametrize(
    ("base", "generation", "name"),
    [("trip", 1, "trip"), ("a/trip", 1, "a/trip"), ("a/trip", 2, "a/trip~2"), ("a~2/trip", 3, "a~2/trip~3")],
)
def test_a_boundary_that_begins_anew_has_a_name_of_its_own(base: str, generation: int, name: str):
    assert named(base, generation) == name
    assert base_of(name) == base


def test_the_generation_of_an_outer_boundary_is_no_part_of_the_base():
    assert base_of("a~2/trip") == "a~2/trip"
