"""What a result claims: the receipts that are somewhere in it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from beforehand.model.outcome import Basis, Receipt
from beforehand.model.receipts import DEEPEST, receipts_in

RECEIPT = Receipt("desk/charge#1", "charge", "key", Basis("returned"), 7)


class Answer(msgspec.Struct):
    proof: object


@dataclasses.dataclass
class Report:
    proof: object


class Plain:
    def __init__(self, proof: object) -> None:
        self.proof = proof


@pytest.mark.parametrize(
    "shape",
    [
        lambda proof: proof,
        lambda proof: {"proof": proof},
        lambda proof: ["text", (proof,)],
        lambda proof: frozenset({proof}),
        Answer,
        Report,
        Plain,
    ],
    ids=["itself", "mapping", "sequence", "set", "struct", "dataclass", "object"],
)
def test_a_receipt_is_found_in_whatever_shape_a_result_has(shape):
    assert list(receipts_in(shape(RECEIPT))) == [RECEIPT]


@pytest.mark.parametrize("value", ["text", b"bytes", 3, 0.5, None, object()])
def test_what_has_no_parts_has_no_receipts(value):
    assert list(receipts_in(value)) == []


def test_a_result_is_looked_through_only_so_deep():
    """A result may hold itself."""
    round_and_round: list[object] = [RECEIPT]
    round_and_round.append(round_and_round)
    assert list(receipts_in(round_and_round)) == [RECEIPT] * (DEEPEST + 1)
