"""A message comes while a plan is under way: nothing begins unheard, and what rests on a corrected fact stops."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, NotSent, Rejected, Run, agent, current_operation, tool
from beforehand.errors import Interrupted, RunSuspended
from beforehand.model import records as r
from beforehand.plans import Call, NewPlanNeeded, Plan, PlanStep
from beforehand.policies import Retry
from tests.unit.engine.interruptions import agrees, writer
from tests.unit.engine.lab import DAY, Lab, virtual

CITY = {"$fact": "city"}
HOUR = timedelta(hours=1)


def step(name: str, city: Any = CITY, **more: Any) -> PlanStep:
    return PlanStep(id=name, primary=Call("book", {"city": city}), **more)


def follower(lab: Lab, *steps: PlanStep, gate: str | None = None) -> Any:
    """Executes a plan, and makes another one where that is needed."""
    book = writer(lab, gate=gate)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[str]:
        await run.facts.learn("city", "JFK", source="the ticket")
        said: list[str] = []
        for number in (1, 2):
            try:
                done = await run.execute(Plan(goal="g", name=f"plan{number}", together=False, steps=steps))
            except NewPlanNeeded as needed:
                by = getattr(needed.__cause__, "sender", "nobody")
                said.append(f"corrected: {needed.corrected} by {by}, dropped {needed.dropped}")
            except Interrupted as message:
                said.append(f"told: {message.text}")
            else:
                return [*said, *(str(result) for result in done.results.values())]
        return said

    return desk


@virtual
async def test_a_step_that_waits_for_approval_is_called_off_and_planned_anew(lab: Lab):
    desk = follower(lab, step("fly"), gate="city == 'JFK'")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        assert await app.run(desk, "ann") == [
            "corrected: ('city',) by ann, dropped ('plan1/fly',)", "book LGA",
        ]  # fmt: skip
    assert lab.sent == ["book LGA"]
    await agrees(lab, desk)


@virtual
async def test_a_question_before_a_step_is_called_off(lab: Lab):
    desk = follower(lab, step("fly", ask_if="true"))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="may book"):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        with pytest.raises(RunSuspended, match="LGA"):
            await app.run(desk, "ann")
    assert lab.sent == []


@virtual
async def test_a_message_without_facts_ends_the_plan_as_a_message(lab: Lab):
    desk = follower(lab, step("one", "Rome"), step("two", "Oslo", after=("one",)), gate="city == 'Oslo'")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "wait", by="ann")
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.approve("trip-ann/plan2/two/book#1", by="bea")
        assert await app.run(desk, "ann") == ["told: wait", "book Rome", "book Oslo"]
    assert lab.sent == ["book Rome", "book Rome", "book Oslo"]
    await agrees(lab, desk)


class Busy:
    """An airline that drops every line, and counts who calls."""

    def __init__(self) -> None:
        self.asked = 0


def patient(busy: Busy) -> Any:
    @tool(idempotency=Key.forever(stores="all"), retry=Retry(attempts=50, elapsed=DAY))
    async def book(city: str) -> str:
        busy.asked += 1
        assert current_operation().key
        raise ConnectionResetError("the line dropped")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        await run.facts.learn("city", "JFK", source="the ticket")
        await asyncio.sleep(3)  # it takes its time to come back to the plan
        try:
            await run.execute(Plan(goal="g", name="plan", together=False, steps=(step("fly"),)))
        except NewPlanNeeded as needed:
            return f"corrected: {needed.corrected}"
        return "executed"

    return desk


@virtual
async def test_what_may_have_landed_is_not_sent_again_on_a_fact_that_is_corrected(lab: Lab):
    busy = Busy()
    desk = patient(busy)
    async with lab.app(desk, hold_ms=DAY // timedelta(milliseconds=1)) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=9)
        await app.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        before = busy.asked
        await lab.pass_time(hours=3)
        assert busy.asked == before
        running.cancel()
    (dropped,) = lab.of("trip-ann", r.StepsDropped)
    assert dropped.steps == ("plan/fly",)


@virtual
async def test_nor_is_it_after_a_crash_before_the_code_comes_back(lab: Lab):
    """The message comes while no process drives the run: recovery waits for the code, which says what rests on what."""
    busy = Busy()
    desk = patient(busy)
    app = lab.make(desk, hold_ms=DAY // timedelta(milliseconds=1))
    await app.open()
    running = asyncio.ensure_future(app.run(desk, "ann"))
    await lab.pass_time(seconds=9)
    await lab.bury(app, lab.processes[-1])
    assert running.cancelled()
    before = busy.asked
    assert before > 0
    await lab.pass_time(hours=1)  # its next attempt is due
    async with lab.app(desk) as other:
        await other.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        with pytest.raises(RunSuspended):
            await other.run(desk, "ann")
        assert busy.asked == before
    assert [one.steps for one in lab.of("trip-ann", r.StepsDropped)] == [("plan/fly",)]


@virtual
async def test_a_message_that_a_step_receives_after_another_one_failed_reaches_the_code(lab: Lab):
    """It is on record as heard, so nothing would deliver it again; several messages come as one."""

    @tool(idempotency=Key.forever(stores="all"), retry=Retry(attempts=50, elapsed=DAY))
    async def book(city: str) -> str:
        assert current_operation().key
        if city == "Rome":
            raise Rejected("there is no flight to Rome")
        raise NotSent("the airline is closed", retry_after=600)

    steps = [step("fly", "Rome"), step("stay", "Oslo"), step("dine", "Bonn")]

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[str]:
        said: list[str] = []
        try:
            await run.execute(Plan(goal="g", name="plan", together=False, steps=tuple(steps)))
        except Interrupted as message:
            said = [message.text, message.sender, type(message.__cause__).__name__]
        return [*said, *(one.text for one in await run.messages())]

    async with lab.app(desk, hold_ms=DAY // timedelta(milliseconds=1)) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=9)
        await app.service.tell("trip-ann", "wait", by="bea")
        assert await running == ["wait", "bea", "PlanStepFailed"]
    assert len(lab.of("trip-ann", r.MessageHeard)) >= 2
    await agrees(lab, desk)
