"""A missing environment of a framework: skipped without an index, and failed where the index has the framework."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.environment import ENVIRONMENTS
from tests.hosts import environments
from tests.hosts.environments import ROOT

FOREIGN = sorted(name for name in ENVIRONMENTS if name.startswith("host-") or name == "collector")


@pytest.mark.parametrize("name", FOREIGN)
def test_each_environment_names_what_is_sought_in_it(name: str):
    assert environments.sought_in(name)


@pytest.mark.parametrize(
    ("ci", "index_has", "ends"),
    [("", True, pytest.skip.Exception), ("true", False, pytest.skip.Exception), ("true", True, pytest.fail.Exception)],
)
def test_a_missing_environment(monkeypatch: pytest.MonkeyPatch, ci: str, index_has: bool, ends: type[BaseException]):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(environments, "_run", _answers(made=1, has=0 if index_has else 1))
    with pytest.raises(ends, match="host-crewai could not be made: no such package"):
        environments.python_of.__wrapped__("host-crewai")


def test_two_processes_make_an_environment_once(tmp_path: Path):
    for path in ("scripts/environment.py", "pyproject.toml"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text())
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    place = tmp_path / ENVIRONMENTS["audit"].directory / "bin"
    uv.write_text(f"#!/bin/sh\necho $1 >> log; sleep 0.3; mkdir -p {place}; ln -sf {sys.executable} {place}/python\n")
    uv.chmod(0o755)
    command = [sys.executable, "scripts/environment.py", "audit", "true"]
    environment = {**os.environ, "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    both = [subprocess.Popen(command, cwd=tmp_path, env=environment) for _ in range(2)]
    assert [one.wait(60) for one in both] == [0, 0]
    assert (tmp_path / "log").read_text().split() == ["venv", "pip"]


def test_an_index_that_is_silent_has_nothing(monkeypatch: pytest.MonkeyPatch):
    def silent(*command: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, timeout or 0)

    monkeypatch.setattr(environments, "_run", silent)
    assert not environments.in_index("crewai")


def _answers(*, made: int, has: int) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*command: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        status = has if "--dry-run" in command else made
        return subprocess.CompletedProcess(command, status, "", "no such package")

    return run
