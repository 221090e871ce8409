"""What is decided about an operation of which nothing is recorded depends on its tool and the situation, not on its name.

The engine relies on it: in a calm run it asks once per tool.
"""

from __future__ import annotations

import pytest

from holdfast.model import moves as m
from holdfast.model import records as r
from holdfast.model.contract import Contract
from holdfast.model.decide import decide, proven_by
from holdfast.model.operation import OperationState
from holdfast.model.situation import Now, Situation
from tests.unit.model.stories import KEYED, NATURAL, PLAIN, VERIFIABLE, changed

CONTRACTS = [PLAIN, KEYED, NATURAL, VERIFIABLE, changed(PLAIN, observes=True), changed(VERIFIABLE, check_first=True)]


def draft(step: str, arguments: bytes, contract: Contract) -> OperationState:
    intent = r.Intent(tool=contract.tool, arguments=r.Raw(arguments), digest=step, contract="c")
    return OperationState(step, intent, "planned", "c")


@pytest.mark.parametrize("contract", CONTRACTS)
def test_drafts_of_one_tool_get_the_same_first_move_at_any_time(contract: Contract) -> None:
    situation = Situation(contract=contract)
    one = decide(draft("send#1", b'{"to":"ann"}', contract), situation, Now("boot", 5, 1_000))
    other = decide(draft("a/send#7", b'{"to":"bob"}', contract), situation, Now("boot", 9_000_000, 9_000_000))
    assert one == other
    assert isinstance(one, m.Attempt) == (not contract.observes and not contract.check_first)


def test_a_return_settles_at_once_unless_its_evidence_is_asked_for() -> None:
    returned = r.End("returned")
    settle = proven_by(returned, 2, PLAIN)
    assert settle is not None
    assert (settle.status, settle.attempt) == ("succeeded", 2)
    assert proven_by(returned, 1, changed(VERIFIABLE, expects=True)) is None
    assert proven_by(r.End("rejected"), 1, PLAIN) is None
