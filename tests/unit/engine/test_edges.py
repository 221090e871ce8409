"""Limits and leftovers: results that are too large, records that are refused, leases that are hard to give back."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Ambiguous, CannotTell, Operation, Run, Verdict, agent, tool
from beforehand.engine.exceptions import call_end
from beforehand.errors import JournalUnavailable, RecordRefused, ResultLost, RunStopped, RunSuspended
from beforehand.journal.port import HintRequest, Write
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_a_result_that_is_too_large_is_lost_and_the_effect_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(call_end, "RESULT_LIMIT", 100)

    @tool
    async def fetch(name: str) -> str:
        lab.sent.append(name)
        return "x" * 101

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(ResultLost, match="the limit is 100: store it elsewhere"):
            await fetch(name)
        return "went on"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "went on"
    assert lab.of("r-ann", r.OperationSettled)[0].status == "succeeded"


@pytest.mark.parametrize("how", ["alone", "with a business key", "under a shared budget"])
@virtual
async def test_a_record_that_the_journal_refuses_is_an_error_of_that_step(lab: Lab, how: str):
    @tool(claim="name" if how == "with a business key" else ())
    async def send(name: str) -> str:
        lab.sent.append(name)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(RecordRefused):
            await send(name)
        return "refused"

    async def refusing(write: Write, commit: Commit) -> None:
        if any(isinstance(decode(row.body), r.AttemptStarted) for row in write.rows):
            raise RecordRefused("too large")
        await commit(write)

    shared = DeclaredLimits(budgets={"all": SharedBudget(effects=5)}) if how == "under a shared budget" else None
    async with lab.app(desk, queues=shared) as app:
        intercept(lab.processes[0], Write, refusing)
        assert await app.run(desk, "ann") == "refused"
    assert lab.sent == []
    assert lab.of("r-ann", r.AttemptStarted) == []


@virtual
async def test_a_lease_is_given_back_as_soon_as_the_journal_takes_it(lab: Lab, caplog: pytest.LogCaptureFixture):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return str(await run.uuid())

    async with lab.app(desk) as app, lab.app(desk) as other:
        failing = asyncio.create_task(_fail_while(lab, seconds=5))
        with pytest.raises(JournalUnavailable):
            await app.run(desk, "ann")
        await failing
        await lab.pass_time(seconds=3)
        assert (await other.service.row("r-ann")).owner is None
        assert await other.run(desk, "ann")
    assert "the lease of run r-ann could not be given back" in caplog.text


async def _fail_while(lab: Lab, seconds: int) -> None:
    """From the second call on, every call of the journal fails for a while."""
    lab.journal._faults.clear()
    for n in range(2, 60):
        lab.journal.fail_next(n)
    await lab.pass_time(seconds=seconds)
    lab.journal._faults.clear()


@virtual
async def test_more_runs_are_due_than_are_recovered_at_once(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.sleep(timedelta(minutes=5))
        await asyncio.sleep(1)
        return name

    names = [f"n{number}" for number in range(25)]
    async with lab.app(desk) as app:
        for name in names:
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
    await lab.pass_time(minutes=5)
    async with lab.app(desk, recover=True) as app:
        await lab.pass_time(minutes=1)
        rows = await app.service.runs(status="completed")
    assert sorted(row.run for row in rows) == sorted(f"r-{name}" for name in names)


@virtual
async def test_a_cancelled_run_does_not_go_on_reading_the_world_back(lab: Lab):
    read: list[float] = []

    @tool
    async def send(name: str) -> str:
        lab.sent.append(name)
        raise Ambiguous("no answer")

    @send.verify(settle_window=timedelta(minutes=10), every=timedelta(seconds=5))
    async def find(operation: Operation[str]) -> Verdict[str]:
        read.append(lab.loop.time())
        return CannotTell()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=12)
        await app.service.cancel("r-ann", by="eve")
        with pytest.raises(RunStopped):
            await handle.result()
        before = len(read)
        await lab.pass_time(minutes=1)
        assert len(read) == before
    assert lab.of("r-ann", r.RunStoppedRecord)[0].open == ("send#1",)


@virtual
async def test_a_hint_that_others_keep_changing_is_given_up_on(lab: Lab):
    @tool
    async def send(name: str) -> str:
        return name

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async def never(request: HintRequest, _commit: Commit) -> bool:
        lab.sent.append(request.name)
        return False

    async with lab.app(desk) as app:
        intercept(lab.journal, HintRequest, never)
        await app.engine.breakers.failed("send")
    assert lab.sent == ["breaker/send"] * 3
