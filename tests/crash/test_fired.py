"""A process that is killed while it fires or steers a schedule leaves each moment with one run, or none yet."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from beforehand import Beforehand
from beforehand.control.schedules import declare_schedules
from beforehand.inspect.reader import read_schedules
from beforehand.journal.backend_rules import FOREVER_MS
from beforehand.journal.cells import last_firing
from beforehand.journal.host import uptime_ms
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.queues.firing_times import Schedule, moments
from beforehand.queues.schedules import run_id_of
from tests import forked
from tests.crash.desks import Case, killed
from tests.crash.fired import FIRED, SCHEDULES
from tests.crash.firing_worker import desk, journal_at
from tests.crash.forks import ROOT
from tests.crash.queue_worker import done
from tests.crash.stage import until

PROGRAM = "tests.crash.fired"
EVERY = {
    "n": Schedule("desk", "n", every_ms=1_000, missed="all"),
    "m": Schedule("desk", "m", cron="* * * * *", missed="all"),
}


def declared(fresh: Callable[[], Case]) -> Callable[[], Case]:
    def begin() -> Case:
        case = fresh()
        assert case.says("declare") == 1
        return case

    return begin


@pytest.mark.deeper
def test_a_firing_that_was_killed_is_made_again_and_each_moment_has_one_run(fresh: Callable[[], Case]):
    for case in killed(declared(fresh), "fire"):
        assert case.says("fire") == FIRED
        assert case.says("fire") == FIRED
        assert case.says("work") == {"completed": len(FIRED)}
        assert sorted(case.happened()) == FIRED


@pytest.mark.deeper
def test_a_declaration_that_was_killed_is_made_again_once(fresh: Callable[[], Case]):
    for case in killed(fresh, "declare"):
        assert case.says("declared") in ([], sorted(SCHEDULES))
        assert case.says("declare") == 1
        assert case.says("declared") == sorted(SCHEDULES)


@pytest.mark.deeper
def test_a_pause_that_was_killed_holds_or_is_given_again(fresh: Callable[[], Case]):
    for case in killed(declared(fresh), "pause"):
        assert case.says("pause") == [True, 2]
        assert case.says("fire") == FIRED[3:]
        assert case.says("resume") == [False, 3]
        assert case.says("fire") == FIRED[2:]  # it was resumed at 17:00, and one moment came after it


def test_of_processes_that_are_killed_each_moment_is_fired_by_one(tmp_path: Path):
    """The files that runs make are the witness: one for each moment, however many workers fire and die."""
    journal, begun = tmp_path / "desk.db", uptime_ms()

    async def declare() -> None:
        async with Beforehand(journal_at(str(journal), begun), agents=[desk], recover=False) as app:
            await declare_schedules(app.engine, EVERY, app.agents)

    asyncio.run(declare())
    workers = [start(journal, tmp_path, begun, ahead) for ahead in (0, 30_000)]
    try:
        for count in (10, 20, 30, 40, 50, 60):
            until(lambda count=count: len(done(tmp_path)) >= count)
            os.kill(workers[0].pid, signal.SIGKILL)
            workers.pop(0).wait()
            workers.append(start(journal, tmp_path, begun, (0, 30_000, -20_000)[count % 3]))
        until(lambda: "m@2027-01-16T00:01:00Z" in done(tmp_path))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    effects = done(tmp_path)
    assert {name for name, count in Counter(effects).items() if count != 1} == set()
    runs, expected = asyncio.run(stored(journal))
    assert runs == expected, "none is missing between the declaration and the last one"
    assert set(effects) <= set(runs)


def start(journal: Path, place: Path, begun: int, ahead_ms: int) -> subprocess.Popen[str]:
    words = [str(journal), str(place), str(begun), str(ahead_ms)]
    return forked.start(["-m", "tests.crash.firing_worker", *words], cwd=ROOT)


async def stored(path: Path) -> tuple[list[str], list[str]]:
    """The runs, and those that the moments from the declaration to the last firing make."""
    journal, expected = SqliteJournal(path), list[str]()
    await journal.open()
    try:
        for name, known in (await read_schedules(journal)).schedules.items():
            last = await last_firing(journal, name, FOREVER_MS)
            assert last is not None
            for moment in moments(known.schedule, known.since_ms):
                if moment > last.moment_ms:
                    break
                expected.append(run_id_of(name, moment))
        return [row.run for row in await journal.runs(limit=100_000)], sorted(expected)
    finally:
        await journal.close()
