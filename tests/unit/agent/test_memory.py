"""What outlives a run: recalled the same on replay, learned once, and never mistaken for what was done."""

from datetime import timedelta

import pytest

from beforehand import Run, agent
from beforehand.errors import RunSuspended
from beforehand.model.memory import memory_stream
from tests.unit.engine.lab import DAYS, Lab, virtual


@agent(run_id="{given}", tools=[])
async def learner(run: Run, given: str) -> str:
    memory = run.memory("ann")
    before = await memory.recall()
    await memory.learn("airport", "LGA", kind="preference", source="the user", expires=timedelta(days=2))
    await memory.learn("diet", "vegan", kind="constraint", source="her profile")
    await run.wait_for("go")
    return ", ".join(f"{name} {one.value} ({one.source} in {one.run})" for name, one in sorted(before.items()))


@virtual
async def test_what_one_run_learned_another_recalls_with_where_it_came_from(lab: Lab):
    async with lab.app(learner) as app:
        for run in ("first", "second"):
            with pytest.raises(RunSuspended):
                await app.run(learner, run)
        for run in ("first", "second"):
            await app.service.signal(run, "go")
        assert await app.resume("first") == "", "a replay recalls what the first pass recalled"
        assert await app.resume("second") == "airport LGA (the user in first), diet vegan (her profile in first)"
        assert len(await app.engine.journal.entries(memory_stream("ann"))) == 4, "each is learned once"


@virtual
async def test_what_has_expired_or_was_forgotten_is_not_recalled(lab: Lab):
    @agent(run_id="{given}", tools=[])
    async def forgetful(run: Run, given: str) -> list[str]:
        memory = run.memory("ann")
        if given == "forget":
            await memory.forget("diet", source="ann asked for it")
        return sorted(await memory.recall())

    async with lab.app(learner, forgetful, **DAYS) as app:
        with pytest.raises(RunSuspended):
            await app.run(learner, "first")
        assert await app.run(forgetful, "now") == ["airport", "diet"]
        await lab.pass_time(days=3)
        assert await app.run(forgetful, "later") == ["diet"]
        assert await app.run(forgetful, "forget") == []
        assert await app.run(forgetful, "later") == ["diet"], "what a run was told stays what it was told"


@virtual
async def test_lessons_say_how_often_they_held(lab: Lab):
    @agent(run_id="{given}", tools=[])
    async def student(run: Run, given: str) -> str:
        lessons = run.lessons("booking")
        known = await lessons.recall()
        if given == "one":
            await lessons.learn("ask for the airport")
            await lessons.learn("guess the airport")
        else:
            await lessons.held("ask for the airport", yes=True)
            await lessons.held("guess the airport", yes=False)
        return "; ".join(f"{one.text} {one.held}:{one.failed} from {one.run}" for one in known)

    async with lab.app(student) as app:
        assert await app.run(student, "one") == ""
        assert await app.run(student, "two") == "ask for the airport 0:0 from one; guess the airport 0:0 from one"
        assert await app.run(student, "three") == "ask for the airport 1:0 from one; guess the airport 0:1 from one"
