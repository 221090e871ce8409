"""A missing environment of a framework: skipped without an index, and failed where the index has the framework."""

import subprocess
from collections.abc import Callable

import pytest

from scripts.environment import ENVIRONMENTS
from tests.hosts import environments

HOSTED = sorted(name for name in ENVIRONMENTS if name.startswith("host-"))


@pytest.mark.parametrize("name", HOSTED)
def test_each_environment_names_its_framework(name: str):
    assert environments.frameworks_of(name)


@pytest.mark.parametrize(
    ("ci", "index_has", "ends"),
    [("", True, pytest.skip.Exception), ("true", False, pytest.skip.Exception), ("true", True, pytest.fail.Exception)],
)
def test_a_missing_environment(monkeypatch: pytest.MonkeyPatch, ci: str, index_has: bool, ends: type[BaseException]):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(environments, "_run", _answers(made=1, has=0 if index_has else 1))
    with pytest.raises(ends, match="host-crewai could not be made: no such package"):
        environments.python_of.__wrapped__("host-crewai")


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
