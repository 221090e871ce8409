"""`beforehand budget`: what a run may use and has used, raising it, and budgets that make no sense."""

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from tests import forked

PROGRAM = """
from beforehand import Run, agent, tool
from beforehand.policies import RunBudget

async def judge(text: str) -> dict:
    return {"usage": {"input_tokens": 40_000, "output_tokens": 2_000}}

@agent(run_id="{name}", budget=RunBudget(tokens=1_000_000))
async def desk(run: Run, name: str) -> str:
    for number in range(3):
        await run.decide(judge, f"{name} {number}")
    return name
"""


class Desk:
    def __init__(self, place: Path) -> None:
        (place / "desk.py").write_text(PROGRAM)
        self.target, self.journal = f"{place / 'desk.py'}:desk", str(place / "runs.db")

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.run(["-P", "-m", "beforehand", *arguments, "--journal", self.journal])

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self("run", self.target, '"ann"', *options)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_stopped_run_shows_what_it_used_and_goes_on_once_its_budget_is_raised(desk: Desk):
    stopped = desk.run("--budget", "tokens=80000,effects=3")
    assert stopped.returncode == 1
    assert "the limit of tokens is reached: 84,000 of 80,000 used" in stopped.stderr
    report = json.loads(desk("budget", "ann", "--json").stdout)
    assert [(one["limit"], one["most"], one["used"], one["over"]) for one in report["limits"]] == [
        ("tokens", 80_000, 84_000, 4_000),
        ("model_calls", None, 2, 0),
        ("effects", 3, 0, 0),
    ]
    assert "budget ann --raise LIMIT=AMOUNT" in desk("inbox").stdout
    raised = desk("budget", "ann", "--raise", "tokens=60_000", "--by", "eve", "--why", "a long case")
    assert (raised.returncode, "limit 140,000" in raised.stdout) == (0, True)
    assert desk("resume", "ann").stdout == '"ann"\n'
    assert "raised by eve: 60,000 tokens more; a long case" in desk("show", "ann").stdout


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("tokens=-1", "tokens=-1: a limit is a whole number"),
        ("tokens=9007199254740992", "tokens=9007199254740992: a limit is a whole number"),
        ("tokens=NaN", "tokens=NaN: a limit is a whole number"),
        ("euros=5", "'euros' is not a limit of a budget"),
        ("tokens=1,tokens=2", "tokens is named twice"),
        ("then=stop", "a budget needs a limit"),
        ("tokens=1,then=maybe", "then=maybe is not known"),
        ("tokens", "'tokens' is not LIMIT=NUMBER"),
        ("cost=5", "'5' is not an amount and its currency"),
        ("cost=-5EUR", "-5EUR is below zero"),
        ("cost=1EUR,unpriced=1USD", "a budget has one currency, and these are EUR and USD"),
    ],
)
def test_a_budget_that_makes_no_sense_starts_nothing(desk: Desk, written: str, says: str):
    refused = desk.run("--budget", written)
    assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
    assert not Path(desk.journal).exists()


def test_only_a_limit_that_the_run_has_is_raised(desk: Desk):
    desk.run("--budget", "model_calls=1")
    for amounts, says in (("tokens=5", "does not limit tokens"), ("model_calls=0", "from 1 to")):
        refused = desk("budget", "ann", "--raise", amounts)
        assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
    assert desk("budget", "nope").returncode == 2


def test_a_run_that_a_shared_budget_stopped_says_how_it_continues(desk: Desk, tmp_path: Path):
    limits = tmp_path / "queues.yaml"
    limits.write_text("budgets:\n  support: {agent: desk, model_calls: 1, then: stop}\n")
    (tmp_path / "pyproject.toml").write_text(f'[tool.beforehand]\nqueues = "{limits}"\n')

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.run(["-m", "beforehand", *arguments, "--journal", desk.journal], cwd=tmp_path)

    stopped = call("run", desk.target, '"ann"')
    assert "budget ann" in stopped.stderr
    assert "resume ann" in call("budget", "ann").stdout
    assert json.loads(call("budget", "ann", "--json").stdout)["next_step"] == "beforehand resume ann"
    limits.write_text("budgets:\n  support: {agent: desk, model_calls: 100, then: stop}\n")
    assert call("resume", "ann").returncode == 0
    assert call("worker", desk.target, "--once").returncode == 0
    assert "completed" in call("ps").stdout


