"""Handing a run over, as values: authority that only shrinks, and why a run ended."""

from __future__ import annotations

import pytest

from beforehand.errors import UsageError
from beforehand.model import records as r
from beforehand.model.questions import DEEPEST, within
from beforehand.model.run_history import RunHistory
from beforehand.model.stop_reasons import TAKE_OVER, after_stop, why_ended
from beforehand.model.waits import PEOPLE, answers_with

STARTED = r.RunStarted(agent="desk", input=r.Raw(b"1"), digest="d")


def test_an_agent_has_no_more_authority_than_whoever_hands_over():
    first = within(None, "a", frozenset({"book", "mail"}), "trip")
    assert (first.agent, first.tools, first.depth) == ("a", {"book", "mail"}, 1)
    second = within(first, "b", frozenset({"mail", "refund"}), "trip")
    assert (second.agent, second.tools, second.depth) == ("b", {"mail"}, 2)


def test_a_run_is_handed_over_only_so_deep():
    held = None
    for _ in range(DEEPEST):
        held = within(held, "a", frozenset(), "trip")
    with pytest.raises(UsageError, match="trip was handed over 8 times"):
        within(held, "a", frozenset(), "trip")


@pytest.mark.parametrize(
    ("command", "note", "why"),
    [
        (TAKE_OVER, "", "bea took it over"),
        (TAKE_OVER, "I call them", "bea took it over: I call them"),
        ("cancel", "", "cancelled by bea"),
        ("cancel", "no need", "no need"),
    ],
)
def test_why_a_run_ended_by_order(command, note, why):
    assert why_ended(command, "bea", note) == why


def test_a_take_over_ends_a_run_as_a_cancel_does():
    told = RunHistory("desk")
    order = r.CommandApplied(command=TAKE_OVER, by="bea", entry=3)
    for record in (STARTED, order):
        told.add(record)
    assert (told.lifecycle.cancelled, told.entry_seen) == (order, 3)


def test_a_hand_off_to_an_agent_is_what_its_step_is_told():
    told = RunHistory("desk")
    handed = r.HandedOff(step="hand_off:b#1", agent="b", why="", given=r.Raw(b"1"), digest="d")
    for record in (STARTED, handed):
        told.add(record)
    assert (told.steps.answers["hand_off:b#1"], told.delivered.by_step["hand_off:b#1"].index) == (handed, 0)


def test_a_hand_off_is_answered_or_taken():
    assert PEOPLE["handoff"] == "handoff"
    assert answers_with("trip", "handoff", "hand_off#1") == (
        "beforehand answer trip/hand_off#1 VALUE --by NAME",
        "beforehand take-over trip/hand_off#1 --by NAME",
    )


@pytest.mark.parametrize(
    ("reason", "goes_on"),
    [
        ("error", "after a fix: beforehand resume r"),
        (
            "diverged",
            "restore the code (or add a version marker), and see where it differs: beforehand replay r",
        ),
        ("cancelled", "only if it is to continue after all: beforehand resume r"),
        ("handed_over", ""),
        ("undone", ""),
    ],
)
def test_nobody_is_sent_on_with_a_run_that_is_not_to_go_on(reason: str, goes_on: str):
    assert after_stop("r", reason)[1] == goes_on
