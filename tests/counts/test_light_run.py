"""What a run costs beside its steps, in counts that are the same on every machine: they only fall."""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import Context, Token
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import CellType, CoroutineType, FrameType, FunctionType, MethodType
from typing import Any

import pytest

from beforehand import Beforehand, Key, Run, RunSuspended, agent, current_operation, tool
from beforehand.app import RunHandle
from beforehand.engine.settings import Settings
from beforehand.journal.sqlite.group_commit import Committer
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts

QUIET = Settings(poll_ms=600_000, recover_every_ms=600_000)  # what housekeeping does is not part of a run
WARM_UP = 20
CALLS = 424  # four of them learn that the run is in no queue, four that it has no relatives, and nine read facts
TIMES = 5
"""The fewest count: on a busy machine a commit may wait for the journal's thread, and threads of earlier tests end."""
RUNS = 200
OBJECTS = 90
IN_FLIGHT = {"called": 18, "outcome": 19}
"""Objects of a step that the collector visits: while its tool runs, and while its outcome becomes durable.

Six of them are the frames of the executor, one inside the other.
"""
KINDS = {CoroutineType, FunctionType, MethodType, CellType, Context, Token, asyncio.Task, asyncio.Future, partial}
"""What is counted beside our own objects. Others come and go with the event loop."""
ROUNDS = 120
TIMERS = 100
"""Cancelled ones that the event loop may keep, each with a run: it drops them when they are more than half of all."""


@agent()
async def empty(_run: Run, number: int) -> int:
    return number


@tool
async def write(number: int) -> int:
    return number


@agent()
async def stepping(_run: Run, steps: int) -> int:
    """The objects that some steps leave to the garbage collector."""
    for number in range(WARM_UP):
        await write(number)
    gc.collect()
    gc.disable()
    try:
        for number in range(steps):
            await write(number)
        return gc.collect()
    finally:
        gc.enable()


@agent()
async def live(_run: Run, number: int) -> int:
    await asyncio.Event().wait()
    return number


