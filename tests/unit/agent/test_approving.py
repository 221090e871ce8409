"""What a person approves is exactly what is done: the plan, the facts it names, and the calls as they would be made."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Run, RunSuspended, TransactionAborted, agent, current_operation, tool
from beforehand.inspect.replay import replay_records
from beforehand.journal.port import LedgerEntry, Post
from beforehand.model import records as r
from beforehand.plans import Call, NewPlanNeeded, Plan, PlanAborted, PlanStep
from tests.unit.engine.lab import Lab, virtual


@tool(idempotency=Key.forever(stores="all"), redact=["card"])
async def book(airport: str, card: str = "none") -> str:
    _ = current_operation().key
    return airport


def fly(**more: Any) -> Plan:
    call = Call("book", {"airport": {"$fact": "airport"}, "card": "4111-1111"})
    return Plan(goal="g", name="fly", together=False, steps=(PlanStep(id="seat", primary=call, **more),))


@virtual
async def test_an_approval_is_bound_to_the_facts_that_a_plan_names(lab: Lab):
    @agent(run_id="a-{given}", tools=[book])
    async def asking(run: Run, given: str) -> str:
        await run.facts.learn("airport", given, source="a guess")
        return (await run.execute(fly(), approve=True)).results["seat"]

    async with lab.app(asking) as app:
        for airport in ("JFK", "LGA"):
            with pytest.raises(RunSuspended, match=f'airport = "{airport}"'):
                await app.run(asking, airport)
        steps = {one.step for run in ("a-JFK", "a-LGA") for one in lab.of(run, r.QuestionAsked)}
        assert len(steps) == 2, "the same plan on other facts is another thing to approve"
        assert f"approve-{fly().digest}" not in steps
        (step,) = [one.step for one in lab.of("a-JFK", r.QuestionAsked)]
        await app.service.answer(f"a-JFK/{step}", True, by="ann")
        assert await app.resume("a-JFK") == "JFK"


@virtual
async def test_what_is_approved_in_a_step_is_shown_as_it_would_be_called(lab: Lab):
    @agent(run_id="s-{given}", tools=[book])
    async def asking(run: Run, given: str) -> Any:
        await run.facts.learn("airport", "JFK", source="a guess")
        plan = fly(ask_if="true", fallbacks=(Call("book", {"airport": "EWR"}),))
        try:
            return (await run.execute(plan)).results["seat"]
        except PlanAborted as gone:
            return gone.message

    async with lab.app(asking) as app:
        with pytest.raises(RunSuspended):
            await app.run(asking, "x")
        (asked,) = lab.of("s-x", r.QuestionAsked)
        assert 'book {"airport":"JFK"' in asked.question.text
        assert ', else book {"airport":"EWR"' in asked.question.text
        assert "4111" not in asked.question.text, "what the tool redacts is not shown"
        await app.service.answer(f"s-x/{asked.step}", False, by="ann")
        assert await app.resume("s-x") == "step seat was not approved"


@virtual
async def test_a_question_about_what_is_dropped_needs_no_answer(lab: Lab):
    @agent(run_id="w-{given}", tools=[book])
    async def asking(run: Run, given: str) -> list[Any]:
        async def corrected() -> None:
            await run.wait_for("correction")
            await run.facts.learn("airport", "LGA", source="the traveller")

        async def executed() -> list[str]:
            try:
                await run.execute(fly(ask_if="true"))
            except NewPlanNeeded as news:
                return list(news.dropped)
            return ["nothing"]

        await run.facts.learn("airport", "JFK", source="a guess")
        dropped, _ = await run.gather(executed(), corrected())
        return dropped

    async with lab.app(asking) as app:
        with pytest.raises(RunSuspended, match="Approve step seat"):
            await app.run(asking, "x")

        async def post(one: Post) -> LedgerEntry:
            if b"the runtime, since a fact was corrected" in one.body:
                on_record.extend(record for record in lab.durable("w-x") if isinstance(record, r.StepsDropped))
            return await lab.journal.post(one)

        on_record: list[r.StepsDropped] = []
        lab.processes[-1].post = post
        await app.service.signal("w-x", "correction")
        assert await app.resume("w-x") == ["~1/fly/seat"]
    assert on_record, "a process that is paused before the post answers a question of the next owner"
    (answer,) = [one for one in lab.of("w-x", r.EventReceived) if one.event == "answer"]
    assert b"the runtime, since a fact was corrected" in bytes(answer.payload)
    replayed = await replay_records(await lab.journal.open(), "w-x", lab.records("w-x"), [asking])
    assert replayed.agrees, replayed


@virtual
async def test_a_plan_whose_facts_were_corrected_while_it_waited_is_not_executed_when_it_is_approved(lab: Lab):
    @agent(run_id="l-{given}", tools=[book])
    async def asking(run: Run, given: str) -> list[Any]:
        async def corrected() -> None:
            await run.sleep(timedelta(minutes=1))
            await run.facts.learn("airport", "LGA", source="the traveller")

        async def executed() -> list[str]:
            try:
                await run.execute(fly(), approve=True)
            except NewPlanNeeded as news:
                return [*news.corrected, *news.executed]
            return ["executed"]

        await run.facts.learn("airport", "JFK", source="a guess")
        told, _ = await run.gather(executed(), corrected())
        return told

    async with lab.app(asking) as app:
        with pytest.raises(RunSuspended):
            await app.run(asking, "x")
        await lab.pass_time(minutes=2)
        with pytest.raises(RunSuspended):
            await app.resume("l-x")
        (asked,) = lab.of("l-x", r.QuestionAsked)
        await app.service.answer(f"l-x/{asked.step}", True, by="ann")
        assert await app.resume("l-x") == ["airport"]
    assert lab.of("l-x", r.AttemptStarted) == []


@virtual
async def test_a_plan_that_belongs_together_is_called_off_where_a_step_is_not_approved(lab: Lab):
    @agent(run_id="t-{given}", tools=[book])
    async def asking(run: Run, given: str) -> str:
        steps = (PlanStep(id="seat", primary=Call("book", {"airport": "JFK"}), ask_if="true", hold=True),)
        try:
            await run.execute(Plan(goal="g", steps=steps))
        except TransactionAborted as gone:
            return gone.reason
        return "done"

    async with lab.app(asking) as app:
        with pytest.raises(RunSuspended):
            await app.run(asking, "x")
        (asked,) = lab.of("t-x", r.QuestionAsked)
        await app.service.answer(f"t-x/{asked.step}", False, by="ann")
        assert "step seat was not approved" in await app.resume("t-x")


@virtual
async def test_what_waits_at_the_gate_of_its_tool_is_dropped_by_a_correction_too(lab: Lab):
    @tool(idempotency=Key.forever(stores="all"), gate="airport != 'none'")
    async def fly_out(airport: str) -> str:
        return current_operation().key[:4]

    @agent(run_id="g-{given}", tools=[fly_out])
    async def gated(run: Run, given: str) -> list[str]:
        async def corrected() -> None:
            await run.wait_for("correction")
            await run.facts.learn("airport", "LGA", source="the traveller")

        async def executed() -> list[str]:
            steps = (PlanStep(id="out", primary=Call("fly_out", {"airport": {"$fact": "airport"}})),)
            try:
                await run.execute(Plan(goal="g", name="trip", together=False, steps=steps))
            except NewPlanNeeded as news:
                return [*news.dropped, *news.executed]
            return ["executed"]

        await run.facts.learn("airport", "JFK", source="a guess")
        told, _ = await run.gather(executed(), corrected())
        return told

    async with lab.app(gated) as app:
        with pytest.raises(RunSuspended):
            await app.run(gated, "x")
        await app.service.signal("g-x", "correction")
        assert await app.resume("g-x") == ["~1/trip/out"]
    assert lab.of("g-x", r.AttemptStarted) == []
