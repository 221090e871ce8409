"""What is remembered of a subject: what was sent and said since some moment, and nothing where nobody is named."""

import msgspec
import pytest

from holdfast.model.policy import Past, PolicyFacts
from holdfast.model.tool_history import Deed, deed_of, deeds_stream, past_of

FACTS = PolicyFacts("refund", "desk", 12, "mon", amount=40.0, subject="ann")


def test_only_what_is_recent_enough_counts():
    deeds = [
        Deed("sent", 1, "r/1", 5.0),
        Deed("sent", 10, "r/2", 7.0),
        Deed("approved", 11, "r/2"),
        Deed("declined", 12, "r/3"),
    ]
    assert past_of(deeds, 10) == Past(1, 7.0, 1, 1)
    assert past_of(deeds, 0) == Past(2, 12.0, 1, 1)
    assert past_of([], 0) == Past()


@pytest.mark.parametrize(
    ("facts", "known"), [(None, False), (FACTS, True), (msgspec.structs.replace(FACTS, subject=""), False)]
)
def test_a_deed_is_remembered_where_somebody_is_concerned(facts: PolicyFacts | None, known: bool):
    assert deed_of(facts, "sent", "r/1", 5) == (Deed("sent", 5, "r/1", 40.0) if known else None)


def test_what_has_no_amount_adds_nothing():
    deed = deed_of(msgspec.structs.replace(FACTS, amount=None), "sent", "r/1", 5)
    assert deed is not None
    assert deed.amount == 0.0


def test_each_tool_and_subject_has_a_stream_of_its_own():
    names = {deeds_stream(tool, who) for tool, who in (("a", "b/c"), ("a/b", "c"), ("a", "b"), ("a", "c"))}
    assert len(names) == 4
