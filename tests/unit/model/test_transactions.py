"""One boundary as its records tell it, and why one that is called off gets no further."""

from __future__ import annotations

import pytest

from holdfast.model import records as r
from holdfast.model.closing import Member, Stop, close
from holdfast.model.contract import Contract
from holdfast.model.operation import OperationState
from holdfast.model.transactions import IllegalBoundary, Transaction, follow

INTENT = r.Intent("charge", r.Raw(b"{}"), "digest", "contract")
GOING_BACK = Transaction("trip", "aborting", backward=True)


@pytest.mark.parametrize(
    ("before", "phase"), [(None, "new"), (Transaction("trip", "committed"), "committed")], ids=["new", "committed"]
)
def test_a_record_that_does_not_fit_is_refused_by_name(before, phase):
    with pytest.raises(IllegalBoundary) as refused:
        follow(before, r.TransactionCommitting(transaction="trip"), told=0)
    assert str(refused.value) == f"TransactionCommitting does not apply to a transaction that is {phase}: trip."


def test_nobody_opens_the_boundary_of_the_whole_run():
    whole = follow(None, r.TransactionAborting(transaction="", reason="undo", by="ann"), told=3)
    assert (whole.phase, whole.backward, whole.told, whole.reason, whole.by) == ("aborting", True, 3, "undo", "ann")


def member(contract: Contract, phase="succeeded", *, amendable: bool = True) -> Member:
    operation = OperationState("trip/charge#1", INTENT, phase, "contract")
    return Member(operation, contract, begun=1, ended=2, amendable=amendable)


def test_a_compensation_whose_code_is_gone_leaves_it_to_a_person():
    stuck = close(GOING_BACK, [member(Contract("charge", compensates=True), amendable=False)])
    assert stuck == Stop("the compensation of trip/charge#1 is not here any more", ("trip/charge#1",))


def test_what_is_unknown_is_not_compensated_blindly():
    stuck = close(GOING_BACK, [member(Contract("charge", compensates=True), "unknown")])
    why = "nobody knows whether trip/charge#1 happened, and compensating it blindly is not declared harmless"
    assert stuck == Stop(why, ("trip/charge#1",))
