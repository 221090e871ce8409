"""Which journal is meant."""

import os
from pathlib import Path

import pytest

from tests.cli.lab import Lab


def journals(beforehand: Lab) -> list[str]:
    return sorted(path.relative_to(beforehand.directory).as_posix() for path in beforehand.directory.rglob("*.db"))


def test_the_option_comes_first_then_the_environment_then_the_project_then_here(
    beforehand: Lab, monkeypatch: pytest.MonkeyPatch
):
    inner = beforehand.directory / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    target, given = "../desk.py:desk", beforehand.ticket("1")
    assert beforehand("run", target, given).status == 0
    assert journals(beforehand) == ["inner/beforehand.db"]
    beforehand.write("pyproject.toml", '[tool.beforehand]\njournal = "project.db"\n')
    assert beforehand("run", target, given).status == 0
    assert journals(beforehand) == ["inner/beforehand.db", "project.db"]
    assert beforehand("run", target, given, BEFOREHAND_JOURNAL="environment.db").status == 0
    assert "inner/environment.db" in journals(beforehand)
    assert beforehand("run", target, given, "--journal", "option.db", BEFOREHAND_JOURNAL="environment.db").status == 0
    assert "inner/option.db" in journals(beforehand)


def test_the_nearest_project_counts(beforehand: Lab, monkeypatch: pytest.MonkeyPatch):
    inner = beforehand.directory / "inner"
    inner.mkdir()
    beforehand.write("pyproject.toml", '[tool.beforehand]\njournal = "outer.db"\n')
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    monkeypatch.chdir(inner)
    assert beforehand("run", "../desk.py:desk", beforehand.ticket("1")).status == 0
    assert journals(beforehand) == ["inner/beforehand.db"]


def test_an_address_of_sqlite_is_a_path(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1"), "--journal", "sqlite://here.db").status == 0
    assert journals(beforehand) == ["here.db"]


@pytest.mark.parametrize(
    ("journal", "status", "problem"),
    [
        ("postgresql://somewhere/desk", 2, "no back end opens the journal 'postgresql://somewhere/desk'"),
        ("sqlite://", 2, "the journal has no name"),
        ("memory:", 2, "ends with the process"),
        (":memory:", 2, "is not a file"),
        ("nowhere/desk.db", 1, "the directory"),
        (".", 1, "is a directory"),
    ],
)
def test_a_journal_that_cannot_be(beforehand: Lab, journal: str, status: int, problem: str):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1"), "--journal", journal)
    assert said.status == status
    assert problem in said.err
    assert not beforehand.world


@pytest.mark.parametrize(
    ("project", "problem"),
    [
        ("[tool.beforehand]\njournal = 3\n", "journal is 3, which is not a string"),
        ("[tool.beforehand\n", "pyproject.toml cannot be read"),
        ('[tool.beforehand]\nagents = "desk.py:desk"\n', "agents is not a list"),
    ],
)
def test_a_project_file_that_is_wrong(beforehand: Lab, project: str, problem: str):
    beforehand.write("pyproject.toml", project)
    said = beforehand("worker", "--once") if "agents" in project else beforehand("ps")
    assert said.status == 2
    assert problem in said.err


FOREIGN = 1234


@pytest.fixture
def shared(beforehand: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A directory below one whose pyproject.toml names code that leaves a mark when it is imported."""
    beforehand.write("evil.py", "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    beforehand.write("pyproject.toml", '[tool.beforehand]\nagents = ["evil.py:desk"]\njournal = "theirs.db"\n')
    inner = beforehand.directory / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    return beforehand


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file belong to another user; without the right to do so, be another user."""
    if os.geteuid() == 0:
        os.chown(path, FOREIGN, FOREIGN, follow_symlinks=False)
    else:
        me = os.getuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)


@pytest.mark.parametrize("given", ["pyproject.toml", "."])
@pytest.mark.parametrize("command", [["tools"], ["worker"], ["ps"], ["resume", "r-1"], ["policy", "show"]])
def test_settings_of_another_user_run_no_code(
    shared: Lab, monkeypatch: pytest.MonkeyPatch, given: str, command: list[str]
):
    give_away(shared.directory / given, monkeypatch)
    said = shared(*command)
    assert said.status == 2
    assert "belongs to uid 1234, and you are" in " ".join(said.err.split()) or os.geteuid() != 0
    assert "export BEFOREHAND_TRUSTED_PROJECTS=" in said.err
    assert not (shared.directory / "ran").exists()


def test_they_are_read_once_their_directory_is_trusted_by_name(shared: Lab, monkeypatch: pytest.MonkeyPatch):
    give_away(shared.directory / "pyproject.toml", monkeypatch)
    trusted = f"/nowhere:{shared.directory}"
    assert "evil.py has no 'desk'" in " ".join(shared("tools", BEFOREHAND_TRUSTED_PROJECTS=trusted).err.split())
    assert (shared.directory / "ran").exists()
    assert shared("tools", BEFOREHAND_TRUSTED_PROJECTS="/nowhere").status == 2


def test_a_link_of_another_user_to_a_file_of_mine_is_refused(shared: Lab, monkeypatch: pytest.MonkeyPatch):
    file = shared.directory / "pyproject.toml"
    file.rename(shared.directory / "mine.toml")
    file.symlink_to("mine.toml")
    give_away(file, monkeypatch)
    assert shared("tools").status == 2
    assert not (shared.directory / "ran").exists()


def test_settings_that_every_user_can_write_are_refused(shared: Lab):
    (shared.directory / "pyproject.toml").chmod(0o666)
    said = shared("tools")
    assert (said.status, "can be written by every user" in " ".join(said.err.split())) == (2, True)


def test_a_project_of_another_user_without_settings_of_ours_is_no_concern(shared: Lab, monkeypatch: pytest.MonkeyPatch):
    shared.write("pyproject.toml", "[project]\nname = 'x'\n")
    give_away(shared.directory / "pyproject.toml", monkeypatch)
    assert shared("ps").status == 2
    assert "does not exist" in shared("ps").err


def test_my_own_settings_are_read(shared: Lab):
    shared("tools")
    assert (shared.directory / "ran").exists()
