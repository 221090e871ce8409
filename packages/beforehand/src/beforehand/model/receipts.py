"""A run may claim only effects that the records prove. Free text is not parsed.

A claim is a typed value: a `Receipt` in the run's result, or a tool whose effect the agent declared required. It is
proven if an operation of this run succeeded, or met an existing effect, and nothing has undone it since.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.outcome import Receipt
from beforehand.model.run_history import RunHistory

DEEPEST = 20
NAMED: Final = 1000
"""Characters of the arguments that identify a call which a digest shows. A title has at most 200."""
SHOWN: Final = 200
"""Characters of the other arguments of a call, and of its result, which a digest shows."""


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


def digest(histories: Iterable[RunHistory], named_by: Callable[[str], Collection[str]]) -> str:
    """Summarize what is done and what is pending for a prompt: a model whose memory was cut still knows it.

    `named_by` gives the parameters that tell calls of a tool apart. They are shown before the others, and longer.
    """
    done, pending = list[str](), list[str]()
    for history in histories:
        done += [
            f"- {_call(operation, named_by)}: {_cut(operation.settlement.result)} [{name}]"
            + (f" (contradicted: {'; '.join(operation.links.contradicted)})" if operation.links.contradicted else "")
            for name, operation in proven(history).items()
        ]
        pending += [
            f"- {_call(operation, named_by)}: {operation.phase} [{operation.step}]"
            for operation in history.open_operations()
            if not operation.intent.serves or operation.intent.completes
        ]
    lines = ["Already done, and proven. Do not do it again:", *(done or ["- nothing"])]
    return "\n".join([*lines, "Pending. Do not repeat it:", *pending] if pending else lines)


def _call(operation: OperationState, named_by: Callable[[str], Collection[str]]) -> str:
    """The call on one line: its tool, its title, and its arguments, those that identify it first and short ones next.

    The stored form is sorted by name. Cut as it is, a long body would hide to whom a mail was sent.
    """
    intent = operation.intent
    if intent.completes:
        return f"{intent.tool} {intent.item}, a part of {intent.completes}"
    title = f" {_cut(msgspec.json.encode(intent.title), NAMED)}" if intent.title else ""
    try:
        given = msgspec.json.decode(intent.arguments, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return f"{intent.tool}{title} {_cut(intent.arguments)}"
    named, fields = named_by(intent.tool), (dict[str, bytes](), dict[str, bytes]())
    for name in sorted(given, key=lambda name: len(bytes(given[name]))):
        fields[name not in named][name] = msgspec.json.encode(name) + b":" + bytes(given[name])
    shown = (_cut(b",".join(part.values()), most) for part, most in zip(fields, (NAMED, SHOWN), strict=True) if part)
    return f"{intent.tool}{title} {{{','.join(shown)}}}"


def _cut(stored: bytes | msgspec.Raw, most: int = SHOWN) -> str:
    """A stored value on one line, and the number of characters that are left out.

    What some reader takes for the end of a line would look like one more entry.
    """
    text = bytes(stored).decode("utf-8", "replace")
    plain = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
    return plain if len(plain) <= most else f"{plain[:most]}… ({len(plain) - most:,} more characters)"
