"""`transaction` and `undo`: what belongs together is decided, and taken back, by a person."""

import json
from pathlib import Path

import pytest

from tests.cli.lab import Lab

TRIP = Path(__file__).resolve().parents[2] / "examples" / "trip.py"


@pytest.fixture
def trips(beforehand: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("TRIP_WORLD", str(beforehand.directory / "world"))
    given = json.dumps({"id": "17", "origin": "SFO", "city": "Lisbon", "nights": 3})
    assert beforehand("run", f"{TRIP}:book_trip", given).status == 0
    return beforehand


def status_of(lab: Lab) -> dict[str, str]:
    places = sorted((lab.directory / "world").glob("*.json"))
    return {place.name.partition("-")[0]: json.loads(place.read_text())["status"] for place in places}


def test_a_dry_run_says_what_would_be_done_and_does_nothing(trips: Lab):
    said = trips("undo", "trip-17", "--dry-run")
    assert (said.status, [line.split()[1] for line in said.lines[:3]]) == (
        0,
        ["trip-17/book-trip/send_itinerary#1", "trip-17/book-trip/book_hotel#1", "trip-17/book-trip/book_flight#1"],
    )
    assert "stays: nothing undoes it" in said.lines[0]
    assert "restored by cancel_hotel" in said.lines[1]
    assert set(status_of(trips).values()) == {"booked"}


def test_undo_compensates_and_lists_what_stands(trips: Lab):
    said = trips("undo", "trip-17", "--by", "anna", "--why", "withdrew", "--json")
    assert said.status == 1, "something stands"
    assert said.json["undone"] == ["book-trip/book_flight#1", "book-trip/book_hotel#1"]
    assert said.json["still_standing"] == ["book-trip/send_itinerary#1"]
    assert [(one["operation"], one["state"], one["by"]) for one in said.json["effects"]] == [
        ("trip-17/book-trip/send_itinerary#1", "stands", ""),
        ("trip-17/book-trip/book_hotel#1", "undone", "trip-17/book-trip/book_hotel#1/undo"),
        ("trip-17/book-trip/book_flight#1", "undone", "trip-17/book-trip/book_flight#1/undo"),
    ]
    assert status_of(trips) == {"flight": "cancelled", "hotel": "cancelled", "mail": "booked"}
    (listed,) = trips("ps", "--json").json["runs"]
    assert (listed["status"], listed["reason"]) == ("completed", "undone by anna, but for 1 effect")
    story = trips("show", "trip-17").out
    assert "the whole run: withdrew" in story
    assert "undone" in story.splitlines()[-1]
    assert "but for 1 effect" in story.splitlines()[-1]


def test_what_is_undone_is_not_undone_again_and_the_command_ends_alike(trips: Lab):
    first = trips("undo", "trip-17")
    story = trips("show", "trip-17").out
    again = trips("undo", "trip-17")
    assert (first.status, first.out) == (again.status, again.out) == (1, first.out)
    assert first.lines == [
        "  stands    trip-17/book-trip/send_itinerary#1",
        "  undone    trip-17/book-trip/book_hotel#1",
        "  undone    trip-17/book-trip/book_flight#1",
        "trip-17 is not undone: 1 effect stands.",
    ]
    assert trips("show", "trip-17").out == story, "nothing was added"
    for _ in range(2):
        resumed = trips("resume", "trip-17")
        assert (resumed.status, resumed.remarks.endswith("trip-17 partly undone")) == (1, True)
    rebuilt = trips("doctor", "--rebuild")
    assert "completed" in trips("ps").out, rebuilt.out
    assert trips("show", "trip-17").out == story


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("transaction", "trip-17/book-trip", "--retry"), "only a parked transaction waits for a person"),
        (("transaction", "trip-17/book-trip", "--abort"), "is committed"),
        (("transaction", "trip-17/nothing", "--accept"), "has no transaction nothing"),
        (("transaction", "trip-17", "--accept"), "trip-17 is not being undone\nKnown: its transactions: book-trip"),
        (("transaction", "trip-17/book-trip"), "no decision is given"),
        (("transaction", "trip-17/book-trip", "--retry", "--accept"), "no decision is given"),
        (("undo", "nobody"), "run nobody is not in this journal"),
    ],
)
def test_orders_that_make_no_sense_are_refused(trips: Lab, arguments: tuple[str, ...], reason: str):
    said = trips(*arguments)
    assert said.status == 2
    assert reason in said.err


