"""Submits runs and starts them in processes that die while they do."""

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.recovery import Recovery
from beforehand.errors import BeforehandError
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.crash.desks import note_once, serve_desk

LIMITS = DeclaredLimits({"mail": QueueLimits(concurrency=1, key="order-{ticket.order}")})


@tool(idempotency=Key.forever())
async def pay(name: str) -> str:
    note_once(name)
    return name


@agent(run_id="bill-{ticket[name]}", tools=[pay])
async def desk(run: Run, ticket: dict[str, str]) -> str:
    return await pay(ticket["name"])


async def act(app: Beforehand, what: str) -> object:
    """What the caller is answered; `work` is a worker, as long as something is queued."""
    try:
        match what:
            case "submit":
                await app.engine.queues.declare(app.engine.journal, LIMITS)
                found = [await app.submit(desk, {"name": name, "order": "A"}, queue="mail") for name in ("ann", "bea")]
                return [one.run for one in found]
            case "work":
                looking = Recovery(app.engine, app.drive)
                while started := await looking.look():
                    for task in started:
                        await task
                return [row.run for row in await app.engine.journal.runs(status="queued")]
            case _:
                rows = await app.engine.journal.runs()
                return {row.run: [row.status, len(await app.engine.journal.read(row.run))] for row in rows}
    except BeforehandError as error:
        return f"{type(error).__name__}: {error.message}"


if __name__ == "__main__":
    serve_desk([desk], act)
