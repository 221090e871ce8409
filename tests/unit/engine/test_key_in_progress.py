"""A system that answers "in progress" for our key is waited for, by time, with honest pauses; no attempt is spent on it."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Happened, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.errors import KeyInProgress, NotSent, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_calls import answered
from tests.unit.engine.test_crashes import DiesAt, until_it_dies

FOREVER = Key.forever()


class Service:
    """Works on the first request for `busy` seconds. `asked` are the moments at which it was asked."""

    def __init__(self, lab: Lab, busy: float, **says: Any) -> None:
        self.lab = lab
        self.busy = busy
        self.says = says
        self.asked: list[float] = []

    def answer(self) -> str:
        assert current_operation().key
        self.asked.append(self.lab.loop.time())
        if self.asked[-1] - self.asked[0] < self.busy:
            raise KeyInProgress("still working", **self.says)
        return "done"

    @property
    def pauses(self) -> list[float]:
        return [later - sooner for sooner, later in itertools.pairwise(self.asked)]


def refunding(service: Service, key: Key = FOREVER, **clauses: Any) -> Any:
    @tool(idempotency=key, **clauses)
    async def refund(order: str) -> str:
        return service.answer()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    return desk


@virtual
async def test_a_system_that_works_for_minutes_is_waited_for_by_default(lab: Lab):
    service = Service(lab, busy=240)
    desk = refunding(service)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
    assert len(service.asked) > 4, "more often than it may be attempted"
    assert min(service.pauses) >= 1
    for pause, (low, high) in zip(service.pauses, [(1, 2), (2, 4), (4, 8), (8, 16), (15, 30), (15, 30)], strict=False):
        assert low - 0.01 <= pause <= high + 0.01
    assert len({wait.ms for wait in lab.of("r-ann", r.WaitScheduled)}) > 3, "they are drawn"


@virtual
async def test_once_its_time_is_over_a_person_is_asked_and_reads_for_how_long_it_said_so(lab: Lab):
    service = Service(lab, busy=10**6)
    desk = refunding(service, Key.forever(in_progress_patience=timedelta(minutes=2)))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match=r"working on it for 0:02:00, as it says itself; KeyInProgress: still"):
            await app.run(desk, "ann")
    assert 120 <= lab.loop.time() <= 150
    assert max(service.pauses) <= 30


@virtual
async def test_where_it_can_be_read_back_that_settles_it_first(lab: Lab):
    service = Service(lab, busy=10**6)

    @tool(idempotency=Key.forever(in_progress_patience=timedelta(seconds=20)))
    async def refund(order: str) -> str:
        return service.answer()

    @refund.verify(settle_window=timedelta(hours=1))
    async def look(operation: Operation[str]) -> Verdict[str]:
        return Happened("found")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "found"
    assert len(service.asked) > 2


@virtual
async def test_retry_after_is_honoured(lab: Lab):
    service = Service(lab, busy=60, retry_after=20)
    desk = refunding(service)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
    assert min(service.pauses) >= 20


@virtual
async def test_a_retry_after_beyond_the_patience_asks_a_person_in_time(lab: Lab):
    service = Service(lab, busy=10**6, retry_after=10**5)
    desk = refunding(service)
    async with lab.app(desk, hold_ms=10**9) as app:
        with pytest.raises(RunSuspended, match="as it says itself"):
            await app.run(desk, "ann")
    assert len(service.asked) == 1
    assert 300 <= lab.loop.time() <= 305


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "7"}], ids=["without", "with Retry-After"])
@virtual
async def test_a_status_can_be_declared_to_say_it(lab: Lab, headers: dict[str, str]):
    asked: list[float] = []

    @tool(idempotency=Key.forever(in_progress_statuses=(409,)))
    async def refund(order: str) -> str:
        assert current_operation().key
        asked.append(lab.loop.time())
        if len(asked) < 8:
            raise answered(409, **headers)
        return "done"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
    least = 7 if headers else 1
    assert all(later - sooner >= least for sooner, later in itertools.pairwise(asked))


@virtual
async def test_other_ends_cost_attempts_as_ever(lab: Lab):
    ends = iter([TimeoutError(), *[KeyInProgress()] * 6, TimeoutError(), KeyInProgress(), TimeoutError()])
    asked: list[float] = []

    @tool(idempotency=FOREVER, retry=Retry(attempts=3, base=timedelta(milliseconds=10)))
    async def refund(order: str) -> str:
        assert current_operation().key
        asked.append(lab.loop.time())
        raise next(ends)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="3 of 3 attempts were made"):
            await app.run(desk, "ann")
    assert len(asked) == 10
    assert lab.loop.time() < 240


@virtual
async def test_it_is_no_failure_of_the_system_for_others(lab: Lab):
    """A breaker that such answers open would hold up every other write of the tool."""
    service = Service(lab, busy=100)
    quick: list[float] = []

    @tool(idempotency=FOREVER)
    async def refund(order: str) -> str:
        if order == "bob":
            quick.append(lab.loop.time())
            return current_operation().key[:0] + "at once"
        return service.answer()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk) as app:
        slow = app.start(desk, "ann")
        await lab.pass_time(seconds=90)
        before = lab.loop.time()
        assert await app.run(desk, "bob") == "at once"
        assert quick == [before]
        assert await slow.result() == "done"


@virtual
async def test_a_gap_without_a_process_uses_up_no_patience(lab: Lab):
    service = Service(lab, busy=3600)
    desk = refunding(service)
    assert await until_it_dies(lab, desk, DiesAt("after_outcome", 3))
    await lab.pass_time(hours=2)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
    assert len(service.asked) == 4


@virtual
async def test_the_patience_survives_restarts(lab: Lab):
    service = Service(lab, busy=10**6)
    desk = refunding(service, Key.forever(in_progress_patience=timedelta(minutes=1)))
    for _ in range(30):
        async with lab.app(desk) as app:
            driving = asyncio.ensure_future(app.run(desk, "ann"))
            await asyncio.wait({driving}, timeout=7)
        await asyncio.gather(driving, return_exceptions=True)
        if lab.of("r-ann", r.OperationSettled):
            break
    assert len(lab.processes) > 2
    assert 60 <= lab.loop.time() <= 120
    assert lab.of("r-ann", r.OperationSettled)[-1].status == "unknown"


@virtual
async def test_an_answer_that_nothing_was_sent_ends_the_streak(lab: Lab):
    ends = iter([KeyInProgress(), NotSent("busy"), "done"])

    @tool(idempotency=FOREVER)
    async def refund(order: str) -> str:
        assert current_operation().key
        end = next(ends)
        if isinstance(end, str):
            return end
        raise end

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
