"""A run and its children, whose processes are killed at every boundary of start, join, cancellation and undo.

The witness is a file outside the processes: each effect happened once, and none after a cancellation.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beforehand.engine.environment import CHILD_POINTS
from beforehand.model import records as r
from tests import forked
from tests.crash.desks import Case
from tests.crash.forks import ROOT
from tests.crash.stage import until
from tests.draws import pick

PROGRAM = "tests.crash.families"
TREE = ["trip-ann", "trip-ann~booking.1", "trip-ann~booking.2"]


def killed_at(begin: Callable[[], Case], what: str) -> Iterator[Case]:
    """As `killed`: at the points of children and at every fourth of the others; in `make deep` at all of them.

    Whether a notice finds its receiver driven is a race, so a point may not be reached again.
    """
    case = begin()
    before = case.kept()
    assert case.live(what) == 0
    points = case.points()
    few = [point for at, point in enumerate(points) if at % 4 == 0 or point[0] in CHILD_POINTS]
    reached = set[str]()
    for point, number in pick(points, few):
        case.put_back(before)
        if case.live(what, point, number) == -signal.SIGKILL:
            print(f"killed at {point} {number}")  # a failure shows last where
            reached.add(point)
            yield case
    assert len(reached) > len(few) // 5, reached


@pytest.mark.deeper
def test_a_kill_at_every_boundary_of_start_and_join_loses_and_doubles_nothing(fresh: Callable[[], Case]):
    for case in killed_at(fresh, "run ann"):
        assert case.says("run ann") == "ann car, ann room"
        assert sorted(case.happened()) == ["ann car", "ann room"]
        assert sorted(case.says("list")) == TREE
        kinds = Counter(type(one) for one in case.records("trip-ann"))
        assert (kinds[r.ChildStarted], kinds[r.ChildJoined], kinds[r.RunCompleted]) == (2, 2, 1)


@pytest.mark.deeper
def test_a_kill_at_every_boundary_of_a_cancellation_leaves_no_child_behind(fresh: Callable[[], Case]):
    def waiting() -> Case:
        case = fresh()
        assert case.says("run asked").startswith("RunSuspended")
        return case

    between = 0
    for case in killed_at(waiting, "cancel asked"):
        cancelled = any(isinstance(one, r.CommandApplied) for one in case.records("trip-asked"))
        lives = not all(" cancelled" in state for run, state in case.says("list").items() if "~" in run)
        between += cancelled and lives
        # Where the parent was cancelled, no person is asked again: any worker brings it to the children.
        found = case.says("work" if cancelled else "cancel asked")
        assert all(state.startswith("stopped cancelled") for state in found.values()), found
        assert len(found) == 3
        assert case.happened() == []
    assert between > 0


@pytest.mark.deeper
def test_a_kill_at_every_boundary_of_an_undo_forgets_no_child_and_compensates_once(fresh: Callable[[], Case]):
    def made() -> Case:
        case = fresh()
        assert case.says("run ann") == "ann car, ann room"
        return case

    between = 0
    for case in killed_at(made, "undo ann"):
        ordered = any(isinstance(one, r.CommandApplied) and one.command == "undo" for one in case.records("trip-ann"))
        between += ordered and any("completed" in state for state in case.says("list").values())
        # Where the order is on record, a worker brings it to the children; a person need not repeat it.
        found = case.says("work" if ordered else "undo ann")
        assert all(state == "undone undone by bea" for state in found.values()), found
        assert len(found) == 3
        assert sorted(case.happened()) == ["ann car", "ann car given back", "ann room", "ann room given back"]
    assert between > 0


def test_two_processes_that_die_and_come_back_drive_one_tree(tmp_path: Path):
    """A tree of thirty runs over one file; a worker is killed again and again, and another takes its place."""
    journal = tmp_path / "desk.db"
    workers = [start(journal, tmp_path) for _ in range(2)]
    effects = tmp_path / "effects"
    try:
        for number in (3, 9, 16):
            until(lambda number=number: len(lines(effects)) >= number)
            os.kill(workers[0].pid, signal.SIGKILL)
            workers.pop(0).wait()
            workers.append(start(journal, tmp_path))
        until((tmp_path / "result").exists)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert (tmp_path / "result").read_text() == " ".join(f"part-{number:02}" for number in range(24))
    named = Counter(line.partition(" bh-")[0] for line in lines(effects))
    assert named == dict.fromkeys((f"part-{number:02}" for number in range(24)), 1)


def start(journal: Path, place: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "EFFECTS": str(place / "effects")}
    return forked.start(["-m", "tests.crash.family_worker", str(journal), str(place)], cwd=ROOT, env=environment)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
