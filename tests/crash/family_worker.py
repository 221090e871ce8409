"""One of two workers on one tree: a run that starts six, each of which starts four.

python -m tests.crash.family_worker JOURNAL PLACE
"""

import asyncio
import sys
from pathlib import Path

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.settings import Settings
from tests.crash.desks import note_once


@tool(idempotency=Key.forever())
async def book(what: str) -> str:
    note_once(what)
    return what


@agent(tools=[book])
async def leaf(run: Run, number: int) -> str:
    return await book(f"part-{number:02}")


@agent(tools=[book])
async def group(run: Run, first: int) -> str:
    some = [await run.start(leaf, first + one) for one in range(4)]
    return " ".join(await run.gather(*(run.join(one) for one in some)))


@agent(run_id="tree-{name}", tools=[book])
async def root(run: Run, name: str) -> str:
    some = [await run.start(group, 4 * one) for one in range(6)]
    return " ".join(await run.gather(*(run.join(one) for one in some)))


async def main(journal: str, place: Path) -> None:
    settings = Settings(recover_every_ms=40, poll_ms=20)
    async with Beforehand(journal, agents=[root, group, leaf], settings=settings) as app:
        result = await app.run(root, "oak")
        part = place / f"result.{id(app)}"
        part.write_text(result)
        part.rename(place / "result")  # it appears whole
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
