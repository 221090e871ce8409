"""A run that claims an effect has it: required tools and receipts are checked against the records."""

from dataclasses import dataclass

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


def test_a_required_effect_that_is_there_lets_the_run_complete(world: World):
    @agent(run_id="r-{given}", tools=[invoice], requires=[invoice])
    async def desk(run: Run, given: str) -> str:
        return await invoice(given)

    assert world.run(desk, "17").result == "I-17"
    world.explore(desk, "17")


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


@pytest.mark.parametrize("given", ["17", "refused"])
def test_the_digest_tells_a_model_what_is_done(world: World, given: str):
    @agent(run_id="d-{given}", tools=[invoice])
    async def forgetful(run: Run, given: str) -> str:
        await invoice.outcome(given)
        return await run.digest()

    said = str(world.run(forgetful, given).result)
    assert said.startswith("Already done, and proven")
    assert ('invoice {"order":"17"}: "I-17" [d-17/invoice#1]' in said) == (given == "17")
    world.explore(forgetful, given)
