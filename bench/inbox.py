"""How long the inbox takes when ten thousand items wait: the page, the API and the command, p50 and p95.

    python bench/inbox.py [--items 10000] [--ended 200000]

The listing is filled directly; runs that have ended stand beside it, because they must not cost anything.
The command is a process each time, from its start to its end. Fails above the goal of 200 ms at p95 for the list.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import httpx2
import msgspec

from beforehand import Beforehand
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant, Principal
from beforehand_console.auth.site import cookie_name, loopback
from beforehand_console.web.app import web

GOAL_MS = 200
ORIGIN = "http://127.0.0.1"
ROUNDS = 40
ADDRESSES = ("/inbox", "/inbox?kind=approval&text=c77", "/api/v1/items", "/api/v1/items?limit=500")
_INSERT = (
    "insert into run (name, agent, program, status, reason, due_ms, waits, token, owner, created_ms, updated_ms)"
    " values (?, 'desk', '', ?, '', null, ?, 1, null, 0, ?)"
)


def fill(path: Path, items: int, ended: int) -> None:
    now = time.time_ns() // 1_000_000
    with closing(sqlite3.connect(path)) as database, database:
        for number in range(items):
            asks = f"may refund(cents=9000, customer=c{number}) be sent? the contract asks for a person: cents > 5000"
            wait = {"kind": "approval", "step": "refund#1", "asks": asks, "due": now + number * 1000, "tool": "refund"}
            waits = msgspec.json.encode([wait]).decode()
            database.execute(_INSERT, (f"refund-{number:06}", "suspended", waits, now - number))
        database.executemany(_INSERT, ((f"done-{number:07}", "completed", "[]", now) for number in range(ended)))


async def measure(path: Path, items: int, ended: int) -> dict[str, list[tuple[float, float]]]:
    async with Beforehand(path, agents=[], recover=False) as app:
        fill(path, items, ended)
        authenticator = Authenticator(app.engine)
        secret = await authenticator.admit(Principal("bea", (Grant("admin"),)), "127.0.0.1")
        headers = {"origin": ORIGIN, "cookie": f"{cookie_name(ORIGIN)}={secret}"}
        transport = httpx2.ASGITransport(web(app.service, authenticator, loopback(80)))
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as client:
            took = {address: [await one(client, address) for _ in range(ROUNDS)] for address in ADDRESSES}
    return took | {"beforehand inbox": [command(path) for _ in range(ROUNDS)]}


def command(path: Path) -> tuple[float, float]:
    """The same of a process that lists the inbox. What it imports is compiled, as it is wherever it is installed."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    called = [sys.executable, "-m", "beforehand", "--journal", str(path), "inbox"]
    begun, worked = time.perf_counter(), _of_children()
    subprocess.run(called, env=surroundings, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - begun) * 1000, (_of_children() - worked) * 1000


def _of_children() -> float:
    """Seconds on the processor of all processes that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def one(client: httpx2.AsyncClient, address: str) -> tuple[float, float]:
    """Milliseconds on the clock, and on the processor."""
    begun, worked = time.perf_counter(), time.process_time()
    answered = await client.get(address)
    assert answered.status_code == 200, answered.text
    return (time.perf_counter() - begun) * 1000, (time.process_time() - worked) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--ended", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        took = asyncio.run(measure(Path(directory) / "desk.db", options.items, options.ended))
    missed = False
    for address, times in took.items():
        waited, worked = zip(*times, strict=True)
        p95 = statistics.quantiles(waited, n=20)[-1]
        missed = missed or p95 > GOAL_MS
        cpu = f"of that {statistics.median(worked):6.1f} ms on the processor"
        print(f"{address:<34} p50 {statistics.median(waited):6.1f} ms   p95 {p95:6.1f} ms   {cpu}")
    sys.exit(f"above the goal of {GOAL_MS} ms" if missed else 0)


if __name__ == "__main__":
    main()
