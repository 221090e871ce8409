"""Ports for other distributions: found by entry points, and named with how to install them where they are missing."""

import asyncio
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import click
import pytest

from beforehand import Beforehand, Run, agent
from beforehand import extensions as ports
from beforehand.cli.main import main
from beforehand.errors import UsageError
from beforehand.inspect import ledger_kinds
from beforehand.installation import console_command
from beforehand.journal.backends import address_of
from beforehand.journal.sqlite.backend import SqliteFiles
from beforehand.model.policy import Policy, Rule
from beforehand.people.policy.judge import PolicyJudge
from beforehand.people.policy.policy_files import judge_of

GREETING = "tests.unit.test_extensions:hello"


@click.command("hello")
def hello() -> None:
    """Say hello."""
    click.echo("hello")


def entries(wanted: str = "beforehand.commands", /, **found: str):
    """Stand in for the entry points of this environment: those of the `wanted` group are `found`."""

    def entry_points(*, group: str) -> list[metadata.EntryPoint]:
        return [metadata.EntryPoint(name, value, group) for name, value in found.items() if group == wanted]

    return entry_points


@pytest.mark.parametrize("name", ["serve", "accounts", "notices", "figures", "plant"])
def test_a_command_of_the_console_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
):
    monkeypatch.setattr(metadata, "entry_points", entries())
    for arguments in ([name], [name, "--help"], [name, "add", "anna", "--role", "admin"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert f"beforehand {name} needs beforehand-console, which is not installed" in said
        assert f"Next: {console_command()}" in said


def test_the_help_lists_the_same_commands_without_the_console(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(metadata, "entry_points", entries())
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "serve" in capsys.readouterr().out


def test_another_distribution_adds_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(metadata, "entry_points", entries(hello=GREETING))
    with pytest.raises(SystemExit) as ended:
        main(["hello"])
    assert (ended.value.code, capsys.readouterr().out) == (0, "hello\n")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "Added by other distributions:" in capsys.readouterr().out


def test_a_command_with_the_name_of_ours_is_not_used_and_the_help_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(metadata, "entry_points", entries(ps=GREETING))
    with pytest.raises(SystemExit):
        main(["--help"])
    _, _, said = capsys.readouterr().out.partition("Not used, for Beforehand has a command of that name:")
    assert said.split()[0] == "ps"
    with pytest.raises(SystemExit):
        main(["ps", "--help"])
    assert "List the runs" in capsys.readouterr().out


def test_an_extension_that_cannot_be_imported_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries(serve="no.such.module:serve"))
    with pytest.raises(UsageError, match="beforehand serve cannot be loaded: No module named 'no'"):
        ports.extension("beforehand.commands", "serve", "beforehand serve")


def test_parts_of_our_commands_say_how_to_install_the_console(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries())
    with pytest.raises(UsageError) as refused:
        ports.extension("beforehand.command_parts", "inbox.health", "beforehand inbox --health")
    assert refused.value.next_step == console_command()
    with pytest.raises(UsageError, match=r"a notification channel .* needs beforehand-console"):
        ports.notifications_of([])


def test_the_streams_of_the_console_are_known_where_it_is_installed():
    assert {"accounts", "sessions", "tokens", "notices"} <= ledger_kinds.kinds().keys()
    assert not {"accounts", "sessions", "tokens", "notices"} & ledger_kinds.KINDS.keys()


POLICY = Policy("desk", (Rule("all", "true", "ask"),))
NO_POLICY = 7


@pytest.mark.parametrize("name", ["value", "file", "function"])
def test_another_distribution_adds_a_policy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str):
    path = tmp_path / "desk.yaml"
    path.write_text("rules:\n  - {name: all, when: 'true', then: ask}\n")
    here = sys.modules[__name__]
    for given, value in (("value", POLICY), ("file", str(path)), ("function", lambda: path)):
        monkeypatch.setattr(here, f"given_{given}", value, raising=False)
    monkeypatch.setattr(metadata, "entry_points", entries("beforehand.policies", desk=f"{__name__}:given_{name}"))
    judge = judge_of("installed:desk")
    assert judge is not None
    assert judge.version == PolicyJudge(POLICY).version


def test_a_policy_that_is_not_installed_or_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    found = {"a": f"{__name__}:NO_POLICY", "b": f"{__name__}:MISSING", "c": "no.such.module:policy"}
    monkeypatch.setattr(metadata, "entry_points", entries("beforehand.policies", **found))
    with pytest.raises(UsageError, match="no installed distribution has a policy named x") as refused:
        judge_of("installed:x")
    assert refused.value.known == "installed policies: a, b, c"
    with pytest.raises(UsageError, match="installed:a: its entry point gives 7"):
        judge_of("installed:a")
    with pytest.raises(UsageError, match=r"the policy b cannot be loaded: .*MISSING"):
        judge_of("installed:b")
    with pytest.raises(UsageError, match="the policy c cannot be loaded: No module named 'no'"):
        judge_of("installed:c")


# --- journals ----------------------------------------------------------------------------------------------------


class Shelf(SqliteFiles):
    """A back end of another distribution: files on a shelf, whose places are names without an ending."""

    def __init__(self, directory: Path) -> None:
        super().__init__("sqlite3")
        self.directory = directory

    def checked(self, place: str) -> str:
        return str(self.directory / f"{Path(place).stem}.db")

    def shown(self, place: str) -> str:
        return Path(place).stem


@agent(run_id="greet-{name}")
async def greeter(_run: Run, name: str) -> str:
    return f"hello {name}"


def test_another_distribution_adds_a_journal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys.modules[__name__], "SHELF", Shelf(tmp_path), raising=False)
    monkeypatch.setattr(metadata, "entry_points", entries("beforehand.journals", shelf=f"{__name__}:SHELF"))

    async def greet() -> str:
        async with Beforehand("shelf://desk", agents=[greeter]) as app:
            return await app.run(greeter, "ann")

    assert asyncio.run(greet()) == "hello ann"
    assert (tmp_path / "desk.db").exists()
    assert str(address_of("shelf://desk")) == "shelf://desk"
    with pytest.raises(SystemExit) as ended:
        main(["ps", "--all", "--journal", "shelf://desk"])
    assert (ended.value.code, "greet-ann" in capsys.readouterr().out) == (0, True)


