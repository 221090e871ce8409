"""Drives a run that a policy judges, in processes that die; its rules change from one life to the next.

A plan is one JSON line, `[word, journal, point, number]`: `word` is what the policy of that life says of everything. The
child kills itself with SIGKILL at the n-th time that it comes by that point. What was paid stands in a file.
"""

import asyncio
import json
import os
from pathlib import Path

from msgspec.structs import replace

from holdfast import Holdfast, Key, Run, agent, tool
from holdfast.engine.seams import system_seams
from holdfast.errors import Declined, RunSuspended
from holdfast.people import Policy, Rule
from tests.crash.approved import note
from tests.crash.forks import serve
from tests.crash.points import Points, WatchedJournal


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


async def live(word: str, journal: str, points: Points) -> str:
    """One life."""
    seams = replace(system_seams(), crash=points)
    watched = WatchedJournal(journal, points)
    async with Holdfast(watched, agents=[desk], policy=policy(word), seams=seams, recover=False) as app:
        try:
            return await app.run(desk, "ann")
        except RunSuspended as waits:
            return f"waits: {waits.message}"


def child(word: str, journal: str, point: str, number: int) -> None:
    """Live, and leave what was heard and which points were reached in a file."""
    os.environ["PAID"] = journal + ".paid"
    points = Points((point, number) if point else None)
    heard = asyncio.run(live(word, journal, points))
    Path(journal + ".heard").write_text(json.dumps([heard, points.reached_so_far]))


if __name__ == "__main__":
    serve(child)
