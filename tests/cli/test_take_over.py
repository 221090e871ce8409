"""`beforehand take-over`: the state of a run that was handed to people, and going on in its place."""

import pytest

from tests.cli.lab import Lab

DESK = '''
from datetime import timedelta

from beforehand import Deferred, Key, Run, agent, current_operation, tool


@tool(idempotency=Key.forever())
def book(city: str) -> str:
    """Book a flight."""
    current_operation().report("seat", "7A")
    return f"{city} {len(current_operation().key) > 0}"


@tool(idempotency=Key.forever())
def visa(city: str) -> str:
    """Apply for a visa."""
    raise Deferred("applied", key=f"visa-{city}-{len(current_operation().key) > 0}", within=timedelta(days=9))


@agent(run_id="trip-{name}", tools=[book, visa])
async def desk(run: Run, name: str) -> str:
    """Book, and hand over."""
    await run.facts.learn("city", "Rome", source="the ticket")
    await book("Rome")
    await run.call("visa", {"city": "Rome"})
    return await run.hand_off("travel", why="the airline wants a signature", state={"form": 7})
'''


@pytest.fixture
def handed(beforehand: Lab) -> Lab:
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    assert beforehand("run", "desk.py:desk", '"ann"').status == 3
    return beforehand


def test_the_state_is_shown(handed: Lab):
    listed = handed("inbox").lines
    assert listed[0].startswith("handoff  trip-ann/hand_off#1")
    assert listed[2] == "  is handed over: the airline wants a signature (a text)"
    whole = handed("inbox", "--item", "trip-ann/hand_off#1").lines
    assert "why         the agent cannot go on" in whole
    assert '  knows city: "Rome" (the ticket)' in whole
    assert "  beforehand take-over trip-ann/hand_off#1 --look" in listed
    shown = handed("take-over", "trip-ann/hand_off#1", "--look").lines
    assert shown[:3] == [
        "trip-ann  desk  suspended",
        "  why: the airline wants a signature (to travel)",
        '  its code says: {"form":7}',
    ]
    assert '  knows city: "Rome" (the ticket)' in shown
    assert '  knows seat: "7A" (book)' in shown
    (did,) = [line for line in shown if line.startswith("  did ")]
    assert did.startswith("  did trip-ann/book#1 (book), under the key bh-")
    assert '  open: trip-ann/visa#1 is awaiting {"city":"Rome"}' in shown
    assert "  waits: trip-ann/hand_off#1" in shown
    assert "to travel: the airline wants a signature" in handed("show", "trip-ann").words


def test_the_state_of_any_run_is_shown(handed: Lab):
    shown = handed("take-over", "trip-ann", "--look").lines
    assert shown[0] == "trip-ann  desk  suspended"
    assert '  knows city: "Rome" (the ticket)' in shown
    assert '  knows seat: "7A" (book#1)' in shown
    assert handed("take-over", "trip-ann").status == 2


def test_it_is_given_back_by_an_answer(handed: Lab):
    assert handed("answer", "trip-ann/hand_off#1", "signed", "--by", "bea").status == 0
    handed("deliver", "visa-Rome-True", "--id", "m1", "--result", '"v-1"')
    assert handed("resume", "trip-ann").out == '"signed"\n'


def test_it_is_taken_over_once(handed: Lab):
    taken = handed("take-over", "trip-ann/hand_off#1", "--why", "I call them", "--by", "bea")
    assert taken.lines[0] == "trip-ann is taken over by bea: nothing more is sent for it."
    assert handed("inbox").lines == ["Nothing needs you."]
    assert handed("take-over", "trip-ann/hand_off#1", "--by", "cid").status == 2
    ended = handed("resume", "trip-ann")
    assert (ended.status, "bea took it over: I call them" in ended.err) == (1, True)
    state = handed("take-over", "trip-ann/hand_off#1", "--look", "--json").json
    assert (state["status"], state["queue"]) == ("stopped", "travel")
    assert "is no longer driven by this process" in handed("resume", "trip-ann").err


def test_a_run_that_cannot_go_on_is_in_the_inbox_and_is_taken_over(handed: Lab):
    file = handed.directory / "desk.py"
    file.write_text(DESK.replace('book("Rome")', 'book("Lisbon")'))
    assert handed.apart("resume", "trip-ann").status == 4
    listed = handed("inbox").lines
    assert listed[0].startswith("handoff  trip-ann")
    assert "  beforehand resume trip-ann" in listed
    whole = handed("inbox", "--item", "trip-ann").lines
    assert '- recorded: book {"city":"Rome"}' in whole
    assert '+ now:      book {"city":"Lisbon"}' in whole
    assert '  knows seat: "7A" (book#1)' in whole
    refused = handed("answer", "trip-ann", "yes", "--by", "bea")
    assert refused.status == 2
    assert "it takes: resume, take-over, cancel" in refused.err
    shown = handed("take-over", "trip-ann", "--why", "I call them", "--by", "bea").lines
    assert shown[0] == "trip-ann is taken over by bea: nothing more is sent for it."
    assert handed("inbox").lines == ["Nothing needs you."]
    file.write_text(DESK)
    assert "is no longer driven by this process" in handed("resume", "trip-ann").err
