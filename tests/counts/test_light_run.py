"""What a run costs beside its steps, in counts that are the same on every machine: they only fall."""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast import Holdfast, Run, agent, tool
from holdfast.engine.settings import Settings
from holdfast.journal.sqlite.journal import SqliteJournal
from holdfast.journal.sqlite.opening import Parts

QUIET = Settings(poll_ms=600_000, recover_every_ms=600_000)  # what housekeeping does is not part of a run
WARM_UP = 20
CALLS = 440
RUNS = 200
OBJECTS = 120


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


def quiet_app(folder: Path) -> Holdfast:
    """One that commits on the event loop, so that a slow machine does no more than a fast one."""
    journal = SqliteJournal(folder / "journal.db", parts=Parts(commits="loop"))
    return Holdfast(journal, agents=[empty, live, stepping], settings=QUIET, recover=False)


def test_an_empty_run_makes_few_calls_two_tasks_and_reads_nothing_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, tasks, reads = [0], list[str](), list[str]()
    entries = SqliteJournal.entries

    async def counted(journal: SqliteJournal, stream: str, after: int = 0) -> Any:
        reads.append(stream)
        return await entries(journal, stream, after)

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        calls[0] += event == "call"

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
                await desk.run(empty, WARM_UP, run_id="counted")
            finally:
                sys.setprofile(None)
                loop.set_task_factory(numbering)

    asyncio.run(body())
    assert tasks == ["drive_run", "empty"]
    assert reads == []
    assert calls[0] <= CALLS, "an empty run makes more calls of Python functions"


def test_a_live_run_is_few_objects_that_the_garbage_collector_visits(tmp_path: Path) -> None:
    found: list[float] = []

    async def body() -> None:
        async with quiet_app(tmp_path) as desk:
            await desk.run(empty, 0, run_id="warm-up")
            gc.collect()
            before = len(gc.get_objects())
            handles = [desk.start(live, number, run_id=f"live-{number}") for number in range(RUNS)]
            while len(desk.engine.active_runs) < RUNS:  # noqa: ASYNC110 - the engine has no event for it
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            gc.collect()
            found.append((len(gc.get_objects()) - before) / RUNS)
            assert not any(handle.done() for handle in handles)

    asyncio.run(body())
    assert found[0] <= OBJECTS, "a live run has more objects: every collection visits them all"


def test_a_step_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    async def body() -> int:
        async with quiet_app(tmp_path) as desk:
            return await desk.run(stepping, 200, run_id="steps")

    assert asyncio.run(body()) < 200, "a circle of objects in each step: the collector runs more often, over all runs"
