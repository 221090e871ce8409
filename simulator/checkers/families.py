"""Child runs: each is stored once, joined as it ended, and called off with the run that started it.

As the checker, it reads the durable records; it never asks the product.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.model import records as r
from simulator.agents.families import DEADLINE

if TYPE_CHECKING:
    from simulator.services.service import Request
    from simulator.world import World

FAMILY: Final = 32
LATE_MS: Final = 10 * 60_000
"""From this time after a run was called off, nothing is sent by runs below it. A process may be stopped until then."""
COMMITS_MS: Final = 5_000
"""A commit takes less, on the slowest disk."""
CALLED_OFF: Final = frozenset({"cancelled", "handed_over"})
ENDED: Final = frozenset({"completed", "stopped", "undone"})


class Child(msgspec.Struct, frozen=True):
    """A child by the record of its parent."""

    parent: str
    step: str
    outlives: bool


class Families:
    """Every child run of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self.runs: Final[dict[str, Child]] = {}
        """The children that are on record in their parents."""
        self.stored: Final[set[str]] = set()
        self._left: Final[set[tuple[str, str]]] = set()
        """The steps that start a child and whose caller was cancelled: the child may be recorded and never stored."""
        self._ends: dict[str, r.RunCompleted | r.RunStoppedRecord] = {}
        self._joined: set[str] = set()
        self._until: dict[str, int] = {}
        """The wall clock at which the time of a child is over: its own, or that of a run above it."""
        self._late: dict[tuple[str, int], str] = {}
        """The attempts that are on record after the time of their run, by operation and number: none may be sent."""
        self._off: dict[str, int] = {}
        """The runs that were called off, themselves or with a run above them, and when."""

    # --- what became durable ---------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        match record:
            case r.ChildStarted():
                self._started(run, record)
            case r.RunStarted(parent=r.Parent() as parent, at=at):
                self._begun(run, parent)
                own = at + round(DEADLINE.total_seconds() * 1000)
                self._until[run] = min(own, self._until.get(parent.run, own))
            case r.CallerLeft(step=step):
                self._left.add((run, step))
            case r.ChildJoined():
                self._join(run, record)
            case r.CommandApplied(command="cancel" | "take_over", refused=""):
                self._check_cancel(run)
                self._call_off(run)
            case r.RunCompleted() | r.RunStoppedRecord():
                self._ends[run] = record
            case r.RunReopened():
                self._ends.pop(run, None)
            case r.AttemptStarted():
                self._sent(run, record)
            case r.OperationSettled(reason=reason) if "deadline" in reason and run in self._until:
                self._reached("its time was over")
            case _:
                return

    def about_to_send(self, request: Request) -> None:
        """A request leaves its process. One that was recorded too late was held back right before the call."""
        if (late_by := self._late.get((request.operation, request.attempt))) is not None:
            self._broken(FAMILY, late_by)

    def _sent(self, run: str, record: r.AttemptStarted) -> None:
        late = self._world.now_ms() - self._off.get(run, self._world.now_ms())
        if late > LATE_MS and not record.step.endswith("/undo"):  # what is compensated is tried for longer
            self._broken(FAMILY, f"{run}/{record.step} is sent {late} ms after a run above it was called off")
        until = self._until.get(run, record.at)
        # A clock that is set between the decision and its record makes a send look late that was in time.
        if record.at > until and self._world.now_ms() - self._world.jumped_ms > COMMITS_MS:
            late_by = f"{run}/{record.step} is sent {record.at - until} ms after its time was over"
            self._late[f"{run}/{record.step}", record.number] = late_by

    def _started(self, run: str, record: r.ChildStarted) -> None:
        child = Child(run, record.step, record.outlives)
        if self.runs.setdefault(record.run, child) != child:
            self._broken(FAMILY, f"{record.run} is on record as a child of {self.runs[record.run]} and of {child}")
        self._reached("started")

    def _begun(self, run: str, parent: r.Parent) -> None:
        known = self.runs.get(run)
        if known is None or (known.parent, known.step) != (parent.run, parent.step):
            self._broken(FAMILY, f"{run} is stored as a child of {parent.run}/{parent.step}, which knows {known}")
        if run in self.stored:
            self._broken(FAMILY, f"{run} is stored twice")
        self.stored.add(run)
        if parent.depth > 1:
            self._reached("a child of a child")

    def _join(self, run: str, record: r.ChildJoined) -> None:
        end = self._ends.get(record.run)
        if end is None:
            self._broken(FAMILY, f"{run} joins {record.run}, which has not ended")
            return
        if isinstance(end, r.RunCompleted):
            same = record.status == "completed" and bytes(record.result) == bytes(end.result)
        else:
            same = record.status == "stopped" and record.reason == end.reason
        if not same:
            self._broken(FAMILY, f"{run} joins {record.run} as {record.status} {record.reason}, which ended as {end}")
        self._joined.add(record.run)
        self._reached(f"joined: {record.reason or record.status}")

    def _check_cancel(self, run: str) -> None:
        """A child is cancelled by a person, with its parent, or where its parent has left it."""
        child = self.runs.get(run)
        ordered = any((order.run, order.word) == (run, "cancel") for order in self._world.plan.orders)
        if child is None or ordered or run in self._off:
            return
        if not isinstance(self._ends.get(child.parent), r.RunCompleted) or child.outlives or run in self._joined:
            self._broken(FAMILY, f"{run} is cancelled, and neither its parent {child.parent} nor a person did so")

    def _call_off(self, run: str) -> None:
        self._off.setdefault(run, self._world.now_ms())
        for child, known in self.runs.items():
            if known.parent == run and child not in self._off:
                self._call_off(child)

    # --- at the end of time ----------------------------------------------------------------------------------

    def behind(self, run: str, resting: Collection[str]) -> bool:
        """True if a run below this one waits for a person, so that this one may wait for it as long."""
        below = [child for child, known in self.runs.items() if known.parent == run and not self._has_ended(child)]
        return any(child in resting or child in self._ends or self.behind(child, resting) for child in below)

    def _has_ended(self, run: str) -> bool:
        """True unless a run goes on, or its budget has stopped it: then it goes on once a person raises that."""
        end = self._ends.get(run)
        return end is not None and not (isinstance(end, r.RunStoppedRecord) and end.reason == "budget")

    async def at_the_end(self) -> None:
        """Each child is stored, unless its parent ended before that, and none goes on whose parent has left it."""
        rows = {row.run: row for row in await self._world.journal.runs(limit=10_000)}
        for child, known in self.runs.items():
            end = self._ends.get(known.parent)
            if child not in self.stored:
                if isinstance(end, r.RunCompleted) and (known.parent, known.step) not in self._left:
                    self._broken(FAMILY, f"{known.parent} is completed, and its child {child} was never stored")
                continue
            called_off = isinstance(end, r.RunStoppedRecord) and end.reason in CALLED_OFF
            left = isinstance(end, r.RunCompleted) and not known.outlives
            if (called_off or left) and rows[child].status not in ENDED:
                how = "called off" if called_off else "completed without it"
                self._broken(FAMILY, f"{known.parent} was {how}, and its child {child} is {rows[child].status}")
            if left and child not in self._joined:
                self._reached("left and cancelled" if child in self._off else "left and ended")
            if called_off:
                self._reached("called off with its parent")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"family: {what}"] += 1
