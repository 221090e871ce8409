"""A shadow review at the command line: listed, answered, and counted."""

from tests.cli.lab import Lab

POLICY = """
name: desk
rules:
  - {name: everything, when: "true", then: auto, shadow: 1.0}
"""


def test_what_left_is_listed_and_answered_afterwards(holdfast: Lab):
    holdfast.write("policy.yaml", POLICY)
    assert holdfast("run", "desk.py:desk", holdfast.ticket("17"), HOLDFAST_POLICY="policy.yaml").status == 0
    found = [one["item"] for one in holdfast("inbox", "--json").json]
    assert found == ["shadow/ticket-17/refund#1", "shadow/ticket-17/restock#1"]
    assert "was it right that refund" in holdfast("inbox").words
    assert holdfast("answer", found[0], "yes").status == 2
    said = holdfast("answer", found[0], "wrong", "--by", "bea", "--why", "the wrong order")
    assert "It stays in effect until it is undone: holdfast undo ticket-17" in said.words
    assert holdfast("answer", found[1], "right", "--by", "bea").status == 0
    assert holdfast("answer", found[1], "wrong", "--by", "carl").status == 2
    counted = holdfast("figures", "--json").json
    assert (counted["looks"], counted["overrides"]["hits"], counted["passed"]) == (2, 1, 2)
