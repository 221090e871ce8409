"""The worker that is killed: one agent with every kind of step, run once by the real app.

A job names the journal, the witness's port, the case, the point at which to die, and the words of a person to give
first. It answers how the run stands and how often each crash point was reached.
"""

import traceback
from datetime import timedelta
from pathlib import Path

import msgspec

from beforehand import (
    Beforehand,
    BeforehandError,
    DidNotHappen,
    Happened,
    Key,
    Natural,
    Operation,
    Run,
    RunSuspended,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.environment import system_environment
from beforehand.engine.settings import Settings
from beforehand.people.loaded_item import load_item
from beforehand.policies import Retry
from tests.crash.calls import Line, identity
from tests.crash.points import Points, WatchedJournal

RUN = "order-1"
SOON = Retry(attempts=6, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=5))
SETTLE = timedelta(milliseconds=60)
LIMIT = timedelta(seconds=20)
line = Line()


@tool(effect="read", timeout=LIMIT, retry=SOON)
async def look(item: str) -> str:
    return await line.send("read", item, **identity())


@tool(idempotency=Natural(settle_window=SETTLE), timeout=LIMIT, retry=SOON)
async def put(name: str, value: str) -> str:
    return await line.send("natural", name, value=value, **identity())


@tool(idempotency=Key(ttl=timedelta(hours=24)), claim="order", timeout=LIMIT, retry=SOON)
async def charge(order: str, memo: str) -> str:
    return await line.send("keyed", order, value=memo, **identity(key=True))


@tool(timeout=LIMIT, retry=SOON)
async def mail(to: str) -> str:
    found = {**identity(), "key": current_operation().marker}
    return await line.send("mail", to, **found)


@mail.verify(settle_window=SETTLE, every=timedelta(milliseconds=15))
async def in_sent_mail(operation: Operation[str], to: str) -> Verdict[str]:
    found = await line.send("search", to, key=operation.marker)
    return Happened(f"mail-{to}") if found else DidNotHappen()


@tool(timeout=LIMIT)
def restock(sku: str) -> str:
    """Plain, and synchronous: it runs in a thread."""
    return line.send_and_block("plain", sku, **identity())


async def rule(seen: str) -> str:
    return await line.send("model", seen)


@agent()
async def everything(run: Run, case: str) -> list[str]:
    """Every kind of step, each fed by the one before: an answer that changed on the way would show."""
    seen = await look("stock")
    choice = await run.decide(rule, seen)
    door = await put("door", choice)
    receipt = await charge("order-1", door)

    async def left() -> list[str]:
        return [await look("left"), await charge("left", receipt)]

    async def right() -> list[str]:
        return [await mail("right"), await put("right", receipt)]

    one, two = await run.gather(left(), right())
    letter = await mail("last")
    stocked = await restock("sku")
    last = await charge("last", stocked)
    return [seen, choice, door, receipt, *one, *two, letter, stocked, last]


async def main(job):
    points = Points(job.get("kill"), job.get("delays"))
    line.connect(job["port"], job["case"], points)
    journal = WatchedJournal(Path(job["journal"]), points)
    environment = msgspec.structs.replace(system_environment(), crash=points)
    settings = Settings(**{"poll_ms": 20, **job.get("settings", {})})
    async with Beforehand(journal, agents=[everything], environment=environment, settings=settings) as app:
        for word in job.get("words", ()):
            await say(app, word)
        answer = await outcome(app, job["case"])
    return {**answer, "points": points.reached_so_far}


async def say(app, word):
    """Give a person's word; one that was given before a kill stands already."""
    try:
        shown = (await load_item(app.service.reader, word["operation"])).digest
        await app.service.resolve(word["operation"], word["word"], by="ada", result=word.get("result"), shown=shown)
    except BeforehandError as error:
        print(f"not taken: {error}", flush=True)


async def outcome(app, case):
    try:
        return {"status": "completed", "result": await app.run(everything, case, run_id=RUN)}
    except RunSuspended as error:
        return {"status": "suspended", "why": str(error)}
    except Exception as error:  # noqa: BLE001  # whatever it is, the test shows it
        return {"status": "error", "why": "".join(traceback.format_exception(error))}
