"""`beforehand top`: one frame in a pipe, and a live view in a terminal that leaves it as it was."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent
from tests.cli.lab import Lab
from tests.cli.terminal import Terminal

DESK = """
from dataclasses import dataclass
from datetime import timedelta

from beforehand import Run, agent, tool
from beforehand.policies import Gate


@dataclass
class Ruling:
    cents: int
    usage: dict[str, int]
    model: str = "small-1"


async def rule(name: str) -> Ruling:
    return Ruling(5, {"input_tokens": 120, "output_tokens": 30})


@tool(gate=Gate("true", within=timedelta(days=1)))
async def pay(cents: int) -> int:
    return cents


@agent(run_id="{name}")
async def desk(run: Run, name: str) -> int:
    ruling = await run.decide(rule, name)
    return await pay(ruling.cents)
"""

PRICES = """
models:
  small-1: {input: 1, output: 2}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path, {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    lab.write("desk.py", DESK)
    lab.write("prices.yaml", PRICES)
    for name in ("ann", "ben"):
        lab("run", "desk.py:desk", f'"{name}"')
    lab("submit", "desk.py:desk", '"cid"')
    return lab


def test_one_frame_says_what_is_open_and_what_to_type(lab: Lab):
    lab("queues", "pause", "default", "--why", "the bank is closed")
    lab("pause", "--tool", "pay", "--why", "too dear")
    said = lab("top", "--prices", "prices.yaml")
    assert said.status == 0, said.err
    assert said.lines[1:3] == [
        "Runs   1 queued, 2 suspended",
        "Models 2 calls, 300 tokens, 0.0004 USD in the last 1 h",
    ]
    assert "! waiting for people: 2 approvals; the oldest for" in said.out
    assert "by anna: the bank is closed" in said.words
    assert "! tool pay is paused: too dear" in said.out
    for typed in ("beforehand inbox", "beforehand queues resume default", "beforehand unpause --tool pay"):
        assert f"  {typed}" in said.lines
        assert lab(*typed.split()[1:]).status == 0
    assert max(map(len, said.lines)) <= 80
    again = lab("top", "--once")
    assert "queue default: 1 run waiting, and none of them runs" in again.out
    assert "is paused" not in again.out


def test_a_program_gets_the_same_as_a_document(lab: Lab):
    frame = lab("top", "--json", "--prices", "prices.yaml").json
    assert frame["runs"] == {"queued": 1, "suspended": 2}
    assert frame["agents"] == [{"agent": "desk", "runs": {"queued": 1, "suspended": 2}}]
    assert (frame["spent"]["calls"], frame["spent"]["cost"]) == (2, {"USD": "0.00036"})
    assert [one["queue"] for one in frame["queues"]] == ["default"]
    assert [one["command"] for one in frame["attention"]] == ["beforehand worker", "beforehand inbox"]


def test_the_process_that_drives_a_run_is_listed(lab: Lab):
    @agent(run_id="{name}")
    async def looks(run: Run, name: str) -> list[list[int]]:
        frame = (await asyncio.to_thread(lab.apart, "top", "--json")).json
        return [[one["pid"], one["runs"], int(one["gone"])] for one in frame["processes"]]

    async def seen() -> list[list[int]]:
        async with Beforehand(lab.journal, agents=[looks]) as app:
            return await app.run(looks, "eve")

    assert asyncio.run(asyncio.wait_for(seen(), 60)) == [[os.getpid(), 1, 0]]
    assert lab("top", "--json").json["processes"] == []


def test_the_live_view_is_refreshed_and_leaves_the_terminal_as_it_was(lab: Lab):
    with Terminal(lab, "top") as terminal:
        assert "2 suspended" in terminal.see("suspended    stopped")
        lab("submit", "desk.py:desk", '"dan"')
        terminal.see("2 queued")
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.see("\x1b[?1049l")
        assert terminal.end() == 0
    assert terminal.drawn.count("\x1b[?1049h") == 1


def test_a_price_file_that_does_not_exist_is_named(lab: Lab):
    said = lab("top", "--prices", "none.yaml")
    assert said.status == 2
    assert "none.yaml" in said.remarks
