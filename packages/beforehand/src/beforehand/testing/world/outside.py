"""The outside world of a test: it counts what really happened, and makes calls fail on their way.

A tool's body represents the system that it talks to. If the tool promises that this system dedupes on the
idempotency key, or that repeating changes nothing, the world keeps that promise: a repeat is not one more effect.
A key that the tool never read was never sent, and dedupes nothing. Effects counted by a test's own fakes
(`world.use`) are compared as well, and there the promise is tested.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, cast

import msgspec

from beforehand.agent.agent import Agent
from beforehand.agent.tool import Tool
from beforehand.engine.tool_protocol import Code
from beforehand.errors import UsageError
from beforehand.testing.faults import Effect, Fault, Request, ignore_boundary
from beforehand.testing.wire import Lag, Underway, awaited, between, tools_of

AnyTool = Tool[Any, Any]
Stub = Callable[..., Any]
Name = tuple[str, str]
"""A tool, and what identifies two of its requests as the same: its key, or all arguments."""


class Carried(msgspec.Struct, frozen=True):
    """The state of the outside world, on its way from one process to another."""

    effects: bytes
    answers: dict[Name, bytes]
    late: bytes
    rest: bytes
    services: list[State | None]


class Outside:
    """The effects outside, and the faults on the way there."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.services: list[Service] = []
        self.faults: dict[str, list[Fault]] = {}
        self.stubs: dict[tuple[str, str], Stub] = {}
        self.lag = Lag()
        self.underway = Underway(lambda request: self.perform(request, request.arguments))
        self.bodies: dict[str, Code] = {}
        self.reached: Callable[[str], None] = ignore_boundary
        self.keyless: set[str] = set()
        """Tools that declare a key but were seen not to read it."""
        self._known: set[Name] = set()
        self._answers: dict[Name, Any] = {}
        self._halves: dict[Name, int] = {}
        self._left: dict[str, list[Fault]] = {}

    def begin_anew(self) -> None:
        """A new world for the next run: nothing has happened, and the faults are still to come."""
        self.effects, self.underway.requests = [], []
        self._known, self._answers, self._halves = set(), {}, {}
        self.lag.happened_s.clear()
        self._left = {tool: [msgspec.structs.replace(one) for one in faults] for tool, faults in self.faults.items()}
        for service in self.services:
            service.reset()

    def happened(self) -> list[Effect]:
        """Every effect: those that the world counted, and those of the test's own services."""
        return self.effects + [Effect(type(one).__name__, line=line) for one in self.services for line in one.effects()]

    def unmet(self) -> list[str]:
        """The faults that no call of this run ran into."""
        ordered = ((tool, fault.kind, fault.times) for tool, faults in self.faults.items() for fault in faults)
        left = Counter((tool, fault.kind, fault.times) for tool, faults in self._left.items() for fault in faults)
        return [f"{kind} of {tool}" for tool, kind, times in ordered if left[tool, kind, times] > 0]

    @contextmanager
    def around(self, agent: Agent[Any, Any]) -> Generator[None]:
        """Intercept the calls of the agent's tools; afterwards restore them."""
        tools = tools_of(agent)
        self.underway.tools = {tool.name: tool for tool in tools}
        with between(tools, self):
            yield

    # --- from process to process ---------------------------------------------------------------------------------

    def give(self) -> Carried:
        """The state that has to outlive the process in which this world lives. Raises `UsageError` if it cannot.

        An answer that cannot is omitted: a repeated call is answered by the tool's own code, which is not counted.
        """
        return Carried(
            packed("what a tool was given", self.effects),
            {name: kept for name, answer in self._answers.items() if (kept := packed_if_possible(answer)) is not None},
            packed("a request that is still on its way", self.underway.requests),
            packed("a fault", (self._left, self._known, self._halves, self.lag.happened_s, self.keyless)),
            [state_of(service) for service in self.services],
        )

    def take(self, carried: Carried) -> None:
        """Continue from that state. Raises `UsageError` for a service that keeps its count outside of itself."""
        self.effects, self.underway.requests = unpacked(carried.effects), unpacked(carried.late)
        self._answers = {name: unpacked(answer) for name, answer in carried.answers.items()}
        self._left, self._known, self._halves, self.lag.happened_s, keyless = unpacked(carried.rest)
        self.keyless.update(keyless)
        for service, state in zip(self.services, carried.services, strict=True):
            restore(service, state)

    # --- the wire: see `HandlerWire` ---------------------------------------------------------------------------------

    def fault(self, request: Request) -> Fault | None:
        """See `Wire.fault`: the requested faults, in their order."""
        faults = self._left.get(request.tool.name, [])
        while faults and faults[0].times <= 0:
            faults.pop(0)
        if not faults:
            return None
        faults[0].times -= 1
        return faults[0]

    def send_later(self, request: Request, after_s: float) -> None:
        self.underway.add(request, after_s)

    def handler(self, tool: AnyTool, name: str, code: Code) -> Code:
        stub = self.stubs.get((tool.name, name))
        if stub is not None:
            return Code(stub, code.is_async, code.timeout_ms, frozenset())
        if name == "verify" and tool.name in self.lag.by:
            return Code(self.lag.before(tool, awaited(code)), True, code.timeout_ms, code.parameters)
        return code

    async def perform(self, request: Request, arguments: Mapping[str, Any]) -> Any:
        """See `Wire.perform`. The system behind the tool keeps what its contract promises about it."""
        if request.tool.contract.effect == "read":
            return await self._call(request, arguments)
        name = _name(request)
        known = name in self._known
        if name in self._answers and not self.services:
            request.at.key_read = True  # as it was when this happened
            return self._answers[name]
        result = await self._call(request, arguments)
        if not known:
            self._count(name, request, arguments)
        if self._dedupes(request) and arguments is request.arguments:
            self._known.add(name)
            self._answers[name] = result
        return result

    def _count(self, name: Name, request: Request, arguments: Mapping[str, Any]) -> None:
        """Count one more effect; or the rest of a half-done one, if the system continues that one."""
        self.lag.note(request)
        effect, half_done = request.effect(arguments), self._halves.get(name)
        if half_done is not None and self._dedupes(request):
            self.effects[half_done] = effect
            return
        if arguments is not request.arguments:
            self._halves[name] = len(self.effects)
        self.effects.append(effect)

    async def _call(self, request: Request, arguments: Mapping[str, Any]) -> Any:
        stub = self.stubs.get((request.tool.name, ""))
        if stub is not None:
            request.at.key_read = True  # it represents a system that receives what the contract promises
            return stub(**arguments)
        return await awaited(self.bodies[request.tool.name])(*request.served, **arguments)

    def _dedupes(self, request: Request) -> bool:
        contract = request.tool.contract
        if contract.key is not None and not request.at.key_read:
            self.keyless.add(request.tool.name)
            return False
        return contract.key is not None or contract.natural is not None


