"""Commands of two processes to one run: each is applied, whichever process its sender relied on, and what befalls it."""

from __future__ import annotations

import pytest

from beforehand import agent
from beforehand.agent.run import Run
from beforehand.errors import RunStopped
from beforehand.journal.port import Write
from beforehand.model import records as r
from beforehand.model.commands import command_stream
from beforehand.policies import RunBudget
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, Process, virtual


def poor(lab: Lab):
    @agent(run_id="r-{name}", budget=RunBudget(model_calls=0))
    async def desk(run: Run, name: str) -> str:
        async def ask(question: str) -> str:
            lab.sent.append(question)
            return question

        return await run.decide(ask, name)

    return desk


def just_before_it_releases(process: Process, then):
    """Do this once, before the commit with which this process releases the run."""
    once = [then]

    async def releasing(write: Write, commit: Commit) -> None:
        if write.change is not None and write.change.release and once:
            await once.pop()()
        await commit(write)

    intercept(process, Write, releasing)


def just_after_it_reads(process: Process, then):
    """Do this once, between the reading of commands and what this process does with them."""
    once = [then]

    async def entries(stream: str, *given: int):
        found = await process.journal.entries(stream, *given)
        if found and stream == command_stream("r-ann") and once:
            await once.pop()()
        return found

    process.entries = entries


@virtual
async def test_a_command_that_comes_while_another_one_is_applied_is_applied_too(lab: Lab):
    desk = poor(lab)
    async with lab.app(desk) as one, lab.app(desk) as two:
        with pytest.raises(RunStopped):
            await one.run(desk, "ann")
        given = []

        async def raised() -> None:
            given.append(await two.service.raise_budget("r-ann", {"model_calls": 1}, by="eve"))

        just_after_it_reads(lab.processes[0], raised)
        await one.service.cancel("r-ann", by="bob")
        assert given[0].elsewhere, "its sender relies on the first process"
        assert [record.by for record in lab.of("r-ann", r.BudgetRaised)] == ["eve"]
        (row,) = await lab.journal.runs(run="r-ann")
        assert (row.status, row.owner) == ("stopped", None)


@virtual
async def test_a_third_command_is_applied_although_the_run_is_released_by_then(lab: Lab):
    """The sender of the second one has told the owner, so that of the third one finds it told and relies on that."""
    desk = poor(lab)
    async with lab.app(desk) as one, lab.app(desk) as two:
        with pytest.raises(RunStopped):
            await one.run(desk, "ann")

        async def third() -> None:
            await two.service.raise_budget("r-ann", {"model_calls": 2}, by="third")

        async def second() -> None:
            await two.service.raise_budget("r-ann", {"model_calls": 1}, by="second")
            just_after_it_reads(lab.processes[0], third)

        just_after_it_reads(lab.processes[0], second)
        await one.service.cancel("r-ann", by="bob")
        assert [record.by for record in lab.of("r-ann", r.BudgetRaised)] == ["second", "third"]


@virtual
async def test_a_command_whose_owner_is_gone_is_applied_by_who_asks_for_the_run_next(lab: Lab):
    desk = poor(lab)
    async with lab.app(desk) as one, lab.app(desk) as two:
        with pytest.raises(RunStopped):
            await one.run(desk, "ann")
        first = lab.processes[0]

        async def dies() -> None:
            await two.service.raise_budget("r-ann", {"model_calls": 1}, by="eve")
            first.die()

        just_after_it_reads(first, dies)
        lost = lab.loop.create_task(one.service.cancel("r-ann", by="bob"))
        await lab.pass_time(seconds=5)
        with pytest.raises(RunStopped):  # it was cancelled before its budget was raised
            await two.run(desk, "ann")
        assert [record.by for record in lab.of("r-ann", r.BudgetRaised)] == ["eve"]
        assert (await lab.journal.runs(run="r-ann"))[0].reason.startswith("cancelled")
        lost.cancel()


@virtual
async def test_a_command_to_a_completed_run_that_somebody_asks_for_is_applied(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(_run: Run, name: str) -> str:
        return name

    async with lab.app(desk) as one, lab.app(desk) as two:
        await one.run(desk, "ann")
        given = []

        async def cancelled() -> None:
            given.append(await two.service.cancel("r-ann", by="eve"))

        just_before_it_releases(lab.processes[0], cancelled)
        assert await one.run(desk, "ann") == "ann"
        assert given[0].elsewhere, "its sender relies on the first process"
        assert [record.by for record in lab.of("r-ann", r.CommandApplied)] == ["eve"]


@virtual
async def test_a_command_whose_sender_relied_on_a_process_that_died_is_applied_by_another_one(lab: Lab):
    """The owner of a stopped run applies commands to it. No process drives such a run, so none would find it abandoned."""
    desk = poor(lab)
    owner = lab.make(desk)
    await owner.open()
    with pytest.raises(RunStopped):
        await owner.run(desk, "ann")
    assert await owner.engine.leases.claim("r-ann") is not None
    async with lab.app(desk) as sender:
        given = await sender.service.raise_budget("r-ann", {"model_calls": 1}, by="eve")
        assert given.elsewhere
    await lab.bury(owner, lab.processes[0])
    async with lab.app(desk, recover=True) as app:
        await lab.pass_time(minutes=1)
        assert (await app.service.row("r-ann")).status == "completed"
    assert lab.sent == ["ann"]
