"""Messages to a run, which of its code has received them, and what they called off. A fold of records; pure.

Each branch of code receives a message where it would begin its next write. An operation that began before the message
came, and of which nothing can have landed, is called off by it: the code that waits for it receives the message there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from beforehand.model.operation import OperationState
from beforehand.model.outcome import FINAL, INTERRUPTED
from beforehand.model.records.operation import values_of
from beforehand.model.records.run import MessageHeard, MessageReceived


class Message(msgspec.Struct, frozen=True):
    """A message to a run: its text, its sender, facts by name, and the request to stop; `at_ms` is the wall clock."""

    text: str
    sender: str
    facts: Mapping[str, Any] = {}
    stop: bool = False
    at_ms: int = 0


def message_of(record: MessageReceived) -> Message:
    """The message as code reads it."""
    return Message(record.text, record.by, values_of(record.facts), record.stop, record.at)


class Messages:
    """The messages of one run, by their ledger entries, whose numbers rise with time."""

    def __init__(self) -> None:
        self.received: dict[int, MessageReceived] = {}
        self.delivered: dict[str, tuple[int, ...]] = {}
        """The messages delivered at each step."""
        self.called_off: dict[str, int] = {}
        """Operations that a message called off, and the first entry that is news to the code that waits for them."""
        self._came: dict[str, int] = {}
        """The first message that came while an operation was open, whether that called it off or not."""
        self.stop = 0
        """The first message that requested a stop."""

    @property
    def last(self) -> int:
        """The newest message."""
        return max(self.received)

    @property
    def undelivered(self) -> tuple[MessageReceived, ...]:
        """Messages that no code has received, in order."""
        delivered = {entry for entries in self.delivered.values() for entry in entries}
        return tuple(message for entry, message in sorted(self.received.items()) if entry not in delivered)

    def receive(self, record: MessageReceived, operations: Iterable[OperationState]) -> None:
        """A message came while these operations were on record."""
        self.received[record.entry] = record
        if record.stop and not self.stop:
            self.stop = record.entry
        for operation in operations:
            if _of_code(operation) and operation.phase not in FINAL:
                first = self._came.setdefault(operation.step, record.entry)
                if not operation.may_have_landed:
                    self.called_off.setdefault(operation.step, first)

    def begin(self, operation: OperationState) -> None:
        """An operation was recorded for the first time: while a message is undelivered, it is not sent either.

        Messages that other branches have received are news to its branch as well.
        """
        waiting = self.undelivered
        if _of_code(operation) and (waiting or self.stop):
            beside = [one for at, entries in self.delivered.items() if _beside(operation.step, at) for one in entries]
            first = waiting[0].entry if waiting else self.last + 1
            self.called_off[operation.step] = min((first, *beside))

    def withhold(self, operation: OperationState) -> None:
        """An attempt was recorded and not sent: a message that came in between calls the operation off now."""
        first = self._came.get(operation.step)
        if first is not None and not operation.may_have_landed:
            self.called_off.setdefault(operation.step, first)

    def deliver(self, record: MessageHeard) -> None:
        """Code received messages, at this step."""
        self.delivered[record.step] = record.messages

    def forget(self, step: str) -> None:
        """Undo a delivery: its receiver is gone, or its branch is not taken any more."""
        self.delivered.pop(step, None)

    def forget_those(self, gone: Callable[[str], bool]) -> None:
        """As `forget`, for every such step."""
        for step in [step for step in self.delivered if gone(step)]:
            del self.delivered[step]

    def delivered_at(self, step: str) -> tuple[MessageReceived, ...]:
        """The messages that code received at this step."""
        return tuple(self.received[entry] for entry in self.delivered.get(step, ()))

    def since(self, entry: int) -> tuple[int, ...]:
        """The messages after this one; where there are none, the one that requested a stop."""
        found = tuple(one for one in sorted(self.received) if one > entry)
        return found or ((self.stop,) if self.stop else ())


def was_interrupted(operation: OperationState) -> bool:
    """True if a message called it off: its caller receives the message, rather than an outcome."""
    return (
        operation.settlement.code == INTERRUPTED
        and operation.settlement.basis is not None
        and operation.settlement.basis.by == "rule"
    )


def _beside(step: str, other: str) -> bool:
    """True if these are steps of two parallel branches."""
    pairs = zip(step.split("/"), other.split("/"), strict=False)
    here, there = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return here.startswith("~") and there.startswith("~")


def _of_code(operation: OperationState) -> bool:
    """True if code waits for it: it serves no other operation, and is not held for a commit."""
    return not (operation.intent.serves or operation.released or operation.phase == "held")
