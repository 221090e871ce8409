"""`beforehand tell`: a person changes their mind, and the run hears it before it writes."""

import pytest

from tests.cli.lab import Lab

DESK = '''
from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import Interrupted


@tool(gate="true", idempotency=Key.forever())
def book(airport: str) -> str:
    """Book a flight."""
    return f"{airport} {len(current_operation().key) > 0}"


@agent(run_id="trip-{name}", tools=[book])
async def desk(run: Run, name: str) -> str:
    """Fly to Kennedy, if no message asks for anything else."""
    await run.facts.learn("airport", "JFK", source="the request")
    while True:
        try:
            return await book(run.facts.values()["airport"])
        except Interrupted as message:
            if message.stop:
                return f"{message.sender} said {message.text}"
'''


@pytest.fixture
def asked(beforehand: Lab) -> Lab:
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    assert beforehand("run", "desk.py:desk", '"ann"').status == 3
    return beforehand


def test_a_fact_changes_what_is_asked_and_sent(asked: Lab):
    said = asked("tell", "trip-ann", "I wanted LaGuardia", "--fact", "airport=LGA", "--by", "ann")
    assert said.lines == [
        "trip-ann has the message on record. Its code receives it before its next write.",
        "Next: beforehand resume trip-ann",
    ]
    assert "its code has not received it" in asked("show", "trip-ann").words
    assert asked("resume", "trip-ann").status == 3
    (item,) = asked("inbox", "--json").json
    assert (item["item"], "LGA" in item["asks"]) == ("trip-ann/book#2", True)
    shown = asked("show", "trip-ann").words
    assert 'told ann: I wanted LaGuardia (airport is "LGA")' in shown
    assert 'heard ann: I wanted LaGuardia (airport is "LGA")' in shown
    assert "its code has not received it" not in shown
    assert asked("answer", "trip-ann/book#2", "yes", "--by", "bea", *asked.seen("trip-ann/book#2")).status == 0
    assert asked("resume", "trip-ann").out == '"LGA True"\n'


def test_to_stop_is_told_as_json(asked: Lab):
    told = asked("tell", "trip-ann", "--stop", "--by", "ann", "--once", "m1", "--fact", "seats=2", "--json").json
    assert (told["text"], told["stop"], told["facts"], told["applied"]) == ("", True, {"seats": 2}, True)
    assert asked("resume", "trip-ann").out == '"ann said stop"\n'
    late = asked("tell", "trip-ann", "after all, go", "--by", "ann")
    assert (late.status, "no longer accepts messages" in late.err) == (2, True)


def test_what_says_nothing_is_refused(asked: Lab):
    for given, why in (
        (("--fact", "airport"), "NAME=VALUE"),
        ((), "the message is empty"),
        (("--fact", "=1"), "NAME=VALUE"),
    ):
        refused = asked("tell", "trip-ann", *given)
        assert (refused.status, why in refused.err) == (2, True), refused.err
    assert asked("tell", "trip-bob", "hello").status == 2


def test_a_message_that_nobody_heard_is_shown(beforehand: Lab):
    beforehand.directory.joinpath("desk.py").write_text(
        DESK.replace("while True", "await run.wait_for('go')\n    while True")
    )
    assert beforehand("run", "desk.py:desk", '"ann"').status == 3
    assert beforehand("tell", "trip-ann", "hello", "--by", "ann").status == 0
    assert beforehand("resume", "trip-ann").status == 1
    shown = beforehand("show", "trip-ann").words
    assert "heard ann: hello" in shown
    assert "stopped error: Interrupted: ann told run trip-ann: hello" in shown


HEART = '''
import asyncio
import sys
from pathlib import Path
from beforehand import Run, agent, tool
from beforehand.errors import Interrupted


@tool
async def beat() -> None:
    """Say so to the world."""
    with Path("world.txt").open("a") as world:
        world.write("beat\\n")
    print("beat", file=sys.stderr, flush=True)


@agent(run_id="heart-{name}", tools=[beat])
async def heart(run: Run, name: str) -> str:
    """Beat until a message says stop."""
    while True:
        try:
            await beat()
        except Interrupted as message:
            return f"{message.sender} said {message.text}"
        await asyncio.sleep(0.01)
'''


def _beats(beforehand: Lab) -> int:
    """How many beats were sent; the one that hears the message is not."""
    entries = beforehand("show", "heart-ann", "--json").json["entries"]
    return sum(one.get("step", "").startswith("beat#") and one["status"] != "cancelled" for one in entries)


def test_when_the_command_returns_a_run_in_another_process_begins_nothing_more(beforehand: Lab):
    beforehand.write("heart.py", HEART)
    running = beforehand.start("run", "heart.py:heart", '"ann"')
    assert running.stderr is not None
    assert running.stderr.readline() == "beat\n"
    said = beforehand("tell", "heart-ann", "enough", "--stop", "--by", "bea")
    begun = _beats(beforehand)
    assert said.lines == [
        "heart-ann has the message on record.",
        "Its process has taken it: no new write begins before its code has received it.",
    ]
    out, err = running.communicate(timeout=30)
    assert (out, running.returncode) == ('"bea said enough"\n', 0), err
    assert begun == _beats(beforehand) == len(beforehand.world)