MAILS = """
from beforehand import Run, agent, tool

@tool
def mail(to: str) -> str:
    return to

@agent(run_id="mail-{to}", tools=[mail])
async def desk(run: Run, to: str) -> str:
    return await mail(to) if to != "nobody" else to
"""


def test_where_nothing_can_be_undone_it_says_so_and_keeps_the_status(beforehand: Lab):
    beforehand.write("desk.py", MAILS)
    for to, known in (("ann", "stays: mail-ann/mail#1"), ("nobody", "it has no effects")):
        assert beforehand("run", "desk.py:desk", json.dumps(to)).status == 0
        said = beforehand("undo", f"mail-{to}", "--by", "bea")
        assert (said.status, said.out) == (1, "")
        assert f"nothing of run mail-{to} can be undone" in said.err
        assert known in said.err
        dry = beforehand("undo", f"mail-{to}", "--dry-run")
        assert (dry.status, "Next: beforehand undo" in dry.out) == (0, False)
    assert {one["status"] for one in beforehand("ps", "--json").json["runs"]} == {"completed"}


FAMILY = """
from beforehand import Operation, Run, agent, tool

@tool
def book(what: str) -> str:
    return what

@book.compensate
@tool
def cancel(operation: Operation[str], what: str) -> None:
    if what == "lost":
        raise TimeoutError("no answer")

@tool
def mail(to: str) -> str:
    return to

@agent(tools=[book, mail])
async def part(run: Run, what: str) -> str:
    booked = await book(what)
    if what == "mailed":
        await mail(what)
    if what == "asked":
        await run.ask("Go on?")
    return booked

@agent(run_id="trip-{what}")
async def trip(run: Run, what: str) -> str:
    child = await run.start(part, what, when_parent_ends="continue")
    return what if what == "asked" else await run.join(child)
"""


@pytest.fixture
def families(beforehand: Lab) -> Lab:
    beforehand.write("trips.py", FAMILY)
    beforehand.write("pyproject.toml", '[tool.beforehand]\nagents = ["trips.py:trip", "trips.py:part"]\n')
    for what in ("plain", "mailed", "asked", "lost"):
        assert beforehand("submit", "trips.py:trip", json.dumps(what)).status == 0
    assert beforehand("worker", "--once").status in {0, 3}
    return beforehand


@pytest.mark.parametrize(
    ("what", "status", "lines"),
    [
        ("plain", 0, ["  undone    trip-plain~part.1/book#1", "trip-plain is undone, with 1 run below it."]),
        ("asked", 0, ["  undone    trip-asked~part.1/book#1", "trip-asked is undone, with 1 run below it."]),
        (
            "mailed",
            1,
            [
                "  stands    trip-mailed~part.1/mail#1",
                "  undone    trip-mailed~part.1/book#1",
                "trip-mailed is not undone, with 1 run below it: 1 effect stands.",
            ],
        ),
    ],
)
def test_the_effects_of_the_runs_below_are_undone_and_named(families: Lab, what: str, status: int, lines: list[str]):
    dry = families("undo", f"trip-{what}", "--dry-run")
    assert f"trip-{what}~part.1/book#1" in dry.out
    assert (f"trip-{what}~part.1 is under way: it is cancelled first" in dry.out) == (what == "asked")
    for _ in range(2):
        said = families("undo", f"trip-{what}", "--by", "eve")
        assert (said.status, said.lines) == (status, lines)
    states = {one["run"]: one["status"] for one in families("ps", "--children", "--json").json["runs"]}
    assert states[f"trip-{what}~part.1"] == ("completed" if what == "mailed" else "undone")


