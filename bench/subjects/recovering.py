"""Recovery: a process is killed with many runs in flight, and a new one drives them to their end.

Each run has made a keyed write before the kill, and makes a second one afterwards. Nothing is in flight at the kill:
a hundred attempts that are sent again would measure the retry budget of their tool. Runs of another program, which are
due too and ahead by name, lie in the same file.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from measure import report

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.outbox import begin_asleep
from beforehand.engine.settings import Settings
from beforehand.engine.tool_protocol import Input

RUNS = 500
OTHERS = 230
dies = "--die" in sys.argv
begun: set[int] = set()
all_begun = asyncio.Event()


@tool(idempotency=Key.forever())
async def pay(order: int, part: int) -> str:
    return f"{current_operation().key} {order} {part}"


@agent(run_id="order-{order}")
async def desk(_run: Run, order: int) -> str:
    await pay(order, 1)
    if dies:
        begun.add(order)
        if len(begun) == RUNS:
            all_begun.set()
        await asyncio.Event().wait()
    return await pay(order, 2)


async def die(path: Path) -> None:
    """Begin all runs, and end by SIGKILL while each is between its writes."""
    async with Beforehand(path, agents=[desk], settings=Settings(hold_ms=10**9)) as app:
        for number in range(OTHERS):
            await begin_asleep(app.engine, f"a-{number:03}", Input(b"1", "d"), "another program")
        for order in range(RUNS):
            app.start(desk, order)
        await all_begun.wait()
        await asyncio.sleep(0.5)  # what rides becomes durable: no attempt is left without its end
        os.kill(os.getpid(), signal.SIGKILL)


async def recovered(path: Path) -> float:
    """Seconds from opening the app until every run has ended."""
    start = time.perf_counter()
    async with Beforehand(path, agents=[desk]) as app:
        while len(await app.engine.journal.runs(status="completed")) < RUNS:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.05)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--die", action="store_true")
    options = parser.parse_args()
    path = options.directory / "recovering.db"
    if options.die:
        asyncio.run(die(path))
    if os.spawnv(os.P_WAIT, sys.executable, [sys.executable, *sys.argv, "--die"]) != -signal.SIGKILL:
        raise SystemExit("the process that was to be killed ended otherwise")
    seconds = asyncio.run(recovered(path))
    report(runs=RUNS, seconds=seconds, recovered_per_s=RUNS / seconds)


if __name__ == "__main__":
    main()
