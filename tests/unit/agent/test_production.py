"""The production loop: what thinks may be anything, and what it says was executed is what stands."""

import asyncio
import functools
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic_ai import Agent, StructuredDict
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from beforehand import Beforehand, Key, Natural, Operation, Rejected, Run, RunSuspended, agent, current_operation, tool
from beforehand.errors import Interrupted
from beforehand.inspect.run_state import state_of
from beforehand.model import records as r
from beforehand.observation import Need, ProductionLoop, Thought, Usage
from beforehand.patterns import for_operator
from beforehand.people.items import items
from beforehand.plans import Call, Plan, PlanResult, PlanStep, plan_schema
from beforehand.policies import Retry
from beforehand.testing.world import World
from tests.unit.engine.lab import Lab, virtual


@tool(idempotency=Key.forever(stores="all"))
async def book(airport: str, hour: str = "8am") -> str:
    _ = current_operation().key
    if hour == "never":
        raise Rejected("there is no such flight")
    return f"{airport} {hour}"


@book.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def cancel(operation: Operation[str]) -> None: ...


@tool(idempotency=Key.forever(stores="all"))
async def wire(cents: int) -> int:
    _ = current_operation().key
    return cents


@wire.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def call_the_bank(operation: Operation[int]) -> None:
    for_operator(operation, "a wire is called back by telephone")


TOOLS = [book, wire]


async def observe(run: Run, goal: str, trouble: list[str]) -> list[Need]:
    if run.facts.get("airport") is None:
        await run.facts.learn("airport", "JFK", source="a guess", confidence=0.7)
    return []


async def reached(run: Run, result: PlanResult) -> bool:
    return True


def one(id: str, hour: str = "8am", **more: Any) -> PlanStep:  # noqa: A002 - as in a plan
    return PlanStep(id=id, primary=Call("book", {"airport": {"$fact": "airport"}, "hour": hour}), **more)


def fly(*steps: PlanStep, together: bool = False) -> Plan:
    return Plan(goal="fly", name="fly", steps=steps, together=together)


def flyer(think: Any) -> Any:
    @agent(run_id="f-{goal}", tools=TOOLS)
    async def flying(run: Run, goal: str) -> list[Any]:
        result = await ProductionLoop(observe, think, reached)(run, goal)
        corrected = await run.facts.learn("airport", "LGA", source="the traveller")
        return [result.results, list(corrected.executed), list(corrected.dropped)]

    return flying


# --- what thinks ---------------------------------------------------------------------------------------------------


async def in_words(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
    return fly(one("seat"))


class Thinking:
    """Not a function, has no name, and is not async."""

    def __call__(self, goal: str, facts: dict[str, Any], trouble: list[str]) -> str:
        return msgspec.json.encode(fly(one("seat"))).decode()


def with_hour(hour: str, goal: str, facts: dict[str, Any], trouble: list[str]) -> dict[str, Any]:
    return msgspec.to_builtins(fly(one("seat", hour)))


@pytest.mark.parametrize(
    "think",
    [
        in_words,
        Thinking(),
        functools.partial(with_hour, "8am"),
        lambda *_: Thought(fly(one("seat")), "it is cheap", 0.8),
    ],
)
def test_any_callable_thinks(world: World, think: Any):
    flying = flyer(think)
    ran = world.run(flying, "go")
    assert (ran.error, ran.result) == (None, [{"seat": "JFK 8am"}, ["round-1/fly/seat"], []])
    world.explore(flying, "go")


PLANNED = StructuredDict(plan_schema(TOOLS), name="plan")


def test_an_agent_of_pydantic_ai_thinks(tmp_path: Path):
    """In real time: that package has threads of its own."""
    asked: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(str(messages[-1].parts[-1].content))
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, msgspec.to_builtins(fly(one("seat"))))])

    flying = flyer(Agent(FunctionModel(answer), output_type=PLANNED, name="planner"))

    async def twice() -> list[r.DecisionRecorded]:
        for _ in range(2):
            async with Beforehand(tmp_path / "journal.db", agents=[flying]) as app:
                assert (await app.run(flying, "go"))[0] == {"seat": "JFK 8am"}
                told = await app.service.reader.all_records("f-go")
        return [record for _, record in told if isinstance(record, r.DecisionRecorded)]

    (decided,) = asyncio.run(twice())
    assert len(asked) == 1, "what was recorded was not asked for again"
    assert "Goal: go" in asked[0]
    assert '"airport":"JFK"' in asked[0]
    assert min(decided.input_tokens, decided.output_tokens) > 0


