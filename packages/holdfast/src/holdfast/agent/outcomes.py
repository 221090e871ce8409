"""From a recorded operation or read to the `Outcome` that agent code receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.engine.operation_driver import key_of
from holdfast.engine.steps import DeliveredOperation, facts_of
from holdfast.errors import ArgumentError
from holdfast.model import records as r
from holdfast.model.operation import OperationState
from holdfast.model.outcome import LOST, RETURNED, Outcome, Receipt
from holdfast.model.run_history import PENDING

if TYPE_CHECKING:
    from holdfast.agent.tool import Tool

R = TypeVar("R")


def outcome_from(
    tool: Tool[Any, R], arguments: dict[str, Any], told: DeliveredOperation, run: str, namespace: str
) -> Outcome[R]:
    """What is told: the recorded outcome, an outcome that was reused, or that it is unknown."""
    if told.operation.edits:
        outcome = _outcome(tool, _sent(tool, told.operation), told, run, namespace)
        outcome = replace(outcome, edited_by=told.operation.editors[-1])
    else:
        outcome = _outcome(tool, arguments, told, run, namespace)
    facts = facts_of(told.heard)
    if not facts:
        return outcome
    return replace(outcome, facts=r.values_of(facts))


def _sent(tool: Tool[Any, Any], operation: OperationState) -> dict[str, Any]:
    """What was sent where a person changed what code called with."""
    stored = bytes(operation.intent.arguments)
    try:
        return tool.restore(stored)
    except ArgumentError:  # the tool has changed since: its values as they are on record
        return msgspec.json.decode(stored, type=dict[str, Any])


def _outcome(
    tool: Tool[Any, R], arguments: dict[str, Any], told: DeliveredOperation, run: str, namespace: str
) -> Outcome[R]:
    operation = told.operation
    name = f"{run}/{told.step}"
    if told.how == PENDING:
        return Outcome("pending", name, tool.name, reason=told.detail, arguments=arguments)
    if operation.met is not None:
        met = operation.met
        return Outcome(
            "pending", name, tool.name, operation.basis, operation.reason, operation.code, met.source,
            arguments=arguments, pending=met.items,
        )  # fmt: skip
    if told.how == "unknown":
        return Outcome("unknown", name, tool.name, reason=operation.reason, arguments=arguments)
    if operation.reused:
        text = f"{operation.reused} stands already"
        reused: Outcome[R] = Outcome(
            "succeeded", name, tool.name, operation.basis, text, reused=operation.reused, arguments=arguments,
            pending=told.parts,
        )  # fmt: skip
        return _with_value(tool, reused, operation.result, operation.reason if operation.lost else "")
    status = operation.status
    if status != "succeeded":
        return Outcome(status, name, tool.name, operation.basis, operation.reason, operation.code, arguments=arguments)
    assert operation.basis is not None, operation
    receipt = Receipt(
        name, tool.name, key_of(namespace, run, told.step, operation.intent), operation.basis, operation.settled_at
    )
    done: Outcome[R] = Outcome("succeeded", name, tool.name, operation.basis, arguments=arguments, receipt=receipt)
    if told.parts:
        done = replace(done, pending=told.parts)
    return _with_value(tool, done, operation.result, operation.reason if operation.lost else "")


def read_outcome(tool: Tool[Any, R], arguments: dict[str, Any], record: r.ReadRecorded, run: str) -> Outcome[R]:
    """What a read answered."""
    name, basis = f"{run}/{record.step}", RETURNED if record.refused else None
    facts = r.values_of(record.facts) if record.facts else {}
    if record.status == "failed":
        return Outcome("failed", name, tool.name, basis, record.reason, record.code, arguments=arguments, facts=facts)
    answered: Outcome[R] = Outcome("succeeded", name, tool.name, arguments=arguments, facts=facts)
    return _with_value(tool, answered, record.result, record.reason if record.lost else "")


def _with_value(tool: Tool[Any, R], outcome: Outcome[R], stored: r.Raw, lost: str) -> Outcome[R]:
    """The outcome with the decoded result, or marked as lost where the result cannot make the trip."""
    if lost:
        return replace(outcome, code=LOST, reason=lost)
    try:
        value = tool.codec.decode(stored)
    except ValueError as error:
        return replace(outcome, code=LOST, reason=str(error))
    return replace(outcome, value=value)
