"""One table says of each reason to stop what it means, who decides afterwards, and how the run goes on."""

from __future__ import annotations

import ast
from typing import get_args, get_type_hints

import pytest

from beforehand.model import records as r
from beforehand.model.stop_reasons import STOP_REASONS, StopReason, StopRule, after_stop, reason_of
from tests.tidy.tree import parsed, python_files, shown


def test_every_reason_on_record_has_a_rule():
    assert get_type_hints(r.RunStoppedRecord)["reason"] == StopReason
    assert tuple(STOP_REASONS) == get_args(StopReason)


@pytest.mark.parametrize("rule", STOP_REASONS.values(), ids=STOP_REASONS)
def test_a_rule_says_what_it_means_and_what_is_known(rule: StopRule):
    assert rule.meaning
    assert rule.known
    assert rule.asks_person is not bool(rule.command), "a command that ended a run is not asked about again"


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_a_run_that_is_final_has_no_next_step(reason: StopReason):
    assert STOP_REASONS[reason].final is (after_stop("r", reason)[1] == "")


def test_a_command_stops_a_run_for_one_reason():
    assert {command: reason_of(command) for command in ("cancel", "take_over", "pause")} == {
        "cancel": "cancelled",
        "take_over": "handed_over",
        "pause": None,
    }


def test_no_other_file_lists_the_reasons():
    """A list of reasons elsewhere would be a second place to change for a new one."""
    lists: list[str] = []
    for path in python_files("packages"):
        if sum(f'"{reason}"' in path.read_text(encoding="utf-8") for reason in STOP_REASONS) <= 2:
            continue  # most files: to parse all of them takes seconds
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Tuple | ast.Set | ast.List | ast.Dict | ast.MatchOr | ast.Match):
                continue
            named = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)} & set(STOP_REASONS)
            if len(named) > 2:
                lists.append(f"{shown(path)}:{node.lineno} names {sorted(map(str, named))}")
    assert [one for one in lists if "model/stop_reasons.py" not in one] == []
