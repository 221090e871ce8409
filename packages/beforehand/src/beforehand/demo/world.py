"""The outside world of one side: what its services did, and the faults of their calls.

The world lives in the witness process, so it survives every kill of the workers and counts what
really happened, not what a side believes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import msgspec

from beforehand.demo.scenario import CustomerRequest, FaultSchedule, Kill, Moment, ScheduledFault, Service

T = TypeVar("T")


class DemoPace(msgspec.Struct, frozen=True):
    """How fast the services are, in seconds. The services document these figures to their clients."""

    slow: float = 0.15  # a slow answer
    late: float = 0.8  # a late effect lands at most this long after its request arrived
    lag: float = 0.6  # a mailbox or search shows an entry this long after it exists
    key_ttl: float = 120.0  # payments forgets an idempotency key after this time


class LoopClock:
    """Time as the services see it, which is the event loop's own: `monotonic` in seconds."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ServiceEffect(msgspec.Struct, frozen=True):
    """Something that really happened at a service."""

    service: Service
    request: int


class Reply(Enum):
    """The ways in which a call ends without its answer."""

    REFUSED = "refused"
    BROKEN = "server error"
    SILENT = "no answer"
    LATE = "no answer, and the effect is still to come"
    DROPPED = "connection closed"


async def _never_kill(_kill: Kill) -> None:
    """The default for services that run without workers."""


@dataclass
class DemoWorld:
    """One side's services share it. `kill` returns once the worker is dead; `seen` hears of each effect."""

    schedule: FaultSchedule
    customers: list[CustomerRequest]
    pace: DemoPace = field(default_factory=DemoPace)
    clock: LoopClock = field(default_factory=LoopClock)
    kill: Callable[[Kill], Awaitable[None]] = _never_kill
    seen: Callable[[ServiceEffect], None] = lambda _effect: None
    effects: list[ServiceEffect] = field(default_factory=list[ServiceEffect])
    _calls: Counter[tuple[Service, int]] = field(default_factory=Counter[tuple[Service, int]])
    _struck: set[Kill] = field(default_factory=set[Kill])
    _landing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def by_order(self, order_id: str) -> CustomerRequest | None:
        return next((customer for customer in self.customers if customer.order_id == order_id), None)

    def by_email(self, email: str) -> CustomerRequest | None:
        return next((customer for customer in self.customers if customer.email == email), None)

    def refuses(self, service: Service, request: int) -> bool:
        return self.schedule.fault(service, request, 1) is ScheduledFault.REFUSED

    def record(self, service: Service, request: int) -> None:
        """Count one effect. Services call it at the moment when the effect becomes real."""
        effect = ServiceEffect(service, request)
        self.effects.append(effect)
        self.seen(effect)

    async def serve(self, service: Service, request: int, commit: Callable[[float], T]) -> T | Reply:
        """Serve one call as the schedule demands; `commit` does the work at a given time and answers."""
        if self.refuses(service, request):
            return Reply.REFUSED
        self._calls[service, request] += 1
        fault = self.schedule.fault(service, request, self._calls[service, request])
        if await self._strike(service, request, "arrival") or fault is ScheduledFault.LOST:
            return Reply.DROPPED
        if fault is ScheduledFault.LATE:
            self._land_later(commit)
            return Reply.LATE
        if fault is ScheduledFault.SLOW:
            await self.clock.sleep(self.pace.slow)
        answer = commit(self.clock.monotonic())
        if await self._strike(service, request, "commit") or fault is ScheduledFault.SILENT:
            return Reply.SILENT
        return Reply.BROKEN if fault is ScheduledFault.BROKEN else answer

    async def quiet(self) -> list[ServiceEffect]:
        """All effects, once everything that was to land late has landed."""
        while self._landing:
            await asyncio.wait(self._landing)
        return self.effects

    async def _strike(self, service: Service, request: int, moment: Moment) -> bool:
        kill = self.schedule.kill(service, request, moment)
        if kill is None or kill in self._struck:
            return False
        self._struck.add(kill)
        await self.kill(kill)
        return True

    def _land_later(self, commit: Callable[[float], object]) -> None:
        due = self.clock.monotonic() + self.pace.late

        async def land() -> None:
            await self.clock.sleep(self.pace.late)
            commit(due)  # the documented time, however busy this process is

        task = asyncio.create_task(land())
        self._landing.add(task)
        task.add_done_callback(self._landing.discard)
