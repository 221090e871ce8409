"""`beforehand diff`: where two runs part."""

from pathlib import Path

import pytest

from tests.cli.lab import Lab

DESK = """
from dataclasses import dataclass
from datetime import timedelta

from beforehand import OperationFailed, Rejected, Run, agent, tool


@dataclass
class Order:
    name: str
    order: str
    cents: int
    call: str = "c1"


@tool(claim="order")
async def pay(order: str, cents: int) -> str:
    if cents > 900:
        raise Rejected("over the limit")
    return f"paid {cents}"


@tool
async def mail(to: str) -> str:
    if "lost" in to:
        raise TimeoutError("no answer")
    return "sent"


@agent(run_id="{order.name}")
async def desk(run: Run, order: Order) -> str:
    try:
        with run.step(order.call):
            await pay(order.order, order.cents)
    except OperationFailed:
        return "not paid"
    await run.sleep(timedelta(milliseconds=len(order.name)))
    await mail(f"{order.name[:1]}@mail.test" if order.name != "lost" else "lost@mail.test")
    return "done"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path, {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    lab.write("desk.py", DESK)
    return lab


def driven(lab: Lab, name: str, order: str, cents: int, call: str = "c1") -> None:
    lab("run", "desk.py:desk", f'{{"name": "{name}", "order": "{order}", "cents": {cents}, "call": "{call}"}}')


def test_runs_that_did_the_same_are_equal_whatever_their_names_and_times(lab: Lab):
    driven(lab, "ann", "A-1", 5)
    said = lab("diff", "ann", "ann")
    assert (said.status, said.out.splitlines()[-1]) == (0, "The runs are equal: 3 steps.")
    assert lab("diff", "ann", "ann", "--json").json["equal"]


def test_each_step_that_differs_is_shown_with_what_differs(lab: Lab):
    driven(lab, "ann", "A-1", 5)
    driven(lab, "abe", "A-2", 1000)
    said = lab("diff", "ann", "abe")
    assert said.status == 0
    lines = said.out.splitlines()
    assert '  result  "done" -> "not paid"' in lines
    at = lines.index("~ c1/pay#1  pay")
    assert lines[at + 1 : at + 4] == [
        "    cents  5 -> 1000",
        '    order  "A-1" -> "A-2"',
        '    outcome  succeeded "paid 5" -> failed: over the limit',
    ]
    assert "- sleep#1  only in ann  over" in lines
    assert '- mail#1  mail  only in ann  succeeded "sent"' in lines
    assert lines[-2:] == [
        "Steps: 0 equal, 1 different, 2 only in ann, 0 only in abe.",
        "Next: beforehand why abe/c1/pay#1",
    ]
    assert max(map(len, lines)) <= 80


def test_calls_that_a_model_names_anew_are_compared_by_tool(lab: Lab):
    driven(lab, "ann", "A-1", 5, call="call_1")
    driven(lab, "abe", "A-2", 5, call="call_2")
    compared = lab("diff", "ann", "abe", "--json").json
    assert [(one["first"], one["second"]) for one in compared["steps"]] == [("call_1/pay#1", "call_2/pay#1")]
    assert compared["steps"][0]["arguments"] == [{"name": "order", "before": "A-1", "now": "A-2"}]
    assert compared["same"] == 2


def test_a_step_that_only_the_second_run_has_stands_where_it_came(lab: Lab):
    driven(lab, "abe", "A-2", 1000)
    driven(lab, "lost", "A-1", 5)
    compared = lab("diff", "abe", "lost", "--json").json
    assert [(one.get("first", ""), one.get("second", "")) for one in compared["steps"]] == [
        ("c1/pay#1", "c1/pay#1"), ("", "sleep#1"), ("", "mail#1"),
    ]  # fmt: skip
    assert compared["steps"][2]["second_outcome"]["status"] == "unknown"
    assert {one["name"] for one in compared["run"]} == {"input", "status", "reason", "result"}


def test_an_outcome_that_a_fork_inherits_is_called_reused(lab: Lab):
    driven(lab, "ann", "A-1", 5)
    assert lab("fork", "ann", "--at", "mail#1", "--as", "again").status == 0
    lines = lab("diff", "ann", "again").out.splitlines()
    assert '    outcome  succeeded "paid 5" -> reused "paid 5"' in lines
    assert '- mail#1  mail  only in ann  succeeded "sent"' in lines


def test_a_run_that_does_not_exist_is_named(lab: Lab):
    driven(lab, "ann", "A-1", 5)
    said = lab("diff", "ann", "missing-run")
    assert said.status == 2
    assert "missing-run" in said.err
