"""Every block of the README and of the documentation is run as a reader would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.docs.pages import ROOT, blocks, pages, visible
from tests.draws import daily
from tests.hosts.environments import python_of

PLAYER = Path(__file__).with_name("play.py")
PATIENCE_S = 600
"""A page may start a framework ten times, on a busy machine."""

COMMANDS = Path(sys.executable).parent  # where installing the package put `beforehand`


OF_HOSTS = {
    "docs/how-to/crewai.md": "host-crewai",
    "docs/how-to/fastapi.md": "hosts",
    "docs/how-to/google-adk.md": "hosts",
    "docs/how-to/langchain.md": "hosts",
    "docs/how-to/openai-agents.md": "hosts",
}
"""Pages about frameworks, with the environment that has the framework."""


def play(page: Path, directory: Path, commands: Path = COMMANDS) -> subprocess.CompletedProcess[str]:
    host = OF_HOSTS.get(page.relative_to(ROOT).as_posix()) if page.is_relative_to(ROOT) else None
    env = os.environ | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    if host is None:
        return forked.run([str(PLAYER), str(page)], cwd=directory, env=env, timeout=PATIENCE_S)
    return subprocess.run(
        [python_of(host), PLAYER, page],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=False,
    )


FRAMEWORKS = {*OF_HOSTS, "docs/how-to/pydantic-ai.md"}
"""Pages that `make deep` plays alone: in `make test` each framework has its cell in `tests/hosts`."""
NAMES = [page.relative_to(ROOT).as_posix() for page in pages()]
HOW_TO = [name for name in NAMES if name.startswith("docs/how-to/") and name not in FRAMEWORKS]
PAGES = [
    *(name for name in NAMES if not name.startswith("docs/how-to/")),
    *daily(HOW_TO, len(HOW_TO) // 2),
    *(pytest.param(name, marks=pytest.mark.deep) for name in sorted(FRAMEWORKS)),
]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_runs(page: str, tmp_path: Path):
    """The README, the tutorial and most pages; of the how-to guides half, drawn by the date."""
    played = play(ROOT / page, tmp_path)
    assert played.returncode == 0, f"{page}:\n{played.stdout}\n{played.stderr}"


def test_what_a_reader_sees_defines_what_it_uses(tmp_path: Path):
    for page in pages():
        shown = [block for block in blocks(visible(page.read_text(encoding="utf-8"))) if block.runs]
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts)
        typed = "\n".join(block.text for block in shown if block.language == "python" and "file" not in block.remarks)
        (tmp_path / f"{name}.py").write_text(typed, encoding="utf-8")
        for number, block in enumerate(shown):
            if block.remarks.get("file", "").endswith(".py"):
                (tmp_path / f"{name}_{number}.py").write_text(block.text, encoding="utf-8")
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        "F821,F823",
        "--output-format",
    ]
    checked = subprocess.run([*ruff, "concise", "."], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, f"only a hidden block defines it:\n{checked.stdout}{checked.stderr}"


def test_a_page_can_be_read_without_a_network():
    drawn = [page.name for page in pages() if any(b.language == "mermaid" for b in blocks(page.read_text("utf-8")))]
    assert drawn == [], "the script that draws these diagrams would be loaded from another site"


@pytest.mark.parametrize("shelf", ["how-to", "explanation"])
def test_the_first_page_and_the_navigation_lead_to_every_page(shelf: str):
    there = {page.relative_to(ROOT / "docs").as_posix() for page in pages() if page.parent == ROOT / "docs" / shelf}
    for listing in (ROOT / "docs" / "index.md", ROOT / "mkdocs.yml"):
        text = listing.read_text(encoding="utf-8")
        assert there
        assert sorted(page for page in there if page not in text) == [], listing.name


# The runner itself, on small pages.


def written(tmp_path: Path, *lines: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text("\n".join(lines) + "\n")
    return page


def test_blocks_share_a_module_and_a_directory(tmp_path: Path):
    page = written(
        tmp_path,
        *("```python", "answer: int = 42", "```", "then", "```python", "print(answer, __name__)", "```"),
        *("<!-- file: saved.txt -->", "```text", "kept", "```"),
        *("```python", "print(open('saved.txt', encoding='utf-8').name)", "```"),
    )
    played = play(page, tmp_path)
    assert "42 __main__" in played.stdout


def test_a_failing_block_fails_and_points_at_the_page(tmp_path: Path):
    played = play(written(tmp_path, "# Title", "```python", "1 / 0", "```"), tmp_path)
    assert played.returncode == 1
    assert f'{tmp_path / "page.md"}", line 3' in played.stderr


def test_a_block_marked_not_run_is_only_shown(tmp_path: Path):
    page = written(tmp_path, "<!-- not run: needs an account -->", "", "```python", "1 / 0", "```")
    assert play(page, tmp_path).returncode == 0


@pytest.mark.parametrize(("stated", "ends"), [("3", 0), ("0", 1)])
def test_commands_end_with_the_status_the_page_says(tmp_path: Path, stated: str, ends: int):
    stand_in = tmp_path / "beforehand"
    stand_in.write_text('#!/bin/sh\necho "called: $*"\nexit 3\n')
    stand_in.chmod(0o755)
    block = ["```console", "$ make nothing", "$ beforehand ps \\", "    --json  # a remark", "what it shows", "```"]
    played = play(written(tmp_path, f"<!-- exit: {stated} -->", *block), tmp_path, commands=tmp_path)
    assert played.returncode == ends
    assert played.stdout.splitlines()[-1] == "called: ps --json"


@pytest.mark.parametrize("page", ["```python\nnever closed", "<!-- exit: 3 -->\nprose\n"])
def test_a_page_with_a_slip_is_refused(page: str):
    with pytest.raises((ValueError, AssertionError)):
        list(blocks(page))
