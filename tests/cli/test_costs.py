"""`beforehand costs`: sums over all runs, from a program's own records."""

import json
from pathlib import Path

import pytest

from tests.cli.lab import Lab

DESK = """
from beforehand import Run, agent, tool
from beforehand.loop import ModelCall, ModelLoop, ModelReply
from beforehand.observation import Usage
from beforehand.testing.services import ScriptedModel


@tool
async def pay(order: str) -> str:
    return "paid"


def said(text, calls=(), model="house-1"):
    usage = Usage(1_000_000, 2_000, cached_tokens=400_000, request="r-1")
    return ModelReply(text, calls, "calls" if calls else "end", usage, model)


@agent(run_id="{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    last = "llama-of-ours" if name == "cid" else "house-1"
    model = ScriptedModel(said("", (ModelCall("c1", "pay", '{"order": "A"}'),)), said("done", model=last))
    text = await ModelLoop(model)(run, name)
    if name == "bob":
        await run.wait_for("approved", "boss")
    return text
"""
PRICES = """
version: 2027-01
currency: EUR
models:
  house-*: {input: 1, output: 10, cached: 0.1}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path, {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    lab.write("desk.py", DESK)
    lab.write("prices.yaml", PRICES)
    return lab


def test_an_empty_journal_says_so(lab: Lab):
    lab.write(
        "idle.py",
        "from beforehand import Run, agent\n@agent(run_id='{name}')\nasync def idle(run: Run, name: str) -> str:\n    return name\n",
    )
    lab("run", "idle.py:idle", '"ann"')
    said = lab("costs")
    assert (said.status, said.out) == (0, "No run called a model or had an effect in this journal.\n")
    assert lab("costs", "--since", "2h").out == "No run called a model or had an effect since then.\n"


def test_known_sums_stand_beside_what_is_unknown(lab: Lab):
    for name in ("ann", "cid"):
        lab("run", "desk.py:desk", f'"{name}"')
    said = lab("costs", "--by", "model", "--prices", "prices.yaml")
    assert said.lines == [
        "model              calls  tokens            cost unknown effects      per effect",
        "house-1                3   3.01M      1.9800 EUR       -       -               -",
        "llama-of-ours          1      1M         unknown       1       -               -",
        "total                  4   4.01M      1.9800 EUR       1       -               -",
        "Unknown: 1 call of models without a price (llama-of-ours). The sums are of the others.",
        "Prices: prices.yaml (2027-01).",
        "Next: declare the prices of these models: --prices FILE",
    ]
    by_agent = lab("costs", "--prices", "prices.yaml").out.splitlines()[1].split()
    assert by_agent == ["desk", "4", "4.01M", "1.9800", "EUR", "1", "2", "0.9900", "EUR"]


def test_calls_that_name_no_model_get_the_hint_to_name_it(lab: Lab):
    lab.write(
        "plain.py",
        "from beforehand import Run, agent\n"
        "async def rule(name: str) -> dict:\n    return {'usage': {'input_tokens': 40, 'output_tokens': 2}}\n"
        "@agent(run_id='{name}')\nasync def plain(run: Run, name: str) -> dict:\n    return await run.decide(rule, name)\n",
    )
    lab("run", "plain.py:plain", '"dan"')
    said = lab("costs", "--prices", "prices.yaml")
    assert "Unknown: 1 call without the name of a model. The sums are of the others." in said.lines
    assert said.lines[-1] == "Next: name the model where it is asked: run.options(model=...).decide(...)"
    assert "declare the prices" not in said.out


def test_the_file_of_the_project_and_json(lab: Lab):
    lab.write("pyproject.toml", '[tool.beforehand]\nprices = "prices.yaml"\n')
    lab("run", "desk.py:desk", '"ann"')
    said = lab("costs", "--json")
    (line,) = said.json["lines"]
    assert (line["name"], line["calls"], line["cost"], line["effects"]) == ("desk", 2, {"EUR": "1.32"}, 1)
    assert said.json["bases"] == [f"{lab.directory / 'prices.yaml'} (2027-01)"]
    assert json.loads(said.out)["total"]["unpriced"] == 0


def test_what_replay_saved(lab: Lab):
    lab("run", "desk.py:desk", '"bob"')
    lab("signal", "bob", "approved", "--key", "boss")
    assert lab("worker", "desk.py:desk", "--once").status == 0
    line = lab("costs", "--json", "--prices", "prices.yaml").json["total"]
    assert (line["calls"], line["saved_calls"], line["saved_cost"]) == (2, 2, {"EUR": "1.32"})


LOOSE = """
from beforehand import Natural, Run, agent, tool
from beforehand.policies import Budget
from beforehand.errors import ModelError


@tool(idempotency=Natural(), budget=Budget(call="0.40 EUR"))
async def pay(order: str) -> str:
    return "paid"


async def judge(cached: int) -> dict:
    usage = {"input_tokens": 100, "output_tokens": 5, "cached_tokens": cached, "model": "house-1"}
    if cached == 1:
        error = ModelError("cut off", code="malformed")
        error.reply = {"usage": usage}
        raise error
    return {"usage": usage}


@agent(run_id="{name}")
async def desk(run: Run, name: str) -> None:
    for number in range(5):
        await pay(str(number))
    await run.decide(judge, 500)
    try:
        await run.decide(judge, 1)
    except Exception as error:
        print(error)
"""


def test_contradictions_and_calls_without_a_usable_answer_are_named(lab: Lab):
    lab.write("loose.py", LOOSE)
    lab("run", "loose.py:desk", '"ann"')
    text = lab("costs", "--prices", "prices.yaml").out
    assert "Unknown: 1 call with counts of tokens that contradict. The sums are of the others." in text
    assert "Without a usable answer: 5 calls, 525 tokens, 0.0007 EUR. The sums include them." in text
    assert "Next" not in text


def test_each_effect_of_a_tool_that_costs_money(lab: Lab):
    lab.write("loose.py", LOOSE)
    lab("run", "loose.py:desk", '"ann"')
    (_, line, *_) = lab("costs", "--by", "tool", "--prices", "prices.yaml").lines
    assert line.split() == ["pay", "2.0000", "EUR", "5", "0.4000", "EUR"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: {m: {input: -1, output: 1}}", "prices.yaml has a fault: models.m.input: -1 is below zero"),
        ("currency: DOLLARS\nmodels: {m: {input: 1, output: 1}}", "currency: 'DOLLARS' is not an ISO 4217 code"),
        ("- 1", "prices.yaml has a fault: it holds no mapping with models"),
        ("models: {", "it is not YAML"),
        (None, "prices.yaml cannot be read: No such file or directory"),
    ],
)
def test_prices_that_cannot_be_used_are_refused(lab: Lab, text: str | None, problem: str):
    lab("run", "desk.py:desk", '"ann"')
    if text is None:
        (lab.directory / "prices.yaml").unlink()
    else:
        lab.write("prices.yaml", text)
    said = lab("costs", "--prices", "prices.yaml")
    assert said.status == 2
    assert problem in said.remarks
    assert "Next: " in said.remarks
