"""The limit of a tool holds over eight processes on one file, though some are killed in the middle of a call."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from holdfast import Holdfast
from tests.crash.permit_worker import APART_S, BURST, LIMITS, desk
from tests.crash.queue_worker import done
from tests.crash.stage import until
from tests.crash.test_submitted import lines, start

PROGRAM = "tests.crash.permit_worker"
PROCESSES = 8


async def submit(journal: Path, names: list[str]) -> None:
    async with Holdfast(str(journal), agents=[desk], queues=LIMITS, recover=False) as app:
        await asyncio.gather(*(app.submit(desk, name, queue="calls") for name in names))


async def permits(journal: Path) -> dict[str, int]:
    async with Holdfast(str(journal), agents=[desk], recover=False) as app:
        return {use.tool: len(use.permits) for use in await app.engine.journal.permits()}


def test_eight_processes_never_make_more_calls_at_once_though_some_are_killed_in_one(tmp_path: Path):
    """The locks of files are the witness: the system frees those of a killed process, and lends none twice."""
    journal = tmp_path / "desk.db"
    names = [f"{number:02}" for number in range(120)]
    stuck = ["stuck-1", "stuck-2"]
    asyncio.run(submit(journal, [*names[:20], *stuck, *names[20:]]))
    workers = [start(journal, tmp_path, PROGRAM) for _ in range(PROCESSES)]
    try:
        for name in stuck:  # its process is killed while it holds a permit, and another one takes its place
            until(lambda name=name: bool(lines(tmp_path / name)))
            pid = int(lines(tmp_path / name)[0])
            for victim in [worker for worker in workers if worker.pid == pid]:  # none: it held both, and is dead
                os.kill(pid, signal.SIGKILL)
                victim.wait()
                workers[workers.index(victim)] = start(journal, tmp_path, PROGRAM)
        until(lambda: len(set(done(tmp_path))) == len(names) + len(stuck) or bool(lines(tmp_path / "exceeded")))
        until(lambda: asyncio.run(permits(journal)).get("work") == 0)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert lines(tmp_path / "exceeded") == []
    assert {name for name, count in Counter(done(tmp_path)).items() if count != 1} == set()


def test_eight_processes_keep_one_rate(tmp_path: Path):
    journal = tmp_path / "desk.db"
    names = [f"paced-{number:03}" for number in range(150)]
    asyncio.run(submit(journal, names))
    workers = [start(journal, tmp_path, PROGRAM) for _ in range(PROCESSES)]
    try:
        until(lambda: len(done(tmp_path)) == len(names))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    began = sorted(map(float, lines(tmp_path / "began")))
    assert len(began) == len(names)
    # A call begins some time after its permit, and that time is not always the same.
    assert began[-1] - began[0] >= (len(names) - BURST) * APART_S - 1
