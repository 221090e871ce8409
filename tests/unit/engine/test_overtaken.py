"""A natural write whose earlier attempt is still on its way: nothing is written over it until that one can land no more.

The world is a register. What is sent lands at once or later, and the last value to land stays.
"""

import asyncio
import itertools
import random
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Natural, Operation, Run, TransactionAborted, agent, tool
from beforehand.engine.environment import POINTS
from beforehand.engine.recovery import verify_stopped_run
from beforehand.errors import RunStopped, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt, until_it_dies

WINDOW = timedelta(seconds=20)
SOON = Retry(attempts=6, base=timedelta(milliseconds=100))
ITEM = "lamp"


class Register:
    """What each thing is set to. `late` are the delays of the next requests; such a request gets no answer."""

    def __init__(self, lab: Lab, *late: float) -> None:
        self.lab = lab
        self.late = list(late)
        self.log: list[tuple[float, str]] = []  # what landed, and when
        lab.loop.set_exception_handler(lambda *_: None)  # a process that died reports no failed call

    @property
    def value(self) -> str:
        return self.log[-1][1]

    def put(self, value: str) -> None:
        delay = self.late.pop(0) if self.late else 0.0
        if not delay:
            self._lands(value)
            return
        self.lab.loop.call_later(delay, self._lands, value)
        raise TimeoutError("no answer")

    def _lands(self, value: str) -> None:
        self.log.append((self.lab.loop.time(), value))


def switch(register: Register, *, claim: tuple[str, ...] = (), window: timedelta = WINDOW) -> Any:
    @tool(idempotency=Natural(settle_window=window), retry=SOON, claim=claim)
    async def put(thing: str, value: str) -> str:
        register.put(value)
        return value

    return put


def two_writes(register: Register, **clauses: Any) -> Any:
    put = switch(register, **clauses)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await put(ITEM, "on")
        return await put(ITEM, "off")

    return desk


@pytest.mark.parametrize("late", [5.0, 19.0])
@virtual
async def test_the_next_write_leaves_once_the_earlier_attempt_can_land_no_more(lab: Lab, late: float):
    register = Register(lab, late)
    desk = two_writes(register)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "off"
    await lab.pass_time(minutes=1)
    assert register.value == "off"
    assert lab.loop.time() >= WINDOW.total_seconds()


@virtual
async def test_by_default_half_a_minute_is_waited_in_the_same_process(lab: Lab):
    register = Register(lab, 29.0)
    desk = two_writes(register, window=Natural().settle_window)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "off"
    assert register.value == "off"


@virtual
async def test_without_an_earlier_attempt_nothing_is_waited_for(lab: Lab):
    register = Register(lab)
    desk = two_writes(register)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "off"
    assert lab.loop.time() < 1


@virtual
async def test_a_window_longer_than_a_process_waits_suspends_the_run_until_it_is_over(lab: Lab):
    register = Register(lab, 500.0)
    desk = two_writes(register, window=timedelta(minutes=10))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="may still land"):
            await app.run(desk, "ann")
        await lab.pass_time(minutes=5)
        with pytest.raises(RunSuspended, match="may still land"):
            await app.run(desk, "ann")
        await lab.pass_time(minutes=6)
        assert await app.run(desk, "ann") == "off"
    assert register.value == "off"


@pytest.mark.parametrize("rides_lost", [False, True], ids=["rides kept", "rides lost"])
@pytest.mark.parametrize("point", POINTS)
@virtual
async def test_the_last_value_stays_wherever_a_process_dies(lab: Lab, point: str, rides_lost: bool):
    for nth in itertools.count(1):
        alone = Lab()
        register = Register(alone, 15.0, 10.0)
        desk = two_writes(register)
        died = await until_it_dies(alone, desk, DiesAt(point, nth))
        if died and rides_lost:
            alone.forget_what_rides()
        async with alone.app(desk) as app:
            assert await app.run(desk, "ann") == "off"
        await alone.pass_time(minutes=1)
        assert register.value == "off", (point, nth, register.log)
        if not died:
            break


@pytest.mark.parametrize("draw", range(40))
@virtual
async def test_the_last_value_stays_whatever_is_late_and_whoever_dies(lab: Lab, draw: int, seed: int):
    rng = random.Random(f"{seed}/{draw}")
    register = Register(lab, *(rng.choice([0.0, rng.uniform(0.1, 19)]) for _ in range(6)))
    desk = two_writes(register)
    for _ in range(3):
        if not await until_it_dies(lab, desk, DiesAt(rng.choice(sorted(POINTS)), rng.randint(1, 4))):
            break
        await lab.pass_time(seconds=rng.choice([0, 3, 60]))
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "off"
    await lab.pass_time(minutes=1)
    assert register.value == "off", register.log


