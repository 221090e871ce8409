"""`beforehand init`: the project that it writes runs as it is, its test passes, and no file is overwritten."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from beforehand.cli.init import HOSTS
from tests.cli.lab import Lab
from tests.hosts.environments import ENVIRONMENT_OF, python_of

WITHOUT_A_NETWORK = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
TICKET = '{"id": "17", "text": "My order A-17 came late."}'


@pytest.fixture
def project(beforehand: Lab) -> Lab:
    said = beforehand("init", "refunds")
    assert said.status == 0
    assert f"beforehand run desk.py:desk '{TICKET}'" in said.out
    return Lab(beforehand.directory / "refunds", beforehand.environment)


def test_it_runs_without_a_key(project: Lab):
    ran = project.apart("run", "desk.py:desk", TICKET)
    assert (ran.status, ran.out) == (0, '"I gave you 12 euros back."\n'), ran.err
    assert "turn#2/call_2/refund#1" in project.apart("show", "ticket-17").out
    subprocess.run(["git", "init", "-q"], cwd=project.directory, check=True)
    shown = subprocess.run(
        ["git", "status", "--short", "-uall"], cwd=project.directory, check=True, capture_output=True
    )
    assert list(project.directory.glob("*.anchor")) != []
    assert b".db" not in shown.stdout, "the journal is no source"


@pytest.mark.parametrize(
    "host", [pytest.param(host, marks=() if host == "loop" else pytest.mark.deep) for host in HOSTS]
)
def test_its_test_passes_and_fails_without_the_key_of_the_refund(beforehand: Lab, host: str):
    python = python_of(ENVIRONMENT_OF.get(host.replace("-", "_"), "hosts"))
    assert beforehand("init", "desk", "--host", host).status == 0
    place = beforehand.directory / "desk"

    def ended(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-m", *words],
            cwd=place,
            env={**os.environ, **WITHOUT_A_NETWORK},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    tested = ("pytest", "-q", "-p", "no:cacheprovider", "--tb=native")
    passed = ended(*tested)
    assert passed.returncode == 0, passed.stdout
    ran = ended("beforehand", "run", "desk.py:desk", TICKET)
    assert (ran.returncode, ran.stdout) == (0, '"I gave you 12 euros back."\n'), ran.stderr
    desk = place / "desk.py"
    desk.write_text(desk.read_text().replace(", key=current_operation().key", ""))
    assert "money_is_given_back_once - AssertionError" in ended(*tested).stdout


@pytest.mark.parametrize("host", HOSTS)
def test_every_kind_of_project_is_whole_and_tidy(beforehand: Lab, host: str):
    said = beforehand("init", "my.desk", "--host", host, "--json")
    place = beforehand.directory / "my.desk"
    assert said.status == 0
    assert {Path(one).name for one in said.json["files"]} == {one.name for one in place.iterdir()}
    settings = tomllib.loads((place / "pyproject.toml").read_text())
    assert (settings["project"]["name"], settings["tool"]["beforehand"]["agents"]) == ("my.desk", ["desk.py:desk"])
    assert (place / "README.md").read_text().startswith("# my.desk\n")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,I,UP", "--line-length", "120", "."]
    checked = subprocess.run(ruff, cwd=place, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert "{{" not in "".join(one.read_text() for one in place.iterdir() if one.is_file())


def test_google_adk_has_the_short_name_that_people_use(beforehand: Lab):
    assert beforehand("init", "desk", "--host", "adk").status == 0
    assert "google-adk" in (beforehand.directory / "desk" / "pyproject.toml").read_text()


def test_no_file_is_overwritten_and_nothing_else_is_written_then(beforehand: Lab):
    beforehand.write("README.md", "mine")
    said = beforehand("init", ".")
    assert said.status == 2
    assert "README.md, desk.py would be overwritten" in said.err
    assert (beforehand.directory / "README.md").read_text() == "mine"
    assert not (beforehand.directory / "pyproject.toml").exists()


def test_a_directory_that_names_no_project_is_refused(beforehand: Lab):
    said = beforehand("init", "a b")
    assert (said.status, "'a b' cannot name a project" in said.err) == (2, True)
    assert not (beforehand.directory / "a b").exists()


def test_a_directory_that_cannot_be_made_is_refused(beforehand: Lab):
    beforehand.write("file", "")
    said = beforehand("init", "file/desk")
    assert (said.status, "file/desk cannot be written" in said.err) == (2, True)
