"""Environments of frameworks: made once and before the tests, skipped without an index, a mistake in CI where it has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import environment
from scripts.environment import ENVIRONMENTS, PREPARED
from tests.hosts import environments

ROOT = Path(__file__).parents[2]
FOREIGN = sorted({name for names in PREPARED.values() for name in names} - {"dev"})


@pytest.mark.parametrize("name", FOREIGN)
def test_each_environment_names_what_is_sought_in_it(name: str):
    assert environment.sought_in(ENVIRONMENTS[name])


def test_tests_look_only_for_environments_that_are_prepared():
    assert set(environments.ENVIRONMENT_OF.values()) <= set(PREPARED["test"]) <= set(PREPARED["deep"])


@pytest.mark.parametrize(
    ("ci", "index_has", "goes_on"), [("", True, True), ("true", False, True), ("true", True, False)]
)
def test_a_framework_that_cannot_be_installed_is_left_out_and_ci_fails_where_the_index_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, index_has: bool, goes_on: bool
):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(environment, "make", lambda name: name != "host-crewai")
    monkeypatch.setattr(environment, "in_index", lambda requirements: index_has)
    assert environment.prepare(PREPARED["test"]) == goes_on
    assert "'host-crewai'" in capsys.readouterr().err


def test_nothing_is_tested_without_the_environment_for_development(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "make", lambda name: name != "dev")
    assert not environment.prepare(PREPARED["test"])


def test_tests_of_a_missing_environment_are_skipped_and_it_is_not_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "ROOT", Path("/nowhere"))
    with pytest.raises(pytest.skip.Exception, match="'host-crewai' is missing"):
        environments.python_of.__wrapped__("host-crewai")


def test_an_environment_of_other_distributions_is_made_anew(tmp_path: Path):
    command, variables = _with_a_stand_in_for_uv(tmp_path)
    place = tmp_path / ENVIRONMENTS["audit"].directory
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(sys.executable)
    (place / ".other-audit").touch()
    for made in (["venv", "pip"], ["venv", "pip", "pip"]):  # the second time it is ours, and out of date
        assert subprocess.run(command, cwd=tmp_path, env=variables, check=False).returncode == 0
        assert (tmp_path / "log").read_text().split() == made
        (place / ".beforehand-audit").write_text("another digest")


def test_two_processes_make_an_environment_once(tmp_path: Path):
    command, variables = _with_a_stand_in_for_uv(tmp_path)
    both = [subprocess.Popen(command, cwd=tmp_path, env=variables) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (tmp_path / "log").read_text().split() == ["venv", "pip"]


def _with_a_stand_in_for_uv(tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    for path in ("scripts/environment.py", "pyproject.toml"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text())
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    place = tmp_path / ENVIRONMENTS["audit"].directory / "bin"
    uv.write_text(f"#!/bin/sh\necho $1 >> log; sleep 0.3; mkdir -p {place}; ln -sf {sys.executable} {place}/python\n")
    uv.chmod(0o755)
    command = [sys.executable, "scripts/environment.py", "audit", "true"]
    return command, {**os.environ, "PATH": f"{uv.parent}:{os.environ['PATH']}"}


def test_an_index_that_is_silent_has_nothing(monkeypatch: pytest.MonkeyPatch):
    def silent(*command: str, **_: object) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, 0)

    monkeypatch.setattr(environment, "uv_command", lambda: None)
    monkeypatch.setattr(environment.subprocess, "run", silent)
    assert not environment.in_index(("crewai",))


def test_where_pip_has_an_index_of_its_own_uv_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    """uv does not read the settings of pip, and would ask the public index."""
    monkeypatch.setattr(environment, "_OURS", [])
    monkeypatch.setattr(environment.shutil, "which", lambda _: None)
    monkeypatch.setattr(environment, "make", lambda name: name == "uv")
    index = "index-" + "url='a'\n"
    for said, installs in ((f"global.{index}", False), (f"global.extra-{index}", True)):
        environment._OURS.clear()
        monkeypatch.setattr(
            environment.subprocess, "run", lambda *_, said=said, **__: subprocess.CompletedProcess((), 0, said)
        )
        assert bool(environment.uv_command()) == installs