def test_what_a_test_model_makes_up_from_the_schema_is_a_plan(tmp_path: Path):
    """`TestModel` knows nothing but the schema: what it makes up cannot run, and is told back as trouble."""
    flying = flyer(Agent(TestModel(), output_type=PLANNED))

    async def tried() -> None:
        async with Beforehand(tmp_path / "journal.db", agents=[flying]) as app:
            with pytest.raises(RunSuspended, match="rounds so far: 12"):
                await app.run(flying, "go")
            state = await state_of(app.service.reader, "f-go", "hand_off#1")
            assert "no fact 'a'; known are: airport" in bytes(state.given).decode()

    asyncio.run(tried())


def test_nonsense_is_asked_for_again(world: World):
    asked: list[str] = []

    def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Any:
        asked.append(goal)
        return {"goal": goal} if len(asked) == 1 else fly(one("seat"))

    ran = world.run(flyer(think), "go")
    assert ran.result is not None
    assert ran.result[0] == {"seat": "JFK 8am"}
    assert len(asked) == 2


# --- when it does not get there --------------------------------------------------------------------------------------


def travel(think: Any, *tools: Any, rounds: int = 2) -> Any:
    @agent(run_id="f-{goal}", tools=[*TOOLS, *tools])
    async def flying(run: Run, goal: str) -> Any:
        loop = ProductionLoop(observe, think, reached, rounds=rounds, queue="travel")
        return (await loop(run, goal)).results["seat"]

    return flying


@virtual
async def test_when_its_rounds_are_over_people_have_the_run_and_what_they_say_is_heard(lab: Lab):
    async def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
        return fly(one("seat", "9am" if trouble[-1:] == ["a person says: take the one at nine"] else "never"))

    flying = travel(think)
    async with lab.app(flying) as app:
        with pytest.raises(RunSuspended, match="rounds so far: 2"):
            await app.run(flying, "go")
        (item,) = await items(app.service.reader)
        assert (item.kind, item.queue) == ("handoff", "travel")
        state = await state_of(app.service.reader, "f-go", "hand_off#1")
        assert bytes(state.given).decode().count("there is no such flight") == 2
        await app.service.answer("f-go/hand_off#1", "take the one at nine", by="bea")
        assert await app.run(flying, "go") == "JFK 9am"


@virtual
async def test_what_the_run_is_told_while_people_have_it_is_heard_as_well(lab: Lab):
    async def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
        return fly(one("seat", "9am" if trouble[-1:] == ["ann says: nine will do"] else "never"))

    flying = travel(think, rounds=1)
    async with lab.app(flying) as app:
        with pytest.raises(RunSuspended, match="rounds so far: 1"):
            await app.run(flying, "go")
        await app.service.tell("f-go", "nine will do", by="ann")
        assert await app.run(flying, "go") == "JFK 9am"


@virtual
async def test_a_model_that_gives_no_answer_is_trouble_and_people_are_asked_in_the_end(lab: Lab):
    async def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
        if trouble[-1:] == ["a person says: it is up again"]:
            return fly(one("seat"))
        raise ConnectionError("the model is down")

    flying = travel(think)
    async with lab.app(flying) as app:
        with pytest.raises(RunSuspended, match="rounds so far: 2"):
            await app.run(flying, "go")
        await app.service.answer("f-go/hand_off#1", "it is up again", by="bea")
        assert await app.run(flying, "go") == "JFK 8am"


@tool(idempotency=Key.forever(stores="all"), gate="true")
async def buy(hour: str) -> str:
    _ = current_operation().key
    return f"bought {hour}"


