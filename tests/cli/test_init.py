"""`holdfast init`: the project that it writes runs as it is, its test passes, and no file is overwritten."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.cli.init import HOSTS
from tests.cli.lab import Lab

TICKET = '{"id": "17", "text": "My order A-17 came late."}'


@pytest.fixture
def project(holdfast: Lab) -> Lab:
    said = holdfast("init", "refunds")
    assert said.status == 0
    assert f"holdfast run desk.py:desk '{TICKET}'" in said.out
    return Lab(holdfast.directory / "refunds", holdfast.environment)


def test_it_runs_without_a_key(project: Lab):
    ran = project.apart("run", "desk.py:desk", TICKET)
    assert (ran.status, ran.out) == (0, '"I gave you 12 euros back."\n'), ran.err
    assert "turn#2/call_2/refund#1" in project.apart("show", "ticket-17").out


@pytest.mark.parametrize("host", HOSTS)
def test_its_test_passes_and_fails_without_the_key_of_the_refund(holdfast: Lab, host: str):
    assert holdfast("init", "desk", "--host", host).status == 0
    place = holdfast.directory / "desk"

    def tested() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=native"]
        return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=False)

    passed = tested()
    assert passed.returncode == 0, passed.stdout
    desk = place / "desk.py"
    desk.write_text(desk.read_text().replace(", key=current_operation().key", ""))
    assert tested().returncode == 1


@pytest.mark.parametrize("host", HOSTS)
def test_every_kind_of_project_is_whole_and_tidy(holdfast: Lab, host: str):
    said = holdfast("init", "my.desk", "--host", host, "--json")
    place = holdfast.directory / "my.desk"
    assert said.status == 0
    assert {Path(one).name for one in said.json["files"]} == {one.name for one in place.iterdir()}
    settings = tomllib.loads((place / "pyproject.toml").read_text())
    assert (settings["project"]["name"], settings["tool"]["holdfast"]["agents"]) == ("my.desk", ["desk.py:desk"])
    assert (place / "README.md").read_text().startswith("# my.desk\n")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,I,UP", "--line-length", "120", "."]
    checked = subprocess.run(ruff, cwd=place, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_no_file_is_overwritten_and_nothing_else_is_written_then(holdfast: Lab):
    holdfast.write("README.md", "mine")
    said = holdfast("init", ".")
    assert said.status == 2
    assert "README.md, desk.py would be overwritten" in said.err
    assert (holdfast.directory / "README.md").read_text() == "mine"
    assert not (holdfast.directory / "pyproject.toml").exists()


def test_a_directory_that_names_no_project_is_refused(holdfast: Lab):
    said = holdfast("init", "a b")
    assert (said.status, "'a b' cannot name a project" in said.err) == (2, True)
    assert not (holdfast.directory / "a b").exists()


def test_a_directory_that_cannot_be_made_is_refused(holdfast: Lab):
    holdfast.write("file", "")
    said = holdfast("init", "file/desk")
    assert (said.status, "file/desk cannot be written" in said.err) == (2, True)
