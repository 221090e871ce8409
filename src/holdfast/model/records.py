"""The records of a run: one frozen class per kind, named in the past tense.

Every record is one JSON object that a person can read with `sqlite3`. `at` is the wall clock in
milliseconds, for people; `up` is the journal's clock (milliseconds on the boot that the last
`Claimed` names), for windows, which must not move when somebody sets the clock.
"""

from __future__ import annotations

from typing import TypeAlias

from holdfast.model.records_common import NOTHING, Raw
from holdfast.model.records_operation import (
    ApprovalGranted,
    AttemptEnded,
    AttemptStarted,
    CompensationLinked,
    Contradicted,
    End,
    EndKind,
    HoldReleased,
    Intent,
    LateReport,
    OperationDeferred,
    OperationHeld,
    OperationParked,
    OperationPlanned,
    OperationRecord,
    OperationSettled,
    OutcomeReused,
    Reobserved,
    Resolved,
    Verified,
    WaitScheduled,
)
from holdfast.model.records_run import (
    CallerLeft,
    Claimed,
    CommandApplied,
    ContractStored,
    DecisionRecorded,
    DecisionStarted,
    Delivered,
    EventReceived,
    ReadRecorded,
    RunCompleted,
    RunRecord,
    RunReopened,
    RunStarted,
    RunStopped,
    RunSuspended,
    TimerFired,
    TimerSet,
    ValueRecorded,
)

Record: TypeAlias = OperationRecord | RunRecord

__all__ = [
    "NOTHING",
    "ApprovalGranted",
    "AttemptEnded",
    "AttemptStarted",
    "CallerLeft",
    "Claimed",
    "CommandApplied",
    "CompensationLinked",
    "ContractStored",
    "Contradicted",
    "DecisionRecorded",
    "DecisionStarted",
    "Delivered",
    "End",
    "EndKind",
    "EventReceived",
    "HoldReleased",
    "Intent",
    "LateReport",
    "OperationDeferred",
    "OperationHeld",
    "OperationParked",
    "OperationPlanned",
    "OperationRecord",
    "OperationSettled",
    "OutcomeReused",
    "Raw",
    "ReadRecorded",
    "Record",
    "Reobserved",
    "Resolved",
    "RunCompleted",
    "RunRecord",
    "RunReopened",
    "RunStarted",
    "RunStopped",
    "RunSuspended",
    "TimerFired",
    "TimerSet",
    "ValueRecorded",
    "Verified",
    "WaitScheduled",
]
