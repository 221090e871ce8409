"""Stories in which a careless runtime would act twice, or claim what is not so."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import (
    Ambiguous,
    CannotTell,
    DidNotHappen,
    Happened,
    Key,
    Operation,
    Rejected,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import ReplayDiverged, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_a_refusal_of_the_second_attempt_does_not_fail_a_refund_that_the_first_one_landed(lab: Lab):
    @tool(idempotency=Key(ttl=timedelta(hours=24)))
    async def refund(order: str) -> str:
        if current_operation().attempt == 1:
            assert current_operation().key
            lab.sent.append(order)  # it lands; the answer is lost
            raise TimeoutError("no answer")
        assert current_operation().key
        raise Rejected("payment in progress", code="409")

    @refund.verify(settle_window=timedelta(seconds=20))
    async def find(operation: Operation[str], order: str) -> Verdict[str]:
        visible = lab.loop.time() > 15
        return Happened("r1") if visible and order in lab.sent else DidNotHappen()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        try:
            assert await app.run(desk, "17") == "r1"
        except RunSuspended:
            history = await app.service.history("r-17")
            assert history.operations["refund#1"].phase == "unknown"
    statuses = [settled.status for settled in lab.of("r-17", r.OperationSettled)]
    assert "failed" not in statuses


@virtual
async def test_the_branch_that_the_clock_chose_yesterday_is_not_forgotten_today(lab: Lab):
    @tool
    async def charge(order: str) -> str:
        lab.sent.append(f"charge {order}")
        return order

    @tool
    async def invoice(order: str) -> str:
        lab.sent.append(f"invoice {order}")
        return order

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        evening = lab.loop.time() > 3600  # the bare clock, which is not journaled
        await (invoice if evening else charge)(name)
        await run.sleep(timedelta(hours=2))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "17")
        await lab.pass_time(hours=2)
        with pytest.raises(ReplayDiverged, match="the code comes to invoice#1 where the record has charge#1"):
            await app.run(desk, "17")
    assert lab.sent == ["charge 17"]


@virtual
async def test_an_unknown_booking_is_not_booked_elsewhere_behind_everybodys_back(lab: Lab):
    @tool
    async def book(airline: str) -> str:
        lab.sent.append(airline)
        raise Ambiguous("no answer")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return await book("first")
        except Exception:  # noqa: BLE001 - what a model's code would do
            return await book("second")

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "17")
        await app.service.resolve("r-17/book#1", "happened", by="eve", result="code")
        assert await app.run(desk, "17") == "code"
    assert lab.sent == ["first"]


@virtual
async def test_a_wall_clock_that_jumps_does_not_shorten_a_settle_window(lab: Lab):
    visible_at = 60.0

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise Ambiguous("no answer")

    @send.verify(settle_window=timedelta(seconds=90), every=timedelta(seconds=10))
    async def find(operation: Operation[str], to: str) -> Verdict[str]:
        return Happened("there") if lab.loop.time() >= visible_at else DidNotHappen()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=5)
        lab.clock.skew_ms = 8 * 60_000
        await lab.pass_time(seconds=5)
        lab.clock.skew_ms = -8 * 60_000
        assert await handle.result() == "there"
    assert lab.sent == ["ann"]


@virtual
async def test_another_process_measures_the_window_of_a_dead_one_anew(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        await lab.pass_time(hours=1)
        return to

    @send.verify(settle_window=timedelta(seconds=60), every=timedelta(seconds=5))
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened("there") if lab.loop.time() >= 50 else CannotTell()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    app = lab.make(desk)
    await app.open()
    app.start(desk, "ann")
    await lab.pass_time(seconds=1)
    await lab.bury(app, lab.processes[-1])
    async with lab.app(desk, hold_ms=10**9) as other:
        assert await other.run(desk, "ann") == "there"
    assert lab.sent == ["ann"]


@virtual
async def test_the_owner_that_was_fenced_out_still_delivers_what_it_knows(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        await lab.pass_time(seconds=40)
        return "the number of the parcel"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, hold_ms=10**9) as slow, lab.app(desk, hold_ms=10**9) as other:
        first = slow.start(desk, "ann")
        await lab.pass_time(seconds=1)
        slow.engine._beating.cancel()  # type: ignore[union-attr]  # its heart stops, its call goes on
        await lab.pass_time(seconds=20)
        second = other.start(desk, "ann")
        await lab.pass_time(seconds=60)
        results = await asyncio.gather(first.result(), second.result(), return_exceptions=True)
        assert "the number of the parcel" in {str(result) for result in results} or (
            await other.run(desk, "ann") == "the number of the parcel"
        )
    assert lab.sent == ["ann"]
