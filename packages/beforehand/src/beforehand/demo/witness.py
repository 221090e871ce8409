"""The witness process: hosts the services of both sides, outside every worker.

Speaks lines of JSON: it reports what happened on standard output, and waits on standard input for the
message that a worker is dead. It ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from beforehand.demo.scenario import Kill, Service, make_schedule, read_requests
from beforehand.demo.services import serving
from beforehand.demo.shop import Addresses
from beforehand.demo.world import DemoWorld, ServiceEffect


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    addresses: dict[str, Addresses]


class WitnessedEffect(msgspec.Struct, frozen=True, tag="effect"):
    side: str
    service: Service
    request: int


class KillNow(msgspec.Struct, frozen=True, tag="kill"):
    """The worker of this request has to die now; the service goes on when it is `Dead`."""

    side: str
    event: int
    request: int


class Dead(msgspec.Struct, frozen=True, tag="dead"):
    side: str
    event: int


Told = Ready | WitnessedEffect | KillNow


class Witness:
    """The worlds of all sides, and the kills that wait for an answer."""

    def __init__(self, seed: int, requests: Path, sides: Sequence[str]) -> None:
        schedule, customers = make_schedule(seed), read_requests(requests)
        self._dying: dict[tuple[str, int], asyncio.Event] = {}
        self.worlds = {
            side: DemoWorld(schedule, customers, kill=partial(self._kill, side), seen=partial(_tell_effect, side))
            for side in sides
        }

    async def run(self) -> None:
        orders = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(orders)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        async with serving(self.worlds) as addresses:
            _tell(Ready(addresses))
            async for line in orders:
                dead = msgspec.json.decode(line, type=Dead)
                self._dying[dead.side, dead.event].set()

    async def _kill(self, side: str, point: Kill) -> None:
        dead = self._dying[side, point.event] = asyncio.Event()
        _tell(KillNow(side, point.event, point.request))
        await dead.wait()


def _tell_effect(side: str, effect: ServiceEffect) -> None:
    _tell(WitnessedEffect(side, effect.service, effect.request))


def _tell(news: Told) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(news) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m beforehand.demo.witness", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--side", action="append", required=True)
    arguments = parser.parse_args()
    asyncio.run(Witness(arguments.seed, arguments.requests, arguments.side).run())


if __name__ == "__main__":
    main()
