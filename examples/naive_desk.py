"""Two refund desks. The first looks right, and cannot survive a crash; the second can."""

from __future__ import annotations

from datetime import timedelta

from beforehand import DidNotHappen, Happened, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.testing.services import Payments, Tickets

payments = Payments()
tickets = Tickets(lag=timedelta(seconds=5))


@tool
async def create_ticket(customer: str) -> str:
    """Plain: after a crash it is not known whether the ticket is there."""
    return await tickets.create(f"refund for {customer}")


@agent(tools=[create_ticket])
async def naive_desk(run: Run, customer: str) -> str:
    """Pay from the agent's own code, then open a ticket. Both are mistakes."""
    await payments.charge(customer, -500)
    return await create_ticket(customer)


@tool(idempotency=Key(ttl=timedelta(hours=24)))
async def refund(customer: str) -> str:
    """The service dedupes on the key."""
    return await payments.charge(customer, -500, key=current_operation().key)


@tool
async def create_marked_ticket(customer: str) -> str:
    """The marker in the body lets the ticket be found again."""
    return await tickets.create(f"refund for {customer}", current_operation().marker)


@create_marked_ticket.verify(settle_window=timedelta(seconds=30))
async def find_ticket(operation: Operation[str]) -> Verdict[str]:
    """Look for the marker."""
    found = await tickets.search(operation.marker)
    return Happened(found[0]) if found else DidNotHappen()


@agent(tools=[refund, create_marked_ticket])
async def mended_desk(run: Run, customer: str) -> str:
    """Each effect is a tool, and each tool says how its outcome is found out."""
    await refund(customer)
    return await create_marked_ticket(customer)
