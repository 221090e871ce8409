"""An operation on its last chance attempts alone, so that a bystander is never blamed for a death."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.engine.crash_isolation import IsolationGate
from beforehand.errors import RunStopped, RunSuspended
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_whoever_wants_to_be_alone_waits_until_all_have_left(lab: Lab):
    company, order = IsolationGate(), []

    async def attempt(name: str, *, alone: bool, seconds: int) -> None:
        await company.wait_to_enter(chances=int(alone))
        order.append(f"{name} in")
        await lab.pass_time(seconds=seconds)
        order.append(f"{name} out")
        company.exit(chances=int(alone))

    company.enter()
    alone = asyncio.create_task(attempt("alone", alone=True, seconds=5))
    await lab.pass_time(seconds=1)
    others = [asyncio.create_task(attempt(name, alone=False, seconds=1)) for name in "ab"]
    await lab.pass_time(seconds=1)
    assert order == []
    company.exit(chances=0)
    await asyncio.gather(alone, *others)
    assert order[:2] == ["alone in", "alone out"]
    assert sorted(order[2:]) == ["a in", "a out", "b in", "b out"]


@virtual
async def test_whoever_gives_up_waiting_to_be_alone_lets_the_others_in(lab: Lab):
    company = IsolationGate()
    company.enter()
    alone = asyncio.create_task(company.wait_to_enter(chances=1))
    await lab.pass_time(seconds=1)
    other = asyncio.create_task(company.wait_to_enter(chances=0))
    await lab.pass_time(seconds=1)
    assert not other.done()
    alone.cancel()
    await other
    assert alone.cancelled()
    assert not company.alone


@virtual
async def test_a_bystander_of_deaths_comes_through_and_the_cause_is_set_aside(lab: Lab):
    def desk_of(process: int):
        @tool(idempotency=Key.forever(), timeout=timedelta(hours=2))
        async def work(name: str) -> str:
            assert current_operation().key
            lab.sent.append(f"{name} in {process}")
            if name == "poison" or process < 4:
                await lab.pass_time(minutes=50)
            return name

        @agent(run_id="r-{name}", tools=[work])
        async def desk(run: Run, name: str) -> str:
            return await work(name)

        return desk

    for process in range(5):
        desk = desk_of(process)
        app = lab.make(desk)
        await app.open()
        handles = [app.start(desk, name) for name in ("bystander", "poison")]
        await lab.pass_time(seconds=30)
        await lab.bury(app, lab.processes[-1])
        await asyncio.gather(*(handle._ending for handle in handles), return_exceptions=True)
    async with lab.app(desk := desk_of(5)) as app:
        assert await app.run(desk, "bystander") == "bystander"
        with pytest.raises(RunSuspended, match="5 processes died"):
            await app.run(desk, "poison")


@virtual
async def test_what_may_not_be_attempted_any_more_once_its_turn_comes_is_not(lab: Lab):
    """While it waited to be alone, its run was cancelled."""

    @tool(idempotency=Key.forever(), timeout=timedelta(hours=2))
    async def work(name: str) -> str:
        assert current_operation().key
        lab.sent.append(name)
        await lab.pass_time(minutes=50)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await work(name)

    app = lab.make(desk)
    await app.open()
    died = app.start(desk, "doubted")
    await lab.pass_time(seconds=30)
    await lab.bury(app, lab.processes[-1])
    await asyncio.gather(died._ending, return_exceptions=True)
    async with lab.app(desk, deaths_allowed=2) as app:
        beside = app.start(desk, "beside")
        await lab.pass_time(seconds=1)
        doubted = app.start(desk, "doubted")
        await lab.pass_time(seconds=1)
        await app.service.cancel("r-doubted", by="eve")
        assert await beside.result() == "beside"
        with pytest.raises(RunStopped):
            await doubted.result()
    assert lab.sent == ["doubted", "beside"]
