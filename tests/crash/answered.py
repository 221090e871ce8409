"""Drives runs that ask people, and gives every kind of answer, in processes that die.

`drive` goes on with both runs, `look` says whose the first question is, and the name of an answer gives it.
"""

from beforehand import Beforehand, Run, agent, tool
from beforehand.errors import Declined, RunSuspended, UsageError
from beforehand.model.standing_permission import StandingPermission
from beforehand.people import answering
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer_all
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand.people.standing_permissions import add_standing, list_standing, revoke_standing
from tests.crash.desks import note, serve_desk

NAMES = ("ann", "bob")
ITEMS = [f"refund-{name}/pay#1" for name in NAMES]
LATER = 4_000_000_000_000
ANSWERS = {
    "edit": a.Edit({"cents": 7000}),
    "stand_in": a.StandIn("by hand"),
    "ask_back": a.AskBack("why?"),
    "decline": a.Decline("no"),
    "approve": a.Approve(),
    "delegate": a.Delegate(to="cid"),
    "snooze": a.Snooze(until_ms=LATER),
    "escalate": a.Escalate(queue="leads"),
}


@tool(gate="cents > 5000")
async def pay(cents: int) -> str:
    note(cents)
    return f"paid {cents}"


@agent(run_id="refund-{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    try:
        return await pay(9000)
    except Declined as no:
        return f"{no.code}: {no.message}"


async def drive(app: Beforehand) -> tuple[list[str], list[int]]:
    """Both runs, as far as they come, and how often the permission was used."""
    heard: list[str] = []
    for name in NAMES:
        try:
            heard.append(await app.run(desk, name))
        except RunSuspended as waits:
            heard.append(f"waits: {waits.message}")
    used = [one.spent.times for one in await list_standing(app.service.reader, 0)]
    return heard, used


async def answer(app: Beforehand, what: str) -> str:
    """One answer to the first run, one to both, or a permission given or ended; what the person is told."""
    try:
        if what == "both":
            await answer_all(app.service, [OneOf(item, a.Approve()) for item in ITEMS], by="bea")
        elif what == "allow":
            await add_standing(app.engine, StandingPermission("", "pay", "bea", LATER, times=1))
        elif what == "revoke":
            (one,) = await list_standing(app.service.reader, 0)
            await revoke_standing(app.engine, one.standing.id, by="bea")
        elif what == "agree":
            now = await load_item(app.service.reader, ITEMS[0])
            await answering.answer(app.service, ITEMS[0], a.Approve(), by="cid", shown=now.digest)
        else:
            await answering.answer(app.service, ITEMS[0], ANSWERS[what], by="bea")
    except UsageError as told:
        return told.message
    return "said"


async def look(app: Beforehand) -> list[object]:
    """Whose the first run's question is, and for how long it rests."""
    (item,) = [one for one in await items(app.service.reader) if one.item == ITEMS[0]]
    return [item.to, item.queue, item.rests_ms, item.escalated]


async def act(app: Beforehand, what: str) -> object:
    match what:
        case "drive":
            return await drive(app)
        case "look":
            return await look(app)
        case _:
            return await answer(app, what)


if __name__ == "__main__":
    serve_desk([desk], act)
