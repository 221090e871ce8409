"""`close` against the rules for the end of a transaction, stated a second time, over thousands of boundaries."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from beforehand.model.saga import close
from tests.unit.model.boundary_rules import answer_of, boundary_of, expected

TRIED = 12_000


@pytest.mark.parametrize("backward", [True, False], ids=["back", "forward"])
def test_what_is_done_next_is_what_the_rules_say(*, backward: bool):
    chance, answers = random.Random(20), Counter[str]()
    for _ in range(TRIED):
        boundary, members = boundary_of(chance, backward=backward)
        said = answer_of(close(boundary, members))
        assert said == expected(boundary, members), (boundary, members)
        answers[said[0]] += 1
    rarest = (
        {"StartCompensations", "AwaitOperations", "ParkTransaction", "Finish"}
        if backward
        else {"ConfirmReservations", "Reread", "Release", "TurnBack", "ParkTransaction"}
    )
    assert min(answers[kind] for kind in rarest) > 50, answers
