"""`holdfast effects`: one question over all runs."""

from pathlib import Path

import pytest

from tests.cli.lab import Lab

DESK = """
from dataclasses import dataclass

from holdfast import Rejected, Run, agent, tool


@dataclass
class Order:
    name: str
    order: str
    cents: int
    body: str


@tool(claim="order")
async def pay(order: str, cents: int) -> str:
    if cents > 900:
        raise Rejected("over the limit")
    return f"paid {order}"


@tool
async def mail(to: list[str], body: str) -> str:
    if "lost" in body:
        raise TimeoutError("no answer")
    return "sent"


@agent(run_id="{order.name}")
async def desk(run: Run, order: Order) -> str:
    await pay(order.order, order.cents)
    await mail([f"{order.name}@mail.test"], order.body)
    return "done"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path, {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    lab.write("desk.py", DESK)
    for name, order, cents, body in (
        ("ann", "A/1", 5, "100% of 'it_all'"), ("bob", "B-2", 1000, "hello"), ("cid", "A/10", 7, "lost " + "x" * 9_000),
    ):  # fmt: skip
        lab("run", "desk.py:desk", f'{{"name": "{name}", "order": "{order}", "cents": {cents}, "body": "{body}"}}')
    return lab


def found(lab: Lab, *words: str) -> list[str]:
    said = lab("effects", *words, "--json")
    assert said.status == 0, said.err
    assert not said.json["more"]
    return [f"{one['operation']} {one['status']}" for one in said.json["effects"]]


def test_a_business_key_is_found_whole_and_over_all_tools(lab: Lab):
    assert found(lab, "--key", "A/1") == ["ann/pay#1 succeeded"]
    assert found(lab, "--key", "B-2") == ["bob/pay#1 failed"]
    assert found(lab, "--key", "A/1", "--tool", "mail") == []
    assert found(lab, "--key", "A") == []


def test_a_recipient_is_found_whatever_the_case_and_never_as_a_part(lab: Lab):
    assert found(lab, "--to", "ANN@mail.test") == ["ann/mail#1 succeeded"]
    assert found(lab, "--to", "cid@mail.test") == ["cid/mail#1 unknown"], "its arguments are stored beside the record"
    assert found(lab, "--to", "mail.test") == []
    assert found(lab, "--to", "bob@mail.test") == [], "its run failed before"


def test_a_text_is_found_as_it_is_written(lab: Lab):
    assert found(lab, "--text", "100% of 'it_all'") == ["ann/mail#1 succeeded"]
    assert found(lab, "--text", "100_ of") == []
    assert found(lab, "--text", "paid a/1") == ["cid/pay#1 succeeded", "ann/pay#1 succeeded"]
    assert found(lab, "--text", "paid", "--agent", "other") == []
    assert found(lab, "--text", "paid a/10", "--since", "2h") == ["cid/pay#1 succeeded"]


def test_people_read_one_line_each_and_the_next_command(lab: Lab):
    said = lab("effects", "--text", "mail.test")
    assert [line.split()[1:3] for line in said.lines[:2]] == [["cid/mail#1", "unknown"], ["ann/mail#1", "succeeded"]]
    assert "2 effects: 1 unknown, 1 succeeded." in said.out
    assert lab(*said.lines[-1].removeprefix("Next: holdfast ").split()).status == 0
    assert "--limit 2" in lab("effects", "--text", "mail.test", "--limit", "1").out


def test_a_question_without_a_condition_is_refused(lab: Lab):
    said = lab("effects", "--tool", "pay")
    assert said.status == 2
    assert "--key KEY | --to ADDRESS | --text TEXT" in said.remarks