def test_a_journal_of_no_installed_distribution_is_refused_with_the_schemes_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries("beforehand.journals", shelves="no.such.module:SHELF"))
    with pytest.raises(UsageError, match="no back end opens the journal 'bookcase://desk'") as refused:
        address_of("bookcase://desk")
    assert refused.value.known == "schemes: sqlite, sqlite+apsw, memory, shelves"
    with pytest.raises(UsageError, match="the back end of shelves:// cannot be loaded: No module named 'no'"):
        address_of("shelves://desk")


def test_a_value_that_is_no_back_end_is_refused_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries("beforehand.journals", seven=f"{__name__}:NO_POLICY"))
    with pytest.raises(UsageError, match=r"is not a back end of journals: it lacks .*checked, journal, reader"):
        address_of("seven://desk")


def test_a_scheme_of_ours_is_never_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries("beforehand.journals", sqlite="no.such.module:SHELF"))
    assert address_of("sqlite://desk.db").place == "desk.db"


# --- names of what is missing ------------------------------------------------------------------------------------


def test_a_missing_entry_that_the_console_does_not_provide_names_no_distribution(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries())
    with pytest.raises(UsageError, match="no installed distribution provides a part of ours") as refused:
        ports.extension("beforehand.command_parts", "inbox.unknown", "a part of ours")
    assert "beforehand-console" not in str(refused.value)


def test_the_entries_of_the_console_are_those_that_it_declares():
    project = tomllib.loads(Path("packages/beforehand-console/pyproject.toml").read_text())["project"]
    declared = {group: set(found) for group, found in project["entry-points"].items()}
    assert {group: declared.get(group) for group in ports.OF_CONSOLE} == ports.OF_CONSOLE
