"""Retry discipline: full jitter, budgets that survive a restart, the system's own word on when to come back."""

import asyncio
import itertools
from datetime import timedelta

import pytest

from beforehand import Key, Natural, NotSent, Rejected, Run, agent, current_operation, tool
from beforehand.errors import KeyInProgress, OperationFailed, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual


def failing(lab: Lab, error: Exception, **clauses: object):
    """A write that always fails the same way, and notes when it was tried."""
    tried: list[float] = []

    @tool(**clauses)
    async def send(to: str) -> str:
        current_operation().key  # noqa: B018 - reading it is what makes it deduped
        tried.append(lab.loop.time())
        raise error

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    return desk, tried


@virtual
async def test_pauses_are_drawn_by_full_jitter_between_nothing_and_a_doubling_ceiling(lab: Lab):
    retry = Retry(attempts=7, base=timedelta(seconds=1), cap=timedelta(seconds=8))
    desk, tried = failing(lab, NotSent("refused"), retry=retry)
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="7 of 7 attempts were made"):
            await app.run(desk, "ann")
    waits = lab.of("r-ann", r.WaitScheduled)
    pauses = [wait.ms for wait in waits]
    assert len(tried) == 7
    for pause, ceiling in zip(pauses, [1000, 2000, 4000, 8000, 8000, 8000], strict=True):
        assert 0 <= pause <= ceiling
    assert len(set(pauses)) > 3
    assert tried[-1] - tried[0] == pytest.approx(sum(pauses) / 1000, abs=0.1)


@virtual
async def test_retry_after_is_waited_for_and_costs_no_attempt(lab: Lab):
    desk, tried = failing(lab, NotSent("busy", retry_after=7), retry=Retry(attempts=2, elapsed=timedelta(seconds=50)))
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="the time for attempts is over"):
            await app.run(desk, "ann")
    assert len(tried) > 3
    assert all(later - sooner >= 7 for sooner, later in itertools.pairwise(tried))


@virtual
async def test_the_budget_of_attempts_survives_a_restart(lab: Lab):
    retry = Retry(attempts=5, base=timedelta(minutes=2), cap=timedelta(minutes=2), elapsed=timedelta(days=1))
    desk, tried = failing(lab, NotSent("refused"), retry=retry)
    for _ in range(8):
        async with lab.app(desk) as app:
            try:
                await app.run(desk, "ann")
            except RunSuspended:
                await lab.pass_time(minutes=3)
            except OperationFailed:
                break
    assert len(tried) == 5
    assert len(lab.processes) > 2
    assert len(lab.of("r-ann", r.AttemptStarted)) == 5


@virtual
async def test_the_budget_of_time_survives_a_restart(lab: Lab):
    retry = Retry(attempts=500, base=timedelta(minutes=2), cap=timedelta(minutes=2), elapsed=timedelta(minutes=10))
    desk, tried = failing(lab, NotSent("refused"), retry=retry)
    for _ in range(50):
        async with lab.app(desk) as app:
            try:
                await app.run(desk, "ann")
            except RunSuspended:
                await lab.pass_time(minutes=1)
            except OperationFailed:
                break
    waited = [wait.ms for wait in lab.of("r-ann", r.WaitScheduled)]
    assert sum(waited[:-1]) < 600_000 <= sum(waited)
    assert len(waited) == len(tried) == len(lab.of("r-ann", r.AttemptStarted))


@virtual
async def test_a_gap_between_two_processes_fails_nothing_that_was_never_sent(lab: Lab):
    refused = [True]
    tried: list[float] = []
    twice = asyncio.Event()

    @tool
    async def send(to: str) -> str:
        tried.append(lab.loop.time())
        if len(tried) == 2:
            twice.set()
        if refused:
            raise NotSent("refused")
        return "sent"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    app = lab.make(desk)
    await app.open()
    handle = app.start(desk, "ann")
    await twice.wait()
    await asyncio.sleep(0)
    await lab.bury(app, lab.processes[-1])
    await asyncio.gather(handle.result(), return_exceptions=True)
    await lab.pass_time(hours=13)
    refused.clear()
    async with lab.app(desk) as again:
        assert await again.run(desk, "ann") == "sent"
    assert len(tried) == 3


@pytest.mark.parametrize("jumps", ["journal", "both"])
@virtual
async def test_a_clock_that_jumps_fails_nothing_that_was_never_sent(lab: Lab, jumps: str):
    """As that of a laptop that slept between two looks at it."""
    tried: list[int] = []
    journal = lab.journal
    ahead = 0
    ticks, wall = journal._now, journal._wall
    journal._now = lambda: ticks() + ahead
    if jumps == "both":
        journal._wall = lambda: wall() + ahead

    @tool
    async def send(to: str) -> str:
        nonlocal ahead
        tried.append(1)
        if len(tried) < 3:
            lab.loop.call_later(0.001, jump)
            raise NotSent("refused")
        return "sent"

    def jump() -> None:
        nonlocal ahead
        ahead += 13 * 3_600_000

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, lease_ms=10**12) as app:
        assert await app.run(desk, "ann") == "sent"
    assert len(tried) == 3


