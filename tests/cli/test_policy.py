"""`policy`: what a policy says, what is wrong with it, and whether it answers as its cases expect."""

from pathlib import Path

import pytest

from tests.cli.lab import Lab

POLICY = """
amounts: {refund: double(arguments.cents) / 100.0}
rules:
  - {name: huge, when: amount >= 1000, then: refuse}
  - {name: unsure, when: confidence < 0.5, then: ask, queue: money, within: 4h, on_expiry: hold}
  - {name: small, when: amount < 50, then: auto, shadow: 0.05}
  - {name: borderline, when: amount < 200, then: sample}
default: two
"""
CASES = """
- {name: a small refund, facts: {tool: refund, arguments: {cents: 900}, confidence: 0.9}, expect: auto, rule: small}
- {name: nobody said how sure, facts: {tool: refund, arguments: {cents: 900}}, expect: ask}
- {name: a big one, facts: {tool: refund, amount: 500, confidence: 0.9}, expect: two}
- {name: a middle one, facts: {tool: refund, amount: 100, confidence: 0.9}, expect: sample}
"""


@pytest.fixture
def rules(beforehand: Lab) -> Path:
    place = beforehand.directory / "desk.yaml"
    place.write_text(POLICY)
    return place


def test_a_policy_is_shown_rule_by_rule(beforehand: Lab, rules: Path):
    said = beforehand("policy", "show", "desk.yaml")
    assert said.status == 0
    assert said.out.startswith("desk@")
    assert "2. unsure\n   if   confidence < 0.5\n   then ask in money within 4 h, then it goes on waiting\n" in said.out
    assert "   then sample 15%\n" in said.out
    assert "5. else\n   then two\n" in said.out
    assert beforehand("policy", "show", "desk.yaml", "--json").json["policy"]["rules"][0]["name"] == "huge"


def test_nothing_is_wrong_with_it(beforehand: Lab, rules: Path):
    said = beforehand("policy", "check", "desk.yaml")
    assert (said.status, "no faults were found" in said.out) == (0, True)


def test_all_that_is_wrong_is_told_with_its_rule_and_field(beforehand: Lab, rules: Path):
    rules.write_text(
        "rules:\n  - {name: a, when: 'colour == 1', then: ask}\n  - {name: b, when: 'queue.depth > 5', then: auto}"
    )
    said = beforehand("policy", "check", "desk.yaml")
    assert said.status == 2
    assert "desk.yaml: rule 'a': when: it uses colour; choose from: " in said.out
    assert "desk.yaml: rule 'b': when: a rule that reads the queue cannot say auto" in said.out
    assert len(beforehand("policy", "check", "desk.yaml", "--json").json["faults"]) == 2


def test_cases_say_what_it_should_answer(beforehand: Lab, rules: Path):
    (beforehand.directory / "cases.yaml").write_text(CASES)
    said = beforehand("policy", "test", "cases.yaml", "desk.yaml")
    assert said.status == 0, said.out
    assert "4 cases, none missed." in said.out
    assert "it could not be judged: the case does not give its confidence" in said.out


def test_a_case_that_is_missed_fails(beforehand: Lab, rules: Path):
    (beforehand.directory / "cases.yaml").write_text(CASES.replace("expect: two", "expect: auto"))
    said = beforehand("policy", "test", "cases.yaml", "desk.yaml")
    assert said.status == 1
    assert "expected auto" in said.out
    assert "4 cases, 1 missed." in said.out
    assert beforehand("policy", "test", "cases.yaml", "desk.yaml", "--json").json["missed"] == 1


def test_the_project_names_its_policy(beforehand: Lab, rules: Path):
    assert "which policy?" in beforehand("policy", "show").err
    (beforehand.directory / "pyproject.toml").write_text('[tool.beforehand]\npolicy = "desk.yaml"\n')
    assert beforehand("policy", "show").status == 0


