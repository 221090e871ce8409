"""Partial success and deaths: wherever a process dies, the whole is sent once and each part ends once."""

from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.engine.environment import POINTS
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt

PARTS = ("dan", "eve")


def mailer(lab: Lab) -> Any:
    @tool(idempotency=Key.forever(stores="all"))
    async def send(to: str) -> str:
        key = current_operation().key
        if key not in lab.sent:
            lab.sent.append(key)
        for name in PARTS:
            current_operation().pending(name, key=f"mail-{name}")
        current_operation().report("mails left", 7)
        return to

    @agent(run_id="m-{name}", tools=[send])
    async def desk(run: Run, name: str) -> list[object]:
        sent = await send.outcome(name)
        left = run.facts.get("mails left")
        ends = await run.wait_pending(sent)
        assert left is not None
        return [*sent.pending, left.value, left.operation, *(f"{one} {end.status}" for one, end in ends.items())]

    return desk


async def drive(lab: Lab, desk: Any, point: str, nth: int) -> bool:
    """Drive it in a process that dies at the n-th time a point is reached; whether it did."""
    crash = DiesAt(point, nth)
    app = lab.make(desk, crash=crash)
    process = crash.process = lab.processes[-1]
    await app.open()
    handle = app.start(desk, "ann")
    await lab.pass_time(seconds=5)
    if not process.dead:
        with pytest.raises(RunSuspended):
            await handle.result()
        await app.aclose()
        return False
    await lab.bury(app, process)
    return True


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
@virtual
async def test_a_death_anywhere_changes_nothing(lab: Lab, point: str, nth: int):
    desk = mailer(lab)
    await drive(lab, desk, point, nth)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        for name in PARTS:
            await app.service.deliver(f"mail-{name}", ArrivedAnswer(f"msg-{name}"))
        said = await app.run(desk, "ann")
    assert said == [*PARTS, 7, "m-ann/send#1", "dan succeeded", "eve succeeded"]
    assert len(lab.sent) == 1
    parts = [one.step for one in lab.of("m-ann", r.OperationDeferred)]
    assert parts == ["send#1/part#1", "send#1/part#2"]
