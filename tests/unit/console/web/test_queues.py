"""Whose queue an item is in: where a person put it, unless it was asked anew in another one since."""

from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended, UnknownRun
from beforehand.people import Policy, Rule
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant, Principal
from beforehand_console.web.use_cases import UseCases
from tests.unit.engine.lab import Lab, virtual

REFUND = "r-ann/refund#1"
LOW = Principal("low", (Grant("answerer", queues=("low",)),))
HEAD = Principal("head", (Grant("answerer", queues=("heads",)),))


@virtual
async def test_what_a_policy_gives_to_others_is_theirs_whoever_had_it_before(lab: Lab):
    @tool
    async def refund(cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        return await refund(9000)

    late = Rule(
        "all", "true", "ask", queue="low", within=timedelta(hours=1), on_expiry="escalate", escalates_to="heads"
    )
    async with lab.app(desk, policy=Policy("desk", (late,))) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await answer(app.service, REFUND, a.Delegate(queue="low"), by="low")
        await lab.pass_time(hours=2)
        with pytest.raises(RunSuspended):
            await app.resume("r-ann")
        (item,) = await items(app.service.reader)
        assert item.queue == "heads"
        people, shown = (
            UseCases(app.service, Authenticator(app.engine)),
            (await load_item(app.service.reader, REFUND)).digest,
        )
        with pytest.raises(UnknownRun):
            await people.answer(LOW, REFUND, a.Approve(), shown)
        await people.answer(HEAD, REFUND, a.Delegate(queue="low"), shown)
        await people.answer(LOW, REFUND, a.Approve(), shown)
        assert await app.run(desk, "ann") == "paid"
