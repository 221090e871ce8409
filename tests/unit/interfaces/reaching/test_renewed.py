"""What is asked for anew is told anew, by webhooks too."""

import base64
import os
from datetime import timedelta

import pytest

from holdfast import Run, agent, tool
from holdfast.errors import RunSuspended
from holdfast.interfaces.webhooks import Webhooks
from holdfast.model.webhooks import Note
from tests.unit.engine.lab import Lab, virtual
from tests.unit.interfaces.receiver import receiving


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_SECRET", "whsec_" + base64.b64encode(os.urandom(24)).decode())


@tool(gate="true")
async def move(room: str) -> str:
    return "moved"


@agent(run_id="m-{name}", tools=[move])
async def mover(run: Run, name: str) -> str:
    return await move(name)


@virtual
async def test_an_approval_that_ended_and_is_asked_for_anew_is_told_anew(lab: Lab):
    with receiving() as ops:
        async with lab.app(mover, private_webhooks=True) as app:
            await Webhooks(app.service).add(Note("add", "ops", "bea", url=ops.url, secrets=("OPS_SECRET",)))
            for _ in range(2):
                with pytest.raises(RunSuspended):
                    await app.run(mover, "ann")
                await app.run_errands()
                with pytest.raises(RunSuspended):
                    await app.run(mover, "ann")
                await app.run_errands()
                await app.service.approve("m-ann/move#1", by="bea", lasts=timedelta(minutes=5))
                await lab.pass_time(minutes=10)
            for row in await app.engine.journal.runs():
                if row.run.startswith("webhook-"):
                    await app.drive(row.run)
    assert len(set(ops.ids)) == len(ops.came) == 2, "once for each time that it was asked"
