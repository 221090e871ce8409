"""`beforehand figures`: what people found, from a real journal."""

import pytest

from tests.cli.lab import Lab

DESK = '''
from dataclasses import dataclass

from beforehand import Key, Run, agent, current_operation, tool


@dataclass
class Ruling:
    cents: int
    confidence: float


async def rule(name: str) -> Ruling:
    return Ruling(9000, 0.97 if name.startswith("sure") else 0.6)


@tool(gate="cents > 5000", idempotency=Key.forever())
def refund(customer: str, cents: int) -> str:
    """Pay it back."""
    return f"paid {cents} under {len(current_operation().key) > 0}"


@agent(run_id="refund-{name}", tools=[refund])
async def desk(run: Run, name: str) -> str:
    """Refund ninety euros."""
    ruling = await run.decide(rule, name)
    return await refund(name, ruling.cents)
'''

ANSWERS = {"sure-1": ("yes", "bea"), "sure-2": ("no", "bea"), "unsure-1": ("no", "carl"), "unsure-2": ("no", "carl")}


@pytest.fixture
def answered(beforehand: Lab) -> Lab:
    beforehand.write("gated.py", DESK)
    for name, (word, by) in ANSWERS.items():
        assert beforehand("run", "gated.py:desk", f'"{name}"').status == 3
        item = f"refund-{name}/refund#1"
        shown = beforehand.seen(item) if word == "yes" else []
        assert beforehand("answer", item, word, *shown, "--by", by).status == 0
    return beforehand


def test_what_people_found_is_counted(answered: Lab):
    found = answered("figures", "--json").json
    assert (found["looks"], found["overrides"]["hits"], found["overrides"]["of"]) == (4, 3, 4)
    assert {one["name"]: one["overrides"]["hits"] for one in found["by_reviewer"]} == {"bea": 1, "carl": 2}
    assert {one["name"]: one["overrides"]["of"] for one in found["by_confidence"]} == {
        "0.5 to 0.7": 2,
        "0.95 to 0.99": 2,
    }
    assert [one["name"] for one in found["by_tool"]] == ["refund"]
    assert found["by_tool"][0]["median_ms"] >= 0
    assert [band["stated"] for band in found["confidence"]["bands"]] == [0.6, 0.97]


def test_the_table_says_how_little_four_looks_prove(answered: Lab):
    said = answered("figures")
    assert said.status == 0
    assert "4 reviews in 90 days" in said.words
    assert "Overruled: 75.0% (30.1% to 95.4%, n=4) of what people reviewed." in said.words
    assert "carl 2 100.0% 34.2% to 100.0%" in said.words
    assert "97.0% 50.0%" in said.words
    assert max(len(line) for line in said.lines) <= 90


def test_an_answer_is_dated_by_the_ledger_not_by_when_it_was_applied(answered: Lab):
    assert answered("figures", "--json").json["by_tool"][0]["median_ms"] < 60_000


def test_without_looks_it_says_so(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("17")).status == 0
    said = beforehand("figures", "--days", "7")
    assert (said.status, said.lines) == (0, ["No questions in the last 7 days."])
