"""The operations of a boundary, with everything that `model.closing.close` has to know about each."""

from __future__ import annotations

from typing import Final, Self

from holdfast.engine.flight import Flight, flight_of
from holdfast.engine.instance import Instance
from holdfast.engine.tooling import ToolCode
from holdfast.model.decision.situation import Reading
from holdfast.model.operation import OperationState
from holdfast.model.run_history import RunHistory, Span, members_of
from holdfast.model.saga import CONFIRM, UNDO, Backlog, Member, serving
from holdfast.model.transaction import encloses


class Members:
    """What belongs to a boundary that is being closed; `reading` is what reading preconditions again gave.

    On the way back nothing joins it and nothing lapses: after every step only what has news is looked at.
    """

    def __init__(self, instance: Instance, transaction: str) -> None:
        self.reading: Final[dict[str, Reading]] = {}
        self._instance = instance
        self._transaction = transaction
        self._backlog: Backlog | None = None
        self._news: Final[set[str]] = set()

    def __enter__(self) -> Self:
        """Hear of what is recorded from here on."""
        self._instance.changes[self._transaction] = self._news
        return self

    def __exit__(self, *_: object) -> None:
        """Hear of nothing more."""
        del self._instance.changes[self._transaction]

    def every(self) -> list[Member]:
        """Every member as it stands, in order of start."""
        history = self._instance.history
        return [self._member(operation) for operation in members_of(history, self._transaction)]

    def now(self) -> list[Member]:
        """Those on which the next decision rests, in order of start; every one on the way forward, and at the end."""
        boundary = self._instance.history.transactions[self._transaction]
        if not boundary.backward:
            return self.every()
        if self._backlog is None or not self._caught_up(self._backlog):
            self._backlog = Backlog(boundary, self.every())
        self._news.clear()
        return self._backlog.front() or self.every()

    def _caught_up(self, backlog: Backlog) -> bool:
        """Whether the news since the last look is about members, which stand there now as they do in the records.

        What a person said about the boundary itself is not about a member: the backlog is made again.
        """
        operations = self._instance.history.operations
        for step in self._news:
            about = operations.get(step)
            while about is not None and about.intent.serves:
                about = operations.get(about.intent.serves)
            if about is None or (about.step not in backlog and encloses(self._transaction, about.step)):
                return False
            if about.step in backlog:
                backlog.put(self._member(about))
        return True

    def _member(self, operation: OperationState) -> Member:
        instance, step, operations = self._instance, operation.step, self._instance.history.operations
        amends = operations.get(operation.compensated_by) if operation.compensated_by else None
        confirmation = operations.get(serving(step, CONFIRM))
        flight = flight_of(instance, step)
        contract, span = flight.contract(), instance.history.spans.get(step, Span(0))
        return Member(
            operation,
            contract,
            begun=span.begun,
            ended=span.ended,
            amends=amends,
            confirmation=confirmation,
            amendable=companion(flight, UNDO) is not None,
            confirmable=companion(flight, CONFIRM) is not None,
            reading=self.reading.get(step, "unread"),
            lapsed=_lapsed(instance, operation, contract.lapses_ms),
            parts=parts_of(instance.history, step),
            stray=step in instance.history.raised,
        )


def companion(flight: Flight, kind: str) -> ToolCode | None:
    """The tool that makes amends for an operation, or confirms it: the recorded one, else what took its place."""
    tools, declared = flight.instance.engine.tools, flight.tool.contract if flight.tool is not None else None
    for contract in (flight.contract(), declared):
        name = "" if contract is None else contract.amends if kind == UNDO else contract.confirms
        if name in tools:
            return tools[name]
    return None


def parts_of(history: RunHistory, step: str) -> tuple[OperationState, ...]:
    """The parts of an effect whose end came, or comes, later than that of the whole."""
    if step not in history.partial:
        return ()
    return tuple(operation for operation in history.operations.values() if operation.intent.completes == step)


def parts_met(history: RunHistory, step: str, reused: str) -> tuple[OperationState, ...]:
    """The parts of an effect, or of the one of this run that a repeat of it met, where it `reused` that."""
    return parts_of(history, step) or parts_of(history, reused.removeprefix(f"{history.run}/"))


def _lapsed(instance: Instance, operation: OperationState, lapses_ms: int | None) -> bool:
    """Whether a reservation's own time is over: it closes early by the error of the clocks."""
    if lapses_ms is None:
        return False
    settings = instance.engine.settings
    age = instance.engine.seams.clock.wall_ms() - operation.settled_at
    return age < -settings.clock_error_ms or age >= lapses_ms - min(settings.clock_error_ms, lapses_ms // 10)
