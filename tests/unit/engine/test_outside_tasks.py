"""Tasks of the runtime that begin while agent code runs: none is a branch of it, so a replay needs none of them."""

import asyncio
from typing import Any

from beforehand import Run, agent, tool
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_work_in_the_background_is_no_branch(lab: Lab):
    """The late answer of a read was: it came between two branches, and in a replay it does not come."""
    apps: list[Any] = []

    @tool
    async def send(name: str) -> str:
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if len(apps) == 1:
            apps[0].engine.background(asyncio.sleep(1), "late")
            apps[0].engine.housekeeping.keep("once", lambda: asyncio.sleep(1))
        found = await asyncio.create_task(send(name))
        await run.wait_for("go")
        return found

    for _ in range(2):
        async with lab.app(desk, tools=[send], recover=True) as app:
            apps.append(app)
            if len(apps) == 2:
                await app.service.signal("r-ann", "go")
            found = asyncio.gather(app.run(desk, "ann"), return_exceptions=True)
            await lab.pass_time(minutes=1)
            await found
    assert found.result() == ["ann"]


@virtual
async def test_a_run_that_agent_code_joins_or_begins_is_no_branch_of_it(lab: Lab):
    """Which of two parents begins their common child depends on the moment, and a replay begins none."""

    @tool
    async def send(name: str) -> str:
        return name

    @agent(run_id="c-{name}")
    async def child(run: Run, name: str) -> str:
        await asyncio.sleep(1)
        return name

    @agent(run_id="p-{name}")
    async def parent(run: Run, name: str) -> str:
        await apps[-1].run(child, "kid")
        found = await asyncio.create_task(send(name))
        await run.wait_for("go")
        return found

    apps: list[Any] = []
    for names in ("AB", "BA"):
        async with lab.app(parent, child, tools=[send], recover=True) as app:
            apps.append(app)
            for name in names if len(apps) == 2 else ():
                await app.service.signal(f"p-{name}", "go")
            found = asyncio.gather(*(app.run(parent, name) for name in names), return_exceptions=True)
            await lab.pass_time(minutes=2)
            await found
    assert found.result() == ["B", "A"]