class Together:
    """Lets runs make their second step at one moment, and counts the calls of it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0
        self.calls = 0
        self.at_last_call: Callable[[], None] = lambda: None


together = Together()


@tool
async def watched(number: int) -> int:
    together.calls += number
    if number and together.calls == RUNS:
        together.at_last_call()
    return number


@agent()
async def gathered(_run: Run, _number: int) -> int:
    await watched(0)
    together.waiting += 1
    await together.gate.wait()
    return await watched(1)


@tool(idempotency=Key.forever())
async def keyed(number: int) -> str:
    return current_operation().key


@agent()
async def mixed(run: Run, number: int) -> int:
    """One of each that a long-lived process makes: a keyed and a plain write, and a wait that suspends the run."""
    await keyed(number)
    await run.sleep(timedelta(milliseconds=1))
    return await write(number)


def is_ours(thing: object) -> bool:
    return str(type(thing).__module__).startswith("beforehand")


def quiet_app(folder: Path) -> Beforehand:
    """One that commits on the event loop, so that a slow machine does no more than a fast one."""
    journal = SqliteJournal(folder / "journal.db", parts=Parts(commits="loop"))
    return Beforehand(journal, agents=[empty, live, stepping, gathered, mixed], settings=QUIET, recover=False)


def test_an_empty_run_makes_few_calls_two_tasks_and_reads_nothing_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, tasks, reads = [0], list[str](), list[str]()
    entries = SqliteJournal.entries

    async def counted(journal: SqliteJournal, stream: str, after: int = 0) -> Any:
        reads.append(stream)
        return await entries(journal, stream, after)

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        calls[-1] += event == "call"

    async def body() -> None:
        async with quiet_app(tmp_path) as desk:
            for number in range(WARM_UP):
                await desk.run(empty, number, run_id=f"warm-up-{number}")
            loop = asyncio.get_running_loop()
            numbering = loop.get_task_factory()
            assert numbering is not None

            def factory(
                loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
            ) -> asyncio.Future[Any]:
                tasks.append(work.__qualname__)
                return numbering(loop, work, **options)

            counting: Any = factory  # asyncio types task factories more narrowly than it calls them
            loop.set_task_factory(counting)
            monkeypatch.setattr(SqliteJournal, "entries", counted)
            sys.setprofile(profile)
            try:
                for number in range(TIMES):
                    calls.append(0)
                    await desk.run(empty, WARM_UP, run_id=f"counted-{number}")
            finally:
                sys.setprofile(None)
                loop.set_task_factory(numbering)

    asyncio.run(body())
    assert tasks == ["drive_run", "empty"] * TIMES
    assert reads == []
    assert min(calls[1:]) <= CALLS, "an empty run makes more calls of Python functions"


def test_a_live_run_is_few_objects_that_the_garbage_collector_visits(tmp_path: Path) -> None:
    found: list[float] = []

    async def body() -> None:
        handles: list[RunHandle[int]] = []
        async with quiet_app(tmp_path) as desk:

            async def begin(names: range) -> None:
                handles.extend(desk.start(live, number, run_id=f"live-{number}") for number in names)
                while len(desk.engine.active_runs) < len(handles):  # noqa: ASYNC110 - the engine has no event for it
                    await asyncio.sleep(0.01)

            await begin(range(1))  # what the first one imports and keeps is not counted
            gc.collect()
            before = len(gc.get_objects())
            await begin(range(1, RUNS + 1))
            for _ in range(TIMES):
                await asyncio.sleep(0.1)
                gc.collect()
                found.append((len(gc.get_objects()) - before) / RUNS)
            assert not any(handle.done() for handle in handles)

    asyncio.run(body())
    assert min(found) <= OBJECTS, "a live run has more objects: every collection visits them all"


def test_a_step_in_flight_is_few_objects_that_the_garbage_collector_visits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What survives the young collections makes the collector visit everything, so this counts, and no live run does."""
    found: dict[str, int] = {}
    commit = Committer.commit_at_once

    def objects() -> Counter[type]:
        gc.collect()
        return Counter(type(one) for one in gc.get_objects() if type(one) in KINDS or is_ours(one))

    def count(when: str, before: Counter[type]) -> None:
        grown = objects() - before
        found[when] = round(grown.total() / RUNS)  # a step has whole objects; a few more are the process's own

    async def body() -> None:
        async with quiet_app(tmp_path) as desk:
            handles = [desk.start(gathered, number, run_id=f"gathered-{number}") for number in range(RUNS)]
            while together.waiting < RUNS:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            before = objects()

            def committing(self: Committer) -> Any:
                # The ends of the runs fill the queue once more, behind their outcomes.
                if "outcome" not in found and together.calls == RUNS and len(self.queue) == RUNS:
                    count("outcome", before)
                return commit(self)

            together.at_last_call = partial(count, "called", before)
            monkeypatch.setattr(Committer, "commit_at_once", committing)
            together.gate.set()
            while "outcome" not in found:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            await asyncio.gather(*(handle.result() for handle in handles))

    asyncio.run(body())
    assert found.keys() == IN_FLIGHT.keys()
    assert all(found[when] <= IN_FLIGHT[when] for when in found), found


def test_what_has_ended_leaves_no_object_behind(tmp_path: Path) -> None:
    """Memory that grows with the steps done, not with the runs that live, would fill a process in weeks."""
    seen: list[Counter[str]] = []

    async def once(desk: Beforehand, name: str) -> None:
        try:
            await desk.run(mixed, 1, run_id=name)
        except RunSuspended:
            await asyncio.sleep(0.002)
            await desk.resume(name)

    async def body() -> None:
        journal = SqliteJournal(tmp_path / "journal.db", parts=Parts(commits="loop"))
        settings = Settings(hold_ms=0, poll_ms=600_000, recover_every_ms=600_000)
        async with Beforehand(journal, agents=[mixed], settings=settings, recover=False) as desk:
            for part in range(2):
                for number in range(ROUNDS):
                    await once(desk, f"run-{part}-{number}")
                gc.collect()
                seen.append(Counter(type(one).__name__ for one in gc.get_objects() if is_ours(one)))

    asyncio.run(body())
    grown = seen[1] - seen[0]
    assert all(number <= TIMERS for number in grown.values()), grown


def test_a_step_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    async def body() -> list[int]:
        async with quiet_app(tmp_path) as desk:
            return [await desk.run(stepping, 200, run_id=f"steps-{number}") for number in range(TIMES)]

    left = min(asyncio.run(body()))
    assert left < 200, "a circle of objects in each step: the collector runs more often, over all runs"
