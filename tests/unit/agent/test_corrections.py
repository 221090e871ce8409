"""A fact is corrected while a plan rests on it: nothing more is sent on it, and what was done on it is listed."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand import (
    DidNotHappen,
    Happened,
    Key,
    Natural,
    NotSent,
    Operation,
    Run,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import RunSuspended, UsageError
from beforehand.inspect.replay import replay_records
from beforehand.model import records as r
from beforehand.plans import Call, NewPlanNeeded, Plan, PlanRefused, PlanStep
from beforehand.policies import Retry
from beforehand.testing.world import World
from tests.draws import explore
from tests.unit.engine.lab import Lab, virtual

AIRPORT = {"$fact": "airport"}
ANY = "input['air' + 'port'] == 'JFK'"
PATIENT = Retry(elapsed=timedelta(days=1))


@dataclass
class Airline:
    """Bookings by key, how often it was asked, and whether it is too busy to sell."""

    sold: dict[str, str] = field(default_factory=dict[str, str])
    asked: int = 0
    busy: bool = False

    def effects(self) -> list[str]:
        return list(self.sold.values())

    def reset(self) -> None:
        self.sold, self.asked = {}, 0


AIRLINE = Airline()


@tool(idempotency=Key.forever(stores="all"), retry=PATIENT)
async def book(airport: str) -> str:
    AIRLINE.asked += 1
    if AIRLINE.busy:
        raise NotSent(retry_after=3600)
    return AIRLINE.sold.setdefault(current_operation().key, airport)


@book.verify(settle_window=timedelta(0))
async def sold(operation: Operation[str], airport: str) -> Verdict[str]:
    return Happened(airport) if operation.key in AIRLINE.sold else DidNotHappen()


@book.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def cancel(operation: Operation[str]) -> None:
    AIRLINE.sold.pop(operation.key, None)


@tool(idempotency=Key.forever(stores="all"), timeout=timedelta(hours=3), retry=PATIENT)
async def pack(minutes: int) -> str:
    """Takes long, and has nothing to do with where it goes: a process that recovers a run meanwhile is done before it is."""
    await asyncio.sleep(minutes * 60)
    return current_operation().key[:4]


@pack.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def unpack(operation: Operation[str]) -> None: ...


@tool(effect="read")
async def look(airport: str) -> str:
    return airport


TOOLS = [book, pack, look]


def one(id: str, name: str, arguments: dict[str, Any], **more: Any) -> PlanStep:  # noqa: A002 - as in a plan
    return PlanStep(id=id, primary=Call(name, arguments), **more)


def trip(*, together: bool) -> Plan:
    steps = (
        one("out", "book", {"airport": AIRPORT}),
        one("pack", "pack", {"minutes": 60}),
        one("back", "book", {"airport": AIRPORT}, after=("pack",)),
    )
    return Plan(goal="there and back", name="trip", together=together, steps=steps)


async def corrected_after(run: Run, minutes: int) -> list[Any]:
    await run.sleep(timedelta(minutes=minutes))
    said = await run.facts.learn("airport", "LGA", source="the traveller")
    return [list(said.dropped), list(said.executed), list(said.underway)]


async def told(run: Run, plan: Plan, **how: Any) -> list[Any]:
    """What came of the plan, as one JSON value."""
    try:
        done = await run.execute(plan, **how)
    except TransactionAborted as gone:
        news = gone.__cause__
        assert isinstance(news, NewPlanNeeded)
        return [list(news.corrected), list(news.dropped), list(news.executed), sorted(gone.undone)]
    except NewPlanNeeded as news:
        return [list(news.corrected), list(news.dropped), list(news.executed), sorted(news.results)]
    return [done.results]


@agent(run_id="t-{plan.name}", tools=TOOLS)
async def traveller(run: Run, plan: Plan) -> list[Any]:
    await run.facts.learn("airport", "JFK", source="a guess", confidence=0.7)
    return list(await run.gather(told(run, plan), corrected_after(run, 30)))


@pytest.fixture(autouse=True)
def airline(world: World) -> Airline:
    AIRLINE.reset()
    AIRLINE.busy = False
    world.use(AIRLINE)
    return AIRLINE


@pytest.mark.deeper
def test_what_was_not_sent_is_dropped_and_what_was_is_listed(world: World):
    plan = trip(together=False)
    ran = world.run(traveller, plan)
    assert ran.error is None
    assert ran.effects == ["book", "pack"]
    assert ran.result == [
        [["airport"], ["~1/trip/back"], ["~1/trip/out"], ["out", "pack"]],
        [["~1/trip/back"], ["~1/trip/out"], []],
    ]
    explore(world, traveller, plan)


@pytest.mark.deeper
def test_steps_that_belong_together_are_given_back(world: World):
    plan = trip(together=True)
    ran = world.run(traveller, plan)
    assert ran.error is None
    assert sorted(ran.effects) == ["book", "cancel", "pack", "unpack"]
    assert AIRLINE.sold == {}
    assert ran.result is not None
    assert ran.result[0] == [
        ["airport"],
        ["~1/trip/back"],
        ["~1/trip/out"],
        ["~1/trip/out/book#1", "~1/trip/pack/pack#1"],
    ]
    explore(world, traveller, plan)


@pytest.mark.deeper
def test_what_waits_to_be_tried_again_is_not_tried_again(world: World, airline: Airline):
    airline.busy = True
    plan = Plan(goal="g", name="busy", together=False, steps=(one("out", "book", {"airport": AIRPORT}),))
    ran = world.run(traveller, plan)
    assert ran.result == [[["airport"], ["~1/busy/out"], [], []], [[], [], ["~1/busy/out"]]]
    assert airline.asked == 1
    explore(world, traveller, plan)


@virtual
async def test_what_is_dropped_is_on_record_once_and_a_replay_drops_the_same(lab: Lab):
    AIRLINE.busy = True

    @agent(run_id="c-{given}", tools=TOOLS)
    async def caught(run: Run, given: str) -> list[Any]:
        await run.facts.learn("airport", "JFK", source="a guess")
        plan = Plan(goal="g", name="trip", together=False, steps=(one("out", "book", {"airport": AIRPORT}),))
        outcome = list(await run.gather(told(run, plan), corrected_after(run, 30)))
        await run.wait_for("go")
        return outcome

    async with lab.app(caught, hold_ms=10_000_000) as app:
        with pytest.raises(RunSuspended):
            await app.run(caught, "x")
        await app.service.signal("c-x", "go")
        assert await app.resume("c-x") == [[["airport"], ["~1/trip/out"], [], []], [[], [], ["~1/trip/out"]]]
    (dropped,) = lab.of("c-x", r.StepsDropped)
    assert dropped.steps == ("~1/trip/out",)
    settled = lab.of("c-x", r.OperationSettled)
    assert [(one.status, one.reason) for one in settled] == [("cancelled", "what it relied on was corrected")]
    replayed = await replay_records(await lab.journal.open(), "c-x", lab.records("c-x"), [caught])
    assert replayed.agrees, replayed


def test_a_call_that_is_already_on_its_way_is_waited_for_and_listed(world: World):
    plan = Plan(
        goal="g", name="late", together=False, steps=(one("pack", "pack", {"minutes": 60}, relies_on=("airport",)),)
    )
    ran = world.run(traveller, plan)
    assert ran.result == [[["airport"], [], ["~1/late/pack"], ["pack"]], [[], [], ["~1/late/pack"]]]
    assert ran.effects == ["pack"]


@pytest.mark.deeper
def test_what_is_held_until_the_commit_never_leaves(world: World):
    @tool
    async def tell(text: str) -> str:
        return text

    @agent(run_id="h-{given}", tools=[*TOOLS, tell])
    async def careful(run: Run, given: str) -> list[Any]:
        await run.facts.learn("airport", "JFK", source="a guess")
        steps = (one("tell", "tell", {"text": AIRPORT}, hold=True), one("pack", "pack", {"minutes": 60}))
        plan = Plan(goal="g", name="held", steps=steps)
        return list(await run.gather(told(run, plan), corrected_after(run, 30)))

    ran = world.run(careful, "x")
    assert sorted(ran.effects) == ["pack", "unpack"]
    assert ran.result == [[["airport"], ["~1/held/tell"], [], ["~1/held/pack/pack#1"]], [["~1/held/tell"], [], []]]
    explore(world, careful, "x")


@pytest.mark.deeper
def test_what_rests_on_a_result_rests_on_its_facts(world: World):
    steps = (
        one("see", "look", {"airport": AIRPORT}),
        one("pack", "pack", {"minutes": 60}),
        one("out", "book", {"airport": {"$result": "see"}}, after=("pack",)),
    )
    plan = Plan(goal="g", name="far", together=False, steps=steps)
    ran = world.run(traveller, plan)
    assert ran.result is not None
    assert ran.result[0] == [["airport"], ["~1/far/out"], [], ["pack", "see"]]
    assert ran.effects == ["pack"]
    explore(world, traveller, plan)


@pytest.mark.deeper
def test_a_correction_that_no_step_relied_on_changes_nothing(world: World):
    plan = Plan(goal="g", name="free", together=False, steps=(one("pack", "pack", {"minutes": 60}),))
    ran = world.run(traveller, plan)
    assert ran.result is not None
    assert list(ran.result[0][0]) == ["pack"]
    explore(world, traveller, plan)


@pytest.mark.deeper
def test_a_condition_over_facts_is_relied_on_and_facts_that_a_model_was_shown_as_well(world: World):
    @agent(run_id="i-{given}", tools=TOOLS)
    async def shown(run: Run, given: str) -> list[Any]:
        await run.facts.learn("airport", "JFK", source="a guess")
        facts = run.facts.values()
        seen = Plan(
            goal="g", name="seen", together=False,
            steps=(one("out", "book", {"airport": "x"}, when="input.airport == 'JFK'"),),
        )  # fmt: skip
        plain = Plan(goal="g", name="plain", together=False, steps=(one("out", "book", {"airport": "JFK"}),))
        await run.facts.learn("airport", "LGA", source="the traveller")
        any_part = msgspec.structs.replace(seen, name="any", steps=(one("out", "look", {"airport": "x"}, when=ANY),))
        return [await told(run, plain, relies_on=facts), await told(run, plain, relies_on=["airport"]),
                await told(run, seen, given=facts), await told(run, any_part, given=facts)]  # fmt: skip

    ran = world.run(shown, "x")
    assert ran.result == [[["airport"], ["plain/out"], [], []], [{"out": "JFK"}], [["airport"], ["seen/out"], [], []],
                          [["airport"], ["any/out"], [], []]]  # fmt: skip
    assert ran.effects == ["book"]
    explore(world, shown, "x")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"airport": {"$fact": "hotel"}}, "step out: there is no fact 'hotel'; known are: airport, hours"),
        ({"airport": {"$fact": "hours"}}, "step out: book"),
    ],
)
def test_facts_that_are_missing_or_do_not_fit_are_faults(world: World, arguments: dict[str, Any], fault: str):
    @agent(run_id="f-{given}", tools=TOOLS)
    async def wrong(run: Run, given: str) -> str:
        await run.facts.learn("airport", "JFK", source="a guess")
        await run.facts.learn("hours", 3, source="a guess")
        await run.execute(Plan(goal="g", steps=(one("out", "book", arguments),)))
        return "done"

    ran = world.run(wrong, "x")
    assert isinstance(ran.error, PlanRefused)
    assert ran.error.faults[0].startswith(fault)


def test_a_plan_cannot_rest_on_what_nobody_knows(world: World):
    @agent(run_id="n-{given}", tools=TOOLS)
    async def wrong(run: Run, given: str) -> None:
        await run.execute(trip(together=False), relies_on=["weather"])

    ran = world.run(wrong, "x")
    assert isinstance(ran.error, UsageError)
    assert "weather" in str(ran.error)


def test_a_fact_is_taken_as_it_is_and_not_as_a_reference(world: World):
    @tool(effect="read")
    async def note(what: dict[str, str]) -> dict[str, str]:
        return what

    @agent(run_id="j-{given}", tools=[note])
    async def quoting(run: Run, given: str) -> Any:
        await run.facts.learn("said", {"$result": "first"}, source="a stranger")
        steps = (one("first", "note", {"what": {"a": "secret"}}), one("then", "note", {"what": {"$fact": "said"}}))
        return (await run.execute(Plan(goal="g", steps=steps))).results["then"]

    ran = world.run(quoting, "x")
    assert (ran.error, ran.result) == (None, {"$result": "first"})


@virtual
async def test_what_an_aborted_plan_gave_back_is_not_listed_as_executed(lab: Lab):
    @agent(run_id="s-{given}", tools=TOOLS)
    async def gives_back(run: Run, given: str) -> list[str]:
        await run.facts.learn("airport", "JFK", source="a guess")
        steps = (one("out", "book", {"airport": AIRPORT}, abort_if=("results.out == 'JFK'",)),)
        with pytest.raises(TransactionAborted):
            await run.execute(Plan(goal="g", steps=steps))
        await run.execute(trip(together=False))
        corrected = await run.facts.learn("airport", "LGA", source="the traveller")
        return list(corrected.executed)

    async with lab.app(gives_back) as app:
        assert await app.run(gives_back, "x") == ["trip/out", "trip/back"]


@virtual
async def test_what_an_outer_transaction_gave_back_is_not_listed_either(lab: Lab):
    @agent(run_id="o-{given}", tools=TOOLS)
    async def outer(run: Run, given: str) -> list[str]:
        await run.facts.learn("airport", "JFK", source="a guess")
        with contextlib.suppress(TransactionAborted):
            async with run.transaction("all") as everything:
                await run.execute(trip(together=True))
                everything.abort("no")
        return list((await run.facts.learn("airport", "LGA", source="the traveller")).executed)

    async with lab.app(outer) as app:
        assert await app.run(outer, "x") == []


@pytest.mark.deeper
def test_what_a_plan_itself_changes_corrects_none_of_its_steps(world: World):
    @tool(idempotency=Key.forever(stores="all"))
    async def take(seats: int) -> str:
        current_operation().report("seats", seats - 1)
        return current_operation().key[:4]

    @agent(run_id="w-{given}", tools=[take])
    async def taker(run: Run, given: str) -> list[Any]:
        await run.facts.learn("seats", 3, source="search")
        seats = {"seats": {"$fact": "seats"}}
        steps = (one("first", "take", seats), one("then", "take", seats, after=("first",)))
        plan = Plan(goal="g", name="two", together=False, steps=steps)
        return [len((await run.execute(plan)).results), run.facts.values(), len(run.facts.corrections)]

    ran = world.run(taker, "x")
    assert (ran.error, ran.result) == (None, [2, {"seats": 2}, 0])
    explore(world, taker, "x")


@pytest.mark.deeper
def test_what_another_branch_reports_corrects_a_plan_as_well(world: World):
    @tool(effect="read")
    async def ask_desk(question: str) -> str:
        current_operation().report("airport", "LGA")
        return question

    @agent(run_id="d-{given}", tools=[*TOOLS, ask_desk])
    async def asking(run: Run, given: str) -> list[Any]:
        async def later() -> str:
            await run.sleep(timedelta(minutes=30))
            return await ask_desk("which airport?")

        await run.facts.learn("airport", "JFK", source="a guess")
        return list(await run.gather(told(run, trip(together=False)), later()))

    ran = world.run(asking, "x")
    assert ran.result is not None
    assert ran.result[0] == [["airport"], ["~1/trip/back"], ["~1/trip/out"], ["out", "pack"]]
    explore(world, asking, "x")