async def buying(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
    hour = "9am" if trouble == ["ann says: not so early"] else "8am"
    return fly(PlanStep(id="seat", primary=Call("buy", {"hour": hour})))


@virtual
async def test_what_somebody_says_meanwhile_is_thought_about(lab: Lab):
    flying = travel(buying, buy)
    async with lab.app(flying) as app:
        with pytest.raises(RunSuspended, match="8am"):
            await app.run(flying, "go")
        await app.service.tell("f-go", "not so early", by="ann")
        with pytest.raises(RunSuspended, match="9am"):
            await app.run(flying, "go")
        await app.service.approve("f-go/round-2/fly/seat/buy#1", by="bea")
        assert await app.run(flying, "go") == "bought 9am"


@virtual
async def test_a_word_to_stop_ends_it(lab: Lab):
    flying = travel(buying, buy)
    async with lab.app(flying) as app:
        with pytest.raises(RunSuspended, match="8am"):
            await app.run(flying, "go")
        await app.service.tell("f-go", "we stay", by="ann", stop=True)
        with pytest.raises(Interrupted, match="ann told run f-go: we stay"):
            await app.run(flying, "go")


# --- what it says was executed -----------------------------------------------------------------------------------------


def in_turn(*plans: Plan) -> Any:
    async def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
        return plans[len(trouble)]

    return think


def test_a_plan_that_failed_leaves_what_it_did_and_not_what_it_did_not(world: World):
    flying = flyer(in_turn(fly(one("first"), one("second", "never", after=("first",))), fly(one("seat"))))
    ran = world.run(flying, "go")
    assert ran.result == [{"seat": "JFK 8am"}, ["round-1/fly/first", "round-2/fly/seat"], []]
    world.explore(flying, "go")


def test_a_fallback_is_executed_once_and_what_was_given_back_is_not(world: World):
    seat = PlanStep(id="seat", primary=one("", "never").primary, fallbacks=(one("", "9am").primary,))
    turned_back = fly(one("first"), one("second", "never", after=("first",)), together=True)
    flying = flyer(in_turn(turned_back, fly(seat)))
    ran = world.run(flying, "go")
    assert ran.result == [{"seat": "JFK 9am"}, ["round-2/fly/seat"], []]
    assert ran.effects == ["book", "cancel", "book"]
    world.explore(flying, "go")


@virtual
async def test_what_a_person_let_stand_in_an_aborted_plan_stays_listed(lab: Lab):
    pay = PlanStep(id="pay", primary=Call("wire", {"cents": 5}))
    turned_back = fly(one("first"), pay, one("second", "never", after=("first", "pay")), together=True)
    flying = flyer(in_turn(turned_back, fly(one("seat"))))
    async with lab.app(flying) as app:
        with pytest.raises(RunSuspended, match="by telephone"):
            await app.run(flying, "go")
        await app.service.resolve_transaction("f-go", "round-1/fly", "accept", by="ann")
        result, executed, dropped = await app.resume("f-go")
    assert result == {"seat": "JFK 8am"}
    assert executed == ["round-1/fly/pay", "round-2/fly/seat"]
    assert dropped == []


def test_a_plan_that_is_refused_is_thought_about_again(world: World):
    heard: list[list[str]] = []

    async def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
        heard.append(trouble)
        return fly(one("seat")) if trouble else fly(PlanStep(id="seat", primary=Call("teleport", {})))

    ran = world.run(flyer(think), "go")
    assert (ran.error, ran.result) == (None, [{"seat": "JFK 8am"}, ["round-2/fly/seat"], []])
    assert "there is no tool 'teleport'" in heard[-1][0]


@virtual
async def test_why_how_sure_and_what_it_took_are_on_record(lab: Lab):
    async def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Thought:
        return Thought(fly(one("seat")), "the only one", 0.75, Usage(100, 20, 0.5))

    flying = flyer(think)
    async with lab.app(flying) as app:
        await app.run(flying, "go")
    (decided,) = lab.of("f-go", r.DecisionRecorded)
    assert (decided.function, decided.why, decided.confidence) == ("think", "the only one", 0.75)
    assert (decided.input_tokens, decided.output_tokens, decided.cost) == (100, 20, 0.5)


def test_a_correction_in_the_middle_of_a_plan_is_thought_about_again(world: World):
    @tool(idempotency=Key.forever(stores="all"), timeout=timedelta(hours=3), retry=Retry(elapsed=timedelta(days=1)))
    async def pack(minutes: int) -> str:
        """Is on its way when the correction comes, and is waited for."""
        await asyncio.sleep(minutes * 60)
        return current_operation().key[:4]

    async def think(goal: str, facts: dict[str, Any], trouble: list[str]) -> Plan:
        return fly(PlanStep(id="pack", primary=Call("pack", {"minutes": 60})), one("seat", after=("pack",)))

    @agent(run_id="m-{goal}", tools=[*TOOLS, pack])
    async def interrupted(run: Run, goal: str) -> list[Any]:
        async def correcting() -> list[str]:
            await run.sleep(timedelta(minutes=30))
            corrected = await run.facts.learn("airport", "LGA", source="the traveller")
            return [*corrected.dropped, "|", *corrected.underway]

        result, corrected = await run.gather(ProductionLoop(observe, think, reached)(run, goal), correcting())
        return [result.results["seat"], corrected]

    ran = world.run(interrupted, "go")
    assert ran.error is None
    assert ran.result == ["LGA 8am", ["~1/round-1/fly/seat", "|", "~1/round-1/fly/pack"]]
    assert ran.effects == ["pack", "pack", "book"]
