"""Branches that are joined under a time limit: a replay knows whether the limit ended the code before the join."""

from beforehand import Run
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_time_limits import HOUR, OVER, Mail, seconds, told_twice


@virtual
async def test_branches_that_end_with_the_limit_are_joined_on_replay_if_they_were(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def one(name: str) -> None:
            await run.sleep(seconds(3))
            told.append(name)

        async with run.timeout(seconds(3)):
            await run.gather(one("a"), one("b"))
            told.append("joined")
            await run.sleep(seconds(1))
            told.append("not reached")

    told = await told_twice(lab, body)
    assert told[-1] == OVER
    assert "not reached" not in told


@virtual
async def test_the_end_of_a_task_group_under_a_limit_is_on_record(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async with run.timeout(seconds(3)):
            async with run.task_group() as group:
                group.create_task(mail("a", 1))
            await run.gather(mail("b", 0.5))
            await run.sleep(seconds(3))
            told.append("not reached")

    assert await told_twice(lab, body) == [OVER]
    assert [one.step for one in lab.of("r-ann", r.ValueRecorded)] == ["joined#1", "joined#2"]


@virtual
async def test_a_join_in_a_branch_is_on_record_if_the_branch_began_in_a_limit(lab: Lab):
    """A branch that began before notes none, also where its parent is in a limit by the time: a replay may be faster."""

    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def twice(name: str) -> None:
            await run.gather(mail(f"{name}1", 1), mail(f"{name}2", 1))

        async with run.task_group() as group:
            before = group.create_task(twice("a"))
            async with run.timeout(HOUR):
                within = group.create_task(twice("b"))
                await before
                await within

    await told_twice(lab, body)
    assert [one.step for one in lab.of("r-ann", r.ValueRecorded)] == ["~2/joined#1"]