def test_a_person_is_asked_about_a_compensation_of_a_run_below_and_the_command_waits(families: Lab):
    said = families("undo", "trip-lost", "--by", "eve")
    assert (said.status, said.lines[0]) == (3, "  asked     trip-lost~part.1/book#1")
    assert said.lines[-1] == "Next: beforehand undo trip-lost"
    item = "trip-lost~part.1/book#1/undo"
    assert item in [one["item"] for one in families("inbox", "--json").json]
    assert families("answer", item, "happened", "--by", "eve", "--evidence", "seen").status == 0
    assert families("undo", "trip-lost").lines == [
        "  undone    trip-lost~part.1/book#1",
        "trip-lost is undone, with 1 run below it.",
    ]


STUCK = """
from datetime import timedelta

from beforehand import Natural, Operation, Rejected, Run, agent, tool

@tool
def take(what: str) -> str:
    return what

@take.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
def put_back(operation: Operation[str], what: str) -> None:
    raise Rejected("the shelf is full")

@agent(run_id="shop-{what}", tools=[take])
async def shop(run: Run, what: str) -> None:
    async with run.transaction("order") as order:
        await take(what)
        order.abort("no")
"""


def test_a_second_decision_about_a_transaction_names_what_was_shown(beforehand: Lab):
    beforehand.write("shop.py", STUCK)
    assert beforehand("run", "shop.py:shop", '"pen"').status == 3
    retry = ("transaction", "shop-pen/order", "--retry", "--by", "anna")
    for _ in range(2):  # the same decision, given again before the run goes on
        assert beforehand(*retry).status == 0
    resumed = beforehand("resume", "shop-pen")
    assert resumed.status == 3
    said = beforehand(*retry)
    assert (said.status, "this answer does not say what was shown" in said.err) == (2, True)
    item = beforehand("inbox", "--item", "shop-pen/order", "--json").json
    named = f"beforehand transaction shop-pen/order --retry --shown {item['digest'][:12]}"
    assert named in resumed.err
    assert named in beforehand("inbox", "--item", "shop-pen/order").out.replace("\n", " ")
    assert named in beforehand("show", "shop-pen").out
    assert beforehand(*retry, "--shown", "0" * 12).status == 2
    for _ in range(2):
        assert beforehand(*retry, "--shown", item["digest"][:12]).status == 0
    assert beforehand("resume", "shop-pen").status == 3


UNDO_STUCK = """
from beforehand import Operation, Run, agent, tool

@tool(effect="write")
async def book(name: str) -> str:
    return name

@book.compensate(restores=True)
async def unbook(operation: Operation[str], name: str) -> None:
    raise ValueError("the hotel does not answer")

@agent(run_id="trip-{name}")
async def trip(run: Run, name: str) -> str:
    return await book(name)
"""


def test_the_commands_that_the_inbox_prints_decide_about_the_stuck_undo_of_a_whole_run(beforehand: Lab):
    beforehand.write("stuck.py", UNDO_STUCK)
    assert beforehand("run", "stuck.py:trip", '"ann"').status == 0
    beforehand("undo", "trip-ann")
    (printed,) = [line.split()[1:] for line in beforehand("inbox").lines if "--accept" in line]
    assert printed == ["transaction", "trip-ann", "--accept"]
    accepted = beforehand(*printed, "--by", "anna")
    assert accepted.status == 0, accepted.err
    assert beforehand(*printed, "--by", "anna").status == 0, "the same decision given again adds nothing"
    beforehand("resume", "trip-ann")
    assert not [line for line in beforehand("inbox").lines if "--accept" in line]
    assert "has no transaction" in beforehand("transaction", "trip-ann/book", "--accept").err
