"""A shadow review at the command line: listed, given, and counted."""

from tests.cli.lab import Lab

POLICY = """
name: desk
rules:
  - {name: everything, when: "true", then: auto, shadow: 1.0}
"""


def test_what_left_is_listed_and_answered_afterwards(beforehand: Lab):
    beforehand.write("policy.yaml", POLICY)
    assert beforehand("run", "desk.py:desk", beforehand.ticket("17"), BEFOREHAND_POLICY="policy.yaml").status == 0
    assert beforehand("inbox", "--json").json == [], "nobody is asked"
    found = [one["operation"] for one in beforehand("shadow-reviews", "--json").json]
    assert found == ["ticket-17/refund#1", "ticket-17/restock#1"]
    assert "was it right that refund" in beforehand("shadow-reviews").words
    assert "2 calls to review." in beforehand("shadow-reviews").lines
    for wrong in ((found[0],), (found[0], "yes"), ("ticket-17/else#1", "right")):
        assert beforehand("shadow-reviews", *wrong).status == 2
    assert "waiting 2" in beforehand("inbox", "--health").words
    said = beforehand("shadow-reviews", found[0], "wrong", "--by", "bea", "--why", "the wrong order")
    assert "It stays in effect until it is undone: beforehand undo ticket-17" in said.words
    given = beforehand("shadow-reviews", found[1], "right", "--by", "bea", "--json").json
    assert (given["operation"], given["review"]["word"], given["next_step"]) == (found[1], "right", "")
    assert beforehand("shadow-reviews", found[1], "wrong", "--by", "carl").status == 2
    assert beforehand("shadow-reviews").lines == ["No call waits for a review."]
    assert beforehand("doctor").status == 0
    counted = beforehand("figures", "--json").json
    assert (counted["looks"], counted["overrides"]["hits"], counted["passed"]) == (2, 1, 2)
