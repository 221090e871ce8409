"""Any agent, killed anywhere, any number of times: each effect happens once, and the agent is told the same."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from beforehand import Ambiguous, DidNotHappen, Happened, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.engine.environment import POINTS
from beforehand.errors import BeforehandError, RunSuspended
from beforehand.people.loaded_item import load_item
from beforehand.testing.clock import run_virtual
from tests.unit.engine.lab import Lab
from tests.unit.engine.test_crashes import DiesAt, until_it_dies

RUN = "r-ann"
STEPS = ("keyed", "verified", "plain", "read", "think", "value", "nap")

Program = list[Any]  # a step's name, or a list of programs that run side by side

programs: st.SearchStrategy[Program] = st.recursive(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    lambda inner: st.lists(
        st.one_of(st.sampled_from(STEPS), st.lists(inner, min_size=2, max_size=3)), min_size=1, max_size=4
    ),
    max_leaves=8,
)
deaths = st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 6)), max_size=3)


@dataclass
class World:
    """Where effects land: by key, by marker, or by step alone. `lost` are the steps whose first answer is lost."""

    lost: frozenset[int]
    keyed: dict[str, int] = field(default_factory=dict[str, int])
    mail: list[str] = field(default_factory=list[str])
    plain: list[str] = field(default_factory=list[str])
    told: list[list[str]] = field(default_factory=list[list[str]])
    calls: int = 0

    def answer(self, text: str, attempt: int) -> str:
        self.calls += 1
        if attempt == 1 and self.calls in self.lost:
            raise Ambiguous("the answer was lost")
        return text


def tools_of(world: World) -> tuple[Any, ...]:
    """One tool of each kind, and a model."""

    @tool(idempotency=Key.forever())
    async def keyed(name: str) -> str:
        at = current_operation()
        world.keyed[at.key] = 1
        return world.answer(at.step, at.attempt)

    @tool
    async def verified(name: str) -> str:
        at = current_operation()
        world.mail.append(at.marker)
        return world.answer(at.marker, at.attempt)

    @verified.verify(settle_window=timedelta(0))
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened(operation.marker) if operation.marker in world.mail else DidNotHappen()

    @tool
    async def plain(name: str) -> str:
        at = current_operation()
        world.plain.append(at.step)
        return at.step

    @tool(effect="read")
    async def read(name: str) -> int:
        world.calls += 1
        return world.calls

    async def think(name: str) -> int:
        world.calls += 1
        return world.calls

    return keyed, verified, plain, read, think


def desk_of(program: Program, world: World) -> Any:
    """The agent that runs the program. It notes what it is told, in order, branch by branch."""
    keyed, verified, plain, read, think = tools_of(world)

    async def nap(run: Run) -> str:
        await run.sleep(timedelta(seconds=1))
        return "woke"

    steps: dict[str, Callable[[Run], Awaitable[object]]] = {
        "keyed": lambda _: keyed("k"),
        "verified": lambda _: verified("v"),
        "plain": lambda _: plain("p"),
        "read": lambda _: read("r"),
        "think": lambda run: run.decide(think, "t"),
        "value": Run.random,
        "nap": nap,
    }

    async def branch(run: Run, program: Program) -> list[object]:
        told: list[object] = []
        for one in program:
            if isinstance(one, str):
                told.append(await steps[one](run))
            else:
                told.append(await run.gather(*(branch(run, inner) for inner in one)))
        return told

    @agent(run_id="r-{name}", tools=[keyed, verified, plain, read])
    async def desk(run: Run, name: str) -> str:
        return repr(await branch(run, program))

    return desk


def count(program: Program, name: str) -> int:
    """How often a step stands in a program."""
    return sum(one == name if isinstance(one, str) else sum(count(inner, name) for inner in one) for one in program)


async def settle(app: Any, world: World) -> None:
    """A person looks at the world and answers what is asked."""
    history = await app.service.history(RUN)
    for name, operation in history.operations.items():
        if operation.phase in {"unknown", "gated"}:
            done = name in world.plain
            word = "happened" if done else "retry"
            shown = (await load_item(app.service.reader, f"{RUN}/{name}")).digest
            await app.service.resolve(f"{RUN}/{name}", word, by="eve", result=name if done else None, shown=shown)


async def story(program: Program, fates: list[tuple[str, int]], lost: frozenset[int]) -> None:
    lab, world = Lab(), World(lost)
    desk = desk_of(program, world)
    for point, nth in fates:
        await until_it_dies(lab, desk, DiesAt(point, nth))
    for _ in range(20):
        async with lab.app(desk) as app:
            try:
                first = await app.run(desk, "ann")
                break
            except RunSuspended:
                await settle(app, world)
            except BeforehandError as error:
                raise AssertionError(lab.records(RUN)) from error
    else:
        raise AssertionError(lab.records(RUN))
    assert len(world.keyed) == count(program, "keyed")
    assert sorted(world.mail) == sorted(set(world.mail))
    assert len(world.mail) == count(program, "verified")
    assert sorted(world.plain) == sorted(set(world.plain))
    assert len(world.plain) == count(program, "plain")
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == first
    await asyncio.sleep(0)


@given(programs, deaths, st.frozensets(st.integers(1, 8), max_size=2))
def test_each_effect_of_any_agent_happens_once_however_often_its_process_dies(
    program: Program, fates: list[tuple[str, int]], lost: frozenset[int]
):
    run_virtual(story(program, fates, lost))
