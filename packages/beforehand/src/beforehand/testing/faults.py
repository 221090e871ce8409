"""Faults between a tool and the system behind it. The tool is unchanged and cannot detect them.

`world` and `trial` share them: one says which fault the next call of a tool has, the other draws it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from beforehand.agent.tool import Tool
from beforehand.engine.current_operation import CurrentOperation, current_operation

AnyTool = Tool[Any, Any]
Kind = Literal[
    "lose_request", "lose_reply", "fail_after", "answer_late", "land_late", "deliver_twice", "half_lands", "cut_reply"
]
WORDS: Final[dict[Kind, str]] = {
    "lose_request": "timeout before the effect",
    "lose_reply": "timeout after the effect",
    "fail_after": "500 after the effect",
    "answer_late": "late answer",
    "land_late": "timeout, and the effect later",
    "deliver_twice": "delivered twice",
    "half_lands": "half of it done, then a timeout",
    "cut_reply": "half of a reply",
}
ON_READS: Final = frozenset[Kind]({"lose_request", "lose_reply", "fail_after", "answer_late", "cut_reply"})
"""The faults that a read can also have; the others need an effect."""


class ServerError(Exception):
    """The system answered 500, although the effect happened."""


class Fault(msgspec.Struct):
    """A fault of the next `times` calls of a tool. `parameter` names the argument of which half is done."""

    kind: Kind
    times: int = 1
    after_s: float = 0.0
    parameter: str = ""


class Effect(msgspec.Struct, frozen=True):
    """An effect that happened: of a tool, whatever its caller received, or a line that a fake counted.

    `tool` is the tool's name, or the class of the fake if `line` is its text. Effects with the same `operation` are
    attempts of one operation; a system that deduplicates on the key performed it once.
    """

    tool: str
    arguments: Mapping[str, Any] = {}
    operation: str = ""
    attempt: int = 0
    line: str = ""

    def __str__(self) -> str:
        """As a call, or as the fake reports it."""
        if self.line:
            return f"{self.tool}: {self.line}"
        return f"{self.tool}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


class Request(msgspec.Struct, frozen=True):
    """One call on its way. `served` is the operation that a compensation or a confirmation is for."""

    tool: AnyTool
    served: tuple[Any, ...]
    arguments: Mapping[str, Any]
    at: CurrentOperation

    @property
    def key(self) -> str:
        """The key, without the runtime taking note that it was read."""
        noticed = self.at.key_read
        try:
            return self.at.key
        finally:
            self.at.key_read = noticed

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        """The effect of these arguments reaching the system."""
        return Effect(self.tool.name, dict(arguments), self.at.id, self.at.attempt)


class Wire(Protocol):
    """The way to the outside world: it counts what happens there."""

    reached: Callable[[str], None]
    """Called at each place at which the calling process may die."""

    def fault(self, request: Request) -> Fault | None:
        """The fault of this call, if any."""
        ...

    async def perform(self, request: Request, arguments: Mapping[str, Any]) -> Any:
        """Perform it with these arguments (those of the request, or half of them), and count it."""
        ...

    def send_later(self, request: Request, after_s: float) -> None:
        """Perform it that much later, whether or not its sender is still alive."""
        ...


def ignore_boundary(_boundary: str) -> None:
    """Do nothing: no process dies here before a stage says so."""


async def send(wire: Wire, tool: AnyTool, served: tuple[Any, ...], arguments: Mapping[str, Any]) -> Any:
    """Make one call of a tool, with its faults on the way. Raises what a client library would raise."""
    request = Request(tool, served, arguments, current_operation())
    writes = tool.contract.effect == "write"
    fault = wire.fault(request)
    if writes:
        wire.reached(f"before {tool.name} is done")
    if fault is not None and fault.kind in ("lose_request", "land_late"):
        request.at.key_read = True  # the tool's code is not run now, and must not be blamed for not reading the key
        if fault.kind == "land_late":
            wire.send_later(request, fault.after_s)
        raise _timeout(fault.kind)
    half = half_of(arguments, fault.parameter) if fault is not None and fault.kind == "half_lands" else None
    result = await wire.perform(request, arguments if half is None else half)
    if fault is not None and fault.kind == "deliver_twice":
        result = await wire.perform(request, arguments)
    if writes:
        wire.reached(f"after {tool.name} was done, before its reply")
    return result if fault is None else await _reply(fault, result, halved=half is not None)


async def _reply(fault: Fault, result: Any, *, halved: bool) -> Any:
    match fault.kind:
        case "lose_reply":
            raise _timeout(fault.kind)
        case "half_lands":
            raise _timeout(fault.kind) if halved else _broken_off()
        case "fail_after":
            raise ServerError(f"injected fault: {WORDS[fault.kind]}")
        case "cut_reply":
            if _is_many(result):
                return _half(result)
            raise _broken_off()  # any other reply is cut off, and a client notices
        case "answer_late":
            await asyncio.sleep(fault.after_s)
            return result
        case _:
            return result


def _timeout(kind: Kind) -> TimeoutError:
    return TimeoutError(f"injected fault: {WORDS[kind]}")


def _broken_off() -> ConnectionError:
    return ConnectionError("injected fault: the connection broke off in the middle of the reply")


def half_of(arguments: Mapping[str, Any], parameter: str = "") -> dict[str, Any] | None:
    """The arguments of which half reaches the system; None if none of them can be halved."""
    wanted = [parameter] if parameter else [name for name, value in arguments.items() if _is_many(value)]
    for name in wanted:
        return {**arguments, name: _half(arguments[name])}
    return None


def _is_many(value: object) -> bool:
    return isinstance(value, (list, tuple, set, frozenset, dict)) and len(cast("list[Any]", value)) > 1


def _half(value: Any) -> Any:
    """The first half of several, of a text or of a number, rounded down."""
    kind: type[Any] = value.__class__
    if issubclass(kind, (int, float)):
        return value / 2 if issubclass(kind, float) else value // 2
    count = len(value) // 2
    if issubclass(kind, (str, bytes, list, tuple)):
        return value[:count]
    return kind(islice(value.items() if issubclass(kind, dict) else value, count))
