"""The network between one simulated process and the services: where calls are lost, late, doubled or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from beforehand.testing.loop import Actor
from simulator.plan import Fault
from simulator.services.deferred import Application
from simulator.services.service import Effect, Reply, Request

if TYPE_CHECKING:
    from simulator.world import World

NEVER: Final = 3_600.0
"""Seconds after which a call that gets no answer is given up; every tool has given up long before."""

LONGEST_WAY_MS: Final = 25
"""No message travels longer than that."""

STOPS: Final = frozenset({"stopped", "stopped_for_good"})
"""A process is stopped in the middle of a call for hours, and then goes on or is killed."""

LIE: Final = "done, or so it says"
"""What a service answers that did nothing."""


class Traffic:
    """The `Network` of one process."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    async def send(self, request: Request) -> Reply:
        """See `Network.send`."""
        with self._world.checker.queues.calling(self._actor, request):
            return await self._send(request)

    async def _send(self, request: Request) -> Reply:
        world, actor = self._world, self._actor
        fault = await self._about_to_send(request)
        kind = fault.kind if fault else ""
        if kind in {"refused", "blackout", "asleep"} or world.outage(request.service):
            raise ConnectionRefusedError(f"{request.service} is down")
        left_ms = world.now_ms()
        await world.travel(request.operation, request.attempt, "there")
        if world.now_ms() - left_ms > LONGEST_WAY_MS:  # the process stood still with the request in its hands
            world.checker.paused_before_the_first_byte(request)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answer(reply: Reply) -> None:
            if kind != "reply_lost" and not future.done():
                future.set_result(reply)

        if kind != "lost":
            world.outside(lambda: self._arrive(request, fault, answer))
        async with asyncio.timeout(NEVER):
            reply = await future
        await world.travel(request.operation, request.attempt, "back")
        if world.point(actor, f"receive {request.service}", request.operation):
            await asyncio.sleep(0)
        if reply.status == 409:
            world.checker.timing.in_progress(request.operation)
        if kind == "garbage":
            raise ValueError("the answer cannot be read")
        return reply

    async def _about_to_send(self, request: Request) -> Fault | None:
        """What becomes of the call. Here its process may be paused for a while, or stopped for hours."""
        world, actor = self._world, self._actor
        world.checker.about_to_send(request)
        if world.point(actor, f"send {request.service}", request.operation):
            world.checker.paused_before_the_first_byte(request)
            await asyncio.sleep(0)
        fault = world.nemesis.of_call(request.service)
        if fault is not None and fault.kind in STOPS:
            world.checker.paused_before_the_first_byte(request)
            world.checker.processes.stops(world.lives[actor], request, fault)
            await asyncio.sleep(0)
        return fault

    async def find(self, service: str, *, marker: str = "", key: str = "") -> Effect | None:
        """See `Network.find`."""
        await self._reading(service, marker or key)
        return self._world.services[service].find(marker=marker, key=key)

    async def state(self, service: str, thing: str) -> str:
        """See `Network.state`."""
        await self._reading(service, thing)
        return self._world.services[service].state(thing)

    async def application(self, service: str, marker: str) -> Application | None:
        """See `Network.application`."""
        await self._reading(service, marker)
        return self._world.offices[service].find(marker)

    async def _reading(self, service: str, what: str) -> None:
        self._world.point(self._actor, f"read {service}", what)
        if self._world.outage(service):
            raise ConnectionRefusedError(f"{service} is down")
        await self._world.travel("read", service, what)

    def _arrive(self, request: Request, fault: Fault | None, tell: Callable[[Reply], None]) -> None:
        """The request is at the service. What it does there depends on the fault."""
        world = self._world
        service = world.services[request.service]
        world.requests.append((world.now_ms(), request))
        world.checker.arrived(request)
        kind, ms = (fault.kind, fault.ms) if fault else ("", 0)
        match kind:
            case "error_before":
                tell(Reply(500, "internal error"))
            case "rejected":
                tell(service.refuse(request, 402))
            case "busy":
                tell(Reply(429, "busy", retry_after=ms / 1000))
            case "overtaken":
                service.by_somebody(request.thing, f"somebody {len(service.effects)}")
                tell(Reply(429, "another party is at it", retry_after=ms / 1000))
            case "lie":
                tell(Reply(200, LIE))
            case "error_after":
                service.arrive(request, 0, tell, fail=500)
            case "late":
                service.arrive(request, min(ms, service.able.late_ms), tell)
            case "duplicate":
                service.arrive(request, 0, tell)
                service.arrive(request, 0, _nobody)
            case "other_actor":
                service.by_somebody(request.thing, f"somebody {len(service.effects)}")
                service.arrive(request, 0, tell)
            case _:
                service.arrive(request, 0, tell)


def _nobody(_: Reply) -> None:
    """The answer to a request whose caller does not wait."""
