"""Beforehand itself: agents of no-op steps, timed from outside the public door.

`rate` times whole runs, one or many at once. `die` runs N steps and kills its process inside step N+1;
`resume` is the process after that, and times from opening the journal to the entry of step N+1.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from measure import Mark, payload, peak_mib, rates, report, settled_size

from beforehand import Beforehand, Key, Operation, Run, agent, current_operation, tool
from beforehand.agent.agent import Agent
from beforehand.cli.apps import MANY_RUNS_GC
from beforehand.engine.settings import Settings
from beforehand.journal.sqlite import group_commit
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.plans import Call, Plan, PlanStep

Kind = Literal["plain", "riding", "read", "tens", "transactions", "plans"]
App = Callable[[Path, Agent[tuple[str, int], int]], Beforehand]
WARM_UP_STEPS: Final = 20
TEN: Final = 10

entered: dict[str, float] = {}  # when the agent and the awaited step were entered, by name


@tool
async def plain(index: int) -> dict[str, object]:
    """A write without a key: its outcome is waited for."""
    return payload(index)


@tool(idempotency=Key.forever())
async def riding(index: int) -> dict[str, object]:
    """A write whose outcome may ride in the next commit, because it reads its key."""
    assert current_operation().key
    return payload(index)


@tool(effect="read")
async def read(index: int) -> dict[str, object]:
    return payload(index)


@tool(effect="read")
async def last() -> bool:
    """Step N+1: it ends its process the first time, and is timed the second time.

    A read, which begins at once after a crash: a write would first wait for its retry.
    """
    entered["last"] = time.perf_counter()
    if os.environ.get("BENCH_DIE") == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return True


@tool(idempotency=Key.forever())
async def book(index: int) -> dict[str, object]:
    """As `riding`, and it can be undone: what a transaction may contain."""
    assert current_operation().key
    return payload(index)


@book.compensate(restores=True)
async def unbook(operation: Operation[dict[str, object]], index: int) -> None:
    """Never called here: no transaction of these is called off."""
    raise AssertionError((operation.id, index))


STEPS: Final = {"plain": plain, "riding": riding, "read": read}
ALL: Final = (*STEPS, "tens", "transactions", "plans")


@agent()
async def work(_run: Run, job: tuple[str, int]) -> int:
    """Call one tool so many times, one after the other."""
    kind, count = job
    step = STEPS[kind]
    for index in range(count):
        await step(index)
    return count


@agent(tools=[book])
async def in_tens(run: Run, job: tuple[str, int]) -> int:
    """Ten calls one after the other, again and again: bare, in a transaction each, or as a plan of ten steps each."""
    kind, count = job
    for start in range(0, count, TEN):
        if kind == "plans":
            await run.execute(chain(start))
            continue
        async with run.transaction("ten") if kind == "transactions" else contextlib.nullcontext():
            for index in range(start, start + TEN):
                await book(index)
    return count


def chain(start: int) -> Plan:
    """A plan of ten steps, each after the one before."""
    steps = [
        PlanStep(id=f"step-{at}", primary=Call("book", {"index": start + at}), after=(f"step-{at - 1}",) if at else ())
        for at in range(TEN)
    ]
    return Plan(goal="ten in a row", name="ten", steps=tuple(steps), together=False)


@agent()
async def doomed(_run: Run, job: tuple[str, int]) -> int:
    """`work`, then a write whose outcome is waited for (what rode before it is durable), then death."""
    entered.setdefault("agent", time.perf_counter())
    kind, count = job
    step = STEPS[kind]
    for index in range(count - 1):
        await step(index)
    await plain(count)
    await last()
    return count


def timed_app(path: Path, code: Agent[tuple[str, int], int]) -> Beforehand:
    """The app as a user opens it."""
    return Beforehand(path, agents=[code])


def worker_app(path: Path, code: Agent[tuple[str, int], int]) -> Beforehand:
    """The app as `beforehand worker` opens it: Python's garbage collector runs more seldom."""
    return Beforehand(path, agents=[code], settings=Settings(gc_threshold=MANY_RUNS_GC))


def counted_app(path: Path, code: Agent[tuple[str, int], int]) -> Beforehand:
    """One without housekeeping, which commits on the loop: a slow machine then does no more than a fast one."""
    quiet = Settings(poll_ms=600_000, recover_every_ms=600_000)
    return Beforehand(SqliteJournal(path, parts=Parts(commits="loop")), agents=[code], settings=quiet, recover=False)


async def rate(path: Path, kind: Kind, steps: int, runs: int, app: App) -> dict[str, float]:
    """Steps a second from opening the journal until it is closed: with the start and the end of every run."""
    code = agent_of(kind)
    async with app(path, code) as desk:
        await desk.run(code, (kind, WARM_UP_STEPS), run_id="warm-up")
    before = settled_size(path)
    start = Mark.now()
    async with app(path, code) as desk:
        await many(desk, kind, steps, runs)
    end = Mark.now()
    figures = rates(steps * runs, start, end)
    grown = settled_size(path) - before
    return {**figures, "bytes_per_step": grown / (steps * runs), "peak_mib": peak_mib()}


def agent_of(kind: Kind) -> Agent[tuple[str, int], int]:
    return work if kind in STEPS else in_tens


async def many(desk: Beforehand, kind: Kind, steps: int, runs: int) -> None:
    code = agent_of(kind)
    if runs == 1:
        await desk.run(code, (kind, steps), run_id="run-0")
        return
    handles = [desk.start(code, (kind, steps), run_id=f"run-{number}") for number in range(runs)]
    await asyncio.gather(*(handle.result() for handle in handles))


async def die(path: Path, kind: Kind, steps: int) -> None:
    os.environ["BENCH_DIE"] = "1"
    async with Beforehand(path, agents=[doomed]) as desk:
        await desk.run(doomed, (kind, steps), run_id="doomed")
    raise SystemExit("the process outlived its last step")


async def resume(path: Path, kind: Kind, steps: int) -> dict[str, float]:
    began = time.perf_counter()
    async with Beforehand(path, agents=[doomed]) as desk:
        await desk.run(doomed, (kind, steps), run_id="doomed")
    return {
        "steps": steps,
        "replay_ms": (entered["last"] - entered["agent"]) * 1e3,
        "resume_ms": (entered["last"] - began) * 1e3,
        "peak_mib": peak_mib(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--case", choices=("rate", "die", "resume"), default="rate")
    parser.add_argument("--kind", choices=ALL, default="plain")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--by-count", action="store_true", help="let nothing depend on how fast the machine is")
    parser.add_argument("--worker", action="store_true", help="open the app as the commands that drive many runs do")
    options = parser.parse_args()
    path = options.directory / "ours.db"
    if options.case == "die":
        asyncio.run(die(path, options.kind, options.steps))
    elif options.case == "resume":
        report(**asyncio.run(resume(path, options.kind, options.steps)))
    else:
        if options.by_count:
            group_commit.TICK_S = 60
        app = counted_app if options.by_count else worker_app if options.worker else timed_app
        report(**asyncio.run(rate(path, options.kind, options.steps, options.runs, app)))


if __name__ == "__main__":
    main()
