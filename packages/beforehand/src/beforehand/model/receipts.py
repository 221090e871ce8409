"""A run may claim only effects that the records prove. Free text is not parsed.

A claim is a typed value: a `Receipt` in the run's result, or a tool whose effect the agent declared required. It is
proven if an operation of this run succeeded, or met an existing effect, and nothing has undone it since.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.outcome import Receipt
from beforehand.model.run_history import RunHistory

DEEPEST = 20


def proven(history: RunHistory) -> dict[str, OperationState]:
    """The operations of code whose effects stand, by name. `history` must be whole: freshly read, nothing forgotten."""
    return {
        operation_id(history.run, step): operation
        for step, operation in history.operations.items()
        if not operation.intent.serves and _stands(history, operation)
    }


def _stands(history: RunHistory, operation: OperationState) -> bool:
    if operation.phase != "succeeded" and not operation.links.reused:
        return False
    compensation = history.operations.get(operation.links.compensated_by)
    return compensation is None or compensation.phase != "succeeded"


def unproven(history: RunHistory, requires: Iterable[str], result: object) -> list[str]:
    """The unproven claims, one sentence each."""
    stands = proven(history)
    tools = {operation.intent.tool for operation in stands.values()}
    missing = [f"no {tool} of this run succeeded and is still in effect" for tool in requires if tool not in tools]
    for receipt in receipts_in(result):
        operation = stands.get(receipt.operation)
        if operation is None or operation.intent.tool != receipt.tool:
            missing.append(f"the receipt of {receipt.operation} ({receipt.tool}) is not one of this run")
    return missing


def receipts_in(value: object, deep: int = 0) -> Iterator[Receipt]:
    """Every receipt in a result."""
    if isinstance(value, Receipt):
        yield value
    elif deep > DEEPEST or isinstance(value, (str, bytes, int, float, type(None))):
        return
    else:
        for part in _parts(value):
            yield from receipts_in(part, deep + 1)


def _parts(value: Any) -> Iterable[object]:
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return cast("Iterable[object]", value)
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return getattr(value, "__dict__", dict[str, object]()).values()


def digest(*histories: RunHistory) -> str:
    """Summarize what is done and what is pending for a prompt: a model whose memory was cut still knows it."""
    done = [
        f"- {operation.intent.tool} {_shown(operation.intent.arguments)}:"
        f" {_shown(operation.settlement.result)} [{name}]"
        + (f" (contradicted: {'; '.join(operation.links.contradicted)})" if operation.links.contradicted else "")
        for history in histories
        for name, operation in proven(history).items()
    ]
    pending = [
        f"- {operation.intent.tool} {_pending(operation)}: {operation.phase} [{operation.step}]"
        for history in histories
        for operation in history.open_operations()
        if not operation.intent.serves or operation.intent.completes
    ]
    lines = ["Already done, and proven. Do not do it again:", *(done or ["- nothing"])]
    return "\n".join([*lines, "Pending. Do not repeat it:", *pending] if pending else lines)


def _pending(operation: OperationState) -> str:
    intent = operation.intent
    return f"{intent.item}, a part of {intent.completes}" if intent.completes else _shown(intent.arguments)


def _shown(stored: msgspec.Raw) -> str:
    """A stored value on one line: what some reader takes for the end of a line would look like one more entry."""
    text = bytes(stored).decode("utf-8", "replace")
    plain = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
    return plain if len(plain) <= 200 else plain[:199] + "…"
