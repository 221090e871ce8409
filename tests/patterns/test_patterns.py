"""What is done about effects that cannot simply be taken back, on a real mail server and behind real HTTP."""

import asyncio
import smtplib
from collections.abc import Generator
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from beforehand import (
    Beforehand,
    Key,
    Natural,
    Operation,
    Rejected,
    Run,
    RunSuspended,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.patterns import close_or_label, follow_up, for_operator, release_or_refund
from beforehand.testing import operation
from tests.patterns.services import LOOPBACK, Inbox, Office, post

HERE: dict[str, int] = {}
REPEATABLE = Natural(within=timedelta(hours=1))


@pytest.fixture
def inbox() -> Generator[Inbox]:
    inbox = Inbox()
    with inbox.serving() as HERE["smtp"]:
        yield inbox


@pytest.fixture
def office() -> Generator[Office]:
    office = Office()
    with office.serving() as HERE["http"]:
        yield office


def sent(message: EmailMessage) -> None:
    with smtplib.SMTP(LOOPBACK, HERE["smtp"], timeout=10) as server:
        server.send_message(message)


def asked(path: str, body: dict[str, Any] | None = None, key: str = "") -> str:
    """Ask the office. Raises `Rejected` for what it refuses."""
    status, said = post(HERE["http"], path, body or {}, key)
    if status != 200:
        raise Rejected(str(said), code=str(status))
    return str(said)


@tool
def announce(to: str, subject: str) -> str:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "desk@example.com", to, subject
    message["Message-ID"] = f"<{current_operation().marker}>"
    message.set_content("The sale begins today.")
    sent(message)
    return current_operation().marker


@announce.compensate
def correct(operation: Operation[str], to: str, subject: str) -> str:
    message = follow_up(operation, sender="desk@example.com", to=to, subject=subject, text="It does not. We are sorry.")
    sent(message)
    return str(message["Message-ID"])


@tool
def open_ticket(title: str) -> str:
    return asked("/tickets", {"title": title})


@open_ticket.compensate(restores=True)
@tool(idempotency=REPEATABLE)
async def close_ticket(operation: Operation[str]) -> str:
    number = operation.result
    return await close_or_label(
        operation,
        close=lambda note: asked(f"/tickets/{number}/close", {"note": note}),
        label=lambda note: asked(f"/tickets/{number}/labels", {"label": "mistake", "note": note}),
    )


@tool(idempotency=Key.forever(stores="all"))
def hold_money(cents: int) -> str:
    return asked("/holds", {"cents": cents}, current_operation().key)


@hold_money.confirm
@tool(idempotency=Key.forever(stores="all"))
def capture(operation: Operation[str]) -> str:
    return asked(f"/holds/{operation.result}/capture", {}, current_operation().key)


@hold_money.compensate(restores=True)
@tool(idempotency=Key.forever(stores="all"))
async def give_back(operation: Operation[str]) -> str:
    hold = operation.result
    return await release_or_refund(
        operation,
        release=lambda key: asked(f"/holds/{hold}/release", {}, key),
        refund=lambda key: asked(f"/holds/{hold}/refund", {}, key),
    )


@tool
def wire(cents: int) -> str:
    return asked("/holds", {"cents": cents})


@wire.compensate(restores=True)
@tool(idempotency=REPEATABLE)
def ask_the_bank(operation: Operation[str]) -> None:
    for_operator(operation, "a wire is called back by telephone")


@agent(run_id="called-off-{given}", tools=[announce, open_ticket, hold_money, wire])
async def called_off(run: Run, given: str) -> str:
    """Do one thing, and call it off."""
    try:
        async with run.transaction("all") as everything:
            match given:
                case "mail":
                    await announce.options(hold=False)("ann@example.com", "Sale")
                case "ticket" | "locked":
                    await open_ticket("Broken")
                case "hold" | "captured":
                    hold = await hold_money(700)
                    if given == "captured":  # by another party, beside this run
                        asked(f"/holds/{hold}/capture")
                case _:
                    await wire(700)
            everything.abort("it was a mistake")
    except TransactionAborted as gone:
        return f"{[one.rpartition('/')[2] for one in gone.undone]} {[one.rpartition('/')[2] for one in gone.still_standing]}"


def run_it(place: Path, given: str) -> str:
    with Beforehand(place / "journal.db", agents=[called_off]) as app:
        return app.run(called_off, given)


def test_a_message_is_followed_by_another_in_its_thread(tmp_path: Path, inbox: Inbox):
    assert run_it(tmp_path, "mail") == "['announce#1'] []"
    first, second = inbox.mails
    assert second["In-Reply-To"] == second["References"] == first["Message-ID"]
    assert second["Message-ID"] not in {None, first["Message-ID"]}
    assert (second["Subject"], second["To"]) == ("Re: Sale", "ann@example.com")
    assert "sorry" in second.get_payload()


def test_a_subject_cannot_smuggle_a_header_in():
    first = Operation[str]("r/s", "r", "s", "announce", "k-1", "succeeded", {})
    with operation(key="k-2"), pytest.raises(ValueError, match=r"linefeed|newline|header"):
        follow_up(first, sender="a@example.com", to="b@example.com", subject="x\nBcc: c@example.com", text="t")


def test_a_ticket_is_closed_and_stays_readable(tmp_path: Path, office: Office):
    assert run_it(tmp_path, "ticket") == "['open_ticket#1'] []"
    assert office.tickets["t1"]["state"] == "closed"
    assert "called-off-ticket/all/open_ticket#1" in office.tickets["t1"]["notes"][0]
    assert office.done == ["tickets", "tickets/t1/close"]


def test_a_ticket_that_cannot_be_closed_is_labelled(tmp_path: Path, office: Office):
    office.locked = True
    assert run_it(tmp_path, "locked") == "['open_ticket#1'] []"
    assert (office.tickets["t1"]["state"], office.tickets["t1"]["labels"]) == ("open", ["mistake"])
    assert "t1 is locked" in office.tickets["t1"]["notes"][0]


def test_money_that_is_only_held_is_released(tmp_path: Path, office: Office):
    assert run_it(tmp_path, "hold") == "['hold_money#1'] []"
    assert office.done == ["holds", "holds/h1/release"]


def test_money_that_was_captured_meanwhile_is_refunded(tmp_path: Path, office: Office):
    assert run_it(tmp_path, "captured") == "['hold_money#1'] []"
    assert office.done == ["holds", "holds/h1/capture", "holds/h1/refund"]


def test_a_confirmed_reservation_is_refunded_by_the_undoing_of_its_run(tmp_path: Path, office: Office):
    @agent(run_id="bought-{given}", tools=[hold_money])
    async def buyer(run: Run, given: str) -> str:
        async with run.transaction("buy"):
            return await hold_money(700)

    async def bought_and_undone() -> None:
        async with Beforehand(tmp_path / "journal.db", agents=[buyer]) as app:
            assert await app.run(buyer, "a") == "h1"
            assert office.holds == {"h1": "captured"}
            await app.undo("bought-a", by="ann")

    asyncio.run(bought_and_undone())
    assert office.done == ["holds", "holds/h1/capture", "holds/h1/refund"]


def test_what_only_a_person_can_put_right_is_parked_for_one(tmp_path: Path, office: Office):
    async def parked_and_accepted() -> str:
        async with Beforehand(tmp_path / "journal.db", agents=[called_off]) as app:
            with pytest.raises(RunSuspended, match="called back by telephone"):
                await app.run(called_off, "wire")
            await app.service.resolve_transaction("called-off-wire", "all", "accept", by="ann", why="the bank has it")
            return await app.run(called_off, "wire")

    assert asyncio.run(parked_and_accepted()) == "[] ['wire#1']"
    assert office.done == ["holds"]
