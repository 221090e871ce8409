"""A read that has to wait rests like a write: the run is suspended, and holds no process."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Beforehand, NotSent, Run, agent, tool
from beforehand.errors import RunSuspended
from beforehand.policies import Retry

calls: list[str] = []


@tool(effect="read")
async def look(what: str) -> str:
    calls.append(what)
    return f"{what} is fine"


@tool(effect="read", retry=Retry(attempts=2, base=timedelta(0)))
async def peek(what: str) -> str:
    calls.append(what)
    if len(calls) == 1:
        raise NotSent("busy", retry_after=3600)
    return f"{what} is fine"


@agent(run_id="look-{what}")
async def looker(run: Run, what: str) -> str:
    return await look(what)


@agent(run_id="peek-{what}")
async def peeker(run: Run, what: str) -> str:
    return await peek(what)


def test_a_read_through_a_paused_tool_suspends_its_run(tmp_path):
    async def main():
        calls.clear()
        async with Beforehand(tmp_path / "j.db", agents=[looker], recover=False) as app:
            await app.service.pause_tool("look", by="ada")
            with pytest.raises(RunSuspended):
                await app.run(looker, "roof")
            assert calls == []
            await app.service.unpause_tool("look", by="ada")
            assert await app.run(looker, "roof") == "roof is fine"

    asyncio.run(main())


def test_a_read_that_is_to_be_tried_in_an_hour_suspends_its_run(tmp_path):
    async def main():
        calls.clear()
        async with Beforehand(tmp_path / "j.db", agents=[peeker], recover=False) as app:
            with pytest.raises(RunSuspended):
                await app.run(peeker, "roof")
            assert await app.run(peeker, "roof") == "roof is fine"

    asyncio.run(main())
