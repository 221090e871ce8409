"""A person answers in the place of the tool: a success of which nothing was sent, undone or confirmed."""

from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import UsageError
from beforehand.model import records as r
from beforehand.people import answers as a
from beforehand.people.answering import answer
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_edited import HOUR, REFUND, agreed, asked, desk_of


@virtual
async def test_a_person_answers_as_the_tool_would_and_nothing_is_sent(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(UsageError, match="is not what refund returns"):
            await answer(app.service, REFUND, a.StandIn(5), by="bea")
        await answer(app.service, REFUND, a.StandIn("paid by hand", why="cash"), by="bea")
        assert await app.run(desk, "ann") == "paid by hand, sent: 9000"
    assert lab.sent == []
    async with lab.app(desk) as app:
        _, state = await app.service.operation(REFUND)
        assert (state.phase, str(state.settlement.basis), state.landed) == ("succeeded", "person(bea): cash", False)


@virtual
async def test_a_stand_in_waits_for_the_code_of_its_tool(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
    async with lab.app() as clerk:
        assert (await answer(clerk.service, REFUND, a.StandIn(5), by="bea")).lacks == "refund"
    async with lab.app(desk) as app:
        await asked(app, desk)
        (order,) = lab.of("r-ann", r.CommandApplied)
        assert order.refused == "5 is not what refund returns"
        await answer(app.service, REFUND, a.StandIn("cash"), by="bea")
        assert await app.run(desk, "ann") == "cash, sent: 9000"


@virtual
async def test_nothing_is_undone_or_confirmed_of_what_a_person_answered(lab: Lab):
    @tool(gate="true")
    async def reserve(seat: str) -> str:
        lab.sent.append("reserve")
        return seat

    @reserve.compensate(restores=True)
    async def release(op: Any) -> None:
        lab.sent.append("release")

    @reserve.confirm(expires=HOUR)
    async def confirm(op: Any) -> None:
        lab.sent.append("confirm")

    @tool(gate="true")
    async def book(city: str) -> str:
        lab.sent.append("book")
        return city

    @book.compensate(restores=True)
    async def cancel(op: Any) -> None:
        lab.sent.append("cancel")

    @agent(run_id="r-{name}", tools=[reserve, book])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await reserve("1a")
            await book("Rome")
        async with run.transaction("back") as back:
            await book("Oslo")
            back.abort("no")
        return "done"

    async with lab.app(desk) as app:
        for step, by in (("trip/reserve#1", "bea"), ("trip/book#1", "cid"), ("back/book#1", "dan")):
            await asked(app, desk)
            await answer(app.service, f"r-ann/{step}", a.StandIn("x"), by=by)
        with pytest.raises(Exception, match="no"):
            await app.run(desk, "ann")
    assert lab.sent == []


@pytest.mark.parametrize(
    ("given", "sent"),
    [(a.Edit({"cents": 7}), ["mail 7"]), (a.StandIn("by hand"), []), (a.Approve(), ["mail 9"])],
    ids=["edited", "answered", "approved"],
)
@virtual
async def test_what_waits_for_a_commit_is_answered_like_anything_else(lab: Lab, given: Any, sent: list[str]):
    @tool(gate="true")
    async def mail(cents: int) -> str:
        lab.sent.append(f"mail {cents}")
        return f"mailed {cents}"

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip") as trip:
            promise = await trip.on_commit(mail, 9)
        return promise.result

    async with lab.app(desk) as app:
        await asked(app, desk)
        await answer(app.service, "r-ann/trip/mail#1", given, by="bea")
        if isinstance(given, a.Edit):
            await agreed(app, desk, "r-ann/trip/mail#1")
        told = await app.run(desk, "ann")
        assert told == ("by hand" if not sent else f"mailed {sent[0][-1]}")
    assert lab.sent == sent
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == told
