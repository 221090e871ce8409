"""A run gives its slot to a more urgent one before its next step, and continues later: no effect is repeated."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Key, Run, agent, tool
from holdfast.engine.queueing import MOST_YIELDS
from holdfast.model import records as r
from holdfast.queues.limits import DeclaredLimits, QueueLimits
from tests.unit.engine.lab import Lab, virtual

ONE_SLOT = DeclaredLimits({"mail": QueueLimits(concurrency=1, preempt=True)})
KEPT = DeclaredLimits({"mail": QueueLimits(concurrency=1)})


class Desk:
    """Agents whose calls take ten seconds each, and what has arrived at their service."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.open = 0

        @tool(idempotency=Key.forever())
        async def send(what: str) -> str:
            self.arrived.append(what)
            self.open += 1
            await asyncio.sleep(10)
            self.open -= 1
            return what

        @agent(run_id="{name}", tools=[send])
        async def desk(run: Run, name: str) -> str:
            for part in "123":
                await send(name + part)
            return name

        @agent(run_id="both-{name}", tools=[send])
        async def both(run: Run, name: str) -> str:
            await run.gather(send(name + "1"), send(name + "2"))
            return await send(name + "3")

        @agent(run_id="trip-{name}", tools=[send])
        async def trip(run: Run, name: str) -> str:
            await send(name + "0")
            async with run.transaction("trip"):
                for part in "12":
                    await send.options(hold=False)(name + part)
            return await send(name + "3")

        self.send, self.desk, self.both, self.trip = send, desk, both, trip


async def all_ended(lab: Lab, app, count: int) -> None:
    for _ in range(60):
        await lab.pass_time(seconds=5)
        found = await app.engine.journal.runs()
        if sum(row.status == "completed" for row in found) == count:
            return
    pytest.fail(f"not every run has ended: {[(row.run, row.status, row.reason) for row in found]}")


@pytest.mark.parametrize(
    ("limits", "order"),
    [
        (ONE_SLOT, ["a1", "a2", "b1", "b2", "b3", "a3"]),
        (KEPT, ["a1", "a2", "a3", "b1", "b2", "b3"]),
    ],
    ids=["preempts", "keeps"],
)
def test_an_urgent_run_goes_first_where_that_is_declared(limits: DeclaredLimits, order: list[str]):
    @virtual
    async def story(lab: Lab) -> None:
        one = Desk()
        async with lab.app(one.desk, queues=limits, recover=True) as app:
            await app.submit(one.desk, "a", queue="mail")
            await lab.pass_time(seconds=12)
            await app.submit(one.desk, "b", queue="mail", priority=5)
            await all_ended(lab, app, 2)
        assert one.arrived == order
        yielded = [record for record in lab.of("a", r.RunSuspendedRecord) if record.yielded]
        assert [record.reason for record in yielded] == ["gave its slot to a more urgent run"] * (limits is ONE_SLOT)

    story()


@virtual
async def test_the_caller_of_a_run_that_yields_waits_for_its_result(lab: Lab):
    one = Desk()
    async with lab.app(one.desk, queues=ONE_SLOT, recover=True) as app:
        await app.submit(one.desk, "a", queue="mail")
        joined = asyncio.create_task(app.run(one.desk, "a"))
        await lab.pass_time(seconds=12)
        await app.submit(one.desk, "b", queue="mail", priority=1)
        await all_ended(lab, app, 2)
        assert await joined == "a"


@virtual
async def test_no_call_of_another_branch_is_under_way_when_it_yields(lab: Lab):
    one = Desk()
    async with lab.app(one.both, one.desk, queues=ONE_SLOT, recover=True) as app:
        await app.submit(one.both, "a", queue="mail")
        await lab.pass_time(seconds=2)
        await app.submit(one.desk, "b", queue="mail", priority=1)
        await all_ended(lab, app, 2)
    assert sorted(one.arrived[:2]) == ["a1", "a2"]
    assert one.arrived[2:] == ["b1", "b2", "b3", "a3"]
    assert not [end for end in lab.of("both-a", r.AttemptEnded) if end.end.kind != "returned"]


@virtual
async def test_a_transaction_is_ended_first(lab: Lab):
    one = Desk()
    async with lab.app(one.trip, one.desk, queues=ONE_SLOT, recover=True) as app:
        await app.submit(one.trip, "a", queue="mail")
        await lab.pass_time(seconds=12)
        await app.submit(one.desk, "b", queue="mail", priority=1)
        await all_ended(lab, app, 2)
    assert one.arrived == ["a0", "a1", "a2", "b1", "b2", "b3", "a3"]


@virtual
async def test_a_stream_of_urgent_runs_lets_it_end(lab: Lab):
    one = Desk()
    async with lab.app(one.desk, queues=ONE_SLOT, recover=True) as app:
        await app.submit(one.desk, "a", queue="mail")
        await lab.pass_time(seconds=12)
        for number in range(4):
            await app.submit(one.desk, f"b{number}", queue="mail", priority=5)
            await lab.pass_time(seconds=40)
        await all_ended(lab, app, 5)
        assert sum(record.yielded for record in lab.of("a", r.RunSuspendedRecord)) <= MOST_YIELDS
    assert sorted(one.arrived) == sorted(name + part for name in ("a", "b0", "b1", "b2", "b3") for part in "123")


@virtual
async def test_a_run_keeps_its_slot_once_the_urgent_one_is_cancelled(lab: Lab):
    one = Desk()
    async with lab.app(one.desk, queues=ONE_SLOT, recover=True) as app:
        await app.submit(one.desk, "a", queue="mail")
        await lab.pass_time(seconds=2)
        await app.submit(one.desk, "b", queue="mail", priority=5)
        await app.service.cancel("b", by="eve")
        for _ in range(30):
            await lab.pass_time(seconds=5)
    assert [what for what in one.arrived if what.startswith("a")] == ["a1", "a2", "a3"]
    assert lab.of("a", r.RunCompleted)


@virtual
async def test_a_write_that_gave_way_waits_for_an_outcome_that_became_unknown_meanwhile(lab: Lab):
    one = Desk()

    @tool
    async def post(seconds: int) -> str:
        await asyncio.sleep(seconds)
        raise TimeoutError("no answer")

    @tool(effect="read")
    async def look(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return "seen"

    @agent(run_id="busy-{name}", tools=[one.send, post, look])
    async def busy(run: Run, name: str) -> str:
        async def in_turn() -> None:
            for part in "123":
                await one.send(name + part)

        await run.gather(in_turn(), post(22), look(60))
        return name

    async with lab.app(busy, one.desk, queues=ONE_SLOT, recover=True) as app:
        await app.submit(busy, "a", queue="mail")
        await lab.pass_time(seconds=12)
        await app.submit(one.desk, "b", queue="mail", priority=5)
        await lab.pass_time(seconds=12)
        await app.engine.queues.declare(app.engine.journal, KEPT)
        await lab.pass_time(seconds=15)
        assert one.arrived == ["a1", "a2"]
        assert not any(record.yielded for record in lab.of("busy-a", r.RunSuspendedRecord))
