"""Drives a run whose code was changed in processes that die, and says how it goes on.

`drive` goes on with it, `drive changed` does so with other code, `look` says who is asked; anything else is a word.
"""

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.errors import ReplayDiverged, RunStopped, RunSuspended, UsageError
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.items import items
from tests.crash.desks import note_once, serve_desk

ITEM = "trip-ann"
CITY = ["Oslo"]  # what its code books first, unless a person changes it
WORDS: dict[str, a.Answer] = {"resume": a.Resume(), "take over": a.TakeOver(), "call off": a.Abandon("too late")}


@tool(idempotency=Key.forever())
async def book(city: str) -> str:
    note_once(city)
    return city


@agent(run_id="trip-{name}", tools=[book])
async def desk(run: Run, name: str) -> str:
    await book(CITY[0])
    return await run.ask("And now?")


async def act(app: Beforehand, what: str) -> object:
    """How far the run comes, who is asked, or what a person who answers is told."""
    if what == "drive changed":
        CITY[0] = "Lima"
    try:
        if what.startswith("drive"):
            return await app.run(desk, "ann")
        if what == "look":
            return [[item.kind, item.item] for item in await items(app.service.reader)]
        await answer(app.service, ITEM, WORDS[what], by="bea")
    except RunSuspended as waits:
        return f"waits: {waits.message}"
    except ReplayDiverged:
        return "diverged"
    except RunStopped as stopped:
        return stopped.reason
    except UsageError as told:
        return told.message
    return "said"


if __name__ == "__main__":
    serve_desk([desk], act)