def test_shared_budgets_are_listed_with_the_runs_that_wait(desk: Desk, tmp_path: Path):
    limits = tmp_path / "queues.yaml"
    limits.write_text(
        "budgets:\n  support: {agent: desk, tokens: 50000, zone: Europe/Berlin}\n  x: {agent: des, tokens: 1, per: hour}"
    )
    (tmp_path / "pyproject.toml").write_text(f'[tool.beforehand]\nqueues = "{limits}"\n')

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.run(["-m", "beforehand", *arguments, "--journal", desk.journal], cwd=tmp_path)

    assert call("run", desk.target, '"ann"', "--budget", "effects=1").returncode == 3
    report = json.loads(call("budget", "--json").stdout)["budgets"]
    assert [(one["budget"], one["agent"], one["zone"], one["waiting"]) for one in report] == [
        ("support", "desk", "Europe/Berlin", 1),
        ("x", "des", "UTC", 0),
    ]
    assert report[0]["limits"][0] == {"limit": "tokens", "most": 50_000, "used": 84_000, "reserved": 0, "over": 34_000}
    shown = call("budget")
    assert re.search(r"^support  agent desk; \d{4}-\d\d-\d\d in Europe/Berlin, until ", shown.stdout, re.MULTILINE)
    hour = r"^x  agent des; the hour \d{4}-\d\d-\d\d (\d\d):00\+00:00 in UTC, until "
    assert re.search(hour, shown.stdout, re.MULTILINE)
    assert [(one["per"], len(one["period"])) for one in report] == [
        ("day", len("2027-01-01")),
        ("hour", len("2027-01-01T13+00:00")),
    ]
    assert "1 run waiting" in shown.stdout
    assert "the limit of agent des concerns no run" in shown.stderr
    attention = json.loads(call("top", "--json").stdout)["attention"]
    assert {"what": "shared budget support has no room: 1 run waiting for it", "command": "beforehand budget"} in [
        {**one, "command": one["command"].replace(f" --journal {desk.journal}", "")} for one in attention
    ]
    refused = call("budget", "--raise", "tokens=1")
    assert (refused.returncode, "--raise needs a run" in refused.stderr) == (2, True)
    limits.write_text("budgets:\n  support: {agent: desk, tokens: 500000}\n")
    assert call("worker", desk.target, "--once").returncode == 0
    assert "completed" in call("ps").stdout


PRICED = """
from beforehand import Run, agent
from beforehand.policies import RunBudget

async def judge(text: str) -> dict:
    return {"usage": {"input_tokens": 40_000, "output_tokens": 2_000, "model": "large"}}

@agent(run_id="{name}")
async def desk(run: Run, name: str) -> str:
    for number in range(3):
        await run.options(model="large").decide(judge, f"{name} {number}")
    return name
"""


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.beforehand]\nprices = "prices.yaml"\nqueues = "queues.yaml"\n')
    (tmp_path / "prices.yaml").write_text("currency: EUR\nmodels:\n  large: {input: 1.25, output: 10}\n")
    (tmp_path / "queues.yaml").write_text("budgets:\n  all: {cost: 9 EUR}\n")
    desk = Desk(tmp_path)
    (tmp_path / "desk.py").write_text(PRICED)
    return desk


def test_budget_and_costs_show_the_same_sum_and_the_limit_is_raised_in_its_currency(priced: Desk):
    stopped = priced.run("--budget", "cost=0.10EUR")
    assert "the limit of cost is reached: 0.14 of 0.10 EUR used" in stopped.stderr
    report = json.loads(priced("budget", "ann", "--json").stdout)
    cost = {"limit": "cost", "most": "0.10", "used": "0.14", "reserved": "0.00", "over": "0.04", "currency": "EUR"}
    assert {**cost, "assumed": "0.00"} in [{"assumed": "0.00", **one} for one in report["limits"]]
    assert report["next_step"] == "beforehand budget ann --raise 'cost=AMOUNT EUR'"
    total = json.loads(priced("costs", "--json").stdout)["total"]
    assert Decimal(total["cost"]["EUR"]) == Decimal("0.14")
    assert "0.14 used" in priced("budget").stdout
    refused = priced("budget", "ann", "--raise", "cost=1USD")
    assert (refused.returncode, "in another currency" in refused.stderr) == (2, True), refused.stderr
    raised = priced("budget", "ann", "--raise", "cost=1.50 EUR")
    assert (raised.returncode, "limit 1.60 EUR" in raised.stdout) == (0, True), raised.stderr
    assert priced("resume", "ann").stdout == '"ann"\n'
    assert "1.50 EUR more" in priced("show", "ann").stdout