@virtual
async def test_a_read_is_retried_and_its_budget_ends(lab: Lab):
    tried: list[int] = []

    @tool(effect="read", retry=Retry(attempts=3))
    async def look() -> int:
        tried.append(1)
        raise ConnectionResetError("gone")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await look()

    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="3 of 3 attempts were made; ConnectionResetError: gone"):
            await app.run(desk, "ann")
    assert len(tried) == 3
    assert lab.of("r-ann", r.ReadRecorded)[0].attempts == 3


@virtual
async def test_a_keyed_write_is_repeated_under_the_same_key_until_it_is_answered(lab: Lab):
    keys: list[str] = []

    @tool(idempotency=Key(ttl=timedelta(hours=24)))
    async def refund(order: str) -> str:
        keys.append(current_operation().key)
        if len(keys) == 1:
            raise TimeoutError("no answer")
        if len(keys) == 2:
            raise KeyInProgress("the first is still being worked on")
        return "r1"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "r1"
    assert len(keys) == 3
    assert len(set(keys)) == 1


@virtual
async def test_a_keyed_write_that_is_refused_after_an_ambiguous_attempt_is_not_failed(lab: Lab):
    tried: list[int] = []

    @tool(idempotency=Key.forever())
    async def refund(order: str) -> str:
        tried.append(current_operation().attempt)
        assert current_operation().key
        if len(tried) == 1:
            raise TimeoutError("no answer")
        raise Rejected("not enough money", code="402")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    await lab.until_suspended(desk, "ann")
    assert tried == [1, 2]


@virtual
async def test_where_the_service_stores_every_answer_a_refusal_is_the_keys_one_answer(lab: Lab):
    tried: list[int] = []

    @tool(idempotency=Key.forever(stores="all"))
    async def refund(order: str) -> str:
        tried.append(current_operation().attempt)
        assert current_operation().key
        if len(tried) == 1:
            raise TimeoutError("no answer")
        raise Rejected("not enough money", code="402")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(Rejected) as no:
            await refund(name)
        return no.value.code

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "402"


@virtual
async def test_a_key_is_not_used_again_once_it_may_be_forgotten(lab: Lab):
    tried: list[float] = []

    @tool(
        idempotency=Key(ttl=timedelta(minutes=10)),
        timeout=timedelta(seconds=30),
        retry=Retry(attempts=100, elapsed=timedelta(hours=2), base=timedelta(minutes=1), cap=timedelta(minutes=1)),
    )
    async def refund(order: str) -> str:
        tried.append(lab.loop.time())
        assert current_operation().key
        raise TimeoutError("no answer")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(hours=1)
        with pytest.raises(RunSuspended):
            await handle.result()
        history = await app.service.history("r-ann")
        assert history.operations["refund#1"].phase == "unknown"
    assert len(tried) > 3
    assert tried[-1] - tried[0] <= 10 * 60 - 30 - 60


@virtual
async def test_a_keyed_tool_that_never_reads_its_key_is_treated_as_plain_and_reported(
    lab: Lab, caplog: pytest.LogCaptureFixture
):
    @tool(idempotency=Key.forever())
    async def refund(order: str) -> str:
        lab.sent.append(order)
        raise TimeoutError("no answer")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk) as app:
        for name in ("ann", "bob"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
    assert lab.sent == ["ann", "bob"]
    assert caplog.text.count("never read current_operation().key") == 1


@virtual
async def test_a_natural_write_without_observe_is_repeated_only_within_its_time(lab: Lab):
    tried: list[float] = []

    @tool(
        idempotency=Natural(within=timedelta(minutes=3)),
        retry=Retry(attempts=100, elapsed=timedelta(hours=1), base=timedelta(minutes=1), cap=timedelta(minutes=1)),
    )
    async def close(ticket: str) -> str:
        tried.append(lab.loop.time())
        raise TimeoutError("no answer")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await close(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        handle = app.start(desk, "t1")
        await lab.pass_time(minutes=30)
        assert len(tried) > 1
        assert tried[-1] < 3 * 60
        with pytest.raises(RunSuspended):
            await handle.result()


@virtual
async def test_options_set_one_calls_retry_and_time_limit(lab: Lab):
    tried: list[float] = []

    @tool(effect="read")
    async def look() -> int:
        tried.append(current_operation().seconds_left)
        raise ConnectionResetError("gone")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        outcome = await look.options(retry=Retry(attempts=2), timeout=timedelta(seconds=9)).outcome()
        return outcome.status

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "failed"
    assert tried == [9.0, 9.0]
