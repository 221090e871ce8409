"""How a person ends a wait, and what the person is told."""

from __future__ import annotations

import pytest

from beforehand.model.waits import answers_with, brings, question_of
from tests.unit.model.stories import Story

STATED = [
    f"resolve r-1/charge#1 {options} --evidence TEXT --by NAME"
    for options in ("--happened", "--did-not-happen", "--did-not-happen --retry")
]


@pytest.mark.parametrize(
    ("kind", "step", "sent", "commands"),
    [
        ("approval", "charge#1", True, ["inbox --item r-1/charge#1"]),
        ("question", "ask#1", True, ["answer r-1/ask#1 VALUE --by NAME"]),
        ("person", "charge#1", True, STATED),
        ("person", "charge#1", False, [STATED[2], STATED[1].replace("--evidence", "--give-up --evidence")]),
        ("contradicted", "charge#1", True, STATED[:2]),
        ("person", "trip/", True, ["transaction r-1/trip --retry", "transaction r-1/trip --accept"]),
        ("timer", "sleep#1", True, []),
    ],
)
def test_a_wait_names_the_commands_that_end_it(kind, step, sent, commands):
    assert list(answers_with("r-1", kind, step, sent=sent)) == [f"beforehand {one}" for one in commands]


def test_an_awaited_answer_and_an_event_are_named_by_their_keys():
    assert brings("r-1", "answer", "B 7", "") == ("beforehand deliver 'B 7'",)
    assert brings("r-1", "answer", "--json", "") == ("beforehand deliver -- --json",)
    assert brings("r-1", "event", "k", "paid") == ("beforehand signal r-1 paid --key k",)
    assert brings("r-1", "event", "k", "-x") == ("beforehand signal --key k -- r-1 -x",)


def test_a_wait_for_an_outcome_asks_for_the_result_where_code_needs_one():
    found = answers_with("r-1", "person", "charge#1", result=True)
    assert found[0] == "beforehand resolve r-1/charge#1 --happened --result JSON --evidence TEXT --by NAME"


def test_a_question_of_several_people_says_who_has_said_yes():
    story = Story().planned().asked(people=2)
    assert question_of(story.state) == "a gate (2 people)"
    assert question_of(story.approved("bob").state) == "a gate (2 people, bob said yes)"


def test_a_doubt_comes_with_what_the_last_call_said():
    story = Story().sent("ambiguous", why="timed out")
    assert question_of(story.parked("nobody knows").state) == "nobody knows (timed out)"
    said_already = Story().sent("ambiguous", why="timed out").parked("it timed out")
    assert question_of(said_already.state) == "it timed out"
    assert question_of(Story().planned().state, "a rule") == "a rule"
