"""One process that pays Ann and then Bob over HTTP: `http_program.py DIRECTORY PORT FORM POINT`. It prints how the run ended.

FORM says how the payment is written, and with which client. The process kills itself at POINT of Bob's payment, if that
is a crash point; the server kills it at `received` and `landed`.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from beforehand import (
    Beforehand,
    DidNotHappen,
    Happened,
    Key,
    Operation,
    Run,
    RunSuspended,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.environment import POINTS, Environment, system_environment
from beforehand.hosts.http import aiohttp_trace, httpx_hook, requests_adapter
from tests.crash.points import Points

DIRECTORY, SERVER, FORM, POINT = Path(sys.argv[1]), f"http://127.0.0.1:{sys.argv[2]}", sys.argv[3], sys.argv[4]
PID = {"X-Pid": str(os.getpid())}
if FORM == "requests":
    import requests
elif FORM == "aiohttp":
    import aiohttp
else:
    import httpx

HOOKS: Any = {"request": [httpx_hook()]}
FOREVER = Key.forever()


@tool(name="pay", idempotency=FOREVER)
def by_requests(to: str) -> str:
    with requests.Session() as session:
        session.mount("http://", requests_adapter())
        answer = session.post(f"{SERVER}/pay", data=to, headers=PID)
    answer.raise_for_status()
    return answer.text


@tool(name="pay", idempotency=FOREVER)
async def by_aiohttp(to: str) -> str:
    async with (
        aiohttp.ClientSession(trace_configs=[aiohttp_trace()], headers=PID, raise_for_status=True) as session,
        session.post(f"{SERVER}/pay", data=to) as answer,
    ):
        return await answer.text()


@tool(name="pay", idempotency=FOREVER)
def by_httpx(to: str) -> str:
    with httpx.Client(event_hooks=HOOKS, headers=PID) as client:
        return client.post(f"{SERVER}/pay", content=to).raise_for_status().text


async def found(operation: Operation[str]) -> Verdict[str]:
    async with httpx.AsyncClient(event_hooks=HOOKS) as client:
        answer = await client.get(f"{SERVER}/find", params={"marker": operation.marker})
    return Happened(answer.text) if answer.text else DidNotHappen()


CLAUSES: dict[str, dict[str, Any]] = {
    "keyed": {"idempotency": FOREVER},
    "verified": {"verify": found, "settle_window": timedelta(0)},
    "plain": {},
}
TOOLS = {"requests": by_requests, "aiohttp": by_aiohttp, "httpx": by_httpx}


@agent(tools=[TOOLS[FORM]] if FORM in TOOLS else [])
async def desk(run: Run, names: list[str]) -> list[str]:
    return [await (TOOLS[FORM](to) if FORM in TOOLS else inline(run, to)) for to in names]


async def inline(run: Run, to: str) -> str:
    payment = run.effect("pay", {"to": to}, **CLAUSES[FORM])
    async for attempt in payment:
        async with attempt, httpx.AsyncClient(event_hooks=HOOKS, headers=PID) as client:
            marker = {"X-Marker": current_operation().marker}
            answer = await client.post(f"{SERVER}/pay", content=to, headers=marker)
            attempt.result = answer.raise_for_status().text
    return str(payment.result)


async def main() -> str:
    made = system_environment()
    points = Points((POINT, 2) if POINT in POINTS else None)
    environment = Environment(made.clock, made.rng, made.threads, points)
    async with Beforehand(DIRECTORY / "desk.db", agents=[desk], environment=environment) as app:
        try:
            return " ".join(await app.run(desk, ["ann", "bob"], run_id="r1"))
        except RunSuspended as waits:
            return f"waits: {waits}"


if __name__ == "__main__":
    print(asyncio.run(main()))
