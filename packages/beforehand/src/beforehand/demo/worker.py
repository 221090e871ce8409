"""One worker of the desk on Beforehand: works through its customers; kill it and start it again."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import msgspec

from beforehand import Beforehand
from beforehand.demo.scenario import lane_of, read_requests
from beforehand.demo.shop import shop
from beforehand.demo.with_beforehand import desk


async def work(requests: Path, journal: Path, lane: int) -> None:
    mine = [request for request in read_requests(requests) if lane_of(request.id) == lane]
    async with Beforehand(str(journal), agents=[desk]) as app:
        async for done in app.map(desk, mine, concurrency=1):
            print(msgspec.json.encode({"type": "handled", "request": done.input.id}).decode(), flush=True)
    await shop().close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m beforehand.demo.worker", description=__doc__)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--lane", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(work(arguments.requests, arguments.journal, arguments.lane))


if __name__ == "__main__":
    main()
