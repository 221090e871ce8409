"""Child runs: their names, and what the records of a run say about those that it started. Pure.

A child belongs to one step of one run, so its name follows from both: starting the step again is starting the same run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.ids import CHILD_MARK, RUN_ID

DEEPEST: Final = 16
"""How many runs may be above a child: agents that start each other without end are refused here."""
CHILD_ENDED: Final = "child_ended"
"""The command by which a child tells its parent that it has ended; its note is the name of the child."""
RunEnd: TypeAlias = r.RunCompleted | r.RunStoppedRecord | r.RunUndone
_STEP: Final = re.compile(r"start:([^/~#]+)#([1-9][0-9]{0,8})")
_NAMED: Final = re.compile(r"[A-Za-z0-9_:@+=,-]+")
"""Steps that code named, as far as they can stand in a name; without a dot, which other names have."""
_LONGEST_PART: Final = 80


class ChildState(msgspec.Struct, frozen=True):
    """A child of a run. `cancelled`: a command to cancel it was stored. `joined`: its end was received.

    It is `over` if that was its result. One that was stopped may continue.
    """

    run: str
    agent: str
    outlives: bool = False
    cancelled: bool = False
    joined: bool = False
    over: bool = False


class Children(msgspec.Struct, eq=False):
    """The children of a run, by name, in the order in which they were started."""

    by_name: dict[str, ChildState] = {}

    def start(self, record: r.ChildStarted) -> None:
        """The run starts a child."""
        self.by_name[record.run] = ChildState(record.run, record.agent, record.outlives)

    def join(self, record: r.ChildJoined) -> None:
        """The run received the end of a child."""
        child = self.by_name.get(record.run)
        if child is not None:
            self.by_name[record.run] = replace(child, joined=True, over=record.status == "completed")

    def cancel(self) -> None:
        """All children are cancelled with the run."""
        for name, child in self.by_name.items():
            self.by_name[name] = replace(child, cancelled=True)

    def reopen(self) -> None:
        """The run continues after a stop: a later command cancels its children again."""
        for name, child in self.by_name.items():
            self.by_name[name] = replace(child, cancelled=False)

    def not_joined(self) -> list[str]:
        """The children whose end was not received."""
        return [name for name, child in self.by_name.items() if not child.joined]

    def to_cancel(self) -> list[ChildState]:
        """The children that a cancelled run has to cancel and has not."""
        return [child for child in self.by_name.values() if not (child.cancelled or child.over)]


def child_id(parent: str, step: str) -> str:
    """The name of the child that this step of a run starts: `trip-17~hotel.1` for `start:hotel#1`.

    A step that code named gives its name. One in a branch, and one that would make the name too long, gives its digest.
    """
    plain = _STEP.fullmatch(step)
    name = f"{parent}{CHILD_MARK}{plain[1]}.{plain[2]}" if plain is not None else f"{parent}{CHILD_MARK}{step}"
    if RUN_ID.fullmatch(name) is not None and (plain is not None or _NAMED.fullmatch(step)):
        return name
    whole = hashlib.sha256(f"{len(parent)}/{parent}/{step}".encode()).hexdigest()[:20]
    shown = re.sub(r"[^A-Za-z0-9_-]+", "_", step.rpartition("/")[2].removeprefix("start:").partition("#")[0])
    return f"{parent[:_LONGEST_PART]}{CHILD_MARK}{shown[:_LONGEST_PART]}.x{whole}"


def ended_as(records: Iterable[r.Record]) -> RunEnd | None:
    """The last end among these records; None if the run was reopened since, or has not ended."""
    end: RunEnd | None = None
    for record in records:
        if isinstance(record, (r.RunCompleted, r.RunStoppedRecord, r.RunUndone)):
            end = record
        elif isinstance(record, r.RunReopened):
            end = None
    return end