@virtual
async def test_a_call_that_dies_with_its_process_may_land_for_the_window_after_that(lab: Lab):
    """The window counts from the death that is proven, not from the start of the attempt."""
    register = Register(lab)
    put = switch(register)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await put(ITEM, "on")
        return await put(ITEM, "off")

    app = lab.make(desk, crash=(crash := DiesAt("after_intent", 1)))
    process = crash.process = lab.processes[-1]
    await app.open()
    driving = asyncio.ensure_future(app.run(desk, "ann"))
    await crash.over
    await lab.bury(app, process)
    await asyncio.gather(driving, return_exceptions=True)
    await lab.pass_time(minutes=2)
    lab.loop.call_later(19.0, register._lands, "on")  # the request of the dead process was on its way
    async with lab.app(desk) as again:
        assert await again.run(desk, "ann") == "off"
    await lab.pass_time(minutes=1)
    assert register.value == "off"


@virtual
async def test_a_call_of_a_process_that_hangs_is_waited_for_until_that_process_is_proven_dead(lab: Lab):
    """Another process has its run. It is suspended, looks again, and goes on by itself."""
    register = Register(lab)
    desk = two_writes(register)
    app = lab.make(desk, crash=(crash := DiesAt("after_intent", 1)))
    process = crash.process = lab.processes[-1]
    await app.open()
    driving = asyncio.ensure_future(app.run(desk, "ann"))
    await crash.over
    await lab.bury(app, process)
    await asyncio.gather(driving, return_exceptions=True)
    lab.journal._dead.discard(process.worker)  # it was only stopped
    async with lab.app(desk) as again:
        await lab.pass_time(minutes=1)  # its lease is over
        with pytest.raises(RunSuspended, match="may still run"):
            await again.run(desk, "ann")
        (row,) = await lab.journal.runs(run="r-ann")
        assert row.due_ms is not None
        await lab.pass_time(minutes=5)
        with pytest.raises(RunSuspended, match="may still run"):
            await again.run(desk, "ann")
        process.die()
        lab.loop.call_later(19.0, register._lands, "on")  # what it sent with its last breath
        assert await again.run(desk, "ann") == "off"
    assert register.value == "off"


@virtual
async def test_another_run_that_claims_the_same_waits_as_well(lab: Lab):
    register = Register(lab, 15.0)
    put = switch(register, claim=("thing",))
    told: list[float] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        value = await put(ITEM, "on")
        told.append(lab.loop.time())
        return value

    async with lab.app(desk) as app:
        first = app.start(desk, "ann")
        await lab.pass_time(seconds=2)
        second = app.start(desk, "bob")
        assert (await first.result(), await second.result()) == ("on", "on")
    assert min(told) >= WINDOW.total_seconds()
    assert len(register.log) == 2


@virtual
async def test_a_compensation_leaves_once_what_it_undoes_can_land_no_more(lab: Lab):
    register = Register(lab, 15.0)
    put = switch(register)

    @put.compensate(restores=True)
    @tool(idempotency=Natural(settle_window=WINDOW), retry=SOON)
    async def put_back(operation: Operation[str], thing: str, value: str) -> None:
        register.put("as before")

    @agent(run_id="r-{name}", tools=[put])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("change") as change:
                await put(ITEM, "on")
                change.abort("not wanted any more")
        except TransactionAborted:
            return "undone"
        return "done"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "undone"
    await lab.pass_time(minutes=1)
    assert register.value == "as before"


@virtual
async def test_a_cancelled_run_leaves_it_to_the_next_look(lab: Lab):
    register = Register(lab, 15.0)
    desk = two_writes(register)
    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=2)
        await app.service.cancel("r-ann", by="eve")
        with pytest.raises(RunStopped):
            await handle.result()
        (row,) = await lab.journal.runs(run="r-ann")
        assert row.due_ms is not None
        due = row.due_ms - lab.clock.wall_ms()
        assert 0 < due <= WINDOW.total_seconds() * 1000
        await lab.pass_time(seconds=due / 1000)
        looked = await verify_stopped_run(app._engine, "r-ann")
    assert looked.settled == ("put#1",)
    assert [record.status for record in lab.of("r-ann", r.OperationSettled)] == ["succeeded"]
    assert register.log[0][1] == "on"


@virtual
async def test_a_deploy_that_declares_no_natural_write_any_more_keeps_the_window(lab: Lab):
    register = Register(lab, 15.0)
    desk = two_writes(register)
    await until_it_dies(lab, desk, DiesAt("after_outcome", 2))

    @tool(name="put")
    async def plain(thing: str, value: str) -> str:
        register.put(value)
        return value

    @agent(run_id="r-{name}", name="desk")
    async def newer(run: Run, name: str) -> str:
        await plain(ITEM, "on")
        return await plain(ITEM, "off")

    async with lab.app(newer) as app:
        assert await app.run(newer, "ann") == "off"
    await lab.pass_time(minutes=1)
    assert register.value == "off"
    assert next(when for when, value in register.log if value == "off") >= WINDOW.total_seconds()


def test_a_window_is_a_duration():
    with pytest.raises(ValueError, match="settle_window"):
        Natural(settle_window=timedelta(seconds=-1))
