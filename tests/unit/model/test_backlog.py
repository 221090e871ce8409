"""The backlog of a boundary that is called off shows all that the next decision rests on, and no more than that."""

from __future__ import annotations

import random

from msgspec.structs import replace

from beforehand.model.contract import Contract
from beforehand.model.saga import Backlog, Member, StartCompensations, close
from beforehand.model.transaction import TransactionState
from tests.unit.model.boundary_rules import boundary_of, operation

TRIED = 3_000
BACK = TransactionState("t", "aborting", backward=True)
PAY = Contract("pay", compensates=True)


def test_what_it_shows_leads_to_the_same_move_whatever_news_comes():
    chance = random.Random(21)
    for _ in range(TRIED):
        boundary, members = boundary_of(chance, backward=True)
        now = {member.step: member for member in members}
        backlog = Backlog(boundary, members)
        assert close(boundary, backlog.front() or members) == close(boundary, members)
        for _ in range(3):
            for later in boundary_of(chance, backward=True)[1]:
                if (then := now.get(later.step)) is None:
                    continue
                # Where it began is known for ever, and where it ended as soon as it has.
                ended = then.ended or (later.ended and later.ended - later.begun + then.begun)
                now[later.step] = replace(later, begun=then.begun, ended=ended)
                backlog.put(now[later.step])
            every = list(now.values())
            assert close(boundary, backlog.front() or every) == close(boundary, every), (boundary, every)


def paid(number: int, *, undone: bool = False) -> Member:
    step = f"t/pay#{number}"
    compensation = operation(f"{step}/undo", "succeeded") if undone else None
    return Member(operation(step, "succeeded"), PAY, number, number, compensation)


def test_of_many_it_shows_the_one_whose_turn_it_is():
    """Undoing a thousand effects one after another costs no more for each of them."""
    members = [paid(number) for number in range(1, 1001)]
    backlog = Backlog(BACK, members)
    for number in range(1000, 0, -1):
        front = backlog.front()
        assert [member.step for member in front] == [f"t/pay#{number}"]
        assert close(BACK, front) == StartCompensations((f"t/pay#{number}",))
        backlog.put(paid(number, undone=True))
    assert backlog.front() == []


def test_it_knows_what_belongs_to_the_boundary():
    backlog = Backlog(BACK, [paid(1)])
    assert "t/pay#1" in backlog
    assert "t/pay#2" not in backlog
