"""The operations of a boundary, with everything that `model.closing.close` has to know about each."""

from __future__ import annotations

from typing import Final

from holdfast.engine.flight import Flight, flight_of
from holdfast.engine.instance import Instance
from holdfast.engine.tooling import ToolCode
from holdfast.model.boundaries import members_of
from holdfast.model.closing import CONFIRM, UNDO, Member, serving
from holdfast.model.deliveries import Span
from holdfast.model.operation import OperationState
from holdfast.model.run import RunHistory
from holdfast.model.situation import Reading
from holdfast.model.transactions import Transaction


class Members:
    """What belongs to a boundary that is being closed; `reading` is what reading preconditions again gave.

    On the way back nothing joins it and nothing lapses, so a member is built anew only when its records say more:
    undoing a long run looks at all of it after every step.
    """

    def __init__(self, instance: Instance, transaction: str) -> None:
        self.reading: Final[dict[str, Reading]] = {}
        self._instance = instance
        self._transaction = transaction
        self._known: dict[str, Member] = {}

    def now(self) -> list[Member]:
        """Every member as it stands, in order of start."""
        history = self._instance.history
        boundary = history.transactions[self._transaction]
        return [self._member(boundary, operation) for operation in members_of(history, self._transaction)]

    def _member(self, boundary: Transaction, operation: OperationState) -> Member:
        known, operations = self._known.get(operation.step), self._instance.history.operations
        amends = operations.get(operation.compensated_by) if operation.compensated_by else None
        confirmation = operations.get(serving(operation.step, CONFIRM))
        if boundary.backward and known is not None and not known.parts:
            then = known.operation, known.amends, known.confirmation
            if all(was is now for was, now in zip(then, (operation, amends, confirmation), strict=True)):
                return known
        member = self._known[operation.step] = self._built(operation, amends, confirmation)
        return member

    def _built(
        self, operation: OperationState, amends: OperationState | None, confirmation: OperationState | None
    ) -> Member:
        instance, step = self._instance, operation.step
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
    if lapses_ms is None or operation.phase != "succeeded":
        return False
    settings = instance.engine.settings
    age = instance.engine.seams.clock.wall_ms() - operation.settled_at
    return age < -settings.clock_error_ms or age >= lapses_ms - min(settings.clock_error_ms, lapses_ms // 10)
