"""A worker whose runs send without end. Each call leaves a line with its attempt before it does anything else.

python -m tests.crash.paused_worker JOURNAL PLACE
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.settings import Settings

RUNS = ("ann", "bea")
SETTINGS = Settings(recover_every_ms=20, poll_ms=100)
"""Between two looks at the journal a worker that no guard held back would send some dozens of times."""
place = Path()


@tool(idempotency=Key.forever())
async def send(number: int) -> int:
    call = current_operation()
    assert call.key
    line = f"{call.id} {call.attempt}\n".encode()
    file = os.open(place / "began", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    await asyncio.sleep(0.001)
    return number


@agent(run_id="sender-{name}", tools=[send])
async def desk(run: Run, name: str) -> None:
    number = 0
    while True:
        number = await send(number) + 1
        if number % 3 == 0:  # several at once, so that branches write behind each other's attempts
            await run.gather(*(send(number) for _ in range(3)))


async def main(journal: str) -> None:
    async with Beforehand(journal, agents=[desk], settings=SETTINGS) as app:
        for name in RUNS:
            app.start(desk, name)
        await asyncio.Event().wait()


if __name__ == "__main__":
    place = Path(sys.argv[2])
    asyncio.run(main(sys.argv[1]))
