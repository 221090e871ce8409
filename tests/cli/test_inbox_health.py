"""`beforehand inbox --health`: whether people keep up, from a real journal."""

import pytest

from tests.cli.lab import Lab
from tests.cli.test_figures import DESK


@pytest.fixture
def desk(beforehand: Lab) -> Lab:
    beforehand.write("gated.py", DESK)
    return beforehand


def asked(desk: Lab, *names: str) -> None:
    for name in names:
        assert desk("run", "gated.py:desk", f'"{name}"').status == 3


def test_an_empty_inbox_is_healthy(desk: Lab):
    assert desk("run", "desk.py:desk", desk.ticket("1")).status == 0
    said = desk("inbox", "--health")
    assert said.status == 0
    assert "nothing is waiting" in said.words


def test_what_waits_is_told_with_whose_turn_it_is(desk: Lab):
    asked(desk, "sure-1", "sure-2", "unsure-1")
    assert desk("answer", "refund-sure-1/refund#1", "no", "--by", "bea").status == 0
    said = desk("inbox", "--health")
    assert "waiting 2, the oldest for" in said.words
    assert "refund-sure-2/refund#1 waits" in said.words
    assert "perhaps bea" in said.words
    found = desk("inbox", "--health", "--json").json
    assert [one["by"] for one in found["next"]] == ["bea", "bea"]
    assert found["health"]["reviewers"][0]["by"] == "bea"


def test_haste_rings_and_a_monitor_sees_it(desk: Lab):
    """Twelve answers as quick as a test can give them: they cannot have been read."""
    names = [f"sure-{number}" for number in range(12)]
    asked(desk, *names)
    for name in names:
        assert desk("answer", f"refund-{name}/refund#1", "no", "--by", "bea").status == 0
    said = desk("inbox", "--health")
    assert said.status == 1
    assert "faster than a person reads" in said.words
    found = desk("inbox", "--health", "--json")
    assert found.status == 1
    assert [one["name"] for one in found.json["alarms"]] == ["quick"]


def test_what_was_given_to_somebody_says_so(desk: Lab):
    asked(desk, "sure-1")
    assert desk("answer", "refund-sure-1/refund#1", "no", "--by", "carl").status == 0
    asked(desk, "sure-2")
    found = desk("inbox", "--health", "--json").json
    assert [(one["by"], one["given"]) for one in found["next"]] == [("carl", False)]
