"""The reference of the tables is rendered from the schema and says something about each of them."""

from __future__ import annotations

import re
from pathlib import Path

from beforehand.journal.sqlite.schema import shipped
from scripts.sql_reference import render

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "sql.md"


def test_the_page_is_current() -> None:
    command = "python -m scripts.sql_reference > docs/reference/sql.md"
    assert PAGE.read_text(encoding="utf-8") == render(), f"run: {command}"


def test_every_table_is_described() -> None:
    page = render()
    tables = [name for step in shipped() for name in re.findall(r"create table (\w+)", step.sql)]
    assert tables
    for table in tables:
        section = page.split(f"### {table}\n\n")[1]
        assert not section.startswith("```"), f"{table} has no description"
