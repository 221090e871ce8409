"""The ways in that need no environment: the list of make targets, and the search for a Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT

TARGETS = {
    "help",
    "lint",
    "demo",
    "nights",
    "quick",
    "test",
    "deep",
    "bench",
    "scale",
    "instructions",
    "mutation",
    "docs",
    "transcripts",
    "examples",
    "fmt",
    "house",
    "audit",
    "sbom",
    "lock",
}


def run(*command: str | Path, **changed: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | changed
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_make_alone_lists_every_target():
    listed = run("make")
    assert set(re.findall(r"^make (\w+) +\S", listed.stdout, flags=re.MULTILINE)) == TARGETS, listed.stderr


def test_the_list_fits_a_terminal():
    assert [line for line in run("make").stdout.splitlines() if len(line) > 80] == []


def test_a_shell_without_the_environment_is_told_how_the_commands_of_the_demo_work(tmp_path: Path):
    shown = run("make", "IN=@true", "demo", PATH="/usr/bin:/bin").stderr
    (activate,) = re.findall(r"\. (\S+/activate)$", shown, flags=re.MULTILINE)
    assert (ROOT / activate).is_file()
    (tmp_path / "beforehand").write_text("#!/bin/sh\n")
    (tmp_path / "beforehand").chmod(0o755)
    assert run("make", "IN=@true", "demo", PATH=f"{tmp_path}:/usr/bin:/bin").stderr == ""


def test_every_named_make_target_is_one():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    pages += [page for part in ("docs", "scripts", "bench", "tests") for page in (ROOT / part).rglob("*.[mp][dy]")]
    named = [(page.name, name) for page in pages for name in re.findall(r"`make ([a-z-]+)", page.read_text("utf-8"))]
    assert len(named) > 50
    assert [(page, name) for page, name in named if name not in targets] == []


def test_no_recipe_is_echoed():
    """Standard output belongs to the command behind a target, so make keeps quiet about it."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = re.findall(r"^\t(.+)$", makefile, flags=re.MULTILINE)
    assert re.search(r"^IN := @", makefile, flags=re.MULTILINE)
    assert [line for line in recipes if not line.startswith(("@", "$(IN) "))] == []


def test_a_python_that_suits_is_used():
    assert run("sh", "scripts/python", "-c", "print(6 * 7)", PYTHON=sys.executable).stdout == "42\n"


def test_a_python_that_does_not_suit_is_refused():
    refused = run("sh", "scripts/python", "--version", PYTHON="no-such-python")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "unset PYTHON" in refused.stderr


def test_without_any_python_the_way_out_is_named(tmp_path: Path):
    refused = run(Path("/bin/sh"), "scripts/python", "--version", PYTHON="", PATH=str(tmp_path))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "make PYTHON=" in refused.stderr


def test_an_unknown_environment_is_refused():
    refused = run(sys.executable, "scripts/environment.py", "nowhere", "true")
    assert refused.returncode == 1
    assert refused.stderr.startswith("usage: ")
