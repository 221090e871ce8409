"""Which journal is meant."""

import pytest

from tests.cli.lab import Lab


def journals(holdfast: Lab) -> list[str]:
    return sorted(path.relative_to(holdfast.directory).as_posix() for path in holdfast.directory.rglob("*.db"))


def test_the_option_comes_first_then_the_environment_then_the_project_then_here(
    holdfast: Lab, monkeypatch: pytest.MonkeyPatch
):
    inner = holdfast.directory / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    target, given = "../desk.py:desk", holdfast.ticket("1")
    assert holdfast("run", target, given).status == 0
    assert journals(holdfast) == ["inner/holdfast.db"]
    holdfast.write("pyproject.toml", '[tool.holdfast]\njournal = "project.db"\n')
    assert holdfast("run", target, given).status == 0
    assert journals(holdfast) == ["inner/holdfast.db", "project.db"]
    assert holdfast("run", target, given, HOLDFAST_JOURNAL="environment.db").status == 0
    assert "inner/environment.db" in journals(holdfast)
    assert holdfast("run", target, given, "--journal", "option.db", HOLDFAST_JOURNAL="environment.db").status == 0
    assert "inner/option.db" in journals(holdfast)


def test_the_nearest_project_counts(holdfast: Lab, monkeypatch: pytest.MonkeyPatch):
    inner = holdfast.directory / "inner"
    inner.mkdir()
    holdfast.write("pyproject.toml", '[tool.holdfast]\njournal = "outer.db"\n')
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    monkeypatch.chdir(inner)
    assert holdfast("run", "../desk.py:desk", holdfast.ticket("1")).status == 0
    assert journals(holdfast) == ["inner/holdfast.db"]


def test_an_address_of_sqlite_is_a_path(holdfast: Lab):
    assert holdfast("run", "desk.py:desk", holdfast.ticket("1"), "--journal", "sqlite://here.db").status == 0
    assert journals(holdfast) == ["here.db"]


@pytest.mark.parametrize(
    ("journal", "status", "problem"),
    [
        ("postgresql://somewhere/desk", 2, "is no journal this version can open"),
        ("sqlite://", 2, "the journal has no name"),
        ("nowhere/desk.db", 1, "the directory"),
        (".", 1, "is a directory"),
    ],
)
def test_a_journal_that_cannot_be(holdfast: Lab, journal: str, status: int, problem: str):
    said = holdfast("run", "desk.py:desk", holdfast.ticket("1"), "--journal", journal)
    assert said.status == status
    assert problem in said.err
    assert not holdfast.world


@pytest.mark.parametrize(
    ("project", "problem"),
    [
        ("[tool.holdfast]\njournal = 3\n", "journal holds 3, which is no text"),
        ("[tool.holdfast\n", "pyproject.toml cannot be read"),
        ('[tool.holdfast]\nagents = "desk.py:desk"\n', "agents is no list"),
    ],
)
def test_a_project_file_that_is_wrong(holdfast: Lab, project: str, problem: str):
    holdfast.write("pyproject.toml", project)
    said = holdfast("worker", "--once") if "agents" in project else holdfast("ps")
    assert said.status == 2
    assert problem in said.err
