"""A process dies at every named place, the first and the second time it comes there; another one goes on.

Real SIGKILLs are the crash suite's; here every crash point is tried in order, fast and repeatably.
"""

import asyncio
import contextlib
import random
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.engine.environment import POINTS
from beforehand.engine.settings import Settings
from beforehand.errors import BeforehandError, RunStopped, RunSuspended
from beforehand.model import records as r
from beforehand.model.decision import moves as m
from beforehand.policies import Retry
from tests.unit.engine.lab import Died, Lab, Process, virtual
from tests.unit.engine.test_journal_failures import RUN, World, _answer, refund_desk
from tests.unit.model.stories import KEYED, Story


class DiesAt:
    """Kills its process when a crash point is reached for the n-th time."""

    def __init__(self, point: str, nth: int) -> None:
        self.point = point
        self.left = nth
        self.process: Process | None = None
        self.over = asyncio.get_running_loop().create_future()

    def reached(self, point: str) -> None:
        if point != self.point:
            return
        self.left -= 1
        if self.left == 0:
            assert self.process is not None
            self.process.die()
            self.over.set_result(None)
            raise Died(point)


async def until_it_dies(lab: Lab, desk: Any, crash: DiesAt) -> bool:
    """Drive the agent in a process that may die; whether it did."""
    app = lab.make(desk, crash=crash)
    process = crash.process = lab.processes[-1]
    await app.open()
    driving = asyncio.ensure_future(app.run(desk, "ann"))
    await asyncio.wait({driving, crash.over}, return_when=asyncio.FIRST_COMPLETED)
    if process.dead:
        await lab.bury(app, process)
        await asyncio.gather(driving, return_exceptions=True)
        return True
    await asyncio.gather(driving, return_exceptions=True)
    await lab.exit(app)
    return False


@pytest.mark.parametrize("lag_s", [0.0, 0.01], ids=["at once", "lagging"])
@pytest.mark.parametrize("rides_lost", [False, True], ids=["rides kept", "rides lost"])
@pytest.mark.parametrize("point", POINTS)
@virtual
async def test_each_effect_happens_once_whatever_the_place_of_death(
    lab: Lab, point: str, rides_lost: bool, lag_s: float
):
    died = 0
    for nth in range(1, 10):
        alone = Lab()
        alone.lag_s = lag_s
        world = World(alone)
        desk = refund_desk(alone, world, flaky=point in {"before_verify", "after_verify"})
        if not await until_it_dies(alone, desk, DiesAt(point, nth)):
            break
        died += 1
        if rides_lost:
            alone.forget_what_rides()
        async with alone.app(desk) as app:
            for _ in range(6):
                try:
                    assert await app.run(desk, "ann") == "refund of ANN"
                    break
                except RunSuspended:
                    await _answer(world, app)
                except BeforehandError as error:
                    raise AssertionError((point, nth, alone.records(RUN))) from error
            else:
                raise AssertionError((point, nth, alone.records(RUN)))
        assert world.unrecorded == []
        assert (len(world.payments), len(world.mail), len(world.stock)) == (1, 1, 1), (point, nth)
    assert died > 0


@virtual
async def test_a_plain_write_in_flight_at_death_ends_unknown_and_was_attempted_once(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        await lab.pass_time(hours=1)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    app = lab.make(desk)
    await app.open()
    app.start(desk, "ann")
    await lab.pass_time(seconds=1)
    await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as other:
        with pytest.raises(RunSuspended, match="an attempt may have landed"):
            await other.run(desk, "ann")
    assert lab.sent == ["ann"]
    assert lab.of(RUN, r.AttemptEnded)[0].end.kind == "lost"


@virtual
async def test_an_effect_that_kills_its_process_again_and_again_is_quarantined(lab: Lab):
    @tool(idempotency=Key.forever())
    async def poison(to: str) -> str:
        lab.sent.append(current_operation().key)
        await lab.pass_time(hours=1)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await poison(name)

    for _ in range(5):
        app = lab.make(desk)
        await app.open()
        app.start(desk, "ann")
        await lab.pass_time(seconds=5)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="5 processes died during an attempt of it"):
            await app.run(desk, "ann")
    assert len(lab.sent) == 5


@virtual
async def test_a_worker_that_was_paused_is_no_death(lab: Lab):
    """Its lease ends six times while it stands still; the seventh owner sends again under the same key."""

    @tool(idempotency=Key.forever(), timeout=timedelta(hours=3), retry=Retry(attempts=20, elapsed=timedelta(days=1)))
    async def pay(to: str) -> str:
        lab.sent.append(current_operation().key)
        await lab.pass_time(seconds=3600 if len(lab.sent) <= 6 else 1)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(6):
            app = await stack.enter_async_context(lab.app(desk, hold_ms=10**9))
            app.start(desk, "ann")
            await lab.pass_time(seconds=1)
            app.engine._beating.cancel()  # from here on it gives no sign of life
            await lab.pass_time(seconds=20)
        app = await stack.enter_async_context(lab.app(desk, hold_ms=10**9))
        assert await app.run(desk, "ann") == "ann"
    assert len(set(lab.sent)) == 1
    assert not any(one.end.died for one in lab.of("r-ann", r.AttemptEnded))


@pytest.mark.parametrize("hit", [0.25])
def test_random_kills_quarantine_few_healthy_operations(seed: int, hit: float):
    """Kills hit a quarter of all attempts: of 20,000 keyed operations at most 2 in 1,000 are set aside by default."""
    chance = random.Random(seed)
    aside = 0
    for _ in range(20_000):
        story = Story(KEYED)
        while chance.random() < hit:
            story.sent("lost").waits(0, "retry")
            if not isinstance(story.decide(deaths_allowed=Settings().deaths_allowed), m.Send):
                aside += 1
                break
    assert aside <= 40, f"{aside} of 20,000"


@virtual
async def test_a_run_that_is_claimed_again_and_again_without_progress_is_quarantined(lab: Lab):
    asked: list[int] = []

    async def think(name: str) -> str:
        asked.append(1)
        await lab.pass_time(hours=1)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.decide(think, name)

    for _ in range(5):
        app = lab.make(desk)
        await app.open()
        app.start(desk, "ann")
        await lab.pass_time(seconds=5)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as app:
        with pytest.raises(RunStopped, match="5 processes that drove it died or hang") as stopped:
            await app.run(desk, "ann")
    assert stopped.value.reason == "quarantined"
    assert len(asked) == 5


@virtual
async def test_a_process_that_was_taken_over_cannot_write_and_files_what_it_knows(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        await lab.pass_time(seconds=30)
        return f"sent {to}"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, hold_ms=10**9) as sleepy, lab.app(desk, hold_ms=10**9) as other:
        handle = sleepy.start(desk, "ann")
        await lab.pass_time(seconds=1)
        sleepy.engine._beating.cancel()
        await lab.pass_time(seconds=20)
        taken = other.start(desk, "ann")
        await lab.pass_time(seconds=20)
        results = await asyncio.gather(handle.result(), taken.result(), return_exceptions=True)
        for _ in range(3):
            if results[1] == "sent ann":
                break
            results = [None, (await asyncio.gather(other.run(desk, "ann"), return_exceptions=True))[0]]
        assert results[1] == "sent ann"
    assert lab.sent == ["ann"]
    assert [claim.token for claim in lab.of(RUN, r.Claimed)][:2] == [1, 2]
