"""A former owner of a run that cannot be observed, as in another container, and gives signs of life or none."""

import asyncio
from typing import Any

import pytest

from beforehand import CannotTell, Operation, Run, agent, tool
from beforehand.errors import RunSuspended
from beforehand.journal.port import WorkerState
from tests.unit.engine.lab import Lab, virtual


def hanging(lab: Lab) -> Any:
    """An agent whose one write hangs in the first process, and whose verifier can never tell."""

    @tool
    async def deploy(version: str) -> str:
        lab.sent.append(version)
        await lab.pass_time(days=2)
        return version

    @deploy.verify
    async def deployed(operation: Operation[str], version: str) -> CannotTell:
        return CannotTell("the cluster does not say")

    @agent(run_id="r-{name}", tools=[deploy])
    async def desk(run: Run, name: str) -> str:
        return await deploy("v1")

    return desk


def elsewhere(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes lie in different containers: no one sees whether another one lives, only its signs of life."""
    seen = lab.journal._fate

    def unseen(worker: str) -> WorkerState:
        state = seen(worker)
        return WorkerState("unknown", state.silent_ms, state.pid) if state.fate == "alive" else state

    monkeypatch.setattr(lab.journal, "_fate", unseen)


async def taken_over(lab: Lab, desk: Any) -> tuple[Any, Any]:
    """The first process makes the call, and stands still until its lease is over."""
    first = lab.make(desk)
    await first.open()
    first.start(desk, "ann")
    await lab.pass_time(seconds=2)
    process = lab.processes[-1]
    process.dead = True
    await lab.pass_time(minutes=1)
    return first, process


@virtual
async def test_one_that_renews_its_lease_and_never_reports_is_named_to_a_person(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    desk = hanging(lab)
    elsewhere(lab, monkeypatch)
    first, process = await taken_over(lab, desk)

    async def beats() -> None:
        while True:
            await lab.journal.beat(lab.journal._workers[process.worker][0], 15_000)
            await lab.pass_time(seconds=5)

    async with lab.app(desk) as app:
        began = lab.loop.time()
        taken = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        beating = asyncio.ensure_future(beats())  # it goes on, without the run
        with pytest.raises(RunSuspended, match="renews its lease and has not reported how its call ended"):
            await taken
        assert 600 <= lab.loop.time() - began < 1000, "after the declared time, at the next look"
    beating.cancel()
    await lab.bury(first, process)
    assert lab.sent == ["v1"]


@virtual
async def test_one_that_is_silent_for_long_counts_as_over(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    desk = hanging(lab)
    elsewhere(lab, monkeypatch)
    first, process = await taken_over(lab, desk)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended) as waits:
            await app.run(desk, "ann")
    await lab.bury(first, process)
    assert "renews its lease" not in str(waits.value)
    assert lab.sent == ["v1"]
