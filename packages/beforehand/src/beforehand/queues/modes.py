"""The mode of a queue: paused, draining, both or neither, as the commands of people in the ledger make it.

A command is an entry of the stream that declares limits. So the number that a journal compares before it gives a slot
or stores a run covers both: no process acts under a mode that another one has replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

QueueWord = Literal["pause", "drain", "resume"]


class QueueCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's command about one queue."""

    word: QueueWord
    queue: str
    by: str = ""
    why: str = ""


class Restriction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who has restricted a queue, why, and at which wall clock."""

    by: str
    at_ms: int
    why: str = ""

    def __str__(self) -> str:
        return f"by {self.by}" + (f": {self.why}" if self.why else "")


class QueueMode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A paused queue starts no run that has not begun, and a draining one accepts none. Only `resume` ends either."""

    paused: Restriction | None = None
    draining: Restriction | None = None

    def __bool__(self) -> bool:
        """True if the queue is restricted."""
        return self.paused is not None or self.draining is not None

    def __str__(self) -> str:
        named = (("paused", self.paused), ("draining", self.draining))
        return ", ".join(f"{name} {one}" for name, one in named if one is not None)

    def after(self, command: QueueCommand, at_ms: int) -> QueueMode:
        """The mode after one more command. A restriction that is there already keeps its first giver."""
        mine = Restriction(command.by, at_ms, command.why)
        match command.word:
            case "pause":
                return replace(self, paused=self.paused or mine)
            case "drain":
                return replace(self, draining=self.draining or mine)
            case "resume":
                return OPEN


OPEN: Final = QueueMode()


def command_key(queue: str, entry: int) -> str:
    """The key of a command that was given when `entry` was the newest of the stream: of two at once, one counts."""
    return f"{queue}/{entry}"


def queue_of(key: str) -> str:
    """The queue that the entry of this key commands; empty for a declaration of limits."""
    return key.rpartition("/")[0]


def with_command(
    modes: Mapping[str, QueueMode], entry: int, key: str, at_ms: int, command: QueueCommand | None
) -> Mapping[str, QueueMode]:
    """The modes of all queues after one more entry. One that cannot be read (None) may have been a pause, so it is."""
    queue = queue_of(key)
    given = command or QueueCommand("pause", queue, f"ledger entry {entry}", "it cannot be read")
    return {**modes, queue: modes.get(queue, OPEN).after(given, at_ms)}
