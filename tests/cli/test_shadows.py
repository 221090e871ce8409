"""`holdfast shadows`: the comparison of shadow calls, from a program's own journal."""

import json
from pathlib import Path

import pytest

from tests.cli.lab import Lab

DESK = """
import asyncio

from holdfast import Run, agent, tool
from holdfast.loop import ModelCall, ModelLoop, ModelReply, Route, RouteModel
from holdfast.observation import Usage
from holdfast.testing.services import ScriptedModel


@tool
async def pay(order: str) -> str:
    await asyncio.sleep(0.2)  # a shadow call that is made meanwhile is recorded before this process ends
    return "paid"


def says(tokens, *calls):
    return ModelReply("" if calls else "done", calls, "calls" if calls else "end", Usage(tokens, 10))


@agent(run_id="{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    big = ScriptedModel(says(900, ModelCall("c1", "pay", '{"order": "A"}')), says(950), name="big-1")
    order = "A" if name == "ann" else "B"
    cheap = ScriptedModel(says(800, ModelCall("x", "pay", '{"order": "%s"}' % order)), name="cheap-1")
    return await ModelLoop(Route([big, RouteModel(cheap, shadow=1)]))(run, name)
"""
PRICES = """
models:
  big-1: {input: 3, output: 15}
  cheap-1: {input: 1, output: 2}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path, {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    lab.write("desk.py", DESK)
    lab.write("prices.yaml", PRICES)
    return lab


def test_without_shadow_calls_it_says_how_to_declare_one(lab: Lab):
    lab.write("idle.py", "from holdfast import Run, agent\n@agent(run_id='{x}')\nasync def idle(run: Run, x: str) -> str:\n    return x\n")  # fmt: skip
    lab("run", "idle.py:idle", '"ann"')
    said = lab("shadows")
    assert said.status == 0
    assert said.out.startswith("No model was asked as a shadow in this journal.\n")
    assert "RouteModel(cheaper, shadow=0.1)" in said.err + said.out
    assert lab("shadows", "--since", "2h").out.startswith("No model was asked as a shadow since then.\n")


def test_both_models_are_compared_by_calls_tokens_cost_and_time(lab: Lab):
    for name in ("ann", "bob"):
        lab("run", "desk.py:desk", f'"{name}"')
    said = lab("shadows", "--prices", "prices.yaml")
    assert said.status == 0
    text = said.out
    assert "cheap-1 beside big-1: " in text
    assert "the same tools, other arguments" in text
    assert "the same" in text
    assert "holdfast show bob" in text + said.err
    (found,) = json.loads(lab("shadows", "--json", "--prices", "prices.yaml").out)["shadows"]
    assert found["agreement"]["same"] == found["agreement"]["arguments"] == 1
    assert found["differing"] == ["bob/turn/model#1"]
    assert found["shadow"]["input_tokens"] == 1600
    assert found["used"]["cost"] == {"USD": "0.00570"}
    costs = lab("costs", "--by", "model", "--prices", "prices.yaml").out
    assert "cheap-1 (shadow)" in costs
