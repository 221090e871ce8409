"""Any plan, whatever its steps do and wherever its process dies: in order, once, and the same again."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand import Key, Natural, Operation, Rejected, Run, TransactionAborted, agent, current_operation, tool
from beforehand.engine.environment import POINTS
from beforehand.errors import PlanError
from beforehand.inspect.replay import replay_records
from beforehand.model import records as r
from beforehand.model.plan import references
from beforehand.plans import Call, Plan, PlanStep
from beforehand.testing.clock import run_virtual
from beforehand.testing.loop import DAY
from tests.unit.engine.lab import Lab
from tests.unit.engine.test_crashes import DiesAt, until_it_dies

RUN = "r-ann"


@dataclass
class Done:
    name: str
    price: int


@dataclass
class World:
    """What was begun and what has landed, in order; `amended` are the names that were taken back."""

    log: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    landed: dict[str, str] = field(default_factory=dict[str, str])
    amended: list[str] = field(default_factory=list[str])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to six steps that wait for earlier ones, refer to them, fail, fall back, are skipped or call it off."""
    steps: list[PlanStep] = []
    for number in range(draw(st.integers(1, 6))):
        earlier = [step.id for step in steps]
        after = tuple(draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True))) if earlier else ()
        source = draw(st.sampled_from(["", *earlier]))
        when = draw(st.sampled_from(["", *(f"results.{name} != null && results.{name}.price > 2" for name in after)]))
        calls = [
            Call(
                "act",
                {
                    "name": f"s{number}.{choice}",
                    "fate": draw(st.sampled_from(["good", "good", "good", "refused"])),
                    "pause": draw(st.integers(0, 3)),
                    **({"of": {"$result": source}} if source else {}),
                },
            )
            for choice in range(draw(st.integers(1, 2)))
        ]
        own = f"results.s{number}.price > 5"
        earlier = tuple(f"results.{name} != null && results.{name}.price > 1" for name in after)
        abort_if = draw(st.sampled_from([(), (), (), (own,), ("true",), (own, *earlier)]))
        steps.append(
            PlanStep(
                id=f"s{number}",
                primary=calls[0],
                fallbacks=tuple(calls[1:]),
                after=after,
                when=when,
                abort_if=() if when else abort_if,
            )
        )
    order = draw(st.permutations(steps))
    return Plan(goal="g", name="any", steps=tuple(order), together=draw(st.booleans()))


def desk_of(plan: Plan, world: World) -> Any:
    """The agent that executes the plan, and says what came of it."""

    @tool(idempotency=Key.forever(stores="all"))
    async def act(name: str, fate: str, pause: int, of: Any = None) -> Done:
        key = current_operation().key
        world.log.append(("begun", name))
        await asyncio.sleep(pause)
        if fate == "refused":
            world.log.append(("refused", name))
            raise Rejected(f"{name} is refused")
        world.log.append(("landed", name))
        world.landed[key] = name
        return Done(name, int(name[1]) + pause)

    @act.compensate(restores=True)
    @tool(idempotency=Natural(within=timedelta(days=9)))
    async def amend(operation: Operation[Done]) -> None:
        world.amended.append(operation.result.name)

    @agent(run_id="r-{name}", tools=[act])
    async def desk(run: Run, name: str) -> str:
        try:
            done = await run.execute(plan)
        except TransactionAborted as gone:
            return f"called off: {gone.reason}"
        except PlanError as error:
            return f"ended: {error}"
        return repr(sorted(done.results.items())) + repr(done.chosen)

    return desk


def in_order(plan: Plan, world: World) -> None:
    """A step begins after all that it waits for is over; a fallback after what came before it was refused."""
    for at, (what, name) in enumerate(world.log):
        if what != "begun":
            continue
        step = plan.step(name.partition(".")[0])
        before = world.log[:at]
        for call in step.calls:
            earlier = str(call.arguments["name"])
            if earlier == name:
                break
            assert ("refused", earlier) in before, (world.log, plan)
        for needed, _ in (one for call in step.calls for one in references(call.arguments)):
            assert any(w == "landed" and n.startswith(f"{needed}.") for w, n in before) or (plan.step(needed).when), (
                world.log,
                plan,
            )
        mine = {str(call.arguments["name"]) for one in plan.waits_for(step) for call in plan.step(one).calls}
        open_ = {n for w, n in before if w == "begun" and n in mine} - {n for w, n in before if w != "begun"}
        assert not open_, (world.log, plan)


def called_off_before(plan: Plan, world: World, told: str) -> None:
    """A condition that does not read its own step's result held: then nothing of that step was sent."""
    for step in plan.steps:
        held = [text for text in step.abort_if if f"step {step.id}: {text}" in told]
        if held and not held[0].startswith(f"results.{step.id}."):
            assert not [name for _, name in world.log if name.startswith(f"{step.id}.")], (told, world.log, plan)


async def story(plan: Plan, fates: list[tuple[str, int]]) -> None:
    lab, world = Lab(), World()
    desk = desk_of(plan, world)
    for point, nth in fates:
        await until_it_dies(lab, desk, DiesAt(point, nth))
    async with lab.app(desk) as app:
        told = await app.run(desk, "ann")
        await lab.pass_time(seconds=10)
    in_order(plan, world)
    called_off_before(plan, world, told)
    names = list(world.landed.values())
    assert len(names) == len(set(names))
    if told.startswith("called off"):
        assert sorted(set(world.amended)) == sorted(names), (told, world.log)
    else:
        assert world.amended == []
    sent = len(world.log)
    report = await replay_records(await lab.journal.open(), RUN, lab.records(RUN), [desk])
    assert report.agrees, (report, lab.records(RUN))
    assert len(world.log) == sent
    chosen = [record.step for record in lab.of(RUN, r.ValueRecorded) if record.what == "chose"]
    assert len(chosen) == len(set(chosen))


@settings(max_examples=60)
@given(plans(), st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 8)), max_size=2))
def test_any_plan_runs_in_its_order_once_and_the_same_again(plan: Plan, fates: list[tuple[str, int]]):
    run_virtual(story(plan, fates), limit=7 * DAY)
