"""A process that is killed while it submits or starts runs loses none, starts none twice, and keeps no slot."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from beforehand import Beforehand
from tests import forked
from tests.crash.desks import Case, killed
from tests.crash.forks import ROOT
from tests.crash.queue_worker import LIMITS, desk, done
from tests.crash.stage import until

PROGRAM = "tests.crash.submitted"
BOTH = ["bill-ann", "bill-bea"]


def completed(case: Case) -> bool:
    return {run: line[0] for run, line in case.says("listed").items()} == dict.fromkeys(BOTH, "completed")


@pytest.mark.deeper
def test_a_submission_that_was_killed_is_given_again_and_loses_nothing(fresh: Callable[[], Case]):
    for case in killed(fresh, "submit"):
        before = case.says("listed")
        assert all(line[0] == "queued" and line[1] == 1 for line in before.values())
        assert case.says("submit") == BOTH
        assert {run: line for run, line in case.says("listed").items() if run in before} == before
        assert case.says("work") == []
        assert completed(case)
        assert sorted(case.happened()) == ["ann", "bea"]


@pytest.mark.deeper
def test_a_start_that_was_killed_is_made_again_and_no_effect_is_repeated(fresh: Callable[[], Case]):
    def submitted() -> Case:
        case = fresh()
        case.says("submit")
        return case

    for case in killed(submitted, "work"):
        assert case.says("work") == []  # the limit of one and the key are free again, for their process is dead
        assert completed(case)
        assert sorted(case.happened()) == ["ann", "bea"]


def test_five_processes_never_exceed_a_limit_though_some_are_killed(tmp_path: Path):
    """The locks of files are the witness: the system frees those of a killed process, and lends none twice."""
    journal = tmp_path / "desk.db"
    names = [f"{number:02}" for number in range(40)]

    async def submit() -> None:
        async with Beforehand(str(journal), agents=[desk], queues=LIMITS, recover=False) as app:
            await asyncio.gather(
                *(
                    app.submit(
                        desk, {"name": name, "order": str(int(name) // 8)}, queue="mail", tenant=f"t{int(name) % 3}"
                    )
                    for name in names
                )
            )

    asyncio.run(submit())
    workers = [start(journal, tmp_path) for _ in range(5)]
    try:
        for number in (5, 15):  # two of them die at work, and others take their place
            until(lambda number=number: len(done(tmp_path)) >= number)
            os.kill(workers[0].pid, signal.SIGKILL)
            workers.pop(0).wait()
            workers.append(start(journal, tmp_path))
        until(lambda: len(set(done(tmp_path))) == len(names) or bool(lines(tmp_path / "exceeded")))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert lines(tmp_path / "exceeded") == []
    assert {name for name, count in Counter(done(tmp_path)).items() if count != 1} == set()
    with (tmp_path / "slot-0").open() as file:  # the witness itself: a lock that is free can be taken
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def start(journal: Path, place: Path, program: str = "tests.crash.queue_worker") -> subprocess.Popen[str]:
    return forked.start(["-m", program, str(journal), str(place)], cwd=ROOT)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
