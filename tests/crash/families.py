"""A trip starts two child runs and joins them, in processes that die while they do."""

from beforehand import Beforehand, Key, Operation, Run, agent, tool
from beforehand.engine.recovery import Recovery
from beforehand.errors import BeforehandError, RunSuspended
from tests.crash.desks import note_once, serve_desk


@tool(idempotency=Key.forever())
async def book(what: str) -> str:
    note_once(what)
    return what


@book.compensate
@tool(idempotency=Key.forever())
async def give_back(operation: Operation[str], what: str) -> None:
    note_once(f"{what} given back")


@agent(tools=[book])
async def booking(run: Run, what: str) -> str:
    if what.startswith("asked"):
        await run.ask("May I?")
    return await book(what)


@agent(run_id="trip-{name}", tools=[book])
async def trip(run: Run, name: str) -> str:
    some = [await run.start(booking, f"{name} {what}") for what in ("car", "room")]
    return ", ".join([await run.join(one) for one in some])


async def work(app: Beforehand) -> None:
    """Be a worker for as long as something is due, the notices of processes that died included."""
    looking = Recovery(app.engine, app.drive)
    while True:
        await app.run_housekeeping()
        started = await looking.look()
        if not started:
            return
        for task in started:
            await task


async def act(app: Beforehand, what: str) -> object:
    try:
        match what.split():
            case ["run", name]:
                try:
                    return await app.run(trip, name)
                except RunSuspended:
                    await work(app)
                return await app.run(trip, name)
            case ["work"]:
                await work(app)
            case ["cancel", name]:
                await app.service.cancel(f"trip-{name}", by="bea")
                await work(app)
            case ["undo", name]:
                await app.undo(f"trip-{name}", by="bea")
            case _:
                pass
        return {row.run: f"{row.status} {row.reason}" for row in await app.engine.journal.runs()}
    except BeforehandError as error:
        return f"{type(error).__name__}: {error.message}"


if __name__ == "__main__":
    serve_desk([trip, booking], act)