def _name(request: Request) -> Name:
    tool = request.tool
    if tool.contract.key is not None:
        return tool.name, request.key
    return tool.name, repr((request.at.id if tool.serves else "", sorted(request.arguments.items())))


def stub(returns: Any, raises: BaseException | None) -> Stub:
    """A function that always gives this answer."""

    def answer(*_args: Any, **_named: Any) -> Any:
        if raises is not None:
            raise raises
        return returns

    return answer


# --- a test's own fakes, and how their state is passed from process to process ---------------------------------------


_Named = dict[str, Any] | None


class Service(Protocol):
    """A fake system of a test. It counts its own effects.

    If the state of a fake is in a file or a server instead of the object, it declares so for `--beforehand-sigkill` by
    the attribute `lives_outside = True`. It is then called only in the test's own process.
    """

    def effects(self) -> list[str]:
        """The effects of the service, in order; equal texts are equal effects."""
        ...

    def reset(self) -> None:
        """Forget everything: the next run starts in a new world."""
        ...


class State(msgspec.Struct, frozen=True):
    """The state of a service, and its count of effects."""

    packed: bytes
    effects: list[str]


def state_of(service: Service) -> State | None:
    """The state for another process; None if it lives outside. Raises `UsageError` if it cannot be passed on."""
    if getattr(service, "lives_outside", False):
        return None
    return State(packed(type(service).__name__, service.__getstate__()), list(service.effects()))


def restore(service: Service, state: State | None) -> None:
    """Restore in place what unpickling would build anew: tools and tests know this object.

    Raises `UsageError` if its count differs afterwards.
    """
    if state is None:
        return
    _set(service, unpacked(state.packed))
    if list(service.effects()) != state.effects:
        raise UsageError(
            f"{type(service).__name__} keeps what it counts elsewhere, so that it dies with a killed process",
            next_step="keep it in the object's own attributes, or in a file or a server, and say lives_outside = True",
        )


def packed(what: str, value: object) -> bytes:
    """The bytes of a value. Raises `UsageError` if it cannot leave its process."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise UsageError(
            f"{what} cannot outlive a killed process: {error}",
            next_step="define its classes at the top of a module; leave open files and sockets out (__getstate__)",
        ) from error


def packed_if_possible(value: object) -> bytes | None:
    """The bytes of a value; None if it cannot leave its process."""
    with contextlib.suppress(UsageError):
        return packed("a value", value)
    return None


def unpacked(value: bytes) -> Any:
    """The value that a process of ours packed."""
    return pickle.loads(value)  # noqa: S301 - it came through a pipe from our own child


def _set(service: object, state: Any) -> None:
    own_way = getattr(service, "__setstate__", None)
    if own_way is not None:
        own_way(state)
        return
    own, slots = cast("tuple[_Named, _Named]", state) if isinstance(state, tuple) else (cast("_Named", state), None)
    if own is not None:
        vars(service).clear()
        vars(service).update(own)
    for name, value in slots.items() if slots else ():
        setattr(service, name, value)
