"""The edges of a step: what a write waits for, what is left again, and in which order code receives outcomes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from beforehand import Ambiguous, Key, Natural, Operation, Run, agent, current_operation, tool
from beforehand.errors import Interrupted, OutcomeUnknown, ReplayDiverged, RunStopped, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

SECOND = timedelta(seconds=1)
STEADY = Key.forever(stores="all")


class Desk:
    """Writes that take as long as their name says, each with the moment at which it landed."""

    def __init__(self, lab: Lab) -> None:
        self.landed: list[tuple[str, float]] = []

        @tool(idempotency=STEADY)
        async def send(seconds: int) -> str:
            _ = current_operation().key
            await lab.pass_time(seconds=seconds)
            self.landed.append((f"send {seconds}", round(lab.loop.time())))
            return f"sent {seconds}"

        self.send = send

    async def leave(self, seconds: int) -> None:
        """Call it, and go on a second later without its answer."""
        call = asyncio.create_task(self.send(seconds))
        await asyncio.sleep(1)
        call.cancel()
        await asyncio.wait({call})


@virtual
async def test_a_write_waits_for_every_one_that_was_left_in_flight(lab: Lab):
    desk = Desk(lab)

    @agent(run_id="r-{name}", tools=[desk.send])
    async def leaver(run: Run, name: str) -> str:
        await asyncio.gather(*(desk.leave(seconds) for seconds in (10, 50, 20, 40, 30)))
        return await desk.send(1)

    async with lab.app(leaver, hold_ms=10**9) as app:
        assert await app.run(leaver, "ann") == "sent 1"
    assert desk.landed[-2:] == [("send 50", 50), ("send 1", 51)]


@virtual
async def test_code_that_waits_for_what_was_left_hears_a_message_at_once(lab: Lab):
    desk, heard = Desk(lab), list[float]()

    @agent(run_id="r-{name}", tools=[desk.send])
    async def leaver(run: Run, name: str) -> str:
        await desk.leave(50)
        try:
            return await desk.send(1)
        except Interrupted:
            heard.append(round(lab.loop.time()))
            return "told"

    async with lab.app(leaver, hold_ms=10**9) as app:
        handle = app.start(leaver, "ann")
        await lab.pass_time(seconds=10)
        await app.service.tell("r-ann", "stop", by="eve")
        assert await handle.result() == "told"
    assert heard
    assert heard[0] < 15


@pytest.mark.parametrize("why", ["an earlier write", "a pause of its tool"])
@virtual
async def test_a_write_that_was_cut_off_while_it_waited_is_cut_off_again(lab: Lab, why: str):
    """Nothing of it was sent when its time was over; what stood in its way is gone when the run goes on."""
    desk, told = Desk(lab), list[str]()

    @agent(run_id="r-{name}", tools=[desk.send])
    async def cut(run: Run, name: str) -> str:
        if why == "an earlier write":
            await desk.leave(10)
        try:
            async with run.timeout(3 * SECOND):
                told.append(await desk.send(1))
        except TimeoutError:
            told.append("over")
        if len(told) == 1:
            raise KeyError("a bug")
        return "done"

    async with lab.app(cut, hold_ms=10**9, grace_ms=100) as app:
        if why == "a pause of its tool":
            await app.service.pause_tool("send", by="ops")
        handle = app.start(cut, "ann")
        await lab.pass_time(seconds=20)
        if why == "a pause of its tool":
            await app.service.unpause_tool("send", by="ops")
        with pytest.raises(KeyError):
            await handle.result()
        await lab.pass_time(minutes=10)
        assert await app.resume("r-ann", by="eve") == "done"
    assert told == ["over", "over"]
    planned = {record.step for record in lab.of("r-ann", r.OperationPlanned)}
    assert planned == ({"send#1"} if why == "a pause of its tool" else set())


@virtual
async def test_code_receives_outcomes_in_the_order_of_the_first_pass(lab: Lab):
    """The second branch came first; on replay both outcomes are there from the start."""
    desk, passes = Desk(lab), list[list[str]]()

    @agent(run_id="r-{name}", tools=[desk.send])
    async def racing(run: Run, name: str) -> str:
        order: list[str] = []
        passes.append(order)

        async def branch(seconds: int) -> None:
            order.append(await desk.send(seconds))

        await run.gather(branch(5), branch(2), branch(9))
        if len(passes) == 1:
            raise KeyError("a bug")
        return "done"

    async with lab.app(racing, hold_ms=10**9) as app:
        with pytest.raises(KeyError):
            await app.run(racing, "ann")
        assert await app.resume("r-ann", by="eve") == "done"
    assert passes == [["sent 2", "sent 5", "sent 9"]] * 2


@virtual
async def test_tasks_of_a_handler_are_no_branches_of_the_run(lab: Lab):
    """It reads two things at once, and only on the first pass."""

    @tool(idempotency=Natural())
    async def put(what: str) -> str:
        return what

    @put.observe
    async def shelf(operation: Operation[str]) -> list[str]:
        async def look(place: str) -> str:
            return place

        return list(await asyncio.gather(*(asyncio.create_task(look(place)) for place in "ab")))

    @agent(run_id="r-{name}", tools=[put])
    async def desk(run: Run, name: str) -> str:
        await put("book")
        return await asyncio.create_task(put("pen"))

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "pen"
    assert [record.step for record in lab.of("r-ann", r.AttemptStarted)] == ["put#1", "~1/put#1"]


@virtual
async def test_what_is_held_in_an_inner_transaction_waits_for_the_outermost(lab: Lab):
    desk = Desk(lab)

    @agent(run_id="r-{name}", tools=[desk.send])
    async def nested(run: Run, name: str) -> str:
        async with run.transaction("outer"), run.transaction("inner") as inner:
            held = await inner.on_commit(desk.send, 1)
        return held.result

    async with lab.app(nested) as app:
        assert await app.run(nested, "ann") == "sent 1"
    (record,) = lab.of("r-ann", r.OperationHeld)
    assert (record.transaction, record.intent.hold) == ("outer", "outer")
    assert lab.of("r-ann", r.Delivered)[0].detail == "outer"


@virtual
async def test_a_run_that_swallows_its_divergence_does_not_complete(lab: Lab):
    desk = Desk(lab)

    @agent(run_id="r-{name}", tools=[desk.send])
    async def stubborn(run: Run, name: str) -> str:
        try:
            await desk.send(2 if lab.changed else 1)
        except ReplayDiverged:
            return "as if nothing had been"
        await run.sleep(timedelta(hours=1))
        return "done"

    async with lab.app(stubborn) as app:
        with pytest.raises(RunSuspended):
            await app.run(stubborn, "ann")
        lab.changed = True
        await lab.pass_time(hours=1)
        with pytest.raises((ReplayDiverged, RunStopped)):
            await app.run(stubborn, "ann")
    assert lab.of("r-ann", r.RunStoppedRecord)[0].reason == "diverged"


@virtual
async def test_that_nobody_knows_is_told_again_although_it_is_known_by_then(lab: Lab):
    told: list[str] = []

    @tool(on_unknown="raise")
    async def send(to: str) -> str:
        raise Ambiguous("no answer")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        try:
            await send(name)
        except OutcomeUnknown:
            told.append("unknown")
        if len(told) == 1:
            raise KeyError("a bug")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "happened", by="eve", result="sent")
        assert await app.resume("r-ann", by="eve") == "done"
    assert told == ["unknown", "unknown"]
    assert [(one.step, one.told) for one in lab.of("r-ann", r.Delivered)] == [("send#1", "unknown")]
