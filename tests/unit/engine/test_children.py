"""A run starts child runs and joins them: each once, over crashes and replay, and with the same end each time."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run
from beforehand.engine.environment import CHILD_POINTS, POINTS
from beforehand.errors import (
    ChildStopped,
    RunSuspended,
)
from beforehand.model import records as r
from beforehand.model.children import child_id
from tests.unit.engine.family import CHILD, Family
from tests.unit.engine.interruptions import agrees
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt

RUN = "trip-ann"


@virtual
async def test_a_child_is_a_run_of_its_own_and_its_result_comes_back(lab: Lab):
    family = Family(lab)
    async with lab.app(*family.agents, recover=True) as app:
        assert await app.run(family.parent, "ann") == "ann: book hotel"
        assert await app.run(family.parent, "ann") == "ann: book hotel"
        rows = {row.run: row for row in await app.service.runs()}
    assert {run: (row.agent, row.status) for run, row in rows.items()} == {
        RUN: ("trip", "completed"),
        CHILD: ("booking", "completed"),
    }
    assert lab.sent == ["book hotel"]
    started = lab.of(CHILD, r.RunStarted)[0]
    assert started.parent == r.Parent(RUN, "start:booking#1")
    assert [type(one).__name__ for one in lab.records(RUN)].count("ChildStarted") == 1
    await agrees(lab, family.parent)


@virtual
async def test_the_parent_holds_no_process_while_it_waits(lab: Lab):
    family = Family(lab, child=_asks)
    async with lab.app(*family.agents, recover=True) as app:
        waiting = asyncio.ensure_future(app.run(family.parent, "ann"))
        await lab.pass_time(seconds=30)
        row = await app.service.row(RUN)
        assert (row.status, row.owner, row.due_ms) == ("suspended", None, None)
        assert row.reason == f"run {RUN} waits for its child {CHILD}"
        assert not waiting.done()
        await app.service.answer(f"{CHILD}/ask#1", "yes", by="bea")
        assert await waiting == "ann: yes"


@pytest.mark.parametrize("asks", [False, True])
@virtual
async def test_a_join_within_a_short_time_limit_gives_its_slot_to_the_child(lab: Lab, asks: bool):
    async def code(run: Run, name: str, booking: Any) -> str:
        hotel = await run.start(booking, "hotel", queue="one")
        try:
            async with run.timeout(timedelta(seconds=8)):
                return str(await run.join(hotel))
        except TimeoutError:
            return "in vain"

    family = Family(lab, code=code, child=_asks if asks else None)
    declared = {"queues": {"one": {"concurrency": 1}}}
    async with lab.app(*family.agents, queues=declared, recover=True) as app:
        await app.submit(family.parent, "ann", queue="one")
        await lab.pass_time(seconds=7)
        row = await app.service.row(RUN)
        assert (row.status, row.owner) == (("suspended", None) if asks else ("completed", None))
        await lab.pass_time(seconds=30)
        assert await app.run(family.parent, "ann") == ("in vain" if asks else "book hotel")
    assert len(lab.of(RUN, r.Claimed)) == 2


async def _asks(run: Run, what: str, book: Any) -> str:
    return str(await run.ask("May I?"))


@virtual
async def test_a_parent_is_woken_by_the_end_and_not_by_looking(lab: Lab):
    """After the child waits for a person, no record is added to the parent until the child has ended."""
    family = Family(lab, child=_asks)
    async with lab.app(*family.agents, recover=True) as app:
        waiting = asyncio.ensure_future(app.run(family.parent, "ann"))
        await lab.pass_time(seconds=30)
        before = len(lab.records(RUN))
        await lab.pass_time(minutes=20)
        assert len(lab.records(RUN)) == before
        await app.service.answer(f"{CHILD}/ask#1", "yes", by="bea")
        await waiting


@virtual
async def test_children_of_branches_have_names_of_their_own(lab: Lab):
    async def code(run: Run, name: str, booking: Any) -> str:
        started = [await run.start(booking, what) for what in ("car", "hotel")]
        named = await run.start(booking, "boat", step="boat")
        mapped = await run.map(lambda what: run.start(booking, what), ["a", "b"], id=str)
        every = [*started, named, *mapped]
        assert len({child.id for child in every}) == len(every)
        assert [child.id for child in (*started, named)] == [CHILD, "trip-ann~booking.2", "trip-ann~boat"]
        return ", ".join(await run.gather(*(run.join(child) for child in every)))

    family = Family(lab, code=code)
    async with lab.app(*family.agents, recover=True) as app:
        assert await app.run(family.parent, "ann") == "book car, book hotel, book boat, book a, book b"
    assert sorted(lab.sent) == sorted(["book car", "book hotel", "book boat", "book a", "book b"])
    await agrees(lab, family.parent)


def test_names_of_children_are_told_apart_and_never_too_long():
    names = [
        child_id(parent, step)
        for parent in ("a", "a~b.1", "x" * 200)
        for step in (
            "start:b#1",
            "start:b#2",
            "b",
            "b.1",
            "branch#1/start:b#1",
            "start:ä#1",
            "start:" + "n" * 200 + "#1",
        )
    ]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 200
    assert child_id("a", "start:b#1") == "a~b.1"


@pytest.mark.parametrize("point", [*CHILD_POINTS, *POINTS])
@virtual
async def test_each_child_is_one_run_whatever_the_place_of_death(lab: Lab, point: str):
    died = 0
    for nth in range(1, 8):
        alone = Lab()
        family, crash = Family(alone), DiesAt(point, nth)
        if not await _until_it_dies(alone, family, crash):
            break
        died += 1
        if nth % 2:
            alone.forget_what_rides()
        async with alone.app(*family.agents, recover=True) as app:
            assert await app.run(family.parent, "ann") == "ann: book hotel", (point, nth)
            assert {row.run for row in await app.service.runs()} == {RUN, CHILD}, (point, nth)
        assert alone.sent == ["book hotel"], (point, nth)
        assert len(alone.of(RUN, r.ChildStarted)) == 1
        await agrees(alone, family.parent)
    assert died > 0 or point in {"before_verify", "after_verify"}


async def _until_it_dies(lab: Lab, family: Family, crash: DiesAt) -> bool:
    """Drive the parent and its child in a process that may die; whether it did."""
    app = lab.make(*family.agents, crash=crash, recover=True)
    process = crash.process = lab.processes[-1]
    await app.open()
    driving = asyncio.ensure_future(app.run(family.parent, "ann"))
    await asyncio.wait({driving, crash.over}, return_when=asyncio.FIRST_COMPLETED)
    if process.dead:
        await lab.bury(app, process)
        await asyncio.gather(driving, return_exceptions=True)
        return True
    await driving
    await lab.exit(app)
    return False


# --- ends without a result -------------------------------------------------------------------------------------------


async def _fails(run: Run, what: str, book: Any) -> str:
    raise ValueError("no room")


@virtual
async def test_a_child_that_fails_is_an_error_of_the_join_the_same_on_replay(lab: Lab):
    seen: list[str] = []

    async def code(run: Run, name: str, booking: Any) -> str:
        hotel = await run.start(booking, "hotel")
        try:
            return str(await run.join(hotel))
        except ChildStopped as error:
            seen.append(f"{error.run} {error.reason}: {error}")
            await run.sleep(timedelta(minutes=10))
            return "none"

    family = Family(lab, code=code, child=_fails)
    async with lab.app(*family.agents, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(family.parent, "ann")
        await lab.pass_time(minutes=11)
        assert await app.run(family.parent, "ann") == "none"
    assert len(seen) > 1
    assert len(set(seen)) == 1
    assert seen[0].startswith(f"{CHILD} error: ")
    assert "ended without a result (error): ValueError: no room" in seen[0]
    assert f"beforehand resume {CHILD}" in seen[0]


@virtual
async def test_a_parent_that_is_resumed_joins_a_child_that_was_resumed_anew(lab: Lab):
    broken = True

    async def child(run: Run, what: str, book: Any) -> str:
        if broken:
            raise ValueError("no room")
        return str(await book(what))

    family = Family(lab, child=child)
    async with lab.app(*family.agents, recover=True) as app:
        with pytest.raises(ChildStopped):
            await app.run(family.parent, "ann")
        assert (await app.service.row(RUN)).status == "stopped"
        broken = False
        assert await app.resume(CHILD, by="bea") == "book hotel"
        assert await app.resume(RUN, by="bea") == "ann: book hotel"
    assert lab.sent == ["book hotel"]
