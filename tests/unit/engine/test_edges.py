"""Limits and leftovers: results that are too large, records that are refused, leases that are hard to give back."""

import asyncio

import pytest

from holdfast import Run, agent, tool
from holdfast.engine import ends
from holdfast.errors import JournalUnavailable, RecordRefused, ResultLost
from holdfast.model import records as r
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_a_result_that_is_too_large_is_lost_and_the_effect_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ends, "RESULT_LIMIT", 100)

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


@virtual
async def test_a_record_that_the_journal_refuses_is_an_error_of_that_step(lab: Lab):
    @tool
    async def send(name: str) -> str:
        lab.sent.append(name)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        lab.journal.fail_next(1, RecordRefused("too large"))
        with pytest.raises(RecordRefused):
            await send(name)
        return "refused"

    async with lab.app(desk) as app:
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
    """From the third call on, every call of the journal fails for a while."""
    lab.journal._faults.clear()
    for n in range(3, 60):
        lab.journal.fail_next(n)
    await lab.pass_time(seconds=seconds)
    lab.journal._faults.clear()
