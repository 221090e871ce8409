"""What is asked for anew is told anew, by webhooks too."""

import base64
import os
from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended
from beforehand.model.webhooks import Note
from beforehand.people import Policy, Rule
from beforehand.webhooks.outgoing import Webhooks
from beforehand_console import Mail, Only, Pace
from tests.unit.console.notify.offices import plain, post_office
from tests.unit.engine.lab import Lab, virtual
from tests.unit.webhooks.receiver import receiving


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
                await app.run_housekeeping()
                with pytest.raises(RunSuspended):
                    await app.run(mover, "ann")
                await app.run_housekeeping()
                await app.service.approve("m-ann/move#1", by="bea", lasts=timedelta(minutes=5))
                await lab.pass_time(minutes=10)
            for row in await app.engine.journal.runs():
                if row.run.startswith("webhook-"):
                    await app.drive(row.run)
    assert len(set(ops.ids)) == len(ops.came) == 2, "once for each time that it was asked"


@tool
async def pay(cents: int) -> str:
    return "paid"


@agent(run_id="p-{name}", tools=[pay])
async def payer(run: Run, name: str) -> str:
    return await pay(9000)


@virtual
async def test_what_a_policy_hands_to_another_queue_is_told_to_those_who_look_there(lab: Lab):
    rule = Rule(
        "big", "true", "ask", queue="money", within=timedelta(hours=1), on_expiry="escalate", escalates_to="heads"
    )
    with post_office() as office:
        reach = [
            Mail(
                to=f"{queue}@example.com", sender="desk@example.com", server=office.server, tls="none",
                only=Only(queues=(queue,)), pace=Pace(remind_before=timedelta(0)),
            )
            for queue in ("money", "heads", "others")
        ]  # fmt: skip
        calm = {"recover_every_ms": 60_000, "poll_ms": 60_000}
        async with lab.app(payer, recover=True, reach=reach, policy=Policy("p", (rule,)), **calm) as app:
            with pytest.raises(RunSuspended):
                await app.run(payer, "ann")
            await lab.pass_time(minutes=30)
            assert [message["To"] for message in office.box] == ["money@example.com"]
            await lab.pass_time(hours=2)
    assert [message["To"] for message in office.box] == ["money@example.com", "heads@example.com"]
    assert "If nobody answers: it goes on waiting, first in the list" in plain(office.box[1])
