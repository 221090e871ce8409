"""The reference page says what the commands say."""

from beforehand.cli.main import COMMANDS
from beforehand.cli.reference import reference
from tests.tidy.tree import ROOT


def test_the_page_is_current():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), "write it anew: python -m beforehand.cli.reference > docs/reference/cli.md"


def test_every_command_has_a_section():
    page = reference()
    assert [name for name in COMMANDS if f"\n## beforehand {name}\n" not in page] == []


def test_the_help_of_every_command_fits_into_80_columns_and_cuts_nothing_off():
    lines = reference().partition("## Shell completion")[2].splitlines()
    shown = [line for line in lines if line.startswith(("  ", "Usage: "))]
    assert [line for line in shown if len(line) > 80] == []
    assert [line for line in shown if line.endswith("...") and not line.startswith("Usage: ")] == []
