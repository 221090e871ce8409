"""The command line as a whole: help, versions, usage errors, completion, and what it does not import."""

import json
import subprocess
import sys
from importlib import import_module, metadata

import pytest

from beforehand.cli.main import COMMANDS, GROUPS, SYNONYMS
from beforehand.extensions import extension, extensions
from beforehand.installation import CONSOLE
from tests.cli.lab import Lab


def test_help_lists_every_command_under_its_purpose(beforehand: Lab):
    said = beforehand("--help")
    assert said.status == 0
    first = said.lines.index(f"{next(iter(GROUPS))}:")
    listed = [line for line in said.lines[first:] if line.endswith(":") or (line[:2] == "  " and line[2:3] != " ")]
    expected = [word for title, group in GROUPS.items() for word in (f"{title}:", *group)]
    found = [line if line.endswith(":") else line.strip().split("  ")[0] for line in listed]
    assert found[: len(expected)] == expected
    assert "Exit status: 0 done, 1 failed, 2 usage, 3 waits (for a person, an event, a time)" in said.words
    assert not [line for line in said.lines if len(line) > 80]


@pytest.mark.parametrize(("name", "module"), [(name, module) for name, (module, _) in COMMANDS.items()])
def test_every_listed_command_is_there_under_its_name(name: str, module: str):
    if module == CONSOLE:
        assert extension("beforehand.commands", name, name).name == name
    else:
        assert getattr(import_module(f"beforehand.cli.{module}"), name.replace("-", "_")).name == name


def test_the_console_adds_no_command_that_is_not_listed():
    assert {one.name for one in extensions("beforehand.commands")} == {
        name for name, (module, _) in COMMANDS.items() if module == CONSOLE
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_80_columns(beforehand: Lab, name: str):
    assert not [line for line in beforehand(name, "--help").lines if len(line) > 80]


def test_version(beforehand: Lab):
    assert beforehand("--version").out == f"beforehand {metadata.version('beforehand')}\n"


@pytest.mark.parametrize("arguments", [("fly",), ("ps", "--fast"), ("ps", "--limit", "many"), ("show",)], ids=" ".join)
def test_what_cannot_be_understood_is_a_usage_error(beforehand: Lab, arguments: tuple[str, ...]):
    said = beforehand(*arguments)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("UsageError: ")
    assert "--help" in said.err
    as_json = beforehand(*arguments, "--json")
    assert json.loads(as_json.out)["error"]["exit_status"] == 2


def test_without_a_command_the_help_is_shown(beforehand: Lab):
    assert beforehand() == beforehand("--help")


@pytest.mark.parametrize(
    ("typed", "meant"), [("cancle", "cancel"), ("Inbxo", "inbox"), ("approve", "answer"), ("ls", "ps"), ("xyzzy", "")]
)
def test_a_command_that_does_not_exist_is_answered_with_the_one_that_was_meant(beforehand: Lab, typed: str, meant: str):
    said = beforehand(typed)
    assert said.status == 2
    assert said.err.startswith(f"UsageError: no such command: {typed}.")
    assert ("Did you mean" in said.err, f"Did you mean {meant}?" in said.err) == (bool(meant), bool(meant))


def test_a_group_that_does_not_exist_is_answered_with_its_command(beforehand: Lab):
    assert "Did you mean diff?" in beforehand("runs", "diff", "ticket-17", "ticket-18").err


def test_every_synonym_leads_to_a_command():
    assert set(SYNONYMS.values()) <= set(COMMANDS)
    assert not SYNONYMS.keys() & COMMANDS.keys()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_for_a_shell(beforehand: Lab, shell: str):
    assert "_BEFOREHAND_COMPLETE" in beforehand("completion", shell).out
    assert beforehand("completion", shell, "--json").json["shell"] == shell


def test_completion_completes(beforehand: Lab):
    said = beforehand.apart(_BEFOREHAND_COMPLETE="zsh_complete", COMP_WORDS="beforehand res", COMP_CWORD="1")
    assert "resume" in said.out
    assert "resolve" in said.out


def test_help_imports_no_more_than_it_needs():
    """Start-up is what a person feels: laying out texts, loading agents and the demo wait until they are used."""
    program = (
        "import sys; from beforehand.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'aiosmtpd', 'starlette', 'uvicorn', 'beforehand.demo', 'beforehand.control.service'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded - {'beforehand.control.service'} else 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("place", [("ps", "--after", "caf\udce9"), ("cancel", "caf\udce9"), ("caf\udce9",)])
def test_an_argument_that_is_not_utf_8_is_a_usage_error(beforehand: Lab, place: tuple[str, ...]):
    said = beforehand(*place)
    assert (said.status, said.out) == (2, "")
    assert r"the argument 'caf\xe9' is not UTF-8" in said.err
    assert "Traceback" not in said.err
    as_json = beforehand(*place, "--json")
    assert as_json.status == 2


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("submit", "desk.py:desk", '{"id": "1"}'), "a file of queues"),
        (("worker", "desk.py:desk", "--once"), "a file of queues"),
        (("costs",), "a file of prices"),
        (("costs", "--prices", "gone.yaml"), "a file of prices"),
        (("worker", "desk.py:desk", "--once", "--policy", "gone.yaml"), "a policy file"),
        (("policy", "check", "gone.yaml"), "a policy file"),
        (("policy", "test", "gone.yaml", "rules.yaml"), "a file of cases"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else given,
)
def test_a_file_that_is_missing_is_asked_for_by_its_kind(beforehand: Lab, words: tuple[str, ...], kind: str):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    beforehand.write("rules.yaml", "rules: []\n")
    beforehand.write("pyproject.toml", '[tool.beforehand]\nqueues = "gone.yaml"\nprices = "gone.yaml"\n')
    said = beforehand(*words)
    assert (said.status, "gone.yaml cannot be read: No such file" in said.remarks) == (2, True), said.err
    assert f"Next: name {kind}" in said.remarks
