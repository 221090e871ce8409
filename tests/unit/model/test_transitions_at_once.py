"""The short way through the table: a first attempt and its end become the same state as by `apply` of both."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.outcome import RETURNED, PendingEffect
from beforehand.model.transitions import apply, ended_at_once, is_only_start

BOOT = "monday"
INTENT = r.Intent("charge", r.Raw(b"{}"), "digest", "contract", observed=r.Raw(b'{"stock":3}'))
STARTED = r.AttemptStarted(step="charge#1", number=1, token=4, send_by=9, intent=INTENT, at=1000, up=50)


def settled(**fields: Any) -> r.OperationSettled:
    return replace(
        r.OperationSettled(
            step="charge#1", status="succeeded", basis=RETURNED, number=1, end=r.End("returned"), rule="returned",
            reason="it is there", result=r.Raw(b'"r-1"'), at=1010, up=60,
        ),
        **fields,
    )  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [
        settled(),
        settled(unverified=True, missing=("seat",), lost="it does not fit", met=PendingEffect("desk/charge#0")),
        settled(status="failed", code="402", end=r.End("rejected", code="402"), result=r.NOTHING),
    ],
)
def test_the_short_way_makes_the_state_that_the_table_makes(record: r.OperationSettled):
    assert ended_at_once(STARTED, record, BOOT) == apply(apply(None, STARTED, BOOT), record, BOOT)


@pytest.mark.parametrize(
    ("started", "record"),
    [
        (STARTED, settled(end=None)),
        (STARTED, settled(number=2)),
        (STARTED, settled(status="unknown")),
        (STARTED, settled(status="cancelled")),
        (replace(STARTED, intent=None), settled()),
    ],
)
def test_everything_else_goes_through_the_table(started: r.AttemptStarted, record: r.OperationSettled):
    assert ended_at_once(started, record, BOOT) is None


@pytest.mark.parametrize(
    ("started", "ordinary"),
    [
        (STARTED, True),
        (replace(STARTED, number=2), False),
        (replace(STARTED, intent=None), False),
        (replace(STARTED, approval="a1"), False),
        (replace(STARTED, standing="s-1"), False),
        (replace(STARTED, intent=replace(INTENT, compensates="charge#0")), False),
        (replace(STARTED, intent=replace(INTENT, confirms="charge#0")), False),
        (replace(STARTED, intent=replace(INTENT, completes="charge#0")), False),
    ],
)
def test_only_an_ordinary_first_attempt_may_take_the_short_way(started: r.AttemptStarted, ordinary: bool):
    assert is_only_start(started) is ordinary
