"""What is remembered of a subject: what was sent and said since some moment, and nothing where no subject is named."""

import msgspec
import pytest

from beforehand.model.policy import Past, PolicyFacts
from beforehand.model.tool_history import HistoryEntry, history_entry, history_stream, past_of

FACTS = PolicyFacts("refund", "desk", 12, "mon", amount=40.0, subject="ann")


def test_only_what_is_recent_enough_counts():
    entries = [
        HistoryEntry("sent", 1, "r/1", 5.0),
        HistoryEntry("sent", 10, "r/2", 7.0),
        HistoryEntry("approved", 11, "r/2"),
        HistoryEntry("declined", 12, "r/3"),
    ]
    assert past_of(entries, 10) == Past(1, 7.0, 1, 1)
    assert past_of(entries, 0) == Past(2, 12.0, 1, 1)
    assert past_of([], 0) == Past()


@pytest.mark.parametrize(
    ("facts", "known"), [(None, False), (FACTS, True), (msgspec.structs.replace(FACTS, subject=""), False)]
)
def test_a_deed_is_remembered_where_somebody_is_concerned(facts: PolicyFacts | None, known: bool):
    assert history_entry(facts, "sent", "r/1", 5) == (HistoryEntry("sent", 5, "r/1", 40.0) if known else None)


def test_what_has_no_amount_adds_nothing():
    entry = history_entry(msgspec.structs.replace(FACTS, amount=None), "sent", "r/1", 5)
    assert entry is not None
    assert entry.amount == 0.0


def test_each_tool_and_subject_has_a_stream_of_its_own():
    names = {history_stream(tool, who) for tool, who in (("a", "b/c"), ("a/b", "c"), ("a", "b"), ("a", "c"))}
    assert len(names) == 4
