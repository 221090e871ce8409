"""What is sent is what is on record, whatever happens to the objects meanwhile."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Beforehand, Key, NotSent, Run, agent, current_operation, tool
from beforehand.errors import RunSuspended
from beforehand.people.items import items
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

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
        async with Beforehand(tmp_path / "j.db", agents=[desk]) as app:
            assert await app.run(desk, ["a", "b"]) == 3

    sent.clear()
    asyncio.run(main())
    assert sent == [["a", "b"], ["a", "b"]]


@virtual
async def test_what_was_approved_is_sent_also_where_the_record_does_not_hold_all_of_it(lab: Lab):
    """With a redacted parameter the call is made with what code brings: as it was when the person was asked."""

    @tool(gate="true", redact=["token"], retry=Retry(base=timedelta(0)))
    async def pay(cents: list[int], token: str) -> str:
        lab.sent.append(f"pay {cents} {token}")
        cents.append(2)
        if len(lab.sent) == 1:
            raise NotSent
        return "paid"

    @agent(run_id="p-{name}", tools=[pay])
    async def payer(run: Run, name: str) -> str:
        mine = [1]
        paying = asyncio.create_task(pay(mine, "t"))
        await asyncio.wait({paying}, timeout=0)
        mine.append(9999)
        return await paying

    async with lab.app(payer) as app:
        with pytest.raises(RunSuspended):
            await app.run(payer, "ann")
        (item,) = await items(app.service.reader)
        await app.service.approve(item.item, by="bea")
        assert await app.run(payer, "ann") == "paid"
    assert lab.sent == ["pay [1] t", "pay [1] t"]
