"""A write put before a recorded decision, read, value or pause does not leave: the run has diverged first."""

from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import ReplayDiverged, RunSuspended
from tests.unit.engine.lab import Lab, virtual


async def think(question: str) -> str:
    return "go on"


@pytest.mark.parametrize("past", ["decide", "now", "sleep"])
def test_a_new_write_does_not_leave_before_what_is_recorded_has_come_back(past: str):
    @virtual
    async def story(lab: Lab) -> None:
        @tool
        async def new(x: str) -> str:
            lab.sent.append(x)
            return x

        @agent(run_id="r-{name}", tools=[new])
        async def desk(run: Run, name: str) -> None:
            if lab.changed:
                await new("inserted")
            if past == "decide":
                await run.decide(think, "?")
            elif past == "now":
                await run.now()
            else:
                await run.sleep(timedelta(seconds=1))
            await run.sleep(timedelta(hours=1))

        async with lab.app(desk) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, "1")
            lab.changed = True
            await lab.pass_time(hours=2)
            with pytest.raises(ReplayDiverged):
                await app.run(desk, "1")
        assert lab.sent == []

    story()
