"""Intercepts the calls of tools, and delays requests beyond the point when their sender gave up."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeGuard

import msgspec

from beforehand.agent.agent import Agent, gather_tools
from beforehand.agent.tool import Tool
from beforehand.engine.current_operation import AT, CurrentOperation
from beforehand.engine.tool_protocol import Code
from beforehand.model.outcome import DidNotHappen
from beforehand.testing.clock import virtual_loop
from beforehand.testing.faults import AnyTool, Request, Wire, send
from beforehand.testing.loop import ACTOR, VirtualLoop

LONG_MS: Final = 3_600_000
"""The time until the deadline of a request that is already on its way: it is not checked any more."""


class HandlerWire(Wire, Protocol):
    """A wire that intercepts handlers too. `bodies`: the tools' own functions, by name."""

    bodies: dict[str, Code]

    def handler(self, tool: AnyTool, name: str, code: Code) -> Code:
        """The code to call instead of this handler."""
        ...


@contextmanager
def between(tools: Iterable[AnyTool], wire: HandlerWire) -> Generator[None]:
    """Intercept the calls of these tools; afterwards restore them."""
    former = [(tool, tool.body) for tool in tools]
    handlers = {id(tool.handlers): (tool, dict(tool.handlers)) for tool, _ in former}
    wire.bodies.update({tool.name: body for tool, body in former})
    for tool, body in former:
        tool.body = Code(_sending(wire, tool), True, body.timeout_ms, body.parameters)
    for tool, own in handlers.values():
        tool.handlers.update({name: wire.handler(tool, name, code) for name, code in own.items()})
    try:
        yield
    finally:
        for tool, body in former:
            tool.body = body
        for tool, own in handlers.values():
            tool.handlers.clear()
            tool.handlers.update(own)


def tools_of(agent: Agent[Any, Any]) -> list[AnyTool]:
    """The agent's tools and their companions, and those that its module made from them with `options`."""
    tools = gather_tools([agent], ())
    functions = {tool.__wrapped__ for tool in tools.values()}
    module = sys.modules.get(agent.__wrapped__.__module__)
    seen: list[object] = [*tools.values(), *(vars(module).values() if module is not None else ())]
    found = {id(value): value for value in seen if is_tool(value) and value.__wrapped__ in functions}
    return list(found.values())


def awaited(code: Code) -> Callable[..., Awaitable[Any]]:
    """Call it here and now, whether synchronous or not."""

    async def call(*first: Any, **arguments: Any) -> Any:
        answer = code.function(*first, **arguments)
        return await answer if code.is_async else answer

    return call


class Lag:
    """The delay of each verifier's reads, in seconds: an effect is seen that long after it happened."""

    def __init__(self) -> None:
        self.by: dict[str, float] = {}
        self.happened_s: dict[str, float] = {}

    def note(self, request: Request) -> None:
        """Record that it happens now."""
        self.happened_s[request.at.id] = asyncio.get_running_loop().time()

    def before(self, tool: AnyTool, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """A verifier that does not yet see the latest effects."""

        async def verify(operation: Any, **arguments: Any) -> Any:
            happened_s = self.happened_s.get(operation.id)
            if happened_s is not None and asyncio.get_running_loop().time() < happened_s + self.by[tool.name]:
                return DidNotHappen()
            return await call(operation, **arguments)

        return verify


class Late(msgspec.Struct, frozen=True):
    """A request that is still on its way, with all that it needs to arrive even if its sender is dead by then."""

    due_s: float
    tool: str
    served: tuple[Any, ...]
    arguments: Mapping[str, Any]
    run: str
    step: str
    attempt: int
    key: str


class Underway:
    """Requests that arrive later. They belong to the world, and survive the death of any process.

    `land` performs one.
    """

    def __init__(self, land: Callable[[Request], Awaitable[Any]]) -> None:
        self.requests: list[Late] = []
        self.tools: dict[str, AnyTool] = {}
        self._land = land

    def add(self, request: Request, after_s: float) -> None:
        """Let it arrive `after_s` seconds from now."""
        at, loop = request.at, virtual_loop()
        name = request.tool.name
        late = Late(
            loop.time() + after_s, name, request.served, request.arguments, at.run, at.step, at.attempt, request.key
        )
        self.requests.append(late)
        self.tools[name] = request.tool
        self._schedule(loop, late)

    def resume(self, loop: VirtualLoop) -> None:
        """Continue in the loop of another process: requests on their way arrive there."""
        for late in self.requests:
            self._schedule(loop, late)

    async def landed(self) -> None:
        """Wait until no request is on its way."""
        while self.requests:
            wait_s = min(late.due_s for late in self.requests) - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, wait_s))

    def _schedule(self, loop: VirtualLoop, late: Late) -> None:
        context = contextvars.copy_context()
        context.run(ACTOR.set, loop.world)
        loop.call_at(late.due_s, self._arrive, late, context=context)

    def _arrive(self, late: Late) -> None:
        self.requests.remove(late)
        at = CurrentOperation(late.run, late.step, late.tool, late.attempt, lambda: LONG_MS, lambda: late.key)
        AT.set(at)
        # The error is retrieved, so that asyncio does not report it: the sender has had its timeout.
        landing = self._land(Request(self.tools[late.tool], late.served, late.arguments, at))
        asyncio.ensure_future(landing).add_done_callback(lambda done: done.cancelled() or done.exception())


def _sending(wire: Wire, tool: AnyTool) -> Callable[..., Any]:
    async def call(*served: Any, **arguments: Any) -> Any:
        return await send(wire, tool, served, arguments)

    return call


def is_tool(value: object) -> TypeGuard[AnyTool]:
    """True if the value is a tool."""
    return isinstance(value, Tool)
