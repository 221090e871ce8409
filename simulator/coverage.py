"""What simulations have reached: without it a run that never met a fault would count as a proof."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from beforehand.engine.environment import POINTS, TRANSACTION_POINTS
from simulator.agents.deferred import ASYNCHRONOUS
from simulator.agents.people import GATED
from simulator.generator.deferred import CASE_FAULTS, HOOK_FAULTS, RECALLS
from simulator.generator.people import (
    COMPENSATION_FAULTS,
    GATE_FAULTS,
    PEOPLE_FAULTS,
    QUESTION_FAULTS,
    REVIEW_FAULTS,
)
from simulator.generator.plans import CALL_FAULTS, PROCESS_FAULTS, RESTORE_FAULTS
from simulator.generator.processes import DARK
from simulator.people.policies import RULES
from simulator.services.network import STOPS

_ANSWERS: Final = {
    fault
    for faults in (
        *CALL_FAULTS.values(),
        *GATE_FAULTS.values(),
        CASE_FAULTS,
        HOOK_FAULTS,
        PEOPLE_FAULTS,
        REVIEW_FAULTS,
        COMPENSATION_FAULTS,
        QUESTION_FAULTS,
        RESTORE_FAULTS,
        DARK,
        RECALLS,
        STOPS,
    )
    for fault in faults
}
_STATES: Final = ("running", "ended")
EXPECTED_MEETINGS: Final = (
    *(f"{fault} x {state} x {tool}" for fault in PROCESS_FAULTS for state in _STATES for tool in sorted(CALL_FAULTS)),
    *(f"{fault} x awaiting x {tool}" for fault in PROCESS_FAULTS for tool in sorted(ASYNCHRONOUS)),
    *(f"{fault} x gated x {tool}" for fault in PROCESS_FAULTS for tool in GATED),
)
"""Each fault of a process has to find each kind of write with an attempt open, and between attempts; what was
accepted while its answer is awaited; and what waits for a person's yes."""

EXPECTED_RECORDS: Final = (
    "RunStarted", "Claimed", "ContractStored", "ReadRecorded", "TimerSet", "EventReceived", "RunSuspended",
    "RunCompleted", "OperationPlanned", "AttemptStarted", "AttemptEnded", "LateReport", "Verified", "Reobserved",
    "WaitScheduled", "OperationSettled", "OutcomeReused", "TransactionOpened", "TransactionCommitting",
    "TransactionCommitted", "TransactionAborting", "TransactionAborted", "TransactionParked", "OperationHeld",
    "HoldReleased", "CompensationLinked", "Delivered", "CallerLeft", "DecisionStarted", "DecisionRecorded",
    "OperationDeferred", "CommandApplied", "OperationParked", "ApprovalGranted", "ApprovalRefused", "ArgumentsEdited",
    "ResultGiven", "MessageReceived", "MessageHeard", "Ruled", "Resolved", "QuestionAsked", "HandedOff",
    "Contradicted", "ChildStarted", "ChildJoined",
)  # fmt: skip
"""Every kind of record that the standard scenario can lead to."""

EXPECTED_ENDINGS: Final = (
    *(f"answer to {tool} {status}" for tool in sorted(ASYNCHRONOUS) for status in ("succeeded", "failed")),
    *(f"answer to {tool} unknown" for tool in ("permit", "rent")),
    *(
        f"approval: {what}"
        for what in (
            "asked",
            "asked again",
            "asked about what has changed",
            "half approved",
            "approved",
            "declined",
            "expired",
            "edited",
            "asked about an edit",
            "answered by a person",
            "allowed in advance",
            "a word taken down",
            "a word refused",
        )
    ),
    *(f"permission: {what}" for what in ("given", "used", "used up", "revoked")),
    *(f"message: {what}" for what in ("taken down", "refused", "received", "heard", "called something off")),
    *(
        f"ruling: {what}"
        for what in ("auto", "sample", "ask", "two", "refuse", "drawn", "not drawn", "asked as before")
    ),
    *(
        f"review: {what}"
        for what in ("asked for", "happened", "did_not_happen", "retry", "same_key", "a word taken down")
    ),
    "time: a key in progress was waited for",
    "answer contradicted",
    *(f"time limit: {what}" for what in ("kept", "over", "on the way out")),
    *(
        f"process: {what}"
        for what in (
            "a person is asked about one that is stopped",
            "stopped and ended",
            "stopped_for_good and ended",
            "poison set aside",
        )
    ),
    *(f"past: {rule.name}" for rule in RULES[False]),
    *(
        f"question: {what}"
        for what in (
            "asked",
            "answered",
            "by default",
            "expired",
            "handed over",
            "taken over",
            "handed to an agent",
            "a word taken down",
            "a word refused",
        )
    ),
    *(f"compensations: {what}" for what in ("ordered", "called off", "made")),
    *(f"plan: {chosen}" for chosen in ("primary", "fallback 1", "skipped", "failed")),
    *(f"transaction {phase}" for phase in ("committed", "aborted", "parked")),
)
"""Every way in which what takes its time, or stands together, can end."""


class Reach(msgspec.Struct):
    """Counts over one simulation, or over many."""

    points: Counter[str] = msgspec.field(default_factory=Counter[str])
    faults: Counter[str] = msgspec.field(default_factory=Counter[str])
    records: Counter[str] = msgspec.field(default_factory=Counter[str])
    endings: Counter[str] = msgspec.field(default_factory=Counter[str])
    meetings: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Which fault met which kind of tool in which state of its operation."""

    def point(self, label: str) -> None:
        """A process came by a named point."""
        self.points[label] += 1

    def fault(self, kind: str, where: str) -> None:
        """A fault struck."""
        self.faults[f"{kind} @ {where}"] += 1

    def holes(self) -> list[str]:
        """What many simulations should have reached and did not: then they prove less than they seem to."""
        struck = {name.partition(" @ ")[0] for name in self.faults}
        return [
            *(f"no fault {kind}" for kind in sorted(PROCESS_FAULTS.keys() | _ANSWERS) if kind not in struck),
            *(f"no record {name}" for name in EXPECTED_RECORDS if not self.records[name]),
            *(f"nothing ended as: {ending}" for ending in EXPECTED_ENDINGS if not self.endings[ending]),
            *(f"no {meeting}" for meeting in EXPECTED_MEETINGS if not self.meetings[meeting]),
            *(f"no run reached {point}" for point in (*POINTS, *TRANSACTION_POINTS) if not self.points[point]),
        ]

    def add(self, other: Reach) -> None:
        """Count another simulation in."""
        for name in self.__struct_fields__:
            getattr(self, name).update(getattr(other, name))
