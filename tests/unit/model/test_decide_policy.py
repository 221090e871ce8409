"""A policy in the decision: it is asked once before anything is sent, and weakens no gate."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.model import records as r
from beforehand.model.decision import moves as m
from beforehand.model.decision.situation import OtherEffect
from beforehand.model.outcome import REFUSED
from beforehand.model.policy import Ruling, Word
from tests.unit.model.stories import HOUR, PLAIN, STEP, Story, changed

NOW = "desk@2"


def ruled(story: Story, word: Word, policy: str = NOW, **more: Any) -> Story:
    return story.took(r.Ruled(step=STEP, policy=policy, ruling=Ruling(word, "big", **more), **story.stamp()))


def test_what_was_not_judged_is_judged_first():
    assert Story().planned().says(policy=NOW) == "judge: the policy has not judged it"
    assert Story().planned().says() == "send: first attempt"


def test_a_repeat_is_met_before_anybody_judges():
    other = OtherEffect("guard", "succeeded", "run/charge#1", "replay")
    assert Story().planned().says(policy=NOW, other=other) == "reuse: guard met a success"


@pytest.mark.parametrize(
    ("word", "drawn", "says"),
    [
        ("auto", False, "send: first attempt"),
        ("sample", False, "send: first attempt"),
        ("sample", True, "request approval: the policy asks for a person"),
        ("ask", False, "request approval: the policy asks for a person"),
        ("two", False, "request approval: the policy asks for a person"),
        ("refuse", False, f"failed({REFUSED}): refused by the policy"),
    ],
)
def test_what_was_ruled_is_done(word: Word, drawn: bool, says: str):
    assert ruled(Story().planned(), word, sampled=drawn).says(policy=NOW) == says


def test_what_is_asked_is_judged_anew_by_another_policy():
    asked = ruled(Story().planned(), "ask", "desk@1").asked()
    assert asked.says(policy=NOW, asks="a1") == "judge: the policy has not judged it"
    assert asked.says(policy="desk@1", asks="a1") == "wait for person: a person is asked"
    again = ruled(Story().sent("not_sent"), "ask", "desk@1").asked()
    assert again.says(policy=NOW, asks="a1") == "judge: the policy has not judged it"


def test_what_was_allowed_in_advance_is_not_asked_about():
    story = ruled(Story().planned(), "ask")
    assert story.says(policy=NOW, permitted=True) == "send: first attempt"
    assert story.says(policy=NOW) == "request approval: the policy asks for a person"


def test_an_approval_is_bound_to_what_it_relies_on():
    """So that is read before anybody is asked, and nobody is asked where it cannot be."""
    story = Story(changed(PLAIN, observes=True)).planned()
    assert story.decide(gate="wanted") == m.Observe("an approval is bound to what it relies on", kept=True)
    assert story.says(gate="wanted", reading="unreadable") == "failed(unreadable): preconditions, nothing landed"
    assert story.says(gate="wanted", reading="unreadable", hold="trip").startswith("failed(unreadable)")
    assert story.says(gate="wanted", reading="same") == "request approval: the contract asks for a person"
    assert story.says(gate="wanted", reading="changed") == "request approval: the contract asks for a person"


def test_a_refusal_names_its_rule_and_its_policy():
    move = ruled(Story().planned(), "refuse").decide(policy=NOW)
    assert isinstance(move, m.Settle)
    assert move.reason == "the rule 'big' of the policy desk@2 refuses it"


@given(st.sampled_from(["auto", "sample", "ask", "two", "refuse"]), st.booleans(), st.sampled_from(["", "desk@1", NOW]))
def test_no_policy_weakens_a_gate(word: Word, drawn: bool, policy: str):
    story = Story().planned()
    if policy:
        ruled(story, word, policy, sampled=drawn)
    assert not isinstance(story.decide(gate="wanted", policy=NOW), m.Send)
    assert not isinstance(story.decide(gate="wanted"), m.Send)


def test_a_changed_policy_judges_again_while_nothing_was_sent():
    story = ruled(Story().planned(), "auto", "desk@1")
    assert story.says(policy=NOW) == "judge: the policy has not judged it"
    assert ruled(story, "ask").says(policy=NOW) == "request approval: the policy asks for a person"


def test_an_approval_under_another_policy_is_asked_for_again():
    story = ruled(Story().planned(), "ask", "desk@1").asked("a1").approved()
    assert story.says(policy="desk@1", asks="a1") == "send: first attempt"
    assert story.says(policy=NOW, asks="a1") == "judge: the policy has not judged it"
    assert ruled(story, "ask").says(policy=NOW, asks="a2") == "request approval: the policy asks for a person"


def test_a_question_is_judged_anew_and_put_anew():
    story = ruled(Story().planned(), "ask", "desk@1").asked("a1")
    assert story.says(policy="desk@1", asks="a1") == "wait for person: a person is asked"
    assert story.says(policy=NOW, asks="a1") == "judge: the policy has not judged it"
    assert (
        ruled(story, "ask").says(policy=NOW, asks="a2") == "request approval: what a person was asked about has changed"
    )
    assert ruled(story, "refuse").says(policy=NOW, asks="a2") == f"failed({REFUSED}): refused by the policy"


def test_what_was_begun_is_not_judged_again():
    story = ruled(Story().planned(), "auto").sent("not_sent", retry_after_ms=0).later(HOUR // 60)
    assert not isinstance(story.decide(policy=""), m.Judge)


@pytest.mark.parametrize(
    ("on_expiry", "says"),
    [
        ("refuse", "failed(expired): no answer came in time"),
        ("hold", "wait for person: a person is asked"),
        ("escalate", "request approval: no answer came in time, so others are asked"),
    ],
)
def test_what_happens_when_nobody_answers_is_said_by_the_policy(on_expiry: Any, says: str):
    story = ruled(Story().planned(), "ask")
    story.asked("a1", until=story.wall + HOUR, queue="money", on_expiry=on_expiry)
    assert story.says(asks="a1") == "wait for person: a person is asked"
    assert story.later(HOUR).says(asks="a1") == says
    assert (story.state.approval.queue, story.state.approval.on_expiry) == ("money", on_expiry)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("auto", "send: first attempt"),
        ("ask", "request approval: the policy asks for a person"),
        ("refuse", "failed(refused): refused by the policy"),
    ],
)
def test_an_order_for_what_no_policy_has_judged_does_not_go_round_the_policy(word, says):
    """It waited for another run's business key before the policy was asked."""
    story = Story().planned().parked().person("retry")
    assert story.says(policy=NOW) == "judge: the policy has not judged it"
    assert ruled(story, word).says(policy=NOW) == says


def test_an_order_counts_on_the_ruling_that_there_is_on_what_is_sent():
    story = ruled(Story().planned(), "auto").parked().person("retry")
    assert story.says(policy="desk@2") == "send: first attempt"
    edited = ruled(Story().planned(), "auto").asked().edited(b'{"cents":1}')
    assert edited.parked().person("retry").says(policy=NOW) == "judge: the policy has not judged it"
