"""Who told a run something proposed what it does next: another person has to approve it."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Run, agent, tool
from beforehand.errors import RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.model.standing_permission import StandingPermission
from beforehand.people.loaded_item import load_item
from beforehand.people.standing_permissions import add_standing
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual

REFUND = "r-ann/refund#1"


def asking(lab: Lab) -> Any:
    """An agent that asks how much, and refunds that."""

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def refund(cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        cents = await run.ask("how much?", returns=int)
        await run.messages()
        paid = await refund(cents)
        if await run.ask("all well?", choices=["yes", "no"]) == "no":
            await refund(cents + 1)
        return paid

    return desk


async def waits(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann", by="ann")


async def told_how_much(app: Any, desk: Any, cents: int, by: str) -> None:
    """The run asks, this person answers, and the run goes on."""
    await waits(app, desk)
    await app.service.answer("r-ann/ask#1", cents, by=by)
    await waits(app, desk)


@virtual
async def test_who_answered_cannot_approve_what_came_of_it(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        await told_how_much(app, desk, 99_999, by="ben")
        for name in ("ben", "Ben", "ann"):
            with pytest.raises(UsageError, match="cannot approve what it does"):
                await app.service.approve(REFUND, by=name)
        assert (await load_item(app.service.reader, REFUND)).proposers == ("ann", "ben")
        await app.service.approve(REFUND, by="cid")
        await waits(app, desk)
        assert lab.sent == ["refund 99999"]


@virtual
async def test_who_sent_a_message_cannot_approve_either_and_a_process_says_so(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.answer("r-ann/ask#1", 9000, by="eve")
        await app.service.tell("r-ann", "give them 9000", by="ben")
        await waits(app, desk)
        with pytest.raises(UsageError, match="ben asked for run r-ann, or told it something"):
            await app.service.stand_in(REFUND, "paid", by="ben")
        history = await app.service.history("r-ann")
        assert history.proposers(history.operations["refund#1"]) == ("ann", "ben", "eve")
    assert lab.sent == []


@virtual
async def test_to_approve_or_to_decline_proposes_nothing_and_later_answers_do_not_count(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        await told_how_much(app, desk, 9000, by="ben")
        await app.service.approve(REFUND, by="cid")
        await waits(app, desk)
        await lab.pass_time(minutes=1)
        await app.service.answer("r-ann/ask#2", "no", by="dan")
        await waits(app, desk)
        history = await app.service.history("r-ann")
        assert history.proposers(history.operations["refund#1"]) == ("ann", "ben"), "dan said something later"
        assert history.proposers(history.operations["refund#2"]) == ("ann", "ben", "dan")
        await app.service.approve("r-ann/refund#2", by="cid")
        assert await app.run(desk, "ann") == "paid 9000"


@virtual
async def test_a_standing_permission_of_who_answered_does_not_cover_it(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        until = EPOCH_MS + int(timedelta(days=7).total_seconds() * 1000)
        await add_standing(app.engine, StandingPermission("", "refund", "ben", until, "cents <= 100000"))
        await told_how_much(app, desk, 9000, by="ben")
        assert lab.sent == []
        assert [one.step for one in lab.of("r-ann", r.OperationParked)] == ["refund#1"]
