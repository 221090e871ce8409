"""Ports for other distributions: found by entry points, and named with how to install them where they are missing."""

from importlib import metadata

import click
import pytest

from holdfast import extensions as ports
from holdfast.cli.main import main
from holdfast.errors import UsageError
from holdfast.inspect import ledger_kinds

GREETING = "tests.unit.test_extensions:hello"


@click.command("hello")
def hello() -> None:
    """Say hello."""
    click.echo("hello")


def entries(**found: str):
    """Stand in for the entry points of this environment: those of `holdfast.commands` are `found`."""

    def entry_points(*, group: str) -> list[metadata.EntryPoint]:
        return [
            metadata.EntryPoint(name, value, group) for name, value in found.items() if group == "holdfast.commands"
        ]

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
        assert f"holdfast {name} needs holdfast-console, which is not installed" in said
        assert "pip install holdfast-console" in said


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


def test_an_extension_that_cannot_be_imported_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries(serve="no.such.module:serve"))
    with pytest.raises(UsageError, match="holdfast serve cannot be loaded: No module named 'no'"):
        ports.extension("holdfast.commands", "serve", "holdfast serve")


def test_parts_of_our_commands_say_how_to_install_the_console(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "entry_points", entries())
    with pytest.raises(UsageError) as refused:
        ports.extension("holdfast.command_parts", "inbox.health", "holdfast inbox --health")
    assert refused.value.next_step == "pip install holdfast-console"
    with pytest.raises(UsageError, match="reach= needs holdfast-console"):
        ports.notifications_of([], None, None)  # type: ignore[arg-type]  # refused before either is used


def test_the_streams_of_the_console_are_known_where_it_is_installed():
    assert {"accounts", "sessions", "tokens", "notices"} <= ledger_kinds.kinds().keys()
    assert not {"accounts", "sessions", "tokens", "notices"} & ledger_kinds.KINDS.keys()
