"""What one step was told, and over which records an operation went."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec

from holdfast.model import records as r
from holdfast.model.operation import OperationState

Answer: TypeAlias = (
    r.ReadRecorded
    | r.DecisionRecorded
    | r.ValueRecorded
    | r.TimerFired
    | r.EventReceived
    | r.HandedOff
    | r.MessageHeard
)

ANSWERS: Final = (r.ReadRecorded, r.DecisionRecorded, r.ValueRecorded, r.TimerFired, r.EventReceived, r.HandedOff)
"""The records that answer a step other than a write: what they hold is what code is told."""


class Delivery(msgspec.Struct, gc=False):
    """What one step was told: its `outcome`, that it is `unknown`, or nothing because its caller had `left`.

    `attempts` is how many there were where it was told something before its outcome.
    """

    index: int
    step: str
    told: str = "outcome"
    detail: str = ""
    attempts: int = 0


class Span(NamedTuple):
    """From which record of the run to which one an operation went; `ended` is 0 while it goes on."""

    begun: int
    ended: int = 0


def turned_out_otherwise(before: OperationState | None, after: OperationState) -> bool:
    """Whether there is an effect that was not counted on, or none that was."""
    if before is None:
        return False
    found = after.phase == "succeeded" and (before.phase == "unknown" or bool(after.overtaken))
    return before.contradicted != after.contradicted or (found and not before.final)