def test_a_model_without_a_price_is_named_and_asked_once_the_file_has_it(priced: Desk, tmp_path: Path):
    (tmp_path / "prices.yaml").write_text("currency: EUR\nmodels:\n  small: {input: 1, output: 1}\n")
    refused = priced.run("--budget", "cost=1EUR")
    assert (refused.returncode, "the price of the model 'large' is not known" in refused.stderr) == (1, True)
    (tmp_path / "prices.yaml").write_text("currency: EURO\nmodels: {}\n")
    broken = priced("resume", "ann")
    assert (broken.returncode, "'EURO' is not an ISO 4217 code; did you mean EUR?" in broken.stderr) == (2, True)
    (tmp_path / "prices.yaml").write_text("currency: EUR\nmodels:\n  large: {input: 1, output: 1}\n")
    assert priced("resume", "ann").stdout == '"ann"\n'


TREE = """
from beforehand import Natural, Run, agent, tool
from beforehand.policies import RunBudget

@tool(idempotency=Natural())
async def mark(name: str) -> str:
    return name

@agent(run_id="{name}", tools=[mark])
async def leaf(run: Run, name: str) -> int:
    return len([await mark(f"{name}{number}") for number in range(3)])

@agent(run_id="{name}", tools=[mark], budget=RunBudget(effects=3))
async def root(run: Run, name: str) -> int:
    await mark(name)
    return await run.join(await run.start(leaf, "a"))
"""


def test_the_budget_of_a_tree_is_shown_as_a_whole_and_each_printed_command_raises_it(desk: Desk, tmp_path: Path):
    (tmp_path / "tree.py").write_text(TREE)
    agents = [f"{tmp_path / 'tree.py'}:{name}" for name in ("root", "leaf")]
    assert desk("submit", agents[0], '"ann"').returncode == 0
    assert desk("worker", *agents, "--once").returncode == 1, "the child has stopped"
    whole = desk("budget", "ann").stdout
    assert "3 used" in whole
    assert "The run itself used 1 effect of that." in whole
    assert "budget ann --raise effects=AMOUNT" in whole
    child = desk("budget", "ann~leaf.1").stdout
    assert "The budget of run ann, of which it is a child, covers it too." in child
    assert child.endswith("budget ann\n")
    inbox = desk("inbox").stdout
    assert "budget ann --raise LIMIT=AMOUNT\n" in inbox
    assert "budget ann~leaf.1 --raise" not in inbox
    assert "limit 5" in desk("budget", "ann", "--raise", "effects=2", "--by", "eve").stdout
    assert desk("worker", *agents, "--once").returncode == 0
    report = json.loads(desk("budget", "ann", "--json").stdout)
    assert {one["limit"]: (one["used"], one["most"]) for one in report["limits"]}["effects"] == (4, 5)
    assert {one["limit"]: one["used"] for one in report["own"]}["effects"] == 1


def test_a_shared_budget_that_was_set_back_is_named_and_mended(desk: Desk, tmp_path: Path):
    (tmp_path / "queues.yaml").write_text("budgets:\n  support: {agent: desk, model_calls: 4}\n")
    (tmp_path / "pyproject.toml").write_text('[tool.beforehand]\nqueues = "queues.yaml"\n')
    for name in ("ann", "bob"):
        ran = forked.run(["-m", "beforehand", "run", desk.target, f'"{name}"', "--journal", desk.journal], cwd=tmp_path)
        assert ran.returncode == (0 if name == "ann" else 3), ran.stderr
    assert desk("verify").returncode == 0

    def change(statement: str) -> None:
        with closing(sqlite3.connect(desk.journal)) as database:
            assert database.execute(statement).rowcount == 1
            database.commit()

    change("update cell set body = json_array(0, json_extract(body, '$[1]')) where key = 'model_calls'")
    change("insert into cell values ('counter', 'support 2999-01-01', 'effects', '[0,-1000]')")
    said = desk("verify")
    assert said.returncode == 4
    assert "2 places broken" in said.stdout
    assert "the counter of model_calls of the budget support, " in said.stdout
    assert (
        "it has 0 used and 0 reserved, and the records add up to 4 and 0; mend it: beforehand doctor --rebuild"
        in said.stdout
    )
    assert "the counter of effects of the budget support, 2999-01-01, number 0: it has 0 used and -1000" in said.stdout
    rebuilt = json.loads(desk("doctor", "--rebuild", "--json").stdout)["rebuilt"]
    assert [one.split(",")[0] for one in rebuilt["counters"]] == [
        "the counter of model_calls of the budget support", "the counter of effects of the budget support",
    ]  # fmt: skip
    assert desk("verify").returncode == 0
    assert json.loads(desk("doctor", "--rebuild", "--json").stdout)["rebuilt"]["counters"] == []
    with closing(sqlite3.connect(desk.journal)) as database:
        assert database.execute(
            "select json_extract(body, '$[0]'), json_extract(body, '$[1]') from cell where key = 'model_calls'"
        ).fetchall() == [(4, 0)]
