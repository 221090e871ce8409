"""Drives a run that is handed over, to people and then to another agent, in processes that die.

`drive` goes on with it, `look` says what is on record, and anything else is what a person says.
"""

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.errors import RunSuspended, UsageError
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.items import items
from tests.crash.desks import note_once, serve_desk

ITEM = "trip-ann/hand_off#1"


@tool(idempotency=Key.forever())
async def book(city: str) -> str:
    note_once(city)
    return city


@agent(tools=[book])
async def specialist(run: Run, city: str) -> str:
    await run.facts.learn("visa", f"needed for {city}", source="the specialist")
    return f"{await book(city)} and {await book('Rome')}"


@agent(run_id="trip-{name}", tools=[book])
async def desk(run: Run, name: str) -> str:
    await book("Oslo")
    said = await run.hand_off("travel", why="where to?", state={"form": "B7"})
    booked = await run.hand_off(specialist, why="far away", state=said)
    return f"{booked}, {run.facts.values()['visa']}"


async def act(app: Beforehand, what: str) -> object:
    """The run as far as it comes, what a person who answers is told, or who is asked."""
    try:
        match what:
            case "drive":
                return await app.run(desk, "ann")
            case "look":
                return [[item.kind, item.item, item.queue] for item in await items(app.service.reader)]
            case city:
                await answer(app.service, ITEM, a.ReplyAnswer(city), by="bea")
    except RunSuspended as waits:
        return f"waits: {waits.message}"
    except UsageError as told:
        return told.message
    return "said"


if __name__ == "__main__":
    serve_desk([desk, specialist], act)
