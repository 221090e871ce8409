"""Drives a run that asks for an approval, and gives the approval, in processes that die."""

from beforehand import Beforehand, Run, agent, tool
from beforehand.errors import RunSuspended, UsageError
from tests.crash.desks import note, serve_desk

OPERATION = "refund-ann/pay#1"


@tool(gate="cents > 5000")
async def pay(cents: int) -> str:
    note(cents)
    return "paid"


@agent(run_id="refund-{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    return await pay(9000)


async def drive(app: Beforehand) -> str:
    """The run, as far as it comes: its result, or what it waits for."""
    try:
        return await app.run(desk, "ann")
    except RunSuspended as waits:
        return f"waits: {waits.message}"


async def approve(app: Beforehand) -> str:
    """A person says yes; where another person has said so before, what that person is told."""
    try:
        await app.service.approve(OPERATION, by="bea")
    except UsageError as told:
        return told.message
    return "approved"


async def act(app: Beforehand, what: str) -> str:
    return await (approve(app) if what == "approve" else drive(app))


if __name__ == "__main__":
    serve_desk([desk], act)
