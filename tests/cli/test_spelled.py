"""Wherever a page or a message says to run a command, that command exists, with those options."""

import re
from pathlib import Path

import click
import pytest

from beforehand.cli.main import COMMANDS, main
from tests.tidy.tree import CONSOLE, PACKAGE, ROOT, shown, text_files

SPELLED = re.compile(r"(?:^|[\s`\"'$(|])beforehand ([a-z-]+)((?: (?:(?!\| beforehand)[^`\n\"',;()])*)?)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PROSE = [
    path
    for path in text_files()
    if path.suffix == ".md" or path.is_relative_to(PACKAGE) or path.is_relative_to(CONSOLE)
]


def options(command: str, rest: str) -> set[str]:
    """The options of a command, whose name may have two words, or of the one below it that is named first."""
    both = " ".join([command, *rest.split()[:1]])
    found = main.get_command(click.Context(main), both if both in COMMANDS else command)
    assert found is not None
    for word in rest.split():
        below = found.get_command(click.Context(found), word) if isinstance(found, click.Group) else None
        if below is None:
            break
        found = below
    return {"--help", *(name for parameter in found.params for name in getattr(parameter, "opts", []))}


def misspelled(text: str) -> list[str]:
    return [
        f"beforehand {match[1]}{match[2]}"
        for match in SPELLED.finditer(text)
        if match[1] in COMMANDS and set(OPTION.findall(match[2].partition(" then ")[0])) - options(match[1], match[2])
    ]


@pytest.mark.parametrize("path", PROSE, ids=shown)
def test_commands_are_spelled_as_they_are(path: Path):
    assert misspelled(path.read_text(encoding="utf-8")) == []


def test_a_misspelled_command_is_found():
    assert misspelled("Next: `beforehand resolve x --hapened`") == ["beforehand resolve x --hapened"]
    assert misspelled("Next: beforehand resolve x --happened") == []
    assert (ROOT / "README.md") in PROSE
