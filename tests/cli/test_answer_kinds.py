"""`beforehand answer` takes every kind of item, in the words that `beforehand inbox --item` lists for it."""

import pytest

from tests.cli.lab import Lab

REVIEW = "ticket-1/restock#1"
HANDED = """
from beforehand import Run, agent


@agent(run_id="trip-{name}")
async def trip(run: Run, name: str) -> str:
    return str(await run.hand_off("travel", why="book it by hand"))
"""
TRIP = """
from beforehand import Operation, Rejected, Run, agent, tool


@tool
async def flight(name: str) -> str:
    return "f-1"


@flight.compensate(restores=True)
async def cancel_flight(operation: Operation[str], name: str) -> None:
    raise Rejected("the office is closed")


@agent(run_id="trip-{name}")
async def trip(run: Run, name: str) -> str:
    async with run.transaction("book-trip") as booking:
        await flight(name)
        booking.abort("no hotel")
    return "booked"
"""


def words(lab: Lab, item: str) -> list[str]:
    listed: list[str] = lab("inbox", "--item", item, "--json").json["words"]
    assert " | ".join(listed) in lab("inbox", "--item", item).words
    return listed


@pytest.mark.parametrize(
    ("word", "phase"),
    [("happened", "succeeded"), ("did-not-happen", "failed"), ("give-up", "failed"), ("Did_Not_Happen", "failed")],
)
def test_a_review_is_answered_by_saying_what_happened(asking: Lab, word: str, phase: str):
    said = asking("answer", REVIEW, word, "--evidence", "looked", "--by", "bea")
    assert said.lines == [
        f"{REVIEW} is answered: {word.lower()}, decided by bea.", "Next: beforehand resume ticket-1",
    ]  # fmt: skip
    why = asking("why", REVIEW, "--json").json
    assert why["phase"] == phase
    assert "looked" in asking("why", REVIEW).out


def test_a_review_is_sent_once_more_or_abandoned(asking: Lab):
    assert words(asking, REVIEW) == ["happened", "did-not-happen", "retry", "give-up", "abandon"]
    assert asking("answer", REVIEW, "retry", "--by", "bea").status == 0
    assert asking("resume", "ticket-1").status == 3
    assert asking.world.count("restock lost") == 2
    said = asking("answer", REVIEW, "abandon", "--why", "too late", "--by", "bea")
    assert (said.status, said.lines[-1]) == (0, "Next: beforehand show ticket-1")
    assert asking("inbox").lines[0].startswith("Nothing needs you")


def test_a_word_that_does_not_fit_names_those_that_do(asking: Lab):
    said = asking("answer", REVIEW, "hapened")
    assert said.status == 2
    assert f"'hapened' does not answer {REVIEW}: did you mean happened?" in said.remarks
    assert "it takes: happened, did-not-happen, retry, give-up, abandon" in said.remarks
    said = asking("answer", REVIEW, "yes")
    assert (said.status, "did you mean" in said.err) == (2, False)
    refused = asking("answer", REVIEW, "same-key")
    assert (refused.status, "its tool has no key" in refused.remarks) == (2, True)
    assert asking("why", REVIEW, "--json").json["phase"] == "unknown"


def test_the_result_of_what_happened_goes_with_the_word(beforehand: Lab):
    target = beforehand.change("@tool(idempotency=Key(ttl=timedelta(hours=24)))\n", "@tool\n")
    assert beforehand.apart("run", target, beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    assert beforehand("run", target, beforehand.ticket("1")).status == 3
    refused = beforehand("answer", "ticket-1/refund#1", "give-up", "--result", "17")
    assert (refused.status, "--result is what a call returned" in refused.err) == (2, True)
    refused = beforehand("answer", "ticket-1/refund#1", "happened", "--result", "17")
    assert (refused.status, "17 is not what refund returns" in refused.remarks) == (2, True)
    assert beforehand("answer", "ticket-1/refund#1", "happened", "--result", '"r-7"').status == 0
    assert beforehand("resume", "ticket-1").out == '"r-7"\n'


@pytest.mark.parametrize(
    ("word", "status", "next_step"),
    [("resume", "running", "resume"), ("take-over", "stopped", "show"), ("cancel", "stopped", "show")],
)
def test_a_run_that_stopped_is_answered(beforehand: Lab, word: str, status: str, next_step: str):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom")).status == 1
    assert words(beforehand, "ticket-1") == ["resume", "take-over", "cancel"]
    refused = beforehand("answer", "ticket-1", "yes")
    assert (refused.status, "it takes: resume, take-over, cancel" in refused.remarks) == (2, True)
    said = beforehand("answer", "ticket-1", word, "--why", "seen to it", "--by", "bea")
    assert said.lines == [
        f"ticket-1 is answered: {word}, decided by bea.", f"Next: beforehand {next_step} ticket-1",
    ]  # fmt: skip
    assert beforehand("answer", "ticket-1", word, "--why", "seen to it", "--by", "bea").status == 0
    assert beforehand("inbox").lines[0].startswith("Nothing needs you")
    assert beforehand("ps", "--json").json["runs"][0]["status"] == status


def test_a_run_that_was_handed_over_is_taken_over(beforehand: Lab):
    beforehand.write("handed.py", HANDED)
    assert beforehand("run", "handed.py:trip", '"17"').status == 3
    assert words(beforehand, "trip-17/hand_off#1") == ["VALUE", "take-over"]
    assert beforehand("answer", "trip-17/hand_off#1", "take-over", "--by", "bea").lines[0] == (
        "trip-17/hand_off#1 is answered: take-over, decided by bea."
    )
    assert "taken over" in beforehand("show", "trip-17").words


def test_a_parked_transaction_is_tried_again_or_accepted(beforehand: Lab):
    beforehand.write("trip.py", TRIP)
    assert beforehand("run", "trip.py:trip", '"17"').status == 3
    item = beforehand("inbox", "--json").json[0]["item"]
    assert words(beforehand, item) == ["accept", "retry"]
    assert "did you mean accept?" in beforehand("answer", item, "acept").err
    assert beforehand("answer", item, "retry", "--by", "bea").status == 0
    assert beforehand("resume", "trip-17").status == 3
    shown = beforehand("inbox", "--item", item, "--json").json["digest"]
    accept = ("answer", item, "accept", "--why", "refunded by hand", "--by", "bea")
    assert beforehand(*accept).status == 2, "a second decision names what was shown"
    assert beforehand(*accept, "--shown", shown[:12]).status == 0
    assert beforehand("resume", "trip-17").status == 1


def test_approvals_list_their_words_and_name_a_wrong_one(beforehand: Lab):
    target = beforehand.change("@tool\ndef restock", "@tool(gate=\"sku == 'mug'\")\ndef restock")
    assert beforehand("run", target, beforehand.ticket("1")).status == 3
    assert words(beforehand, REVIEW) == ["yes", "no"]
    said = beforehand("answer", REVIEW, "yess")
    assert (said.status, "did you mean yes?" in said.err) == (2, True)
    unread = beforehand("answer", REVIEW, "yes")
    assert (unread.status, "--shown" in unread.err) == (2, True)
