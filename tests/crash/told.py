"""Drives a run that is told something and then handed over, in processes that die.

A plan is one JSON line, `[what, journal, point, number]`: `drive` goes on with the run, `tell` sends the message,
`approve` says yes to what is asked, `take` takes the run over. The child kills itself with SIGKILL at the n-th time that
it comes by that point. What was booked stands in a file, and outlives it.
"""

import asyncio
import json
import os
from pathlib import Path

from msgspec.structs import replace

from holdfast import Holdfast, Run, agent, tool
from holdfast.engine.seams import system_seams
from holdfast.errors import Interrupted, RunStopped, RunSuspended, UsageError
from holdfast.interfaces.people.items import items
from holdfast.journal.codec import decode
from holdfast.model import records as r
from tests.crash.forks import serve
from tests.crash.points import Points, WatchedJournal

RUN = "trip-ann"


def note(city: str) -> None:
    """The airline books, and notices no second time."""
    with Path(os.environ["BOOKED"]).open("a") as booked:
        booked.write(f"{city}\n")
        booked.flush()
        os.fsync(booked.fileno())


@tool(gate="true")
async def book(city: str) -> str:
    note(city)
    return city


@agent(run_id="trip-{name}", tools=[book])
async def desk(run: Run, name: str) -> str:
    await run.facts.learn("city", "JFK", source="the request")
    told: list[str] = []
    booked = ""
    while not booked:
        try:
            booked = await book(run.facts.values()["city"])
        except Interrupted as interrupted:
            told.append(interrupted.said)
    said = await run.hand_off("travel", why="signatures", state={"told": told})
    return f"{booked}, told {told}, then {said}"


async def drive(app: Holdfast) -> str:
    """The run, as far as it comes: its result, what it waits for, or how it ended."""
    try:
        return await app.run(desk, "ann")
    except RunSuspended as waits:
        return f"waits: {waits.message}"
    except RunStopped as stopped:
        return f"{stopped.reason}: {stopped.message}"


async def order(app: Holdfast, what: str) -> str:
    """A person's word; where it comes again, what that person is told."""
    try:
        match what:
            case "tell":
                await app.service.tell(RUN, "LaGuardia", by="ann", facts={"city": "LGA"}, once="m1")
            case "approve":
                (item,) = await items(app.service.looking)
                await app.service.approve(item.item, by="bea")
            case "answer":
                await app.service.answer(f"{RUN}/hand_off#1", "signed", by="bea")
            case _:
                await app.service.take_over(f"{RUN}/hand_off#1", by="bea")
    except UsageError as told:
        return told.message
    return "done"


async def look(app: Holdfast) -> dict[str, object]:
    """What is on record."""
    records = [decode(row.body) for row in await app.service.engine.journal.read(RUN, 0, 1000)]
    return {
        "received": sum(isinstance(one, r.MessageReceived) for one in records),
        "heard": [one.step for one in records if isinstance(one, r.MessageHeard)],
        "sent": [one.step for one in records if isinstance(one, r.AttemptStarted)],
    }


async def live(what: str, journal: str, points: Points) -> object:
    """One life."""
    seams = replace(system_seams(), crash=points)
    async with Holdfast(WatchedJournal(journal, points), agents=[desk], seams=seams, recover=False) as app:
        match what:
            case "drive":
                return await drive(app)
            case "look":
                return await look(app)
            case _:
                return await order(app, what)


def child(what: str, journal: str, point: str, number: int) -> None:
    """Live, and leave what was heard and which points were reached in a file."""
    os.environ["BOOKED"] = journal + ".booked"
    points = Points((point, number) if point else None)
    heard = asyncio.run(live(what, journal, points))
    Path(journal + ".heard").write_text(json.dumps([heard, points.reached_so_far]))


if __name__ == "__main__":
    serve(child)
