"""The deployment, in a real repository, with a process that dies in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand import Beforehand
from examples.deploy import deploy, git, new_repository

DIES = """
import os, sys
from pathlib import Path
import examples.deploy as here
from beforehand import Beforehand
git, point = here.git, sys.argv[3]
def dying(repository, *arguments):
    if point == f"before {arguments[0]}":
        os.kill(os.getpid(), 9)
    done = git(repository, *arguments)
    if point == f"after {arguments[0]}":
        os.kill(os.getpid(), 9)
    return done
here.git = dying
with Beforehand(sys.argv[1], agents=[here.deploy]) as app:
    app.run(here.deploy, {"repository": sys.argv[2], "version": "3"})
"""


def subjects(repository: str) -> list[str]:
    return [line.split()[0] for line in git(repository, "log", "--format=%s").splitlines()]


def test_what_does_not_run_is_taken_back_by_a_new_commit(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "service")
    with Beforehand(tmp_path / "deploy.db", agents=[deploy]) as app:
        assert app.run(deploy, {"repository": repository, "version": "2"}).startswith("released")
        assert app.run(deploy, {"repository": repository, "version": "3"}).startswith("taken back")
    assert subjects(repository) == ["Revert", "Release", "Release", "Release"]
    assert Path(repository, "VERSION").read_text() == "2\n"


@pytest.mark.parametrize("point", ["before commit", "after commit", "before revert", "after rev-parse"])
def test_a_kill_in_the_middle_leaves_one_release_and_one_revert(tmp_path: Path, point: str) -> None:
    repository, journal = new_repository(tmp_path / "service"), tmp_path / "deploy.db"
    died = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", DIES, str(journal), repository, point],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert died.returncode == -9
    with Beforehand(journal, agents=[deploy]) as app:
        assert app.run(deploy, {"repository": repository, "version": "3"}).startswith("taken back")
    assert subjects(repository) == ["Revert", "Release", "Release"]
    assert Path(repository, "VERSION").read_text() == "1\n"
