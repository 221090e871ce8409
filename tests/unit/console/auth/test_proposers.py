"""Who proposed what is to be approved: the person who started its run, as the records say."""

from datetime import timedelta

import pytest

from beforehand import Key, Run, agent, tool
from beforehand.errors import NotAllowed, RunSuspended
from beforehand.people.loaded_item import LoadedItem, load_item
from beforehand_console.auth.authorize import Grant, PermissionScope, Principal, check_answerer
from tests.unit.engine.lab import Lab, virtual


def answered_by(name: str, now: LoadedItem) -> None:
    check_answerer(Principal(name, (Grant("admin"),), "password"), PermissionScope(now.item, now.tool), now.proposers)


@virtual
async def test_who_started_a_run_does_not_approve_what_it_asks(lab: Lab):
    @tool(gate="cents > 0", idempotency=Key.forever())
    async def refund(cents: int) -> str:
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        return await refund(9000)

    async with lab.app(desk) as app:
        for name, by in (("ann", "Bea"), ("bob", "")):
            with pytest.raises(RunSuspended):
                await app.run(desk, name, by=by)
        now = await load_item(app.service.reader, "r-ann/refund#1")
        assert (now.kind, now.tool, now.proposers) == ("approval", "refund", ("Bea",))
        with pytest.raises(NotAllowed, match="bea proposed r-ann/refund#1"):
            answered_by("bea", now)
        answered_by("cid", now)
        answered_by("bea", await load_item(app.service.reader, "r-bob/refund#1"))


@virtual
async def test_who_started_a_run_answers_its_questions(lab: Lab):
    @agent(run_id="q-{name}", tools=[])
    async def asks(run: Run, name: str) -> str:
        return await run.ask("Which city?", timeout=timedelta(days=1), default="Paris")

    async with lab.app(asks) as app:
        with pytest.raises(RunSuspended):
            await app.run(asks, "ann", by="bea")
        now = await load_item(app.service.reader, "q-ann/ask#1")
        assert (now.kind, now.proposers) == ("question", ())
        answered_by("bea", now)
