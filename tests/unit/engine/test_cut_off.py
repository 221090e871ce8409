"""What a time limit cut off is cut off again on replay, and an inline effect that it cut off is not attempted again."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, NotSent, Run, RunSuspended, agent, current_operation, tool
from beforehand.model import records as r
from beforehand.policies import Retry
from beforehand.testing.clock import EPOCH_MS
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


def hurried(lab: Lab, *, fails: bool = False, **clauses: Any) -> Any:
    """An agent with a keyed inline effect that a time limit of five seconds cuts off."""

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        how = {"idempotency": Key.forever(stores="all"), "retry": Retry(attempts=9), **clauses}
        with contextlib.suppress(TimeoutError):
            async with run.timeout(timedelta(seconds=5)):
                async for attempt in run.effect("charge", {"cents": 5}, **how):
                    async with attempt:
                        lab.sent.append(attempt.key)
                        if fails:
                            raise NotSent("the system is down", retry_after=60)
                        await asyncio.sleep(3600)
        await run.sleep(timedelta(seconds=20))
        return "went on"

    return desk


@pytest.mark.parametrize("crashes", [False, True])
@virtual
async def test_an_effect_whose_block_was_cut_off_waits_for_a_person_and_is_not_attempted_again(lab: Lab, crashes: bool):
    desk = hurried(lab)
    if crashes:  # the code comes back, and with it the block: it is entered again, until the same limit ends
        app = await lab.make(desk).open()
        app.start(desk, "x")
        await lab.pass_time(seconds=1)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="charge#1"):
            await app.run(desk, "x")
        assert not any(state.failures for state, _ in app.engine.breakers.states.values())
        (unknown,) = lab.of("r-x", r.OperationSettled)
        assert (unknown.status, unknown.reason) == (
            "unknown", "the code that made it was cancelled",
        )  # fmt: skip
        await app.service.resolve("r-x/charge#1", "happened", by="ann", result="paid")
        assert await app.run(desk, "x") == "went on"
    assert len(lab.of("r-x", r.AttemptStarted)) == len(lab.sent) == 1 + crashes


@pytest.mark.parametrize("asks", [False, True])
@virtual
async def test_an_effect_that_was_not_sent_when_its_code_was_cancelled_ends_as_cancelled(lab: Lab, asks: bool):
    desk = hurried(lab, fails=True, **({"gate": "true"} if asks else {}))
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "went on"
        assert (await app.service.history("r-x")).operations["charge#1"].phase == "cancelled"
    assert len(lab.of("r-x", r.AttemptStarted)) == len(lab.sent) == 1 - asks


@virtual
async def test_a_call_whose_caller_left_is_not_attempted_for_ten_minutes(lab: Lab):
    """Its caller may have done the same by another way."""
    sent: list[str] = []

    @tool(idempotency=Key.forever())
    async def card(cents: int) -> None:
        assert current_operation().key
        if lab.clock.wall_ms() < EPOCH_MS + 4_000:
            raise ConnectionRefusedError("down")
        sent.append("card")

    @tool
    async def bank(cents: int) -> None:
        sent.append("bank")

    @agent(run_id="r-{name}", tools=[card, bank])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(LIMIT):
                await card(100)
        except TimeoutError:
            await bank(100)
        return name

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "ann"
        await lab.pass_time(seconds=700)
        history = await app.service.history("r-ann")
    assert sent == ["bank"]
    assert history.operations["card#1"].phase == "failed"
    assert history.operations["card#1"].attempts[-1].up <= 3_000, "attempted after its caller had left"
