"""A run that stopped at a failed answer and was reopened agrees with its record: it goes on from the later answer."""

import contextlib

import pytest

from beforehand import Run, agent, tool
from beforehand.agent.tool import Tool
from beforehand.errors import ChildStopped, DecisionFailed, ReplayDiverged, RunStopped, RunSuspended
from beforehand.inspect.fork import fork
from beforehand.inspect.replay import replay
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt, until_it_dies


def noting(lab: Lab) -> Tool[[str], str]:
    @tool
    async def note(text: str) -> str:
        lab.sent.append(text)
        return text

    return note


@virtual
async def test_a_decision_that_was_asked_again(lab: Lab):
    down = [ConnectionError("down"), ConnectionError("down")]

    async def ask(question: str) -> str:
        if down:
            raise down.pop()
        return question

    note = noting(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await note("before")
        answer = await run.options(retry=Retry(attempts=1)).decide(ask, name)
        await note("after")
        return answer

    async with lab.app(desk) as app:
        for _ in range(2):
            with pytest.raises((DecisionFailed, RunStopped)):
                await app.resume("r-ann") if lab.records("r-ann") else await app.run(desk, "ann")
            found = await replay(app.service.reader, "r-ann", [desk])
            assert (found.agrees, found.end[:8]) == (True, "stopped:"), found.difference
        assert await app.resume("r-ann") == "ann"
        found = await replay(app.service.reader, "r-ann", [desk])
        await fork(app.engine, "r-ann", "note#2", "again", "eve")
        with pytest.raises(RunSuspended, match=r"r-ann/note#2 did the same"):
            await app.resume("again")
    assert (found.agrees, found.end) == (True, "completed"), found.difference
    assert lab.sent == ["before", "after"]


@virtual
async def test_a_child_that_was_joined_again(lab: Lab):
    note, down = noting(lab), [ValueError("not yet")]

    @agent(name="leaf")
    async def leaf(run: Run, name: str) -> str:
        await note(name)
        if down:
            raise down.pop()
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        child = await run.start(leaf, name)
        beside = note("beside")
        return list(await run.gather(run.join(child), beside))

    async with lab.app(desk, leaf, recover=True) as app:
        with pytest.raises(ChildStopped):
            await app.run(desk, "ann")
        assert (await replay(app.service.reader, "r-ann", [desk, leaf])).agrees
        await app.resume("r-ann~leaf.1")
        assert await app.resume("r-ann") == ["ann", "beside"]
        found = await replay(app.service.reader, "r-ann", [desk, leaf])
        of_child = await replay(app.service.reader, "r-ann~leaf.1", [desk, leaf])
    assert (found.agrees, found.end) == (True, "completed"), found.difference
    assert (of_child.agrees, of_child.end) == (True, "completed"), of_child.difference


@virtual
async def test_code_that_changed_since_then_diverges_all_the_same(lab: Lab):
    down = [ConnectionError("down")]

    async def ask(question: str) -> str:
        if down:
            raise down.pop()
        return question

    note, words = noting(lab), ["before"]

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await note(words[-1])
        return await run.options(retry=Retry(attempts=1)).decide(ask, name)

    async with lab.app(desk) as app:
        with pytest.raises(DecisionFailed):
            await app.run(desk, "ann")
        assert await app.resume("r-ann") == "ann"
        words.append("changed")
        found = await replay(app.service.reader, "r-ann", [desk])
    assert not found.agrees
    assert "changed" in found.difference


@virtual
async def test_an_answer_that_the_code_caught_stays_in_a_fork(lab: Lab):
    """An attempt came after it, so the reopening dropped nothing; the records of the fork have no attempts."""
    asked: list[str] = []

    async def ask(question: str) -> str:
        asked.append(question)
        raise ConnectionError("down")

    note = noting(lab)

    @tool
    async def pay(text: str) -> str:
        return text

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        with contextlib.suppress(DecisionFailed):
            await run.options(retry=Retry(attempts=1)).decide(ask, name)
        await pay("another" if lab.changed else "first")
        await note("after")

    assert await until_it_dies(lab, desk, DiesAt("before_send", 1))
    lab.changed = True
    async with lab.app(desk) as app:
        with pytest.raises(ReplayDiverged):
            await app.resume("r-ann")
    lab.changed = False
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.resume("r-ann")
        await app.service.resolve("r-ann/pay#1", "happened", by="eve", evidence="seen", result="first")
        await app.resume("r-ann")
        assert (await replay(app.service.reader, "r-ann", [desk])).agrees
        await fork(app.engine, "r-ann", "note#1", "again", "eve")
        found = await replay(app.service.reader, "again", [desk])
    assert (found.agrees, found.end) == (True, "a new step"), found.difference
    assert asked == ["ann"]
