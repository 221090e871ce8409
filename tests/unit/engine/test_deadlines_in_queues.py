"""The deadline of a run that waited in a queue: it counts from the first claim, and later claims do not renew it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from beforehand import Run, agent, tool
from beforehand.errors import OperationFailed
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.unit.engine.lab import DAYS, Lab, virtual

ONE_AT_A_TIME = DeclaredLimits({"mail": QueueLimits(concurrency=1)})


@virtual
async def test_the_wait_in_a_queue_does_not_count_towards_the_deadline(lab: Lab):
    @tool
    async def send(name: str) -> str:
        lab.sent.append(name)
        return name

    @agent(run_id="r-{name}", deadline=timedelta(seconds=60))
    async def desk(run: Run, name: str) -> str:
        await asyncio.sleep(50)
        return await send(name)

    async with lab.app(desk, queues=ONE_AT_A_TIME, recover=True, **DAYS) as app:
        for name in ("a", "b", "c"):  # the last starts after 100 s
            await app.submit(desk, name, queue="mail")
        await lab.pass_time(seconds=200)
    assert lab.sent == ["a", "b", "c"]


@virtual
async def test_a_later_claim_does_not_renew_the_deadline(lab: Lab):
    told: list[str] = []

    @tool
    async def send(name: str) -> str:
        lab.sent.append(name)
        return name

    @agent(run_id="r-{name}", deadline=timedelta(seconds=60))
    async def desk(run: Run, name: str) -> None:
        await send("first")
        await run.sleep(timedelta(minutes=5))
        try:
            await send("second")
        except OperationFailed as failed:
            told.append(str(failed))

    async with lab.app(desk, queues=ONE_AT_A_TIME, recover=True, **DAYS) as app:
        await app.submit(desk, "x", queue="mail")
        await lab.pass_time(minutes=10)
    assert lab.sent == ["first"]
    assert "the deadline passed" in told[0]
