"""The deadline of a run that was submitted: the time in its queue does not count, and all that comes after it does."""

from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunStopped
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


@pytest.mark.parametrize("waits", [0, 5], ids=["begins at once", "waits for a worker"])
@virtual
async def test_the_time_of_a_run_begins_once_however_often_it_gets_a_slot(lab: Lab, waits: int):
    @tool
    async def pay(number: int) -> str:
        lab.sent.append(f"payment {number}")
        return "paid"

    @agent(run_id="r-{name}", deadline=timedelta(hours=1))
    async def desk(run: Run, name: str) -> str:
        for number in range(4):
            await pay(number)
            await run.sleep(timedelta(minutes=25))
        return name

    async with lab.app(desk, tools=[pay]) as app:
        await app.submit(desk, "ann")
        await lab.pass_time(hours=waits)
    for _ in range(2):  # in between, another process takes it
        async with lab.app(desk, tools=[pay], recover=True):
            await lab.pass_time(minutes=40)
    async with lab.app(desk, tools=[pay], recover=True) as app:
        await lab.pass_time(hours=1)
        with pytest.raises(RunStopped, match="deadline"):
            await app.run(desk, "ann")
    assert lab.sent == ["payment 0", "payment 1", "payment 2"], "the fourth would be sent after 75 minutes"
    assert len(lab.of("r-ann", r.Claimed)) > 2
