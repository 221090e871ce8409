"""A run that claims an effect has it: required tools and receipts are checked against the records."""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from beforehand import (
    Key,
    Natural,
    Operation,
    Receipt,
    Rejected,
    Run,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import ClaimUnproven
from beforehand.model.outcome import Basis
from beforehand.testing.world import World
from tests.draws import explore


@tool(idempotency=Key.forever(stores="all"))
async def invoice(order: str) -> str:
    _ = current_operation().key
    if order == "refused":
        raise Rejected("no such order")
    return f"I-{order}"


@invoice.compensate(restores=True)
@tool(idempotency=Natural())
async def void(operation: Operation[str]) -> None:
    assert operation.result


@dataclass
class Done:
    text: str
    receipts: list[Receipt]


@pytest.mark.deeper
def test_a_required_effect_that_is_there_lets_the_run_complete(world: World):
    @agent(run_id="r-{given}", tools=[invoice], requires=[invoice])
    async def desk(run: Run, given: str) -> str:
        return await invoice(given)

    assert world.run(desk, "17").result == "I-17"
    explore(world, desk, "17")


def test_a_run_that_only_says_so_is_stopped_with_what_is_missing(world: World):
    @agent(run_id="r-{given}", tools=[invoice], requires=["invoice"])
    async def boaster(run: Run, given: str) -> str:
        return "The invoice was sent."

    ran = world.run(boaster, "17")
    assert isinstance(ran.error, ClaimUnproven)
    assert ran.error.missing == ("no invoice of this run succeeded and is still in effect",)
    assert ran.status == "stopped"


def test_what_was_refused_or_undone_does_not_count(world: World):
    @agent(run_id="r-{given}", tools=[invoice], requires=[invoice])
    async def careless(run: Run, given: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                await invoice.outcome(given)
                boundary.abort("no")
        except TransactionAborted:
            return "sent"
        return "sent"

    assert isinstance(world.run(careless, "refused").error, ClaimUnproven)
    assert isinstance(world.run(careless, "17").error, ClaimUnproven)


def test_a_receipt_in_the_result_has_to_be_one_of_this_run(world: World):
    @agent(run_id="r-{given}", tools=[invoice])
    async def honest(run: Run, given: str) -> Done:
        outcome = await invoice.outcome(given)
        assert outcome.receipt is not None
        return Done("sent", [outcome.receipt])

    @agent(run_id="f-{given}", tools=[invoice])
    async def forger(run: Run, given: str) -> Done:
        return Done("sent", [Receipt("r-17/invoice#1", "invoice", "bh-1", Basis("returned"), 0)])

    assert world.run(honest, "17").error is None
    ran = world.run(forger, "17")
    assert isinstance(ran.error, ClaimUnproven)
    assert "is not one of this run" in ran.error.missing[0]


@pytest.mark.deeper
@pytest.mark.parametrize("given", ["17", "refused"])
def test_the_digest_tells_a_model_what_is_done(world: World, given: str):
    @agent(run_id="d-{given}", tools=[invoice])
    async def forgetful(run: Run, given: str) -> str:
        await invoice.outcome(given)
        return await run.digest()

    said = str(world.run(forgetful, given).result)
    assert said.startswith("Already done, and proven")
    assert ('invoice {"order":"17"}: "I-17" [d-17/invoice#1]' in said) == (given == "17")
    explore(world, forgetful, given)


LONG = "Dear customer, we have looked at your order. " * 12


@tool
async def send_email(to: str, subject: str, body: str) -> str:
    return "queued"


@tool(title="mail {empfaenger}")
async def send_titled(empfaenger: list[str], anhang: str, body: str) -> str:
    return "queued"


@tool(claim="zweck", idempotency=Key.forever())
async def pay(cents: int, betreff: str, zweck: str) -> str:
    return current_operation().key and "paid"


def told(world: World, *calls: Any) -> list[str]:
    @agent(run_id="d-{given}", tools=[send_email, send_titled, pay])
    async def forgetful(run: Run, given: str) -> str:
        for call in calls:
            await call()
        return await run.digest()

    return str(world.run(forgetful, "1").result).splitlines()[1:]


def test_the_digest_tells_to_whom_a_long_mail_was_sent(world: World):
    said = told(world, *[lambda to=to: send_email(to, "Your refund", LONG) for to in ("ann@x.com", "bob@x.com")])
    for line, to in zip(said, ("ann@x.com", "bob@x.com"), strict=True):
        assert line.startswith(f'- send_email {{"to":"{to}","subject":"Your refund","body":"Dear')
        assert re.search(r"… \(\d+ more characters\)}: \"queued\" \[", line)


def test_the_digest_begins_with_the_title_and_keeps_whole_what_it_names(world: World):
    everyone = [f"customer-{number}@example.com" for number in range(30)]  # more than a title shows
    (said,) = told(world, lambda: send_titled(everyone, "brief.pdf", LONG))
    assert said.startswith('- send_titled "mail customer-0@example.com, ')
    assert all(f'"{one}"' in said for one in everyone)
    assert said.index("customer-29@") < said.index("brief.pdf") < said.index("Dear customer")


def test_the_digest_keeps_whole_what_a_claim_names_up_to_its_bound(world: World):
    (said,) = told(world, lambda: pay(5, LONG, "Rechnung " * 100))
    assert said.startswith(f'- pay {{"zweck":"{"Rechnung " * 100}","cents":')
    (said,) = told(world, lambda: pay(5, LONG, "Rechnung " * 200))
    assert '… (810 more characters),"cents":' in said
