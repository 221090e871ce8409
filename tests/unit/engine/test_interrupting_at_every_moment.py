"""A message from another process, at every moment of a run that is driven: no write begins on what was not heard."""

import asyncio
from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import Interrupted, UnknownRun, UsageError
from beforehand.model import records as r
from tests.unit.engine.interruptions import agrees
from tests.unit.engine.lab import DAY, Lab, run_virtual

LAG_S = 0.002
WRITES = 5  # of each branch: long enough for a process that polls to hear of the message on the way


def traveller(lab: Lab, *, claimed: bool) -> Any:
    """Three branches that write one thing after the other, for the city that the run believes in."""

    @tool(idempotency=Key.forever(stores="all"), claim="what" if claimed else ())
    async def book(city: str, what: str) -> str:
        await asyncio.sleep(LAG_S)
        lab.sent.append(f"{city} {what} {current_operation().key[:2]}")
        return city

    async def one(run: Run, branch: int) -> int:
        heard = 0
        for number in range(WRITES):
            city = run.facts.values()["city"]
            try:
                await book(city, f"{branch}.{number}")
            except Interrupted as message:
                heard += 1
                await book(str(message.facts["city"]), f"{branch}.{number} again")
        return heard

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[int]:
        await run.facts.learn("city", "JFK", source="the ticket")
        return await run.gather(one(run, 1), one(run, 2), one(run, 3))

    return desk


async def told_after(ms: int, *, claimed: bool) -> Lab:
    """A run, and another process that tells it something so many milliseconds after it began."""
    lab = Lab()
    lab.lag_s = LAG_S
    desk = traveller(lab, claimed=claimed)
    async with lab.app(desk, poll_ms=5) as app, lab.app(desk, poll_ms=5) as other:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await asyncio.sleep(ms / 1000)
        try:
            await other.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        except UnknownRun:
            pass  # it came before the run
        except UsageError:
            assert running.done(), "too late"
        await running
    return lab


def check(lab: Lab) -> int:
    """No first attempt for the old city after the message is on record; how often it was heard."""
    records = lab.records("trip-ann")
    came = next((at for at, one in enumerate(records) if isinstance(one, r.MessageReceived)), len(records))
    late = [
        one.step
        for one in records[came:]
        if isinstance(one, r.AttemptStarted) and one.intent is not None and b"JFK" in bytes(one.intent.arguments)
    ]
    assert not late, late
    heard = [one for one in records if isinstance(one, r.MessageHeard)]
    branches = [one.step.partition("/")[0] for one in heard]
    assert len(branches) == len(set(branches)), f"a branch heard it twice: {branches}"
    assert len(lab.sent) == 3 * WRITES, "whatever was called off was written for the other city"
    return len(heard)


@pytest.mark.parametrize("claimed", [False, True], ids=["plain", "with business keys"])
def test_no_write_begins_on_what_was_not_heard(claimed: bool):
    found: set[int] = set()

    async def sweep() -> None:
        for ms in range(0, 60, 2):
            lab = await told_after(ms, claimed=claimed)
            found.add(check(lab))
            if ms % 20 == 0:
                await agrees(lab, traveller(lab, claimed=claimed))

    run_virtual(sweep(), limit=DAY)
    assert found >= {0, 3}, found
