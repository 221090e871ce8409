"""Drives a run that a policy judges, in processes that die; its rules change from one life to the next.

What a life does is named by what its policy says of everything.
"""

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.errors import Declined, RunSuspended
from beforehand.people import Policy, Rule
from tests.crash.desks import note, serve_desk


@tool(idempotency=Key.forever())
async def pay(customer: str, cents: int) -> str:
    note(cents)
    return "paid"


@agent(run_id="refund-{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    try:
        return await pay(name, 9000)
    except Declined as no:
        return no.code


def policy(word: str) -> Policy:
    """Everybody's refunds are remembered, so that the history is part of what may be judged twice."""
    rule = Rule("everything", "history.sent < 1", word)
    return Policy("desk", (rule,), default="refuse", subjects={"pay": "arguments.customer"})


async def act(app: Beforehand, word: str) -> str:
    try:
        return await app.run(desk, "ann")
    except RunSuspended as waits:
        return f"waits: {waits.message}"


if __name__ == "__main__":
    serve_desk([desk], act, policy)
