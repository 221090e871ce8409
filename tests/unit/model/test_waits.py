"""How a person ends a wait, and what the person is told."""

from __future__ import annotations

import pytest

from holdfast.model.waits import answer_with, question_of
from tests.unit.model.stories import Story


@pytest.mark.parametrize(
    ("kind", "step", "sent", "command"),
    [
        ("approval", "charge#1", True, "holdfast inbox --item r-1/charge#1"),
        ("question", "ask#1", True, "holdfast answer r-1/ask#1 VALUE --by NAME"),
        ("person", "charge#1", True, "holdfast resolve r-1/charge#1 --happened | --did-not-happen [--retry]"),
        ("person", "charge#1", False, "holdfast resolve r-1/charge#1 --did-not-happen --retry | --give-up"),
        ("person", "trip/", True, "holdfast transaction r-1/trip --retry | --accept"),
        ("timer", "sleep#1", True, ""),
    ],
)
def test_a_wait_names_the_command_that_ends_it(kind, step, sent, command):
    assert answer_with("r-1", kind, step, sent=sent) == command


def test_a_wait_for_an_outcome_asks_for_the_result_where_code_needs_one():
    words = "--happened --result JSON | --did-not-happen [--retry]"
    assert answer_with("r-1", "person", "charge#1", result=True) == f"holdfast resolve r-1/charge#1 {words}"


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
