"""`beforehand plant`: known-bad cases in a real journal, answered as the others are."""

import re

import pytest

from tests.cli.lab import Lab
from tests.cli.test_figures import DESK

BAD = '{"tool": "refund", "arguments": {"customer": "nobody", "cents": 900000}, "why": "nobody bought anything"}\n'


@pytest.fixture
def desk(beforehand: Lab) -> Lab:
    beforehand.write("gated.py", DESK)
    beforehand.write("bad.jsonl", BAD + "\n")
    for name in ("sure-1", "sure-2"):
        assert beforehand("run", "gated.py:desk", f'"{name}"').status == 3
    return beforehand


def test_it_waits_among_the_others_and_is_counted_as_missed(desk: Lab):
    done = desk("plant", "bad.jsonl", "--rate", "0.5", "--json").json
    [item] = done["items"]
    assert item in {one["item"] for one in desk("inbox", "--json").json}
    assert "planted" not in desk("inbox").words
    assert desk("answer", item, "yes", "--by", "bea", *desk.seen(item)).status == 0
    run = item.split("/")[0]
    assert run not in {one["run"] for one in desk("ps", "--json").json["runs"]}
    assert desk("resume", run, "gated.py:desk").status != 0
    found = desk("figures", "--json").json
    assert (found["caught"]["hits"], found["caught"]["of"]) == (0, 1)
    assert found["looks"] == 0, "it says nothing about the agent"
    assert "Planted cases caught: 0.0%" in desk("figures").words
    assert "planted ones caught 0.0%" in desk("inbox", "--health").words


def test_it_says_how_many(desk: Lab):
    assert desk("plant", "bad.jsonl", "--rate", "1").lines == ["2 cases planted."]
    assert desk("plant", "bad.jsonl", "--rate", "0").lines == ["0 cases planted."]


def test_a_line_that_is_no_case_is_named(desk: Lab):
    desk.write("odd.jsonl", BAD + '{"tool": "refund"}\n')
    said = desk("plant", "odd.jsonl")
    assert said.status == 2
    assert "line 2" in said.remarks


def test_who_answers_is_told(desk: Lab):
    [item] = desk("plant", "bad.jsonl", "--rate", "0.5", "--json").json["items"]
    said = desk("answer", item, "no", "--by", "bea")
    assert "This one was planted, and you caught it: nobody bought anything. Nothing was sent." in said.words
    assert "Next:" not in said.words


def test_who_answers_several_is_told_of_each_that_was_planted(desk: Lab):
    [item] = desk("plant", "bad.jsonl", "--rate", "0.5", "--json").json["items"]
    run = item.split("/")[0]
    said = desk("answer", item, "refund-sure-1/refund#1", "no", "--sure", "--by", "bea")
    assert "2 items are answered, decided by bea." in said.lines
    assert f"{run}: This one was planted, and you caught it: nobody bought anything. Nothing was sent." in said.lines
    [item, *_] = desk("plant", "bad.jsonl", "--rate", "1", "--json").json["items"]
    both = ("answer", item, "refund-sure-2/refund#1", "yes", "--by", "bea")
    (shown,) = re.findall(r"--shown (\w+)", desk(*both).err)
    taken = desk(*both, "--shown", shown, "--json").json
    assert [("you let it through" in one.get("note", "")) for one in taken] == [True, False]
