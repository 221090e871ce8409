"""After `pause --all` has returned no new call begins in any process, though that sends as fast as it can or is killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from beforehand import Beforehand
from beforehand.control.sending import open_attempts, switch_sending
from tests import forked
from tests.crash.forks import ROOT
from tests.crash.paused_worker import RUNS, desk
from tests.crash.stage import until
from tests.crash.test_submitted import lines

PROGRAM = "tests.crash.paused_worker"


@contextlib.contextmanager
def worker(journal: Path, place: Path) -> Generator[subprocess.Popen[str]]:
    process = forked.start(["-m", PROGRAM, str(journal), str(place)], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def begun(place: Path) -> list[str]:
    return lines(place / "began")


def goes_on(place: Path) -> bool:
    """Wait until some more calls of each run have begun."""
    before = len(begun(place))
    until(lambda: all(sum(name in line for line in begun(place)[before:]) > 3 for name in RUNS))
    return True


async def pause(journal: Path, place: Path) -> tuple[int, set[str]]:
    """How many calls had begun when the command returned, and the attempts that it listed."""
    async with Beforehand(str(journal), agents=[desk], recover=False) as app:
        assert (await switch_sending(app.engine, "pause", by="ann"))[1]
        before = len(begun(place))
        listed, unreadable = await open_attempts(app.service.reader)
        assert unreadable == []
        return before, {f"{one.operation} {one.attempt}" for one in listed}


async def unpause(journal: Path) -> None:
    async with Beforehand(str(journal), agents=[desk], recover=False) as app:
        assert (await switch_sending(app.engine, "unpause", by="ann"))[1]


async def statuses(journal: Path) -> set[str]:
    async with Beforehand(str(journal), agents=[desk], recover=False) as app:
        return {row.status for row in await app.engine.journal.runs()}


def rests(journal: Path) -> bool:
    return asyncio.run(statuses(journal)) == {"suspended"}


def paused(journal: Path, place: Path) -> None:
    """Pause all sending, and hold every later call against what was listed."""
    before, listed = asyncio.run(pause(journal, place))
    until(lambda: rests(journal))
    assert set(begun(place)[before:]) <= listed


@pytest.mark.slow
def test_no_call_begins_after_the_pause_and_all_go_on_after_it(tmp_path: Path):
    journal = tmp_path / "desk.db"
    with worker(journal, tmp_path):
        for _ in range(6):
            goes_on(tmp_path)
            paused(journal, tmp_path)
            asyncio.run(unpause(journal))
        goes_on(tmp_path)
    with worker(journal, tmp_path) as killed:  # the first one was killed in the middle of its calls
        goes_on(tmp_path)
        before, listed = asyncio.run(pause(journal, tmp_path))
        killed.kill()
        killed.wait()
        with worker(journal, tmp_path):
            until(lambda: rests(journal))
            assert set(begun(tmp_path)[before:]) <= listed
            asyncio.run(unpause(journal))
            goes_on(tmp_path)
    began = [line.rpartition(" ") for line in begun(tmp_path)]
    assert len(set(began)) == len(began), "no attempt was called twice"
