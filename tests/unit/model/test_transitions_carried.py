"""What goes with an operation from record to record: the permission that it uses, and what was seen before it."""

from __future__ import annotations

import pytest

from beforehand.model import records as r
from tests.unit.model.stories import STEP, Story

# --- permissions ----------------------------------------------------------------------------------------------


def holds(story: Story, **permission: str) -> Story:
    return story.took(r.OperationHeld(step=STEP, transaction="trip", **permission, **story.stamp()))


def begins(story: Story, **permission: str) -> Story:
    return story.took(r.AttemptStarted(step=STEP, intent=story.intent, **permission, **story.stamp()))


def test_a_first_attempt_says_which_standing_permission_it_uses():
    assert begins(Story(), standing="s1").state.approval.permission == "s1"


@pytest.mark.parametrize("goes_on", [holds, begins], ids=["a hold", "an attempt"])
@pytest.mark.parametrize("permission", ["approval", "standing"])
@pytest.mark.parametrize(
    ("before", "named", "kept"),
    [("", "new", "new"), ("old", "", "old"), ("old", "new", "new")],
    ids=["the first one", "none named", "another one"],
)
def test_a_permission_stays_until_another_is_named(goes_on, permission, before, named, kept):
    story = goes_on(holds(Story().planned(), **{permission: before}).released(), **{permission: named})
    assert getattr(story.state.approval, {"approval": "approved_digest", "standing": "permission"}[permission]) == kept


# --- preconditions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "reading", "seen", "kept"),
    [
        (r.NOTHING, "same", r.Raw(b"1"), r.Raw(b"1")),
        (r.Raw(b"1"), "same", r.NOTHING, r.Raw(b"1")),
        (r.NOTHING, "unreadable", r.Raw(b'"no route"'), r.NOTHING),
        (r.Raw(b"1"), "unreadable", r.Raw(b'"no route"'), r.Raw(b"1")),
        (r.Raw(b"1"), "changed", r.Raw(b"2"), r.Raw(b"1")),
    ],
    ids=["the first", "one that adds nothing", "an error", "an error later", "a change that nobody approved around"],
)
def test_only_a_first_reading_is_what_later_ones_are_compared_with(known, reading, seen, kept):
    story = Story(observed=known).planned().reobserved(reading, bytes(seen))
    assert story.state.observed == kept
