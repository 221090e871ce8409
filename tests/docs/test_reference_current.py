"""The reference says what the code says and names what a user can name; pages name only what is there."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import beforehand
import beforehand_console
from beforehand import errors
from beforehand.cli.main import COMMANDS
from beforehand.engine.settings import Settings
from beforehand.model import records
from tests.docs.pages import ROOT, blocks, pages

REFERENCE = ROOT / "docs" / "reference"
CITING = [*pages(), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(?:#([\w-]+))?\)")
CITED = re.compile(r"`((?:tests|src|scripts|bench|model|engine|journal|agent|interfaces)/[\w./-]*\w)(?:/)?`")
TO_BE_WRITTEN = re.compile(r"Write the test first,\s+`[^`]+`")  # test_worked_changes.py writes these
TESTS = re.compile(r"`((?:[a-z]+/)+test_\w+\.py)`")
PLACES = (
    ROOT,
    ROOT / "packages" / "beforehand" / "src" / "beforehand",
    ROOT / "packages" / "beforehand-console" / "src" / "beforehand_console",
    ROOT / "tests",
)


def reference() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))


def test_generated_pages_are_current():
    made = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.parametrize("name", sorted(beforehand.__all__))
def test_every_name_at_the_top_is_in_the_reference(name: str):
    assert f"### {name}\n" in reference()


@pytest.mark.parametrize("name", sorted(beforehand_console.__all__))
def test_every_name_at_the_top_of_the_console_is_in_its_reference(name: str):
    assert f"### {name}\n" in (REFERENCE / "console.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_is_in_the_reference(name: str):
    assert f"`{name}`" in reference()


@pytest.mark.parametrize("kind", [kind.__struct_config__.tag for kind in get_args(records.Record)])
def test_every_kind_of_record_is_in_the_reference(kind: str):
    assert f"### {kind}\n" in reference()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_reference(command: str):
    is_named = f"beforehand {command}" in reference()
    assert is_named, f"no page of docs/reference names `beforehand {command}`"


def test_every_error_is_in_the_reference():
    defined = {
        name for name, kind in vars(errors).items() if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    told = set(re.findall(r"^### (\w+)$", (REFERENCE / "errors.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert defined <= told, defined - told


@pytest.mark.parametrize("page", CITING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path):
    for place, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / place).resolve()
        assert target.exists(), f"{page.name} links to {place}, which is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {place}#{anchor}; there are {anchors(target)}"


def anchors(page: Path) -> set[str]:
    """Heading ids as the site makes them."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(text):
        text = text.replace(block.text, "")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower() for heading in headings]
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", CITING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_are_there(page: Path):
    text = TO_BE_WRITTEN.sub("", page.read_text(encoding="utf-8"))
    for named in {*CITED.findall(text), *TESTS.findall(text)}:
        assert any((place / named).exists() for place in PLACES), f"{page.name} names {named}, which is not there"
