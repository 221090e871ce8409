"""A limit of calls holds over many processes on one file, though some are killed in the middle of a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from beforehand import Beforehand
from beforehand.journal.cells import limit_uses
from tests import forked
from tests.crash.permit_worker import APART_S, BURST, LIMITS, desk
from tests.crash.queue_worker import done
from tests.crash.stage import until
from tests.crash.test_submitted import ROOT, lines

PROGRAM = "tests.crash.permit_worker"
PROCESSES = 20


async def submit(journal: Path, names: list[str]) -> None:
    async with Beforehand(str(journal), agents=[desk], queues=LIMITS, recover=False) as app:
        await asyncio.gather(*(app.submit(desk, name, queue="calls") for name in names))


async def permits(journal: Path) -> dict[str, int]:
    async with Beforehand(str(journal), agents=[desk], recover=False) as app:
        return {use.name: len(use.permits) for use in await limit_uses(app.engine.journal)}


@contextlib.contextmanager
def workers(journal: Path, place: Path) -> Generator[None]:
    command = ["-m", PROGRAM, str(journal), str(place), str(PROCESSES)]
    process = forked.start(command, cwd=ROOT)
    try:
        yield
    finally:
        process.kill()  # its workers end with it
        process.wait()


@pytest.mark.deep
def test_twenty_processes_never_make_more_calls_at_once_though_some_are_killed_in_one(tmp_path: Path):
    """The locks of files are the witness: the system frees those of a killed process, and lends none twice."""
    journal = tmp_path / "desk.db"
    names = [f"{number:02}" for number in range(120)]
    stuck = ["stuck-1", "stuck-2"]
    asyncio.run(submit(journal, [*names[:20], *stuck, *names[20:]]))
    with workers(journal, tmp_path):
        for name in stuck:  # its process is killed while it holds a permit, and another one takes its place
            until(lambda name=name: bool(lines(tmp_path / name)))
            with contextlib.suppress(ProcessLookupError):  # it held both, and is dead
                os.kill(int(lines(tmp_path / name)[0]), signal.SIGKILL)
        until(lambda: len(set(done(tmp_path))) == len(names) + len(stuck) or bool(lines(tmp_path / "exceeded")))
        until(lambda: asyncio.run(permits(journal)).get("service lender") == 0)
    assert lines(tmp_path / "exceeded") == []
    assert {name for name, count in Counter(done(tmp_path)).items() if count != 1} == set()


def test_twenty_processes_keep_one_rate(tmp_path: Path):
    journal = tmp_path / "desk.db"
    names = [f"paced-{number:03}" for number in range(150)]
    asyncio.run(submit(journal, names))
    with workers(journal, tmp_path):
        until(lambda: len(done(tmp_path)) == len(names))
    began = sorted(map(float, lines(tmp_path / "began")))
    assert len(began) == len(names)
    # A call begins some time after its permit, and that time is not always the same.
    assert began[-1] - began[0] >= (len(names) - BURST) * APART_S - 1


def test_twenty_processes_never_ask_a_model_more_often_at_once_though_one_is_killed_in_a_call(tmp_path: Path):
    journal = tmp_path / "desk.db"
    names = ["asked-stuck", *(f"asked-{number:02}" for number in range(60))]
    asyncio.run(submit(journal, names))
    with workers(journal, tmp_path):
        until(lambda: bool(lines(tmp_path / "asked-stuck")))
        os.kill(int(lines(tmp_path / "asked-stuck")[0]), signal.SIGKILL)
        until(lambda: set(lines(tmp_path / "answered")) == set(names) or bool(lines(tmp_path / "exceeded")))
        until(lambda: asyncio.run(permits(journal)).get("model lent") == 0)
    assert lines(tmp_path / "exceeded") == []
