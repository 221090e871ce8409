"""The worked changes of CONTRIBUTING are performed on a copy of the source tree: each test fails before, passes after."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.draws import of_the_day, pick
from tests.tidy.tree import ROOT

SECTION = re.compile(r"^### (?P<title>.+?)\n(?P<body>.*?)(?=^##)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(?P<kind>python|diff)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:packages|tests)/[\w./-]+\.py)`")
COPIED = ("packages/beforehand/src", "tests/unit/model")


def sections() -> dict[str, str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text[text.index("## Four worked changes") :]
    part = part[: part.index("\n## ", 5) + 4]
    return {found["title"]: found["body"] for found in SECTION.finditer(part)}


SECTIONS = sections()


def test_there_are_four():
    assert list(SECTIONS) == [
        "A new rule in `decide`",
        "A new exception classification",
        "A new stop reason",
        "A new command",
    ]


@pytest.mark.deeper
def test_a_worked_change_works(tmp_path: Path):
    """One that is drawn by the date; in `make deep` all four."""
    for title in pick(SECTIONS, [of_the_day(SECTIONS)]):
        works(title, tmp_path / str(list(SECTIONS).index(title)))


def works(title: str, tmp_path: Path) -> None:
    for part in COPIED:
        shutil.copytree(ROOT / part, tmp_path / part)  # with what is compiled, so that it need not be again
    body = SECTIONS[title]
    blocks = [(found["kind"], found["text"], body[: found.start()]) for found in BLOCK.finditer(body)]
    kind, written_first, before = blocks[0]
    assert kind == "python", "the test comes first"
    test = tmp_path / path_named(before)
    write(test, written_first)
    assert run(test, tmp_path) == 1, "the test passes without the change, so it tests nothing"
    for kind, text, before in blocks[1:]:
        if kind == "python":
            write(tmp_path / path_named(before), text)
        else:
            apply(text, tmp_path)
    assert run(test, tmp_path) == 0, f"the change {title!r} of CONTRIBUTING does not do what its test says"


def path_named(text: str) -> str:
    """The file that the text before a block named last."""
    return PATH.findall(text)[-1]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def apply(diff: str, tree: Path) -> None:
    """Replace what each hunk shows: its lines have to be in the file, once, wherever they are."""
    head, *hunks = diff.split("@@\n")
    name = re.search(r"^\+\+\+ b/(.+)$", head, re.MULTILINE)
    assert name, f"no file is named in:\n{diff}"
    assert hunks, f"no hunk is in:\n{diff}"
    path = tree / name[1]
    text = path.read_text(encoding="utf-8")
    for hunk in hunks:
        lines = [(line[:1], line[1:]) for line in hunk.splitlines()]
        old = "".join(f"{line}\n" for mark, line in lines if mark != "+")
        new = "".join(f"{line}\n" for mark, line in lines if mark != "-")
        assert text.count(old) == 1, f"{name[1]} does not hold these lines once; show the present ones:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def run(test: Path, tree: Path) -> int:
    """The exit status of pytest, with the packages of the copied tree in front of the installed ones."""
    paths = os.pathsep.join([str(tree / "packages/beforehand/src"), str(tree)])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={tree}", str(test)],
        cwd=tree, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    ).returncode  # fmt: skip
