"""One run as its records tell it: folded record by record, without asking anybody.

`deliveries` is the order in which agent code was told things; replay tells them in that order. The
first record that answers a step is its delivery, whatever is learned later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, TypeGuard

import msgspec

from holdfast.model import records as r
from holdfast.model.operation import OperationState
from holdfast.model.outcome import FINAL
from holdfast.model.transitions import MOVES, apply

RunState = Literal["new", "running", "suspended", "completed", "stopped", "undone"]
Answer: TypeAlias = r.ReadRecorded | r.DecisionRecorded | r.ValueRecorded | r.TimerFired | r.EventReceived

_ANSWERS: Final = (r.ReadRecorded, r.DecisionRecorded, r.ValueRecorded, r.TimerFired, r.EventReceived)
_PROGRESS: Final = (r.AttemptEnded, r.OperationSettled, *_ANSWERS)


def is_about_operation(record: r.Record) -> TypeGuard[r.OperationRecord]:
    """Whether the record is about one operation, rather than about the run."""
    return type(record) in MOVES


class Delivery(msgspec.Struct):
    """What one step was told, and whether the present instance has been told it yet."""

    step: str
    told: str = "outcome"
    detail: str = ""
    consumed: bool = False


class RunHistory:
    """The fold of one run. Mutable, and a function of the records alone."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.status: RunState = "new"
        self.reason = ""
        self.started: r.RunStarted | None = None
        self.completed: r.RunCompleted | None = None
        self.stopped: r.RunStopped | None = None
        self.operations: dict[str, OperationState] = {}
        self.answers: dict[str, Answer] = {}
        self.timers: dict[str, r.TimerSet] = {}
        self.decisions_begun: dict[str, int] = {}
        self.deliveries: list[Delivery] = []
        self.delivered: dict[str, int] = {}
        self.owners: dict[int, r.Claimed] = {}
        self.contracts: dict[str, r.ContractStored] = {}
        self.boot = ""
        self.claims_without_progress = 0
        self.entry_seen = 0
        self.events_taken: set[int] = set()
        self.cancelled: r.CommandApplied | None = None
        self.paused: r.CommandApplied | None = None
        self.records = 0

    def add(self, record: r.Record) -> None:
        """Take one more record. Raises `IllegalTransition` where it does not fit."""
        self.records += 1
        if isinstance(record, _PROGRESS):
            self.claims_without_progress = 0
        if is_about_operation(record):
            self._operation(record)
        elif isinstance(record, _ANSWERS):
            self.answers[record.step] = record
            self._deliver(record.step)
            if isinstance(record, r.EventReceived):
                self.events_taken.add(record.entry)
        else:
            self._run(record)  # type: ignore[arg-type]  # what is neither is about the run

    def check(self, records: Iterable[r.Record]) -> None:
        """Raise `IllegalTransition` if these records do not fit, without taking them."""
        trial: dict[str, OperationState] = {}
        for record in records:
            if is_about_operation(record):
                before = trial.get(record.step, self.operations.get(record.step))
                trial[record.step] = apply(before, record, self.boot)

    def open_operations(self) -> list[OperationState]:
        """Operations without a final outcome, in order of their first record."""
        return [operation for operation in self.operations.values() if operation.phase not in FINAL]

    def unconsumed_writes(self) -> list[str]:
        """Recorded operations that this instance's code has not come back to."""
        return [step for step in self.operations if not self._seen(step)]

    def _seen(self, step: str) -> bool:
        index = self.delivered.get(step)
        return index is not None and self.deliveries[index].consumed

    def _operation(self, record: r.OperationRecord) -> None:
        step = record.step
        operation = apply(self.operations.get(step), record, self.boot)
        self.operations[step] = operation
        if isinstance(record, r.Resolved):
            self.entry_seen = max(self.entry_seen, record.entry)
        if operation.final and not operation.intent.compensates:
            self._deliver(step)

    def _deliver(self, step: str, told: str = "outcome", detail: str = "") -> None:
        if step not in self.delivered:
            self.delivered[step] = len(self.deliveries)
            self.deliveries.append(Delivery(step, told, detail))

    def _run(self, record: r.RunRecord) -> None:
        match record:
            case r.RunStarted():
                self.started, self.status = record, "running"
            case r.Claimed():
                self.owners[record.token] = record
                self.boot = record.boot
                self.claims_without_progress += 1
                self.status = "running" if self.status == "suspended" else self.status
            case r.ContractStored():
                self.contracts[record.digest] = record
            case r.DecisionStarted():
                self.decisions_begun[record.step] = record.number
            case r.TimerSet():
                self.timers[record.step] = record
            case r.Delivered():
                self._deliver(record.step, record.told, record.detail)
            case r.CallerLeft():
                self._left(record.step)
            case r.CommandApplied():
                self._command(record)
            case r.RunSuspended():
                self.status, self.reason = "suspended", record.reason
            case r.RunReopened():
                self.status, self.reason, self.stopped, self.cancelled = "running", "", None, None
                self.claims_without_progress = 0
            case r.RunCompleted():
                self.status, self.completed = "completed", record
            case r.RunStopped():
                self.status, self.reason, self.stopped = "stopped", record.reason, record
            case _:
                raise AssertionError(record)

    def _left(self, step: str) -> None:
        self._deliver(step, "left")
        self.deliveries[self.delivered[step]].told = "left"  # the outcome was there, the caller was not

    def _command(self, record: r.CommandApplied) -> None:
        self.entry_seen = max(self.entry_seen, record.entry)
        match record.command:
            case "cancel":
                self.cancelled = record
            case "pause":
                self.paused = record
            case "unpause":
                self.paused = None
            case _:
                self.reason = record.note
