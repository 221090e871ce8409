"""`holdfast inbox`: what waits for people, and the answers that let it go on."""

import pytest

from tests.cli.lab import Lab

DESK = '''
from holdfast import Key, Run, agent, current_operation, tool


@tool(gate="cents > 5000", idempotency=Key.forever())
def refund(customer: str, cents: int) -> str:
    """Pay it back."""
    return f"paid {cents} under {len(current_operation().key) > 0}"


@agent(run_id="refund-{name}", tools=[refund])
async def desk(run: Run, name: str) -> str:
    """Refund ninety euros."""
    return await refund(name, 9000)
'''


@pytest.fixture
def asked(holdfast: Lab) -> Lab:
    holdfast.directory.joinpath("desk.py").write_text(DESK)
    begun = holdfast("run", "desk.py:desk", '"9"')
    assert begun.status == 3
    assert "holdfast answer refund-9/refund#1 yes | no --by NAME" in begun.err
    return holdfast


def test_an_approval_is_listed_given_and_used(asked: Lab):
    assert asked("inbox").lines == [
        "approval refund-9/refund#1",
        '  may refund {"cents":9000,"customer":"9"} be sent? the contract asks for a person: cents > 5000',
        "  holdfast why refund-9/refund#1",
        "  holdfast answer refund-9/refund#1 yes | no --by NAME",
        "1 approval",
    ]
    (item,) = asked("inbox", "--json").json
    assert (item["kind"], item["run"], item["agent"]) == ("approval", "refund-9", "desk")
    assert "a person approves it, where cents > 5000" in asked("tools", "desk.py").out
    assert "holdfast answer refund-9/refund#1 yes" in asked("why", "refund-9/refund#1").out
    unclear = asked("answer", "refund-9/refund#1", "maybe", "--by", "bea")
    assert (unclear.status, "yes or no" in unclear.err) == (2, True)
    around = asked("resolve", "refund-9/refund#1", "--did-not-happen", "--retry", "--by", "bea")
    assert (around.status, "waits for an approval" in around.err) == (2, True)
    assert asked("answer", "refund-9/refund#1", "yes", "--by", "bea", "--hours", "2").lines == [
        "refund-9/refund#1 is answered: yes, on the word of bea.",
        "Next: holdfast resume refund-9",
    ]
    assert asked("inbox").lines == ["Nobody is asked anything."]
    assert asked("resume", "refund-9").out == '"paid 9000 under True"\n'
    assert asked("inbox").lines == ["Nobody is asked anything."]


def test_a_no_ends_it_with_its_reason(asked: Lab):
    asked("answer", "refund-9/refund#1", "no", "--by", "bea", "--why", "the customer kept it")
    ended = asked("resume", "refund-9")
    assert ended.status == 1
    assert "the customer kept it" in ended.err
    assert "declines it: the customer kept it" in asked("show", "refund-9").out


def test_a_long_inbox_is_cut_and_says_so(holdfast: Lab):
    holdfast.directory.joinpath("desk.py").write_text(DESK)
    holdfast.directory.joinpath("inputs.jsonl").write_text('"1"\n"2"\n"3"\n')
    holdfast("run", "desk.py:desk", "--inputs", "inputs.jsonl")
    assert holdfast("inbox", "--limit", "1").lines[-2:] == ["... and 2 more: --limit 3", "3 approvals"]
    assert len(holdfast("inbox", "--json").json) == 3
