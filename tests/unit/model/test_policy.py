"""Policies as data: what can be meant, and what names exactly these rules."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand.model.policy import DEFAULT, Policy, Rule, version_of

ASK = Rule("big", "amount > 50", "ask")
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": ""}, "name: '' cannot name a rule"),
        ({"name": DEFAULT}, "name: 'default' cannot name a rule"),
        ({"rate": 1.5}, "rate: 1.5 is not a share"),
        ({"rate": -0.1}, "rate: -0.1 is not a share"),
        ({"shadow": 2}, "shadow: 2 is not a share"),
        ({"then": "sample", "busy_rate": -1}, "busy_rate: -1 is not a share"),
        ({"busy_rate": 0.1}, "busy_rate: it is a share of what is sampled"),
        ({"then": "sample", "rate": 0.1, "busy_rate": 0.2}, "busy_rate: it is a share of what is sampled"),
        ({"people": -1}, "people: -1 is not how many people `ask` asks"),
        ({"then": "two", "people": 1}, "people: 1 is not how many people `two` asks"),
        ({"within": timedelta(0)}, "within: 0:00:00 is too short"),
        ({"within": HOUR, "on_expiry": "escalate"}, "escalates_to: it names the queue"),
        ({"within": HOUR, "escalates_to": "heads"}, "escalates_to: it names the queue"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_by_its_field(changes: dict[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        msgspec.structs.replace(ASK, **changes)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "name: a policy needs one"),
        ({"default": "sample"}, "default: it cannot sample"),
        ({"remembers": timedelta(0)}, "remembers: 0:00:00 is not a duration above 0"),
        ({"bands": {"amount": (50.0, 10.0)}}, "bands: the cuts of a variable must ascend"),
        ({"bands": {"amount": (10.0, 10.0)}}, "bands: the cuts of a variable must ascend"),
        ({"rules": (ASK, ASK)}, "rules: two rules are named 'big'"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_by_its_field(fields: dict[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        Policy(**{"name": "desk", **fields})


@pytest.mark.parametrize(("then", "people", "asked"), [("ask", 0, 1), ("two", 0, 2), ("two", 3, 3), ("ask", 2, 2)])
def test_a_word_says_how_many_people_unless_the_rule_does(then: Any, people: int, asked: int):
    assert Rule("big", "true", then, people=people).asks_people == asked


def test_a_version_names_exactly_what_a_policy_says():
    policy = Policy("desk", (ASK,), amounts={"a": "1.0", "b": "2.0"})
    assert version_of(policy).startswith("desk@")
    assert version_of(policy) == version_of(Policy("desk", (ASK,), amounts={"b": "2.0", "a": "1.0"}))
    others = [
        Policy("desk", ()),
        Policy("desk", (msgspec.structs.replace(ASK, rate=0.2),), amounts=policy.amounts),
        msgspec.structs.replace(policy, default="two"),
        msgspec.structs.replace(policy, bands={}),
    ]
    assert len({version_of(one) for one in [policy, *others]}) == 5


def test_a_policy_is_read_back_from_what_was_written_of_it():
    policy = Policy("desk", (ASK, Rule("shut", "true", "two", within=HOUR)), remembers=timedelta(days=7))
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy
