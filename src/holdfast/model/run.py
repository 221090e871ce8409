"""One run as its records tell it: folded record by record, without asking anybody.

`deliveries` are the things agent code was told, in order; replay tells them in that order. The first
record that answers a step is its delivery, whatever is learned later. What was told again is taken
out, and settled steps are then forgotten, so that a long run needs no more memory than a short one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, TypeGuard

import msgspec

from holdfast.model import records as r
from holdfast.model.operation import OperationState
from holdfast.model.outcome import FINAL
from holdfast.model.situation import Now
from holdfast.model.transitions import MOVES, apply

RunState = Literal["new", "running", "suspended", "completed", "stopped", "undone"]
Answer: TypeAlias = r.ReadRecorded | r.DecisionRecorded | r.ValueRecorded | r.TimerFired | r.EventReceived

_ANSWERS: Final = (r.ReadRecorded, r.DecisionRecorded, r.ValueRecorded, r.TimerFired, r.EventReceived)
_PROGRESS: Final = {r.AttemptEnded, r.OperationSettled, *_ANSWERS}


def is_about_operation(record: r.Record) -> TypeGuard[r.OperationRecord]:
    """Whether the record is about one operation, rather than about the run."""
    return type(record) in MOVES


class Delivery(msgspec.Struct, gc=False):
    """What one step was told: its `outcome`, that it is `unknown`, or nothing because its caller had `left`."""

    index: int
    step: str
    told: str = "outcome"
    detail: str = ""


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
        self.deliveries: dict[str, Delivery] = {}
        self.given = 0
        self.left: set[str] = set()
        self.told_unknown: set[str] = set()
        self.owners: dict[int, r.Claimed] = {}
        self.contracts: dict[str, r.ContractStored] = {}
        self.boot = ""
        self.boot_up = 0
        """When the run was first taken on the present boot: from then on that boot's clock measures everything."""
        self.claims_without_progress = 0
        self.entry_seen = 0
        self.events_taken: set[int] = set()
        self.cancelled: r.CommandApplied | None = None
        self.paused: r.CommandApplied | None = None
        self.records = 0

    def measured_since(self, now: Now, *, trusted: bool) -> int:
        """Since when the present boot's clock has measured time for this run, on that clock (`Now.up`).

        Whoever drove it on this boot waited on the same clock, so a window need not begin anew with each owner.
        What a restored journal says about its last owners is old: there, only from now on.
        """
        return self.boot_up if trusted and self.boot == now.boot else now.up

    def add(self, record: r.Record) -> None:
        """Take one more record. Raises `IllegalTransition` where it does not fit."""
        self.records += 1
        kind = type(record)
        if kind in _PROGRESS:
            self.claims_without_progress = 0
        if kind in MOVES:
            self._operation(record)  # type: ignore[arg-type]  # the table's keys are the records of operations
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

    def take(self, step: str) -> Delivery:
        """Take a delivery out: the code is being told it."""
        return self.deliveries.pop(step)

    def forget(self, step: str) -> None:
        """Let go of a settled step that was told: it never comes back under this name."""
        operation = self.operations.get(step)
        if operation is not None and operation.phase in FINAL:
            del self.operations[step]
        self.answers.pop(step, None)
        self.timers.pop(step, None)
        self.decisions_begun.pop(step, None)

    def _operation(self, record: r.OperationRecord) -> None:
        step = record.step
        before = self.operations.get(step)
        operation = apply(before, record, self.boot)
        self.operations[step] = operation
        if type(record) is r.Resolved:
            self.entry_seen = max(self.entry_seen, record.entry)
        if operation.phase not in FINAL or (before is not None and before.phase in FINAL):
            return
        if not operation.intent.compensates and step not in self.told_unknown and step not in self.left:
            self._deliver(step)

    def _deliver(self, step: str, told: str = "outcome", detail: str = "") -> None:
        self.deliveries[step] = Delivery(self.given, step, told, detail)
        self.given += 1

    def _run(self, record: r.RunRecord) -> None:
        """A record about the run: what its code is told, or how the run stands."""
        match record:
            case r.ContractStored():
                self.contracts[record.digest] = record
            case r.DecisionStarted():
                self.decisions_begun[record.step] = record.number
            case r.TimerSet():
                self.timers[record.step] = record
            case r.Delivered():
                self.told_unknown.add(record.step)
                self._deliver(record.step, record.told, record.detail)
            case r.CallerLeft():
                self._left(record.step)
            case r.CommandApplied():
                self._command(record)
            case _:
                self._stand(record)

    def _stand(self, record: r.RunRecord) -> None:
        """A record that moves the run from one state to another."""
        match record:
            case r.RunStarted():
                self.started, self.status = record, "running"
            case r.Claimed():
                self.owners[record.token] = record
                if record.boot != self.boot:
                    self.boot, self.boot_up = record.boot, record.up
                self.claims_without_progress += 1
                self.status = "running" if self.status == "suspended" else self.status
            case r.RunSuspended():
                self.status, self.reason = "suspended", record.reason
                self.claims_without_progress = 0  # its owner came to an end of its own: nobody died of it
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
        self.left.add(step)
        if step in self.deliveries:
            self.deliveries[step].told = "left"  # the outcome was there, the caller was not
        else:
            self._deliver(step, "left")

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
