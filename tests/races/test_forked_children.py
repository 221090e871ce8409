"""Forked children: the death of the parent frees the journal, and a child that uses an inherited app is refused."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand.journal.sqlite.lock import FileLock

PROGRAM = '''
import asyncio, multiprocessing, os, sys, time
from beforehand import Beforehand, Run, agent, tool
from beforehand.errors import BeforehandError

fork = multiprocessing.get_context("fork")

@tool
async def note(text: str) -> str:
    with open("world.txt", "a") as world:
        world.write(text + "\\n")
    return text

@agent(run_id="r-{name}", tools=[note])
async def desk(run: Run, name: str) -> str:
    return await note(name)

def says(what):
    os.write(1, f"{what}\\n".encode())  # whole lines: the parent and its children share the pipe

def tried(what):
    """What a use of an inherited app comes to."""
    try:
        says(f"answered {what()!r}")
    except BeforehandError as error:
        says(f"{type(error).__name__}: {error}")

def lives():
    says(f"child {os.getpid()}")
    time.sleep(600)  # until the test kills it: it is the child that outlives its parent

def of_its_own():
    with Beforehand("desk.db", agents=[desk]) as own:
        says(own.run(desk, "child"))
'''
VERIFY = "from beforehand.cli.main import main; main()"
HOLDS = (
    PROGRAM
    + """
async def main():
    async with Beforehand("desk.db", agents=[desk]) as app:
        await app.run(desk, "before")
        journal = app.engine.journal

        def locks():  # as a commit does: its mutex keeps the thread behind the journal from releasing the lock
            assert journal._committer.mutex.acquire(timeout=30)
            assert journal._store._lock.take(30)

        if sys.argv[1] == "locked":
            locks()
        with fork.Pool(2) as pool:
            pool.apply_async(lives)
            if sys.argv[1] == "free":
                locks()
            says("holds the lock")
            time.sleep(600)  # until the test kills it

asyncio.run(main())
"""
)
USES = (
    PROGRAM
    + """
def in_a_child(body, *arguments):
    child = fork.Process(target=body, args=arguments)
    child.start()
    child.join(60)
    says(f"ended {child.exitcode}")

def awaited(make):
    async def main():
        return await make()
    return asyncio.run(main())

with Beforehand("desk.db", agents=[desk]) as app:
    says(app.run(desk, "parent"))
    uses = {
        "run": lambda: app.run(desk, "x"),
        "resume": lambda: app.resume("r-parent"),
        "service": lambda: app.wait(app.service.runs()),
        "map": lambda: [done for done in app.map(desk, ["x"])],
        "async run": lambda: awaited(lambda: app._app.run(desk, "x")),
        "journal": lambda: awaited(lambda: app._app._journal.read("r-parent")),
        "reopened journal": lambda: awaited(lambda: app._app._journal.open()),
    }
    for name, use in uses.items():
        in_a_child(tried, use)
    in_a_child(of_its_own)
    says(app.run(desk, "afterwards"))
    if (child := os.fork()) == 0:
        sys.exit(0)  # leaves the block, and lets the interpreter end as usual
    says(f"left with {os.waitpid(child, 0)[1]}")
    says(app.run(desk, "last"))
says("closed")
"""
)


@pytest.mark.parametrize("moment", ["free", "locked"])
def test_the_death_of_a_parent_frees_the_journal_though_its_children_live(tmp_path: Path, moment: str):
    parent = subprocess.Popen(
        [sys.executable, "-c", HOLDS, moment], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    try:
        said = {parent.stdout.readline().strip() for _ in range(2)}
        child = next((int(line.split()[1]) for line in said if line.startswith("child")), 0)
        assert child, f"the parent printed {said}, and ended with {parent.poll()}"
        assert "holds the lock" in said
        lock = FileLock(tmp_path / "desk.db-lock")
        lock.open()
        assert not lock.try_take(), "the parent holds it"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(60)
        os.kill(child, 0)  # it lives
        assert lock.take(30), "a second child may be about to close what it inherited"
        lock.release()
        lock.close()
    finally:
        os.killpg(parent.pid, signal.SIGKILL)  # the child too
        parent.wait(60)
        parent.stdout.close()


def test_a_child_that_uses_an_inherited_app_is_told_to_open_its_own(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, "-c", USES], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert (lines[0], lines[-1]) == ("parent", "closed")
    refused = [line for line in lines if "forked" in line]
    assert len(refused) == 7, lines
    assert all("in the child" in line for line in refused), refused
    assert lines.count("ended 0") == 8
    assert lines[-5:] == ["ended 0", "afterwards", "left with 0", "last", "closed"]
    assert "child" in lines, "one of its own works, while the parent has the journal open"
    assert (tmp_path / "world.txt").read_text().split() == ["parent", "child", "afterwards", "last"]
    checked = subprocess.run(
        [sys.executable, "-c", VERIFY, "verify", "--journal", "desk.db"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "All chains are intact" in checked.stdout, checked
