"""Wherever a page or a message says to run a command, that command exists, with those options."""

import re
from pathlib import Path

import click
import pytest

from holdfast.cli.main import COMMANDS, main
from tests.tidy.tree import CONSOLE, PACKAGE, ROOT, shown, text_files

SPELLED = re.compile(r"(?:^|[\s`\"'$(|])holdfast ([a-z-]+)((?: (?:(?!\| holdfast)[^`\n\"',;()])*)?)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PROSE = [
    path
    for path in text_files()
    if path.suffix == ".md" or path.is_relative_to(PACKAGE) or path.is_relative_to(CONSOLE)
]


def options(command: str, rest: str) -> set[str]:
    """The options of a command, or of the one below it that is named first."""
    found = main.get_command(click.Context(main), command)
    assert found is not None
    for word in rest.split():
        below = found.get_command(click.Context(found), word) if isinstance(found, click.Group) else None
        if below is None:
            break
        found = below
    return {"--help", *(name for parameter in found.params for name in getattr(parameter, "opts", []))}


def misspelled(text: str) -> list[str]:
    return [
        f"holdfast {match[1]}{match[2]}"
        for match in SPELLED.finditer(text)
        if match[1] in COMMANDS and set(OPTION.findall(match[2].partition(" then ")[0])) - options(match[1], match[2])
    ]


@pytest.mark.parametrize("path", PROSE, ids=shown)
def test_commands_are_spelled_as_they_are(path: Path):
    assert misspelled(path.read_text(encoding="utf-8")) == []


def test_a_misspelled_command_is_found():
    assert misspelled("Next: `holdfast resolve x --hapened`") == ["holdfast resolve x --hapened"]
    assert misspelled("Next: holdfast resolve x --happened | --did-not-happen") == []
    assert (ROOT / "README.md") in PROSE
