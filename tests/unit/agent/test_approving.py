"""What a person approves is exactly what is done: the plan, the facts it names, and the calls as they would be made."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Natural, Run, RunSuspended, TransactionAborted, agent, current_operation, tool
from beforehand.errors import Interrupted, PlanRefused, UsageError
from beforehand.inspect.fork import fork
from beforehand.inspect.replay import replay_records
from beforehand.model import records as r
from beforehand.model.standing_permission import StandingPermission
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.people.loaded_item import LoadedItem, load_item
from beforehand.people.standing_permissions import add_standing
from beforehand.plans import Call, NewPlanNeeded, Plan, PlanAborted, PlanStep
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt, until_it_dies


@tool(idempotency=Key.forever(stores="all"))
async def book(airport: str, bags: int = 2) -> str:
    _ = current_operation().key
    return airport


def fly(**more: Any) -> Plan:
    call = Call("book", {"airport": {"$fact": "airport"}})
    return Plan(goal="g", name="fly", together=False, steps=(PlanStep(id="seat", primary=call, **more),))


@virtual
async def test_an_approval_is_bound_to_the_facts_that_a_plan_names(lab: Lab):
    @agent(run_id="a-{given}", tools=[book])
    async def asking(run: Run, given: str) -> str:
        await run.facts.learn("airport", given, source="a guess")
        return (await run.execute(fly(), approve=True)).results["seat"]

    async with lab.app(asking) as app:
        for airport in ("JFK", "LGA"):
            with pytest.raises(
                RunSuspended, match=rf"the plan fly be carried out: book\(airport={airport}, bags=2\)\?"
            ):
                await app.run(asking, airport)
        steps = {one.step for run in ("a-JFK", "a-LGA") for one in lab.of(run, r.OperationParked)}
        assert len(steps) == 2, "the same plan on other facts is another thing to approve"
        assert f"approve-{fly().digest}" not in steps
        (step,) = [one.step for one in lab.of("a-JFK", r.OperationParked)]
        await app.service.approve(f"a-JFK/{step}", by="ann")
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
        (asked,) = lab.of("s-x", r.OperationParked)
        assert asked.why.startswith("may book(airport=JFK, bags=2) be sent? ")
        await app.service.decline(f"s-x/{asked.step}", by="ann", why="another day")
        assert await app.resume("s-x") == "step seat was not approved: another day"
    assert lab.of("s-x", r.AttemptStarted) == [], "a no is no failure: the fallback is not tried"


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
        with pytest.raises(RunSuspended, match="may book"):
            await app.run(asking, "x")
        await app.service.signal("w-x", "correction")
        assert await app.resume("w-x") == ["~1/fly/seat"]
        assert await items(app.service.reader) == []
    assert lab.of("w-x", r.AttemptStarted) == []
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
        (asked,) = lab.of("l-x", r.OperationParked)
        await app.service.approve(f"l-x/{asked.step}", by="ann")
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
        (asked,) = lab.of("t-x", r.OperationParked)
        await app.service.decline(f"t-x/{asked.step}", by="ann")
        assert "plan/seat/book#1 is failed: ann said no" in await app.resume("t-x")
    assert lab.of("t-x", r.AttemptStarted) == []


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


# --- a plan is approved as a call is ----------------------------------------------------------------------------------


@tool(idempotency=Key.forever(stores="all"))
async def quote(city: str) -> int:
    _ = current_operation().key
    return 900


@tool(idempotency=Key.forever(stores="all"))
async def wire(cents: int, to: str = "house") -> str:
    _ = current_operation().key
    return f"wired {cents}"


def wiring(*steps: PlanStep) -> Any:
    """An agent whose plan a person has to approve; it tells what became of that."""

    @agent(run_id="p-{city}", tools=[quote, wire])
    async def desk(run: Run, city: str) -> Any:
        made = steps or (PlanStep(id="w", primary=Call("wire", {"cents": 6_000_000})),)
        try:
            done = await run.execute(Plan(goal="g", name="p", together=False, steps=made), approve=True)
        except (PlanAborted, TransactionAborted) as gone:
            return gone.message
        return dict(done.results)

    return desk


async def asked(app: Any, desk: Any) -> LoadedItem:
    """The run waits for a person: the one thing that it asks."""
    with pytest.raises(RunSuspended):
        await app.run(desk, "Rome", by="ann")
    (item,) = await items(app.service.reader)
    return await load_item(app.service.reader, item.item)


@virtual
async def test_a_plan_is_approved_by_another_person_than_who_asked_for_it(lab: Lab):
    desk = wiring()
    async with lab.app(desk) as app:
        found = await asked(app, desk)
        assert found.subject.reason == (
            "may the plan p be carried out: wire(cents=6000000, to=house)? the contract asks for a person"
        ), "the calls and the amounts are in the question"
        with pytest.raises(UsageError, match="ann asked for run p-Rome"):
            await app.service.approve(found.item, by="ann", shown=found.digest)
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await app.service.approve(found.item, by="bea", shown="0" * 16)
        shown = await dossier(app.service, found.item)
        assert shown.fits == ("approve", "decline", "ask_back", "delegate", "snooze", "escalate"), "no page offers it"
        assert "--stand-in" not in str(shown.answers)
        for given in (a.Edit({"goal": "h"}), a.StandIn(None)):
            with pytest.raises(UsageError, match=r"is not edited in place|nothing is sent of it"):
                await answer(app.service, found.item, given, by="bea", shown=found.digest)
        await app.service.approve(found.item, by="bea", shown=found.digest)
        assert await app.run(desk, "Rome") == {"w": "wired 6000000"}
        history = await app.service.history("p-Rome")
        assert [one.step for one in history.operations.values() if one.landed] == ["p/w/wire#1"], "it asked only"
    replayed = await replay_records(await lab.journal.open(), "p-Rome", lab.records("p-Rome"), [desk])
    assert replayed.agrees, replayed


@virtual
async def test_no_standing_permission_approves_a_plan(lab: Lab):
    desk = wiring()
    async with lab.app(desk) as app:
        until = EPOCH_MS + int(timedelta(days=7).total_seconds() * 1000)
        await add_standing(app.engine, StandingPermission("", "plan", "bea", until, "true"))
        assert (await asked(app, desk)).item.startswith("p-Rome/approve-")
    assert not lab.of("p-Rome", r.AttemptStarted)


@virtual
async def test_a_no_goes_back_with_its_reason_to_who_made_the_plan(lab: Lab):
    desk = wiring()
    async with lab.app(desk) as app:
        found = await asked(app, desk)
        await app.service.decline(found.item, by="bea", why="take 5,000,000")
        assert await app.run(desk, "Rome") == "the plan p was not approved: take 5,000,000"
    assert not lab.of("p-Rome", r.AttemptStarted)


def by_quote(within: str) -> tuple[PlanStep, ...]:
    """Two steps, of which the second pays what the first one says."""
    pay = Call("wire", {"cents": {"$result": "q"}}, within)
    return PlanStep(id="q", primary=Call("quote", {"city": "Rome"})), PlanStep(id="w", primary=pay)


@pytest.mark.parametrize(
    ("within", "asks"),
    [
        ("", True), ("cents <= 5000", False), ("cents <= 500", True), ("cents in [800, 900]", False),
        ("cents == 900 && to == 'a && b || true'", True), ("cents > -1 && cents < 1e6 && to == 'house'", False),
    ],
)  # fmt: skip
@virtual
async def test_a_result_is_approved_within_the_bound_of_the_plan_only(lab: Lab, within: str, asks: bool):
    desk = wiring(*by_quote(within))
    async with lab.app(desk) as app:
        found = await asked(app, desk)
        assert 'wire(cents={"result":"q"}, to=house)' in found.subject.reason
        await app.service.approve(found.item, by="bea", shown=found.digest)
        if asks:
            step = await asked(app, desk)
            assert step.item == "p-Rome/p/w/wire#1"
            assert "wire(cents=900, to=house)" in step.subject.reason
            await app.service.approve(step.item, by="bea", shown=step.digest)
        assert (await app.run(desk, "Rome"))["w"] == "wired 900"


@pytest.mark.parametrize(
    ("within", "why"),
    [
        ("1 < 2", "'1 < 2' compares no argument with a constant; write it such as cents <= 50000 && city in"),
        ("to == 'house'", "does not limit 'cents' of wire, which is a result: compare it by <=, <, == or in"),
        ("cents >= 0", "does not limit 'cents'"),
        ("dollars < 5", "it uses dollars"),
        ("cents <", "within of wire: "),
        ("to == '''a''' || true || to == '''b''' && cents <= 5", "it has a backslash, a backtick, three quotes in a row"),
        (r"to == r'\' || true || to == '' && cents <= 5", "or a letter before a quote"),
        *(
            (free, "compares no argument with a constant")
            for free in (
                "true", "cents == cents", "cents <= cents + 1", "cents != 0", "cents <= 5 || true", "size([cents]) < 2",
                "true || (cents <= 5 && cents <= 5 && true)", "cents <= 5 && to != '' || true", "cents <= 5 ? true : true",
                "cents <= 5 // && true", "cents in [cents]", "cents <= 5 && [cents].all(one, true)",
            )
        ),
    ],
)  # fmt: skip
@virtual
async def test_a_bound_that_leaves_a_result_free_is_refused_before_a_person_is_asked(lab: Lab, within: str, why: str):
    desk = wiring(*by_quote(within))
    async with lab.app(desk) as app:
        with pytest.raises(PlanRefused) as refused:
            await app.run(desk, "Rome")
    assert why in str(refused.value)
    assert not lab.of("p-Rome", r.OperationParked)


@virtual
async def test_a_yes_to_a_plan_ends_as_a_yes_to_a_call_does_and_the_plan_is_asked_about_again(lab: Lab):
    steps = (PlanStep(id="w", primary=Call("wire", {"cents": 6_000_000})),)

    @agent(run_id="p-{city}", tools=[quote, wire])
    async def desk(run: Run, city: str) -> Any:
        plan = Plan(goal="g", name="p", together=False, steps=steps)
        with pytest.raises(NewPlanNeeded, match="the time of its approval is over"):
            await run.execute(plan, approve=True)
        return dict((await run.execute(plan, approve=True)).results)

    async with lab.app(desk, recover=False) as app:
        found = await asked(app, desk)
        await app.service.approve(found.item, by="bea", shown=found.digest, lasts=timedelta(hours=1))
        await lab.pass_time(hours=72)
        again = await asked(app, desk)
        assert again.item == f"{found.item}~2"
        assert not lab.of("p-Rome", r.AttemptStarted)
        await app.service.approve(again.item, by="bea", shown=again.digest)
        assert await app.run(desk, "Rome") == {"w": "wired 6000000"}


@virtual
async def test_a_yes_to_a_plan_is_to_the_tools_that_were_shown(lab: Lab):
    def deployed(**clauses: Any) -> Any:
        @tool(name="send", **clauses)
        async def send(cents: int, to: str = "house") -> str:
            return f"{cents} to {to}"

        @agent(run_id="p-{city}", tools=[send])
        async def desk(run: Run, city: str) -> Any:
            steps = (PlanStep(id="w", primary=Call("send", {"cents": 5})),)
            return dict(
                (await run.execute(Plan(goal="g", name="p", together=False, steps=steps), approve=True)).results
            )

        return desk

    first, second = deployed(), deployed(idempotency=Natural())
    async with lab.app(first) as app:
        found = await asked(app, first)
        assert "send(cents=5, to=house)" in found.subject.reason, "defaults are shown"
        await app.service.approve(found.item, by="bea", shown=found.digest)
    async with lab.app(second) as app:
        with pytest.raises(NewPlanNeeded, match="its tools have changed since"):
            await app.run(second, "Rome")
    assert not lab.of("p-Rome", r.AttemptStarted)


@virtual
async def test_a_yes_to_a_plan_is_good_for_one_send_of_each_call(lab: Lab):
    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        raise TimeoutError("no answer")

    @agent(run_id="p-{city}", tools=[pay])
    async def desk(run: Run, city: str) -> Any:
        steps = (PlanStep(id="w", primary=Call("pay", {"cents": 5})),)
        return dict((await run.execute(Plan(goal="g", name="p", together=False, steps=steps), approve=True)).results)

    async with lab.app(desk) as app:
        found, service, paid = await asked(app, desk), app.service, "p-Rome/p/w/pay#1"
        await service.approve(found.item, by="bea", shown=found.digest)
        with pytest.raises(RunSuspended):
            await app.run(desk, "Rome", by="ann")
        for word in ("retry", "happened"):
            with pytest.raises(UsageError, match="ann asked for run p-Rome"):
                await service.resolve(paid, word, by="ann", evidence="the bank says so", result="paid")
        await service.resolve(paid, "retry", by="bea", evidence="the bank says so")
        with pytest.raises(RunSuspended, match="each order to send it again takes a yes of its own"):
            await app.run(desk, "Rome", by="ann")
        assert lab.sent == ["pay 5"]
        await service.approve(paid, by="bea", shown=(await load_item(service.reader, paid)).digest)
        with pytest.raises(RunSuspended):
            await app.run(desk, "Rome", by="ann")
        assert lab.sent == ["pay 5", "pay 5"]


@virtual
async def test_who_counts_the_calls_of_a_plan_that_are_alike_counts_for_all_of_them(lab: Lab):
    @tool
    async def pay(cents: int) -> str:
        raise TimeoutError("no answer")

    @agent(run_id="p-{city}", tools=[pay])
    async def desk(run: Run, city: str) -> Any:
        steps = tuple(PlanStep(id=name, primary=Call("pay", {"cents": 5})) for name in "ab")
        return dict((await run.execute(Plan(goal="g", name="p", together=False, steps=steps), approve=True)).results)

    async with lab.app(desk) as app:
        found, service = await asked(app, desk), app.service
        await service.approve(found.item, by="bea", shown=found.digest)
        with pytest.raises(RunSuspended):
            await app.run(desk, "Rome", by="ann")
        twin = await load_item(service.reader, "p-Rome/p/a/pay#1")
        counted = a.HappenedTimes(1, "retry", "the bank says so", "paid")
        assert not (await answer(service, twin, counted, by="bea", shown=twin.digest)).note
        with pytest.raises(RunSuspended, match="each order to send it again takes a yes of its own"):
            await app.run(desk, "Rome", by="ann")


@virtual
async def test_the_input_that_conditions_use_is_shown_and_another_one_is_another_question(lab: Lab):
    steps = (PlanStep(id="w", primary=Call("wire", {"cents": 5}), when="input.big"),)

    @agent(run_id="p-{city}", tools=[wire])
    async def desk(run: Run, city: str) -> Any:
        given = {"big": city == "Rome", "secret": "x"}
        plan = Plan(goal="g", name="p", together=False, steps=steps)
        return dict((await run.execute(plan, given, approve=True)).results)

    async with lab.app(desk) as app:
        found = await asked(app, desk)
        assert b'"input":{"big":true}' in bytes(found.subject.intent.arguments)
        with pytest.raises(RunSuspended) as other:
            await app.run(desk, "Oslo")
        assert found.step not in str(other.value)


@virtual
async def test_a_message_while_a_plan_is_asked_about_is_a_message_and_no_refusal(lab: Lab):
    @agent(run_id="p-{city}", tools=[wire])
    async def desk(run: Run, city: str) -> Any:
        steps = (PlanStep(id="w", primary=Call("wire", {"cents": 5})),)
        try:
            return dict(
                (await run.execute(Plan(goal="g", name="p", together=False, steps=steps), approve=True)).results
            )
        except Interrupted as told:
            return told.text

    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.tell("p-Rome", "take the train", by="ann")
        assert await app.run(desk, "Rome") == "take the train"


@virtual
async def test_no_fork_inherits_the_approval_of_a_plan(lab: Lab):
    desk = wiring()
    async with lab.app(desk) as app:
        found = await asked(app, desk)
        await app.service.approve(found.item, by="bea", shown=found.digest)
        assert await app.run(desk, "Rome") == {"w": "wired 6000000"}
        with pytest.raises(UsageError, match="a plan was approved before it, for that run alone"):
            await fork(app.engine, "p-Rome", "p/w/wire#1", "again", "fay")
        await fork(app.engine, "p-Rome", found.step, "again", "fay")
        with pytest.raises(RunSuspended, match="again/approve-"):
            await app.resume("again")


@virtual
async def test_what_a_tool_redacts_is_in_no_plan(lab: Lab):
    @tool(idempotency=Key.forever(stores="all"), redact=["card"])
    async def charge(card: str) -> None:
        _ = current_operation().key

    @agent(run_id="p-{city}", tools=[charge])
    async def desk(run: Run, city: str) -> Any:
        await run.execute(
            Plan(goal="g", together=False, steps=(PlanStep(id="c", primary=Call("charge", {"card": "4"})),))
        )

    async with lab.app(desk) as app:
        with pytest.raises(PlanRefused, match="charge redacts 'card'"):
            await app.run(desk, "Rome")


POINTS = (
    "before_claim", "after_claim", "before_intent", "after_intent", "before_send", "after_send", "before_outcome",
    "after_outcome", "before_end", "after_end",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
@virtual
async def test_a_death_between_the_yes_and_the_end_asks_nothing_twice_and_sends_nothing_twice(lab: Lab, point: str):
    keys = set[str]()

    @tool(idempotency=Key.forever(stores="all"))
    async def pay(cents: int) -> str:
        if (key := current_operation().key) not in keys:  # the outside system honors the key
            keys.add(key)
            lab.sent.append(f"pay {cents}")
        return "paid"

    @agent(run_id="p-{city}", tools=[pay])
    async def desk(run: Run, city: str) -> Any:
        steps = tuple(PlanStep(id=name, primary=Call("pay", {"cents": cents})) for name, cents in (("a", 1), ("b", 2)))
        return dict((await run.execute(Plan(goal="g", name="p", together=False, steps=steps), approve=True)).results)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    async with lab.app() as app:  # it has no code of the agent: the run goes on in the process that dies
        (item,) = await items(app.service.reader)
        shown = (await load_item(app.service.reader, item.item)).digest
        await app.service.approve(item.item, by="bea", shown=shown)
    assert await until_it_dies(lab, desk, DiesAt(point, 1)), f"{point} is not on the way"
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == {"a": "paid", "b": "paid"}
    assert sorted(lab.sent) == ["pay 1", "pay 2"]
    assert len([one for one in lab.of("p-ann", r.OperationParked) if one.asks]) == 1
