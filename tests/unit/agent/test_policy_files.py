"""Policy files: what is wrong with one is told with the file, the rule and the field."""

from datetime import timedelta
from pathlib import Path

import pytest

from beforehand.errors import UsageError
from beforehand.model.policy import Policy, PolicyFacts, Rule
from beforehand.people.policy.judge import PolicyError, PolicyJudge
from beforehand.people.policy.policy_files import judge_of, load_policy, read_yaml

FACTS = PolicyFacts("refund", "desk", 12, "mon")


def written(place: Path, text: str) -> Path:
    file = place / "desk.yaml"
    file.write_text(text)
    return file


def faults(place: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(PolicyError) as refused:
        load_policy(written(place, text))
    assert str(refused.value).startswith(str(place / "desk.yaml"))
    return refused.value.faults


def test_a_file_says_what_a_policy_says(tmp_path: Path):
    text = """
remembers: 2w
bands: {confidence: [0.5, 0.9]}
rules:
  - {name: always, when: true, then: ask, within: 90s}
  - {name: never, when: false, then: auto}
default: two
"""
    judge = load_policy(written(tmp_path, text))
    always = Rule("always", "true", "ask", within=timedelta(seconds=90))
    never = Rule("never", "false", "auto")
    bands = {"confidence": (0.5, 0.9)}
    assert judge.policy == Policy("desk", (always, never), "two", remembers=timedelta(weeks=2), bands=bands)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- a list", "it holds a list, and a policy is a mapping with rules"),
        ("just text", "it holds 'just text', and a policy is a mapping with rules"),
        ("", "it holds nothing, and a policy is a mapping with rules"),
        ("rules: {a: 1}", "rules: a mapping, and rules are a list"),
        ("rules: [5]", "rule 1: 5, and a rule is a mapping with name, when and then"),
        ("a: [", "it is not YAML: "),
        ("rule: []", "rule: unknown field; did you mean rules?"),
        ("colour: red", "colour: unknown field; choose from: name, rules, default"),
        ("default: sample", "default: it cannot sample; add a rule that samples"),
        ("default: maybe", "default: Invalid enum value 'maybe'; choose from: auto, sample, ask, two, refuse"),
        ("remembers: long", "remembers: 'long' is not a duration; write 30m, 4h or 2d"),
        ("amounts: [1]", "amounts: Expected `object`, got `array`"),
        (
            "rules: [{name: a, when: 'true', then: maybe}]",
            "rule 'a': then: Invalid enum value 'maybe'; choose from: auto",
        ),
        ("rules: [{name: a, when: 'true'}]", "rule 'a': then: it is missing"),
        ("rules: [{when: 'true', then: ask}]", "rule 1: name: it is missing"),
        ("rules: [{name: a, when: 'true', then: ask, rat: 1}]", "rule 'a': rat: unknown field; did you mean"),
        ("rules: [{name: a, when: 'true', then: sample, rate: 7}]", "rule 'a': rate: 7 is not a share"),
        ("rules: [{name: a, when: 'true', then: ask, within: 4}]", "rule 'a': within: 4 is not a duration"),
        ("rules: [{name: a, when: 'amount >', then: ask}]", "rule 'a': when: "),
        (
            "rules: [{name: a, when: 'colour > 1', then: ask}]",
            "rule 'a': when: it uses colour; choose from: tool, agent",
        ),
        (
            "rules: [{name: a, when: 'queue.width > 1', then: ask}]",
            "rule 'a': when: queue.width does not exist; choose from",
        ),
        ("rules: [{name: a, when: 'queue.depth > 1', then: sample}]", "rule 'a': when: a rule that reads the queue"),
        ("rules: [{name: a, when: 'history.sent > 1', then: ask}]", "rule 'a': when: it uses history, and the policy"),
        (
            "rules: [{name: a, when: 'true', then: sample, busy_rate: 0.1}]",
            "rule 'a': busy_rate: the policy does not say",
        ),
        ("busy: amount > 1", "busy: it uses amount; choose from: queue"),
        ("amounts: {refund: amount + 1.0}", "amounts: refund: it uses amount; choose from: arguments"),
        ("amounts: {refund: arguments.cents / 100}", "amounts: refund: it divides by a whole number"),
        ("subjects: {refund: colour}", "subjects: refund: it uses colour; choose from: arguments"),
        (
            "rules: [{name: a, when: 'true', then: ask}, {name: a, when: 'true', then: auto}]",
            "rules: two rules are named 'a'",
        ),
    ],
)
def test_what_is_wrong_is_told_by_rule_and_field(tmp_path: Path, text: str, fault: str):
    found = faults(tmp_path, text)
    assert len(found) == 1, found
    assert found[0].startswith(fault), found[0]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path):
    text = "rules: [{name: a, when: 'colour == 1', then: ask}, {name: b, when: 'true', then: ask, rate: 7}]\nrule: 1"
    found = faults(tmp_path, text)
    assert [one.partition(":")[0] for one in found] == ["rule", "rule 'b'", "rule 'a'"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"none\.yaml cannot be read"):
        load_policy(tmp_path / "none.yaml")


def test_yaml_makes_no_objects(tmp_path: Path):
    with pytest.raises(PolicyError, match="it is not YAML"):
        read_yaml(written(tmp_path, "a: !!python/object/apply:os.getcwd []"))


def test_an_app_takes_a_policy_or_its_file(tmp_path: Path):
    judge = judge_of(Policy("desk"))
    assert isinstance(judge, PolicyJudge)
    assert judge_of(None) is None
    assert judge_of(str(written(tmp_path, "name: desk"))).version == judge.version


@pytest.mark.parametrize(
    ("arguments", "amount"),
    [
        ({"cents": 4999}, 49.99),
        ({"cents": 5000.0}, 50.0),
        ({"cents": "5000"}, 50.0),
        ({"cents": "a lot"}, None),
        ({}, None),
    ],
)
def test_an_amount_that_has_no_answer_is_unknown(arguments: dict[str, object], amount: float | None):
    judge = PolicyJudge(Policy("desk", amounts={"refund": "double(arguments.cents) / 100.0", "flag": "true"}))
    assert judge.amount("refund", arguments) == amount
    assert judge.amount("other", arguments) is None
    assert judge.amount("flag", arguments) is None


@pytest.mark.parametrize(("customer", "subject"), [("ann", "ann"), (7, "7"), (True, ""), (1.5, ""), (None, "")])
def test_a_subject_is_a_text_or_a_number(customer: object, subject: str):
    assert (
        PolicyJudge(Policy("desk", subjects={"refund": "arguments.customer"})).subject("refund", {"customer": customer})
        == subject
    )


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("confidence > 0.5 || amount > 1.0", "the case does not give its amount and confidence"),
        ("arguments.name + 1 > 2", "it mixes kinds of values (its condition cannot be evaluated here)"),
        ("arguments.colour == 'red'", "'colour' (its condition cannot be evaluated here)"),
    ],
)
def test_why_nobody_can_judge_is_told_in_a_few_words(when: str, why: str):
    ruling = PolicyJudge(Policy("desk", (Rule("odd", when, "auto"),))).ruling(FACTS, {"name": "ann"}, lambda _: 1.0)
    assert ruling.asks
    assert ruling.why == why
