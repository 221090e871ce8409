"""A process that dies around a contradiction: no kill separates evidence on record from its review."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import RunSuspended
from beforehand.journal.port import Post, Posts, Write
from beforehand.model import records as r
from beforehand.people import answers as a
from beforehand.people.answering import answer
from tests.unit.engine.lab import Died, Lab, virtual
from tests.unit.engine.test_contradicted import OPERATION, paying, result


class Dies:
    """A journal whose process dies at its n-th write from now on, before or after it is stored."""

    def __init__(self, process: Any, nth: int, *, stored: bool) -> None:
        self._process, self._journal, self._stored = process, process.journal, stored
        self.left = nth

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._journal, name)
        if name != "commit":
            return method

        async def write(*args: Any) -> Any:
            if not isinstance(args[0], (Write, Post, Posts)):
                return await method(*args)
            self.left -= 1
            if self.left == 0 and not self._stored:
                self._process.die()
                raise Died(name)
            found = await method(*args)
            if self.left == 0:
                self._process.die()
                raise Died(name)
            return found

        return write


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, 9))
@virtual
async def test_wherever_a_process_dies_a_contradiction_on_record_is_open_or_answered(lab: Lab, nth: int, stored: bool):
    desk, _ = paying(lab)
    app = lab.make(desk)
    process = lab.processes[-1]
    await app.open()
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann")
    await app.service.deliver("P-ann", ArrivedAnswer("m1", result=result("R-1")))
    await app.run(desk, "ann")
    process.journal = dying = Dies(process, nth, stored=stored)  # type: ignore[assignment]  # the same methods
    try:
        await app.service.deliver("P-ann", ArrivedAnswer("m2", "failed", why="bounced"))
        await answer(app.service, OPERATION, a.DidNotHappenAnswer(), by="bea")
        await app.service.deliver("P-ann", ArrivedAnswer("m3", "failed", why="bounced again"))
    except Died:
        await lab.bury(app, process)
    else:
        assert dying.left > 0
        await lab.exit(app)
    counted = len(lab.of("p-ann", r.Contradicted))
    async with lab.app(desk, recover=True) as other:
        opened = await lab.journal.entries("contradicted/")
        answered = [one for one in opened if one.key.startswith("answered/")]
        assert len(opened) - len(answered) == counted
        last = max((int(one.key.partition("/")[2]) for one in answered), default=0)
        waits = await other.service.reader.contradictions()
        assert [one.number for one in waits] == ([counted] if counted > last else [])
        await lab.pass_time(minutes=1)  # what was stored and not brought to the run yet is brought to it
        told = [one.entry for one in lab.of("p-ann", r.CommandApplied) if one.command == "review"]
        assert len(told) == len(answered)


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", [1, 2])
@virtual
async def test_no_kill_separates_a_late_report_from_its_review(lab: Lab, nth: int, stored: bool):
    """A person has said that it did not happen, its call returns after all, and the process dies at a write."""
    settled = asyncio.Event()

    @tool(timeout=timedelta(seconds=5))
    async def pay(name: str) -> str:
        while not settled.is_set():
            with suppress(asyncio.CancelledError):
                await settled.wait()
        return "R-1"

    @tool(timeout=timedelta(hours=1))
    async def write(name: str) -> None:
        await asyncio.sleep(600)

    async def paying() -> None:
        await pay.outcome("ann")

    @agent(run_id="p-{name}", tools=[pay, write])
    async def desk(run: Run, name: str) -> None:
        await run.gather(paying(), write("ann"))

    app = lab.make(desk)
    process = lab.processes[-1]
    await app.open()
    running = asyncio.ensure_future(app.run(desk, "ann"))
    await lab.pass_time(seconds=60)
    await app.service.resolve("p-ann/~1/pay#1", "did_not_happen", by="bea")
    assert lab.of("p-ann", r.Resolved)
    process.journal = Dies(process, nth, stored=stored)  # type: ignore[assignment]  # the same methods
    settled.set()
    await lab.pass_time(seconds=30)
    running.cancel()
    await lab.bury(app, process)
    reports, news = lab.of("p-ann", r.LateReport), lab.of("p-ann", r.Contradicted)
    assert len(reports) == len(news)
    async with lab.app(desk, recover=True) as other:
        await lab.pass_time(minutes=20)
        waits = await other.service.reader.contradictions()
        assert len(waits) == len(lab.of("p-ann", r.LateReport))
