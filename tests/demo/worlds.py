"""Helpers: worlds with chosen faults, a clock that tests turn, services on real loopback ports."""

import asyncio
import contextlib
from collections import Counter

from beforehand.demo.scenario import FaultSchedule, ScheduledFault, make_requests
from beforehand.demo.services import serving
from beforehand.demo.shop import Shop
from beforehand.demo.world import DemoWorld

CUSTOMERS = make_requests(seed=1, how_many=3)
FIRST = CUSTOMERS[0]


class TurnedClock:
    def __init__(self):
        self.now = 1000.0
        self._sleepers = []
        self.somebody_sleeps = asyncio.Event()

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        wake = asyncio.Event()
        self._sleepers.append((self.now + seconds, wake))
        self.somebody_sleeps.set()
        await wake.wait()

    def turn(self, seconds):
        self.now += seconds
        for due, wake in self._sleepers:
            if due <= self.now:
                wake.set()


def world_with(service="payments", first=ScheduledFault.NONE, second=ScheduledFault.NONE, kills=(), **environment):
    spot = (service, FIRST.id)
    return DemoWorld(
        FaultSchedule({spot: first}, {spot: second}, tuple(kills)), CUSTOMERS, clock=TurnedClock(), **environment
    )


@contextlib.asynccontextmanager
async def open_shop(world):
    async with serving({"side": world}) as addresses:
        shop = Shop(addresses["side"], patience_s=0.5)  # on a loaded machine a call may take a while to arrive
        try:
            yield shop
        finally:
            await shop.close()


def counted(world):
    return Counter((effect.service, effect.request) for effect in world.effects)
