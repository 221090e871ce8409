"""The choice of a policy: the first rule that holds, people where no rule can judge, and samples that keep their rate."""

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.model.policy import (
    Past,
    Policy,
    PolicyFacts,
    Queue,
    Rule,
    Ruling,
    Terms,
    Word,
    asked_before,
    chance,
    choose,
    stratum_of,
    terms,
)
from beforehand.policies import Gate

FACTS = PolicyFacts("refund", "desk", 12, "mon")
HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Conditions as these tests write them: a word that decides, or a variable and what it has to exceed."""
    if text in {"yes", "no"}:
        return text == "yes"
    name, least = text.split(">")
    if values[name] is None:
        raise ValueError(f"nobody knows {name}")
    return bool(values[name] > float(least))


def never(_what: str) -> float:
    return 1.0


def always(_what: str) -> float:
    return 0.0


def ruled(*rules: Rule, facts: PolicyFacts = FACTS, draw: Callable[[str], float] = never, **policy: Any) -> Ruling:
    return choose(Policy("desk", rules, **policy), facts.values({}), holds, draw)


# --- which rule ---------------------------------------------------------------------------------------------------


def test_the_first_rule_that_holds_decides():
    rules = Rule("never", "no", "refuse"), Rule("first", "yes", "auto"), Rule("second", "yes", "two")
    assert ruled(*rules) == Ruling("auto", "first", stratum="first confidence:unknown")


@pytest.mark.parametrize(("default", "people"), [("ask", 1), ("two", 2), ("auto", 1), ("refuse", 1)])
def test_where_no_rule_holds_the_default_does(default: Word, people: int):
    assert ruled(Rule("never", "no", "auto"), default=default) == Ruling(default, "default", people)


def test_what_is_not_declared_is_asked():
    assert ruled().asks


@pytest.mark.parametrize("then", get_args(Word))
def test_what_cannot_be_judged_is_asked_on_the_terms_of_that_rule(then: Word):
    rule = Rule("sure", "confidence>0.9", then, queue="money", within=HOUR, people=3)
    found = ruled(rule, Rule("rest", "yes", "auto"))
    assert found.asks
    assert (found.rule, found.people, found.queue, found.within_ms) == ("sure", 3, "money", HOUR_MS)
    assert found.why == "nobody knows confidence"
    assert found.word == ("two" if then == "two" else "ask")


def test_facts_are_known_to_conditions_with_everything_inside():
    facts = PolicyFacts("refund", "desk", 9, "sat", amount=5.0, history=Past(sent=2), queue=Queue(7, 1.5))
    values = facts.values({"cents": 500})
    assert values["history"] == {"sent": 2, "amount": 0.0, "approved": 0, "declined": 0}
    assert values["queue"] == {"depth": 7, "oldest_hours": 1.5}
    assert (values["arguments"], values["amount"], values["confidence"]) == ({"cents": 500}, 5.0, None)


# --- samples ------------------------------------------------------------------------------------------------------

SAMPLE = Rule("borderline", "yes", "sample", rate=0.2, shadow=0.5)


@pytest.mark.parametrize(
    ("number", "sampled", "shadow"), [(0.0, True, False), (0.19, True, False), (0.2, False, True), (0.5, False, False)]
)
def test_a_sample_is_asked_about_and_of_the_rest_a_share_is_looked_at_later(number: float, sampled: bool, shadow: bool):
    found = ruled(SAMPLE, draw=lambda _: number)
    assert (found.sampled, found.asks, found.shadow) == (sampled, sampled, shadow)


def test_what_leaves_by_itself_is_looked_at_later_and_what_is_asked_is_not():
    assert ruled(Rule("small", "yes", "auto", shadow=0.1), draw=always).shadow
    assert not ruled(Rule("big", "yes", "ask", shadow=0.1), draw=always).shadow


def test_what_is_drawn_is_named_by_its_purpose_and_its_stratum():
    asked: list[str] = []
    ruled(SAMPLE, facts=msgspec.structs.replace(FACTS, confidence=0.83), draw=lambda what: asked.append(what) or 1.0)
    assert asked == ["sample borderline confidence:0.8-0.9", "shadow borderline confidence:0.8-0.9"]


@pytest.mark.parametrize(
    ("value", "band"),
    [(None, "unknown"), (0.1, "-0.5"), (0.5, "0.5-0.8"), (0.79, "0.5-0.8"), (0.8, "0.8+"), (7, "0.8+")],
)
def test_bands_are_told_by_their_cuts(value: float | None, band: str):
    policy = Policy("desk", bands={"amount": (0.5, 0.8), "confidence": ()})
    assert stratum_of(policy, SAMPLE, {"amount": value}) == f"borderline amount:{band}"


@pytest.mark.parametrize(
    ("busy", "depth", "sampled"),
    [("queue>10", 50, False), ("queue>10", 5, True), ("", 50, True), ("confidence>1", 50, True)],
)
def test_while_people_are_busy_fewer_are_asked_about(busy: str, depth: float, sampled: bool):
    """A condition that has no answer is no reason to ask fewer."""
    rule = msgspec.structs.replace(SAMPLE, busy_rate=0.01)
    values = {**FACTS.values({}), "queue": depth}
    assert choose(Policy("desk", (rule,), busy=busy), values, holds, lambda _: 0.1).sampled is sampled


def test_who_does_not_know_the_secret_cannot_know_what_is_drawn():
    drawn = {chance(secret, run, what) for secret in (b"a", b"b") for run in ("r/1", "r/2") for what in ("x", "y")}
    assert len(drawn) == 8
    assert all(0 <= number < 1 for number in drawn)
    assert chance(b"a", "r/1", "x") == chance(b"a", "r/1", "x")


@pytest.mark.slow
@given(st.binary(min_size=16, max_size=32), st.floats(0.05, 0.95))
def test_each_stratum_keeps_its_rate(secret: bytes, rate: float):
    """Over 2,000 operations the share is within five standard deviations of its rate, in every stratum of its own."""
    many = 2_000
    for stratum in ("one", "another"):
        share = sum(chance(secret, f"run-{n}/refund#1", f"sample {stratum}") < rate for n in range(many)) / many
        assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / many)


# --- what holds for every policy ------------------------------------------------------------------------------------

CONDITIONS = st.sampled_from(["yes", "no", "amount>10", "confidence>0.8"])
RULES = st.builds(
    Rule, st.uuids().map(str), CONDITIONS, st.sampled_from(get_args(Word)), rate=st.floats(0, 1), shadow=st.floats(0, 1)
)
POLICIES = st.builds(
    Policy, st.just("desk"), st.lists(RULES, max_size=5).map(tuple), st.sampled_from(["auto", "ask", "two", "refuse"])
)
MAYBE = st.none() | st.floats(0, 1000)
KNOWN = st.builds(
    PolicyFacts, st.just("refund"), st.just("desk"), st.integers(0, 23), st.just("mon"), amount=MAYBE, confidence=MAYBE
)


@given(POLICIES, KNOWN, st.text(max_size=20))
def test_the_choice_is_total_and_the_same_each_time(policy: Policy, facts: PolicyFacts, operation: str):
    def once() -> Ruling:
        return choose(policy, facts.values({}), holds, lambda what: chance(b"secret", operation, what))

    found = once()
    assert found == once()
    assert found.rule in {"default", *(rule.name for rule in policy.rules)}
    assert not (found.asks and found.shadow)
    assert not found.why or found.asks


@given(POLICIES, KNOWN)
def test_a_question_that_was_asked_is_never_withdrawn(policy: Policy, facts: PolicyFacts):
    found = asked_before(choose(policy, facts.values({}), holds, never))
    assert found.asks or found.word == "refuse"


@pytest.mark.parametrize(
    ("ruling", "allowed"),
    [
        (Ruling("ask", "big"), True),
        (Ruling("ask", "big", why="nobody knows confidence"), False),
        (Ruling("two", "big", 2), False),
        (Ruling("sample", "borderline", sampled=True), False),
    ],
)
def test_a_yes_given_in_advance_is_enough_for_a_plain_question(ruling: Ruling, allowed: bool):
    assert ruling.may_be_allowed is allowed


# --- terms --------------------------------------------------------------------------------------------------------

STRICT = Gate("true", people=2, within=2 * HOUR)


@pytest.mark.parametrize(
    ("gate", "ruling", "on"),
    [
        (None, None, Terms()),
        (STRICT, None, Terms(2, 2 * HOUR_MS)),
        (STRICT, Ruling("auto", "small", 5, "money", 5, "hold"), Terms(2, 2 * HOUR_MS)),
        (None, Ruling("ask", "big", 1, "money", HOUR_MS, "hold"), Terms(1, HOUR_MS, "money", "hold")),
        (STRICT, Ruling("ask", "big", 1, "money", HOUR_MS, "hold"), Terms(2, HOUR_MS, "money")),
        (STRICT, Ruling("two", "big", 3, within_ms=9 * HOUR_MS), Terms(3, 2 * HOUR_MS)),
        (Gate("true"), Ruling("ask", "big"), Terms()),
    ],
)
def test_people_are_asked_on_the_stricter_terms(gate: Gate | None, ruling: Ruling | None, on: Terms):
    assert terms(gate, ruling) == on


def test_once_it_went_on_to_others_it_waits_for_them():
    ruling = Ruling("ask", "big", 1, "money", HOUR_MS, "escalate", "heads")
    assert terms(None, ruling, escalated=True) == Terms(1, 0, "heads", "hold")
