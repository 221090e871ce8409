"""The end of a transaction, row by row: what its operations are, and the move with its reason."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from beforehand.model import saga
from beforehand.model.contract import Contract, Key
from beforehand.model.operation import Attempt
from beforehand.model.outcome import Phase
from beforehand.model.saga import (
    AwaitOperations,
    Closing,
    ConfirmReservations,
    Finish,
    Member,
    ParkTransaction,
    Release,
    Reread,
    StartCompensations,
    TurnBack,
    attempt_number,
    close,
    serving,
)
from beforehand.model.transaction import TransactionState
from tests.unit.model.boundary_rules import operation

SEAT: Final = Contract("seat", idempotency=Key.forever(), compensates=True, confirms="take")
PAY: Final = Contract("pay", idempotency=Key.forever(), compensates=True)
HARMLESS: Final = replace(PAY, absent_safe=True)
NOTE: Final = Contract("note", idempotency=Key.forever())
MAIL: Final = Contract("mail", idempotency=Key.forever(), observes=True)
PIVOT: Final = Contract("ship")
BACK: Final = TransactionState("t", "aborting", backward=True)
FORTH: Final = TransactionState("t", "committing")
TRIED: Final = (Attempt(1, 1, "b", 1, 1, 0, "c"),)


def one(step: str, contract: Contract, phase: Phase = "succeeded", *, at: int = 1, **fields: Any) -> Member:
    """A member that began at `at` and, where it has an outcome, ended there as well."""
    about = {
        name: fields.pop(name)
        for name in ("reason", "contradicted", "overtaken", "stood_in", "reused")
        if name in fields
    }
    over = phase in {"succeeded", "failed", "cancelled", "unknown"}
    made = Member(operation(step, phase, **about), contract, at, at if over else 0)
    for kind in ("compensation", "confirmation"):
        if kind in fields:
            fields[kind] = operation(f"{step}/{'undo' if kind == 'compensation' else 'confirm'}", *fields[kind])
    return replace(made, **fields)


def held(step: str, contract: Contract, phase: Phase = "held", **fields: Any) -> Member:
    """A member that waits for the commit, or left at it."""
    left = phase not in {"held", "gated", "cancelled"}
    made = one(step, contract, phase, **fields)
    about = replace(made.operation, intent=replace(made.operation.intent, hold="t"), released=left)
    return replace(made, operation=replace(about, attempts=TRIED if left else ()))


def told(step: str, phase: Phase, reason: str) -> Any:
    return operation(step, phase, reason=reason)


class Row(NamedTuple):
    """What is known, and what is done next."""

    name: str
    boundary: TransactionState
    members: tuple[Member, ...]
    move: Closing


ROWS: Final = (
    # Back.
    Row("nothing landed", BACK, (one("a", PAY, "failed"), one("b", PAY, "cancelled")), Finish()),
    Row("a call is open", BACK, (one("a", PAY), one("b", PAY, "running", at=2)), AwaitOperations()),
    Row("what is held is cancelled first", BACK, (one("a", PAY), held("b", NOTE)), AwaitOperations()),
    Row("a part is on its way", BACK, (one("a", PAY, parts=(operation("a/p", "awaiting"),)),), AwaitOperations()),
    Row("a confirmation is on its way", BACK, (one("a", SEAT, confirmation=("running",)),), AwaitOperations()),
    Row("the newest first", BACK, (one("a", PAY), one("b", PAY, at=2)), StartCompensations(("b",))),
    Row("side by side", BACK, (one("a", PAY), one("b", PAY)), StartCompensations(("a", "b"))),
    Row("one is being undone, and an older one waits", BACK, (one("a", PAY), one("b", PAY, at=2, compensation=("running",))), AwaitOperations()),
    Row("the next one", BACK, (one("a", PAY), one("b", PAY, at=2, compensation=("succeeded",))), StartCompensations(("a",))),
    Row("all undone", BACK, (one("a", PAY, compensation=("succeeded",)), one("b", NOTE)), Finish(("a",), ("b",))),
    Row("unknown where nothing undoes it", BACK, (one("a", NOTE, "unknown"),),
        ParkTransaction("it is not known whether a happened, and compensating it blindly is not declared harmless", ("a",))),
    Row("unknown, and harmless to undo", BACK, (one("a", HARMLESS, "unknown"),), StartCompensations(("a",))),
    Row("a part is unknown", BACK, (one("a", PAY, parts=(operation("a/p", "unknown"),)),),
        ParkTransaction("it is not known whether a/p happened, and compensating it blindly is not declared harmless", ("a",))),
    Row("a half-confirmed reservation is asked about", BACK, (one("a", SEAT, confirmation=("unknown",)),),
        ParkTransaction("it is not known whether a/confirm happened", ("a",))),
    Row("a half-confirmed one is asked about even where absence is harmless", BACK,
        (one("a", replace(SEAT, absent_safe=True), confirmation=("unknown",)),),
        ParkTransaction("it is not known whether a/confirm happened", ("a",))),
    Row("it does not hold up what began before it", BACK, (one("a", PAY), one("b", SEAT, at=2, confirmation=("unknown",))),
        StartCompensations(("a",))),
    Row("nor does an unknown call", BACK, (one("a", PAY), one("b", PAY, "unknown", at=2)), StartCompensations(("a",))),
    Row("a person is asked about an unknown call once all others are compensated", BACK,
        (one("a", PAY, compensation=("running",)), one("b", PAY, "unknown", at=2)), AwaitOperations()),
    Row("and about it together with what is stuck", BACK,
        (one("a", PAY, compensation=("failed",)), one("b", PAY, "unknown", at=2)),
        ParkTransaction("a/undo is failed: no reason is recorded; it is not known whether b happened, and compensating it "
                        "blindly is not declared harmless", ("a", "b"))),
    Row("a failed compensation holds up what began before it", BACK,
        (one("a", PAY), one("b", PAY, at=2, compensation=("failed",)), one("c", PAY, "unknown", at=3)),
        ParkTransaction("b/undo is failed: no reason is recorded; it is not known whether c happened, and compensating it "
                        "blindly is not declared harmless", ("b", "c"))),
    Row("not what stands beside it", BACK, (one("a", PAY), one("b", SEAT, confirmation=("unknown",))), StartCompensations(("a",))),
    Row("a confirmed reservation is released", BACK, (one("a", SEAT, confirmation=("succeeded",)),), StartCompensations(("a",))),
    Row("the compensation failed", BACK, (one("a", PAY, compensation=("failed",)),), ParkTransaction("a/undo is failed: no reason is recorded", ("a",))),
    Row("the compensation is unknown", BACK, (one("a", PAY, compensation=("unknown",)),), ParkTransaction("a/undo is unknown: no reason is recorded", ("a",))),
    Row("a person is asked about the compensation", BACK, (one("a", PAY, compensation=("gated",)),), ParkTransaction("a/undo is gated: no reason is recorded", ("a",))),
    Row("asked for again", replace(BACK, tries=2), (one("a", PAY, compensation=("failed",)),), StartCompensations(("a",))),
    Row("an unknown compensation is not made anew", replace(BACK, tries=2), (one("a", PAY, compensation=("unknown",)),),
        ParkTransaction("a/undo is unknown: no reason is recorded", ("a",))),
    Row("it landed after its compensation had begun", BACK, (one("a", PAY, compensation=("succeeded",), overtaken="a/undo"),),
        ParkTransaction("a turned out otherwise after a/undo had been begun: it is succeeded", ("a",))),
    Row("it was contradicted after that", BACK,
        (one("a", PAY, "failed", compensation=("succeeded",), overtaken="a/undo", contradicted=("it bounced", "it landed")),),
        ParkTransaction("a turned out otherwise after a/undo had been begun: it landed", ("a",))),
    Row("and once more on a person's word", replace(BACK, tries=2), (one("a", PAY, compensation=("succeeded",), overtaken="a/undo"),), StartCompensations(("a",))),
    Row("a person lets it stand", replace(BACK, accepted=("a",)), (one("a", PAY, compensation=("failed",)),), Finish((), ("a",))),
    Row("a person lets stand what is unknown", replace(BACK, accepted=("a",)), (one("a", PAY, "unknown"),), Finish((), ("a",))),
    Row("a person answered in its place", BACK, (one("a", PAY, stood_in=True),), Finish()),
    Row("the compensation's code is gone", BACK, (one("a", PAY, compensable=False),),
        ParkTransaction("the compensation of a is no longer in this app", ("a",))),
    Row("two are stuck", BACK, (one("a", PAY, compensation=("failed",)), one("b", PAY, compensable=False)),
        ParkTransaction("a/undo is failed: no reason is recorded; the compensation of b is no longer in this app", ("a", "b"))),
    # Forward: confirming.
    Row("a write is open", FORTH, (one("a", NOTE, "running"), held("b", NOTE)), AwaitOperations()),
    Row("a write is unknown", FORTH, (one("a", NOTE, "unknown"), held("b", NOTE)), AwaitOperations()),
    Row("nothing is held", FORTH, (one("a", PAY),), Finish()),
    Row("reservations first", FORTH, (one("a", SEAT), one("b", SEAT), held("c", NOTE)), ConfirmReservations(("a", "b"))),
    Row("a confirmation is open", FORTH, (one("a", SEAT, confirmation=("running",)), held("c", NOTE)), AwaitOperations()),
    Row("another is confirmed meanwhile", FORTH, (one("a", SEAT, confirmation=("running",)), one("b", SEAT)), ConfirmReservations(("b",))),
    Row("a confirmation is unknown", FORTH, (one("a", SEAT, confirmation=("unknown",)), held("c", NOTE)), AwaitOperations()),
    Row("none is confirmed after one was refused", FORTH, (one("a", SEAT, confirmation=("failed",)), one("b", SEAT)),
        TurnBack("a/confirm is failed: ")),
    Row("nothing turns back while one may still be confirmed", FORTH,
        (one("a", SEAT, confirmation=("failed",)), one("b", SEAT, confirmation=("running",))), AwaitOperations()),
    Row("nor while nobody knows", FORTH,
        (one("a", SEAT, confirmation=("failed",)), one("b", SEAT, confirmation=("unknown",))), AwaitOperations()),
    Row("nor are others confirmed then", FORTH,
        (one("a", SEAT, confirmation=("failed",)), one("b", SEAT, confirmation=("running",)), one("c", SEAT)), AwaitOperations()),
    Row("its time is over", FORTH, (one("a", SEAT, lapsed=True), one("b", SEAT)),
        TurnBack("the reservation a was not confirmed: its time was over before the commit")),
    Row("its code is gone", FORTH, (one("a", SEAT, confirmable=False),),
        TurnBack("the reservation a was not confirmed: its confirmation is no longer in this app")),
    Row("a confirmed one cannot lapse", FORTH, (one("a", SEAT, lapsed=True, confirmation=("succeeded",)),), Finish()),
    Row("a person lets an unconfirmed one stand", replace(FORTH, accepted=("a",)), (one("a", SEAT, lapsed=True),), Finish()),
    Row("what a person answered is no reservation", FORTH, (one("a", SEAT, stood_in=True),), Finish()),
    Row("refused after something left", FORTH, (one("a", SEAT, lapsed=True), held("c", PIVOT, "succeeded"), held("d", NOTE)),
        ParkTransaction("the reservation a was not confirmed: its time was over before the commit", ("a",))),
    # Forward: what is held.
    Row("a gate is open", FORTH, (one("a", SEAT), held("b", NOTE, "gated"), held("c", PIVOT)), AwaitOperations()),
    Row("a no turns it back", FORTH, (one("a", SEAT), held("b", NOTE, "failed", reason="too much")), TurnBack("b is failed: too much")),
    Row("a no counts while another gate is open", FORTH, (held("a", NOTE, "gated"), held("b", NOTE, "cancelled", reason="no")),
        TurnBack("b is cancelled: no")),
    Row("preconditions are read", FORTH, (held("a", MAIL), held("b", MAIL), held("c", NOTE)), Reread(("a", "b"))),
    Row("those that were read are not", FORTH, (held("a", MAIL, reading="same"), held("b", MAIL)), Reread(("b",))),
    Row("they changed", FORTH, (held("a", MAIL, reading="changed"),), TurnBack("what a relies on is changed")),
    Row("nobody can read them", FORTH, (held("a", MAIL, reading="unreadable"),), TurnBack("what a relies on is unreadable")),
    Row("two pivots", FORTH, (held("a", PIVOT), held("b", PIVOT)), TurnBack("more than one held effect cannot be repeated: a, b")),
    Row("two pivots at best", replace(FORTH, pivot="best effort"), (held("a", PIVOT), held("b", PIVOT)), Release("a")),
    Row("the pivot first", FORTH, (held("a", NOTE), held("b", PIVOT)), Release("b")),
    Row("the others in order", FORTH, (held("a", NOTE), held("b", NOTE), held("c", PIVOT, "succeeded")), Release("a")),
    Row("one at a time", FORTH, (held("a", NOTE), held("b", PIVOT, "running")), AwaitOperations()),
    Row("nothing turns back while one may have been sent", FORTH,
        (held("a", MAIL, reading="changed"), held("b", PIVOT, "running")), AwaitOperations()),
    Row("nor while it is not known whether the pivot left", FORTH,
        (held("a", MAIL, reading="changed"), held("b", PIVOT, "unknown")), AwaitOperations()),
    Row("nor after it was contradicted", FORTH,
        (held("a", NOTE), held("b", PIVOT, "failed", reason="no", contradicted=("it landed",))), Release("a")),
    Row("the pivot is refused", FORTH, (held("a", NOTE), held("b", PIVOT, "failed", reason="no address")), TurnBack("b is failed: no address")),
    Row("after the pivot there is only forward", FORTH,
        (held("a", NOTE, "failed", reason="mailbox full"), held("b", PIVOT, "succeeded"), held("c", NOTE)), Release("c")),
    Row("partly committed", FORTH, (held("a", NOTE, "failed", reason="mailbox full"), held("b", PIVOT, "succeeded")),
        ParkTransaction("partly committed: a is failed: mailbox full", ("a",))),
    Row("two are missing", FORTH, (held("a", NOTE, "failed"), held("b", NOTE, "cancelled", reason="no"), held("c", PIVOT, "succeeded")),
        ParkTransaction("partly committed: a is failed: no reason is recorded; b is cancelled: no", ("a", "b"))),
    Row("a person lets that stand", replace(FORTH, accepted=("a",)), (held("a", NOTE, "failed"), held("b", PIVOT, "succeeded")), Finish()),
    Row("another's effect was met", FORTH, (held("a", MAIL, "cancelled", reused="x/mail#1"), held("b", NOTE)), Release("b")),
    Row("all have left", FORTH, (held("a", NOTE, "succeeded"), held("b", PIVOT, "succeeded")), Finish()),
    # Forward: what landed late in an inner part that was called off.
    Row("a stray is undone before anything leaves", FORTH, (one("a", PAY, stray=True), held("b", NOTE)), StartCompensations(("a",))),
    Row("a stray is being undone", FORTH, (one("a", PAY, stray=True, compensation=("running",)), held("b", NOTE)), AwaitOperations()),
    Row("a stray that was undone", FORTH, (one("a", PAY, stray=True, compensation=("succeeded",)), held("b", NOTE)), Release("b")),
    Row("a stray is not confirmed", FORTH, (one("a", SEAT, stray=True, compensation=("succeeded",)),), Finish()),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_done_next(row: Row):
    assert close(row.boundary, row.members) == row.move


def test_a_failed_compensation_says_why():
    (member,) = (one("a", PAY),)
    stuck = close(BACK, [replace(member, compensation=told("a/undo", "failed", "the shelf is full"))])
    assert stuck == ParkTransaction("a/undo is failed: the shelf is full", ("a",))


def test_the_second_compensation_that_fails_asks_again():
    member = replace(one("a", PAY), compensation=told("a/undo#2", "failed", "still full"))
    assert close(replace(BACK, tries=2), [member]) == ParkTransaction("a/undo#2 is failed: still full", ("a",))
    assert close(replace(BACK, tries=3), [member]) == StartCompensations(("a",))


@pytest.mark.parametrize(("number", "name"), [(1, "t/pay#3/undo"), (2, "t/pay#3/undo#2"), (11, "t/pay#3/undo#11")])
def test_compensations_are_numbered_from_the_second_on(number: int, name: str):
    assert serving("t/pay#3", saga.UNDO, number) == name
    assert attempt_number(name) == number
