"""The outside world of a test: it counts what really happened, and lets calls go wrong on their way.

A tool's body stands for the system that it talks to. Where the tool promises that this system dedupes on the
idempotency key, or that repeating changes nothing, the world keeps that promise: a repeat is not one more effect.
What a test's own fakes count (`world.use`) is compared as well, and there the promise is put to the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from holdfast.agent.tool import Tool
from holdfast.engine.current import current_operation
from holdfast.engine.tooling import Code
from holdfast.model.outcome import DidNotHappen
from holdfast.testing.world.meaning import Effect
from holdfast.testing.world.service import Service, State, packed, restore, state_of, unpacked

AnyTool = Tool[Any, Any]
Kind = Literal["lose_request", "lose_reply", "fail_after", "land_late", "deliver_twice"]


class Fault(msgspec.Struct):
    """What becomes of the next `times` calls of a tool."""

    kind: Kind
    times: int
    after_s: float = 0.0


class Carried(msgspec.Struct, frozen=True):
    """What happened outside, on its way from one process to another."""

    effects: bytes
    answers: bytes
    faults: bytes
    services: list[State]


class ServerError(Exception):
    """The system answered 500, and had done it."""


Stub = Callable[..., Any]


class Outside:
    """What happened outside, and what goes wrong on the way there."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.services: list[Service] = []
        self.faults: dict[str, list[Fault]] = {}
        self.stubs: dict[tuple[str, str], Stub] = {}
        self.lags: dict[str, float] = {}
        self.point: Callable[[str], None] = _nobody_looks
        self._answers: dict[tuple[str, str], Any] = {}
        self._left: dict[str, list[Fault]] = {}

    def begin_anew(self) -> None:
        """A new world for the next run: nothing has happened, and the faults are still to come."""
        self.effects = []
        self._answers = {}
        self._left = {tool: [Fault(f.kind, f.times, f.after_s) for f in faults] for tool, faults in self.faults.items()}
        for service in self.services:
            service.reset()

    def happened(self) -> list[Effect]:
        """Every effect: those that the world counted, and those of the test's own services."""
        return self.effects + [Effect(type(one).__name__, line=line) for one in self.services for line in one.effects()]

    def give(self) -> Carried:
        """All that has to outlive the process that this world is seen from. Raises `UsageError` where it cannot."""
        return Carried(
            packed("what a tool was given", self.effects),
            packed("what a tool returned", self._answers),
            packed("a fault", self._left),
            [state_of(service) for service in self.services],
        )

    def take(self, carried: Carried) -> None:
        """Go on from there. Raises `UsageError` for a service that keeps what it counts outside of itself."""
        self.effects, self._answers, self._left = map(unpacked, (carried.effects, carried.answers, carried.faults))
        for service, state in zip(self.services, carried.services, strict=True):
            restore(service, state)

    @contextmanager
    def around(self, tools: Iterable[AnyTool]) -> Generator[None]:
        """Stand between these tools and what they do; afterwards they are as they were."""
        before = [(tool, tool.body, dict(tool.handlers)) for tool in tools]
        for tool, body, handlers in before:
            tool.body = Code(self._body(tool, body), True, body.timeout_ms, body.parameters)
            tool.handlers.update({name: self._handler(tool, name, code) for name, code in handlers.items()})
        try:
            yield
        finally:
            for tool, body, handlers in before:
                tool.body = body
                tool.handlers.clear()
                tool.handlers.update(handlers)

    def _handler(self, tool: AnyTool, name: str, code: Code) -> Code:
        stub = self.stubs.get((tool.name, name))
        if stub is not None:
            return Code(stub, code.is_async, code.timeout_ms, frozenset())
        if name == "verify" and tool.name in self.lags:
            return Code(self._lagging(tool, code), True, code.timeout_ms, code.parameters)
        return code

    def _lagging(self, tool: AnyTool, code: Code) -> Callable[..., Any]:
        born: dict[str, float] = {}

        async def verify(operation: Any, **arguments: Any) -> Any:
            now = asyncio.get_running_loop().time()
            if now - born.setdefault(operation.id, now) < self.lags[tool.name]:
                return DidNotHappen()
            answer = code.function(operation, **arguments)
            return await answer if code.is_async else answer

        return verify

    def _body(self, tool: AnyTool, body: Code) -> Callable[..., Any]:
        stub = self.stubs.get((tool.name, ""))

        async def call(*served: Any, **arguments: Any) -> Any:
            """`served` is the operation that a compensation or a confirmation is for."""

            async def original(given: dict[str, Any]) -> Any:
                if stub is not None:
                    return stub(**given)
                return await body.function(*served, **given) if body.is_async else body.function(*served, **given)

            if tool.contract.effect == "read":
                return await original(arguments)
            return await self._write(tool, arguments, original)

        return call

    async def _write(self, tool: AnyTool, arguments: dict[str, Any], original: Callable[..., Any]) -> Any:
        fault = self._next_fault(tool.name)
        at = current_operation()
        self.point(f"before {tool.name} is done")
        if fault is not None and fault.kind == "lose_request":
            _ = at.key  # a tool that keeps its promise reads it before it sends
            raise TimeoutError("the request was lost")
        if fault is not None and fault.kind == "land_late":
            _ = at.key
            asyncio.get_running_loop().call_later(fault.after_s, self._land, tool, arguments, original, at)
            raise TimeoutError("no answer yet")
        result = await self._done(tool, arguments, original, at)
        if fault is not None and fault.kind == "deliver_twice":
            result = await self._done(tool, arguments, original, at)
        self.point(f"after {tool.name} was done, before its reply")
        if fault is not None and fault.kind == "lose_reply":
            raise TimeoutError("the reply was lost")
        if fault is not None and fault.kind == "fail_after":
            raise ServerError("500: internal error")
        return result

    def _land(self, tool: AnyTool, arguments: dict[str, Any], original: Callable[..., Any], at: Any) -> None:
        asyncio.ensure_future(self._done(tool, arguments, original, at))  # noqa: RUF006 - the loop keeps its tasks

    async def _done(self, tool: AnyTool, arguments: dict[str, Any], original: Callable[..., Any], at: Any) -> Any:
        """The effect itself. The system behind the tool keeps what its contract promises about it."""
        contract = tool.contract
        same = at.key if contract.key is not None else repr((at.id if tool.serves else "", sorted(arguments.items())))
        name = (tool.name, same)
        known = (contract.key is not None or contract.natural is not None) and name in self._answers
        if known and not self.services:
            return self._answers[name]
        result = self._answers[name] = await original(arguments)
        if not known:
            self.effects.append(Effect(tool.name, dict(arguments), at.id, at.attempt))
        return result

    def _next_fault(self, tool: str) -> Fault | None:
        faults = self._left.get(tool, [])
        while faults and faults[0].times <= 0:
            faults.pop(0)
        if not faults:
            return None
        faults[0].times -= 1
        return faults[0]


def _nobody_looks(_label: str) -> None:
    """Outside an exploration nobody strikes at a boundary."""


def stub(returns: Any, raises: BaseException | None) -> Stub:
    """A function that answers so, whatever it is given."""

    def answer(*_args: Any, **_named: Any) -> Any:
        if raises is not None:
            raise raises
        return returns

    return answer
