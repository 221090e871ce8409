"""Drives runs whose payment cannot be proven, and gives every answer to the review of it, in processes that die.

A life does `CASE ORDER`: `drive` goes on with the run of that case, anything else is an answer. The line to the bank is
cut at the first request: `landed` and `booked` have paid by then, `lost` has not, and for `keyed` the bank dedupes.
"""

from datetime import timedelta

from beforehand import Beforehand, Key, Operation, Run, agent, current_operation, tool
from beforehand.errors import BeforehandError, RunStopped, RunSuspended, UsageError
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand.policies import Retry
from tests.crash.desks import note, note_once, serve_desk

ANSWERS: dict[str, a.Review] = {
    "happened": a.HappenedAnswer("the bank's books", "paid"),
    "retry": a.DidNotHappenAnswer("retry", "the bank's books"),
    "give_up": a.DidNotHappenAnswer("give_up", "the bank's books"),
    "same_key": a.RetrySameKey("the bank dedupes"),
    "compensate": a.CompensateAnswer("the bank's books", "paid"),
    "abandon": a.Abandon("nobody can tell"),
}


def answer_of_the_bank() -> str:
    """Raises `ConnectionResetError` where this is the first request."""
    if current_operation().attempt == 1:
        raise ConnectionResetError("the line was cut")
    return "paid"


@tool
async def landed(order: str) -> str:
    note("paid")
    return answer_of_the_bank()


@landed.compensate(restores=True)
@tool(idempotency=Key.forever())
async def pay_back(operation: Operation[str]) -> None:
    note_once("paid back")


@tool
async def lost(order: str) -> str:
    said = answer_of_the_bank()
    note("paid")
    return said


@tool(idempotency=Key(ttl=timedelta(days=1)), retry=Retry(attempts=1))
async def keyed(order: str) -> str:
    note_once("paid")
    return answer_of_the_bank()


@agent(run_id="order-{case}", tools=[landed, lost, keyed])
async def desk(run: Run, case: str) -> str:
    try:
        match case:
            case "lost":
                return await lost("A-17")
            case "keyed":
                return await keyed("A-17")
            case "landed":
                return await landed("A-17")
        async with run.transaction("trip"):
            return await landed("A-17")
    except BeforehandError as told:
        return type(told).__name__


async def act(app: Beforehand, what: str) -> str:
    """The run as far as it comes, or what a person who answers is told."""
    case, order = what.split()
    try:
        if order == "drive":
            return await app.run(desk, case)
        for item in await items(app.service.reader):
            seen = await load_item(app.service.reader, item.item)
            await answer(app.service, seen, ANSWERS[order], by="bea", shown=seen.digest)
    except RunSuspended as waits:
        return f"waits: {waits.message}"
    except RunStopped as stopped:
        return f"stopped: {stopped.reason}"
    except UsageError as told:
        return told.message
    return "said"


if __name__ == "__main__":
    serve_desk([desk], act)
