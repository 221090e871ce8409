"""Drives a run that is told something and then handed over, in processes that die.

`drive` goes on with the run, `tell` sends the message, `approve` says yes to what is asked, `answer` gives the run back
that was handed over, and `take` takes it over.
"""

from beforehand import Beforehand, Run, agent, tool
from beforehand.errors import Interrupted, RunStopped, RunSuspended, UsageError
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.people.items import items
from tests.crash.desks import note, serve_desk

RUN = "trip-ann"


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
            told.append(interrupted.text)
    said = await run.hand_off("travel", why="signatures", state={"told": told})
    return f"{booked}, told {told}, then {said}"


async def drive(app: Beforehand) -> str:
    """The run, as far as it comes: its result, what it waits for, or how it ended."""
    try:
        return await app.run(desk, "ann")
    except RunSuspended as waits:
        return f"waits: {waits.message}"
    except RunStopped as stopped:
        return f"{stopped.reason}: {stopped.message}"


async def order(app: Beforehand, what: str) -> str:
    """A person's word; where it comes again, what that person is told."""
    try:
        match what:
            case "tell":
                await app.service.tell(RUN, "LaGuardia", by="ann", facts={"city": "LGA"}, once="m1")
            case "approve":
                (item,) = await items(app.service.reader)
                await app.service.approve(item.item, by="bea")
            case "answer":
                await app.service.answer(f"{RUN}/hand_off#1", "signed", by="bea")
            case _:
                await app.service.take_over(f"{RUN}/hand_off#1", by="bea")
    except UsageError as told:
        return told.message
    return "done"


async def look(app: Beforehand) -> dict[str, object]:
    """What is on record."""
    records = [decode(row.body) for row in await app.service.engine.journal.read(RUN, 0, 1000)]
    return {
        "received": sum(isinstance(one, r.MessageReceived) for one in records),
        "heard": [one.step for one in records if isinstance(one, r.MessageHeard)],
        "sent": [one.step for one in records if isinstance(one, r.AttemptStarted)],
    }


async def act(app: Beforehand, what: str) -> object:
    match what:
        case "drive":
            return await drive(app)
        case "look":
            return await look(app)
        case _:
            return await order(app, what)


if __name__ == "__main__":
    serve_desk([desk], act)
