"""Begins runs in processes that die while they do: by `app.run`, as a fork, and as a notice of the runtime.

`run` is the first caller, `recover` a worker that looks for abandoned runs, `resume` and `cancel` are an operator's;
`listed` says which runs the journal lists, and how many records each has.
"""

import logging

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.outbox import begin_asleep
from beforehand.engine.recovery import Recovery
from beforehand.engine.tool_protocol import Input
from beforehand.errors import BeforehandError, RunStopped
from beforehand.inspect.fork import fork
from tests.crash.desks import note_once, serve_desk


@tool(idempotency=Key.forever())
async def pay(name: str) -> str:
    note_once(name)
    return name


@agent(run_id="bill-{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    return await pay(name)


async def recover(app: Beforehand) -> list[str]:
    """One look for abandoned runs; what was logged as a warning meanwhile."""
    warned: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warned.append(record.getMessage())

    logger, kept = logging.getLogger("beforehand"), Kept(logging.WARNING)
    logger.addHandler(kept)
    for task in await Recovery(app.engine, app.drive).look():
        await task
    logger.removeHandler(kept)
    return warned


async def act(app: Beforehand, what: str) -> object:
    """What the caller or the operator is answered."""
    try:
        match what:
            case "run":
                return await app.run(desk, "ann")
            case "fork":
                await app.run(desk, "ann")
                return (await fork(app.engine, "bill-ann", "pay#1", "bill-fork", "bea")).run
            case "notice":
                return await begin_asleep(app.engine, "bill-late", Input(b'"ann"', "digest"), desk.name)
            case "recover":
                return await recover(app)
            case "resume":
                return await app.resume("bill-ann")
            case "cancel":
                await app.service.cancel("bill-ann", by="bea", why="too late")
                return await app.run(desk, "ann")
            case _:
                rows = await app.engine.journal.runs()
                return {row.run: [row.status, len(await app.engine.journal.read(row.run))] for row in rows}
    except RunStopped as stopped:
        return stopped.reason
    except BeforehandError as error:
        return f"{type(error).__name__}: {error.message}"


if __name__ == "__main__":
    serve_desk([desk], act)
