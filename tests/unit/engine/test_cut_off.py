"""What a time limit cut off is cut off again on replay, whatever it was and however the world has changed since."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from beforehand import Run, agent, tool
from tests.unit.engine.lab import Lab, virtual

LIMIT = timedelta(seconds=3)


@tool
async def note(text: str) -> str:
    return text


class Slow:
    """What takes ten seconds the first time, and nothing afterwards."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.asked = 0

        @tool(effect="read")
        async def look() -> str:
            return await self.answer()

        self.look = look

    async def answer(self) -> str:
        self.asked += 1
        await self.lab.pass_time(seconds=10 if self.asked == 1 else 0)
        return "answered"


async def an_event(run: Run, _: Slow) -> object:
    return await run.wait_for("go")


async def a_sleep(run: Run, _: Slow) -> object:
    return await run.sleep(timedelta(seconds=20))


async def a_question(run: Run, _: Slow) -> object:
    return await run.ask("which?")


async def a_read(run: Run, slow: Slow) -> object:
    return await slow.look()


async def a_decision(run: Run, slow: Slow) -> object:
    async def think() -> str:
        return await slow.answer()

    return await run.decide(think)


async def a_branch(run: Run, _: Slow) -> object:
    return await run.gather(run.wait_for("go"))


@pytest.mark.parametrize(
    "wait",
    [an_event, a_sleep, a_question, a_read, a_decision, a_branch],
    ids=lambda wait: wait.__name__,
)
@virtual
async def test_what_was_cut_off_is_cut_off_again(lab: Lab, wait: Callable[[Run, Slow], Awaitable[object]]):
    told: list[str] = []
    slow = Slow(lab)

    @agent(run_id="r-{name}", tools=[note, slow.look])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(LIMIT):
                await wait(run, slow)
                told.append("not reached")
        except TimeoutError:
            told.append("over")
        await note("afterwards")
        if len(told) == 1:
            raise KeyError("a bug")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        await app.service.signal("r-ann", "go", payload="too late")
        await lab.pass_time(hours=1)
        assert await app.resume("r-ann", by="eve") == "done"
    assert told == ["over", "over"]


@virtual
async def test_a_branch_that_outlives_a_limit_goes_on_behind_it(lab: Lab):
    told: list[str] = []

    @agent(run_id="r-{name}", tools=[note])
    async def desk(run: Run, name: str) -> str:
        async def beside() -> str:
            await run.sleep(timedelta(seconds=20))
            return await note("beside")

        try:
            async with run.timeout(LIMIT):
                branch = asyncio.create_task(beside())
                await run.wait_for("go")
        except TimeoutError:
            told.append("over")
        if len(told) == 1:
            raise KeyError("a bug")
        return await branch

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        assert await app.resume("r-ann", by="eve") == "beside"
    assert told == ["over", "over"]
