"""From a recorded operation to the `Outcome` that agent code receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.flight import key_of
from holdfast.engine.steps import Told
from holdfast.model.operation import OperationState
from holdfast.model.outcome import Outcome, Receipt
from holdfast.model.reports import LOST

if TYPE_CHECKING:
    from holdfast.agent.tool import Tool

R = TypeVar("R")


def outcome_from(tool: Tool[Any, R], arguments: dict[str, Any], told: Told, run: str, namespace: str) -> Outcome[R]:
    """What is told: the recorded outcome, an outcome that was reused, or that it is unknown."""
    operation = told.operation
    name = f"{run}/{told.step}"
    if told.how == "unknown":
        return Outcome("unknown", name, tool.name, reason=operation.reason, arguments=arguments)
    if operation.reused:
        return _with_value(tool, operation, Outcome(
            "succeeded", name, tool.name, operation.basis, _reuse_text(operation), reused=operation.reused,
            arguments=arguments,
        ))  # fmt: skip
    status = operation.status
    if status != "succeeded":
        return Outcome(status, name, tool.name, operation.basis, operation.reason, operation.code, arguments=arguments)
    assert operation.basis is not None, operation
    receipt = Receipt(
        name, tool.name, key_of(namespace, run, told.step, operation.intent), operation.basis, operation.settled_at
    )
    done: Outcome[R] = Outcome("succeeded", name, tool.name, operation.basis, arguments=arguments, receipt=receipt)
    return _with_value(tool, operation, done)


def _reuse_text(operation: OperationState) -> str:
    return f"{operation.reused} stands already"


def _with_value(tool: Tool[Any, R], operation: OperationState, outcome: Outcome[R]) -> Outcome[R]:
    """The outcome with the decoded result, or marked as lost where the result cannot make the trip."""
    from msgspec.structs import replace  # noqa: PLC0415 - kept beside its only use

    if operation.lost:
        return replace(outcome, code=LOST, reason=operation.reason)
    try:
        value = tool.codec.decode(operation.result)
    except ValueError as error:
        return replace(outcome, code=LOST, reason=str(error))
    return replace(outcome, value=value)
