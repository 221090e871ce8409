"""A machine that was started again: what was waited for before it counts from then on, whichever process takes the run."""

from datetime import timedelta

from beforehand import DidNotHappen, Operation, Run, Verdict, agent, tool
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_a_settle_window_passes_although_every_reading_is_made_by_another_claim(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise TimeoutError("no answer")

    @send.verify(settle_window=timedelta(minutes=3), every=timedelta(minutes=1), deadline=timedelta(minutes=5))
    async def find(operation: Operation[str]) -> Verdict[str]:
        return DidNotHappen()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return (await send.outcome(name)).status

    async with lab.app(desk) as app:
        app.start(desk, "17")
        await lab.pass_time(seconds=1)
    lab.journal.reboot()
    async with lab.app(desk, recover=True, recover_every_ms=1_000) as app:
        await lab.pass_time(minutes=30)
        row = (await app.service.runs())[0]
        assert row.status != "running"
    believed = [record for record in lab.of("r-17", r.Verified) if record.believable]
    assert believed, "absence was never believed, however long it was read back"


@virtual
async def test_a_wait_for_anothers_booking_ends_with_a_person_however_often_the_run_is_taken(lab: Lab):
    @tool(claim="order")
    async def book(order: str) -> str:
        raise TimeoutError("no answer")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await book("17")

    async with lab.app(desk, recover=True, hold_ms=100, claim_wait_ms=60_000, recover_every_ms=1_000) as app:
        app.start(desk, "first")
        await lab.pass_time(seconds=5)
        app.start(desk, "second")
        await lab.pass_time(minutes=5)
        second = await app.service.row("r-second")
    assert b'"person"' in second.waits, second.reason
