"""The pages that show the states and the decisions say what the code does."""

from __future__ import annotations

import runpy
import sys
from typing import get_args

import pytest

from beforehand.model.outcome import Phase
from beforehand.model.transitions import SAME, TRANSITIONS
from tests.tidy.tree import ROOT


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "explanation.py"))


@pytest.mark.parametrize("page", ["states", "deciding"])
def test_a_page_is_current(script, page):
    written = (ROOT / "docs" / "explanation" / f"{page}.md").read_text(encoding="utf-8")
    assert written == script[page](), f"run: {sys.executable} -m scripts.explanation"


def test_every_phase_is_reached_and_every_promise_of_the_table_is_kept(script):
    edges = script["explored"]()
    assert {after for _, after, _ in edges} == set(get_args(Phase))
    for kind, (come_from, lead_to) in TRANSITIONS.items():
        seen = {(before, after) for before, after, name in edges if name == kind.__name__}
        assert {before for before, _ in seen} == set(come_from), kind
        changes = {after for before, after in seen if before != after} | {
            SAME for before, after in seen if before == after and after not in lead_to
        }
        assert changes <= {*lead_to}, kind
        assert {phase for phase in lead_to if phase != SAME} <= {after for _, after in seen}, kind
