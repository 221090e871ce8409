"""`run.facts` and the production loop: journaled, the same on replay, and small."""

import ast
import inspect
from datetime import timedelta

import pytest

from holdfast import Run, agent
from holdfast.agent import production
from holdfast.errors import RunSuspended
from holdfast.observation import Guess, Stakes
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_what_is_cheap_to_ask_is_asked_and_replay_remembers_the_rest(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[object]:
        guess = Guess(lab.clock.wall_ms(), 0.95, "calendar")
        origin = await run.facts.ask_or_infer("origin", "From where?", guess=guess)
        airport = await run.facts.ask_or_infer(
            "airport", "Which airport?", guess=Guess("JFK", 0.5, "history"), stakes=Stakes(asking=1, error=5)
        )
        return [origin.inferred, origin.value, airport.inferred, airport.value]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="Which airport"):
            await app.run(desk, "ann")
        guessed = lab.clock.wall_ms()
        await lab.pass_time(hours=1)
        await app.service.answer("r-ann/ask#1", "LGA", by="bea")
        assert await app.run(desk, "ann") == [True, guessed, False, "LGA"]


@virtual
async def test_a_fact_that_is_too_old_has_to_be_read_again(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[bool]:
        await run.facts.learn("fare", 300, source="search")
        young = await run.facts.fresh("fare", timedelta(minutes=1))
        await run.sleep(timedelta(seconds=20))
        await run.sleep(timedelta(seconds=50))
        old = await run.facts.fresh("fare", timedelta(minutes=1))
        return [young is not None, old is not None, await run.facts.fresh("hotel", timedelta(days=1)) is None]

    async with lab.app(desk, recover=True) as app:
        try:
            result = await app.run(desk, "ann")
        except RunSuspended:
            await lab.pass_time(minutes=2)
            result = await app.run(desk, "ann")
    assert result == [True, False, True]


def test_the_production_loop_fits_on_a_page():
    tree = ast.parse(inspect.getsource(production))
    loop = next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "ProductionLoop")
    assert loop.end_lineno is not None
    assert loop.end_lineno - loop.lineno + 1 <= 60
