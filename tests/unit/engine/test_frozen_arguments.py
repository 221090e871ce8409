"""What is sent is what is on record, whatever happens to the objects meanwhile."""

import asyncio
from datetime import timedelta

from holdfast import Holdfast, Key, NotSent, Run, agent, current_operation, tool
from holdfast.policies import Retry

sent: list[list[str]] = []


@tool(idempotency=Key.forever(), retry=Retry(base=timedelta(0)))
async def ship(lines: list[str]) -> int:
    assert current_operation().key
    sent.append(list(lines))
    lines.append("added by the tool itself")
    if len(sent) == 1:
        raise NotSent
    return len(lines)


@agent(run_id="order-{lines[0]}")
async def desk(run: Run, lines: list[str]) -> int:
    mine = list(lines)
    shipping = asyncio.create_task(ship(mine))
    await asyncio.wait({shipping}, timeout=0)
    mine.append("added while it was in flight")
    return await shipping


def test_a_retry_sends_what_was_recorded(tmp_path):
    async def main():
        async with Holdfast(tmp_path / "j.db", agents=[desk]) as app:
            assert await app.run(desk, ["a", "b"]) == 3

    sent.clear()
    asyncio.run(main())
    assert sent == [["a", "b"], ["a", "b"]]
