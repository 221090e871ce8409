"""`trial` that is interrupted: it ends with 130, and reports what was finished."""

import json
import re
import signal

import pytest

from tests.cli.lab import Lab

WAITING = """
import asyncio, sys
from beforehand import Run, agent, tool


@tool
async def tell(order: str) -> None:
    pass


@agent(run_id="order-{order}", tools=[tell])
async def stuck(run: Run, order: str) -> None:
    await tell(order)
    if order == "A-2":
        print("waiting", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
"""


@pytest.fixture
def waiting(beforehand: Lab) -> Lab:
    beforehand.write("waiting.py", WAITING)
    beforehand.write("cases.jsonl", '"A-1"\n"A-2"\n')
    return beforehand


def test_an_interrupted_trial_reports_what_was_finished(waiting: Lab):
    options = ("--faults", "none", "--repeat", "3", "--html", "trial.html")
    running = waiting.start("trial", "waiting.py:stuck", "--inputs", "cases.jsonl", *options)
    assert running.stderr is not None
    assert running.stderr.readline() == "waiting\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    said = "Interrupted: 3 of 6 runs were finished, and this report is about those."
    assert (running.returncode, err) == (130, said + "\n")
    assert re.search(r"^without faults +100% +100% +100% +3 of 3$", out, re.MULTILINE)
    assert said in (waiting.directory / "trial.html").read_text()


def test_a_trial_that_is_interrupted_at_once_reports_nothing_but_that(waiting: Lab):
    waiting.write("waiting.py", WAITING.replace("A-2", "A-1"))
    running = waiting.start("trial", "waiting.py:stuck", "--inputs", "cases.jsonl", "--json")
    assert running.stderr is not None
    assert running.stderr.readline() == "waiting\n"
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=30)
    found = json.loads(out)
    assert running.returncode == 130
    assert (found["interrupted"], found["planned"], found["runs"], found["arms"]) == (True, 32, [], {})