def test_runs_are_judged_by_it(beforehand: Lab, rules: Path):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", cents=900), "--policy", "desk.yaml")
    said = beforehand("why", "ticket-1/refund#1")
    assert "by the rule 'small' of desk@" in said.out


def test_the_past_is_judged_by_another_policy(beforehand: Lab, rules: Path):
    asks = beforehand.directory / "asks.yaml"
    asks.write_text("rules:\n  - {name: refunds, when: tool == 'refund', then: ask}\ndefault: auto\n")
    for name, cents in (("1", 900), ("2", 9000), ("3", 900)):
        beforehand("run", "desk.py:desk", beforehand.ticket(name, cents=cents), "--policy", "asks.yaml")
    assert beforehand("answer", "ticket-1/refund#1", "no", "--by", "bea").status == 0
    assert beforehand("answer", "ticket-2/refund#1", "no", "--by", "cid").status == 0
    said = beforehand("policy", "dry-run", "desk.yaml")
    assert said.status == 0
    assert "desk@" in said.out
    assert "It would have asked " in said.out
    found = beforehand("policy", "dry-run", "desk.yaml", "--json").json
    assert (found["asked_then"], found["overrides"]) == (3, 2)
    missed = {one["operation"] for one in found["missed"]}
    assert "ticket-1/refund#1" in missed
    assert "ticket-1/refund#1  declined by bea, and it says auto: small" in said.out
    assert f"instead of 3, refused 0, and missed {len(missed)} override" in said.out


def test_a_past_without_writes_says_nothing(beforehand: Lab, rules: Path):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="nothing"))
    (beforehand.directory / "none.yaml").write_text("rules: []")
    assert beforehand("policy", "dry-run", "none.yaml").status == 0


def test_the_dry_run_counts_the_gates_of_tools(beforehand: Lab):
    (beforehand.directory / "gated.py").write_text(GATED)
    (beforehand.directory / "auto.yaml").write_text("default: auto")
    assert beforehand("run", "gated.py:desk", '"ann"').status == 3
    found = beforehand("policy", "dry-run", "auto.yaml", "--json").json
    assert (found["asked_then"], found["asks_now"], found["rules"]) == (1, 1, {"default": {"auto": 1}})


GATED = """
from beforehand import Run, agent, tool

@tool(gate="cents > 5")
async def pay(cents: int) -> None: ...

@agent(run_id="r-{name}", tools=[pay])
async def desk(run: Run, name: str) -> None:
    await pay(9)
"""


DESK = '''
from beforehand import Key, Run, agent, current_operation, tool


@tool(idempotency=Key.forever())
def refund(cents: int) -> str:
    """Pay it back."""
    return f"paid {cents} under {len(current_operation().key)}"


@agent(run_id="refund-{cents}", tools=[refund])
async def desk(run: Run, cents: int) -> str:
    return await refund(cents)
'''


def test_the_rule_that_ruled_is_shown_as_it_read_then(beforehand: Lab, rules: Path):
    """The file has changed since: only its old version says why this was asked."""
    beforehand.write("gated.py", DESK)
    assert beforehand("run", "gated.py:desk", "40000", "--policy", "desk.yaml").status == 3
    version = beforehand("policy", "check", "desk.yaml", "--json").json["version"]
    rules.write_text(POLICY.replace("amount < 50,", "amount < 5000,").replace("default: two", "default: auto"))
    assert beforehand("why", "refund-40000/refund#1", "--json").json["policy"]["read"]["when"] == "confidence < 0.5"
    said = beforehand("why", "refund-40000/refund#1").words
    assert "it read: if confidence < 0.5 then ask in money within 4 h, then it goes on waiting" in said
    kept = beforehand("policy", "show", "--version", version)
    assert kept.out.startswith(f"{version}\n")
    assert "   if   amount < 50\n" in kept.out
    assert "   then two\n" in kept.out
    gone = beforehand("policy", "show", "--version", "desk@00000000")
    assert (gone.status, f"the versions that ruled here: {version}" in gone.err) == (2, True)
    assert beforehand("policy", "check", "--version", version).status == 2
