"""An outage of a service: a write that can be repeated safely goes on for ten minutes, and only then a person is asked."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import DidNotHappen, Key, Natural, NotSent, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.errors import OperationFailed, RunSuspended
from beforehand.inspect.explain import explain
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

TIMED_OUT, REFUSED, BUSY = TimeoutError("no answer"), ConnectionRefusedError("down"), NotSent("busy")
BEYOND = 10**9


class Service:
    """A service that is out until a moment of the lab's clock, in seconds. `asked` are the moments of the requests."""

    def __init__(self, lab: Lab, back_at: float, error: Exception, takes: float = 0) -> None:
        self.lab, self.back_at, self.error, self.takes = lab, back_at, error, takes
        self.asked: list[float] = []

    async def answer(self) -> str:
        current_operation().key  # noqa: B018 - reading it is what makes it deduped
        self.asked.append(self.lab.loop.time())
        await asyncio.sleep(self.takes)
        if self.lab.loop.time() < self.back_at:
            raise self.error
        return "paid"


def desk_of(service: Service, *, looks: bool = False, **clauses: Any) -> Any:
    @tool(**clauses)
    async def pay(order: str) -> str:
        return await service.answer()

    if looks:

        @pay.verify(settle_window=timedelta(seconds=2))
        async def look(operation: Operation[str]) -> Verdict[str]:
            return DidNotHappen()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    return desk


SAFE = {
    "keyed": {"idempotency": Key.forever()},
    "natural": {"idempotency": Natural()},
    "verifiable": {"looks": True},
}


@pytest.mark.parametrize("error", [TIMED_OUT, REFUSED, BUSY], ids=["no answer", "refused", "busy"])
@pytest.mark.parametrize("kind", SAFE)
@virtual
async def test_an_outage_of_minutes_asks_no_person(lab: Lab, kind: str, error: Exception):
    service = Service(lab, back_at=420, error=error)
    desk = desk_of(service, **SAFE[kind])
    async with lab.app(desk, recover=True, recover_every_ms=1000) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(minutes=10)
        assert (await app.service.row("r-ann")).status == "completed"
        assert handle.done()
    assert 420 <= service.asked[-1] <= 560


@pytest.mark.parametrize("takes", [0, 4], ids=["answers at once", "takes its time"])
@virtual
async def test_a_caller_is_held_no_longer_than_the_setting_says(lab: Lab, takes: float):
    service = Service(lab, back_at=BEYOND, error=TIMED_OUT, takes=takes)
    desk = desk_of(service, idempotency=Key.forever())
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="full jitter before the next attempt"):
            await app.run(desk, "ann")
        assert 10 < lab.loop.time() <= takes + 30 + takes, "the first call, then that long, and the call under way"
        assert len(service.asked) > 4
        next_attempt = lab.of("r-ann", r.WaitScheduled)[-1].until
        assert (await app.service.row("r-ann")).due_ms == next_attempt
        found = await explain(app.service.reader, "r-ann/pay#1", Now("", 0, lab.journal._wall(), 0))
        assert (found.move, found.rule, found.due) == ("wait", "full jitter before the next attempt", next_attempt)


def charged(lab: Lab) -> list[int]:
    """The pauses that count: those behind an open breaker do not."""
    return [wait.ms for wait in lab.of("r-ann", r.WaitScheduled) if not wait.shut]


@pytest.mark.parametrize("kind", SAFE)
@virtual
async def test_after_ten_minutes_of_calls_and_pauses_a_person_is_asked(lab: Lab, kind: str):
    service = Service(lab, back_at=BEYOND, error=BUSY)
    desk = desk_of(service, **SAFE[kind])
    async with lab.app(desk, recover=True, recover_every_ms=1000) as app:
        app.start(desk, "ann")
        await lab.pass_time(minutes=9)
        assert (await app.service.row("r-ann")).status in {"running", "suspended"}
        await lab.pass_time(minutes=8)
        row = await app.service.row("r-ann")
        assert row.status == "stopped"
        assert "the time for attempts is over (0:10:00); NotSent: busy" in row.reason
    pauses = charged(lab)
    assert sum(pauses[:-1]) < 600_000 <= sum(pauses)
    assert 30_000 < max(pauses) <= 120_000
    assert len(service.asked) < 30, "it is not pressed while it is out"


@virtual
async def test_a_keyed_write_that_may_have_landed_is_a_question_once_its_time_is_over(lab: Lab):
    service = Service(lab, back_at=BEYOND, error=TIMED_OUT)
    desk = desk_of(service, idempotency=Key.forever())
    async with lab.app(desk, recover=True, recover_every_ms=1000) as app:
        app.start(desk, "ann")
        await lab.pass_time(minutes=17)
        _, operation = await app.service.operation("r-ann/pay#1")
    assert operation.phase == "unknown"
    assert operation.reason == "the time for attempts is over (0:10:00); TimeoutError: no answer"


@pytest.mark.parametrize("dies_in", ["a pause", "a call"])
@virtual
async def test_time_in_which_no_worker_lives_does_not_count(lab: Lab, dies_in: str):
    day = 86_400
    service = Service(lab, back_at=day + 500, error=TIMED_OUT, takes=10)
    desk = desk_of(service, idempotency=Key.forever())
    app = lab.make(desk)
    await app.open()
    app.start(desk, "ann")
    await lab.pass_time(seconds=5 if dies_in == "a call" else 10.01)
    await lab.bury(app, lab.processes[-1])
    await lab.pass_time(days=1)
    async with lab.app(desk, recover=True, recover_every_ms=1000) as again:
        await lab.pass_time(seconds=600)
        assert (await again.service.row("r-ann")).status == "completed"


@virtual
async def test_a_pause_in_which_the_run_is_suspended_counts(lab: Lab):
    """Each app is closed once the run is suspended, and another one comes back when the next attempt is due."""
    service = Service(lab, back_at=BEYOND, error=BUSY)
    desk = desk_of(service, idempotency=Key.forever())

    async def drive() -> int:
        async with lab.app(desk) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, "ann")
            return (await app.service.row("r-ann")).due_ms or 0

    while sum(charged(lab)) < 600_000:
        await lab.pass_time(milliseconds=await drive() - lab.journal._wall())
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="the time for attempts is over"):
            await app.run(desk, "ann")
    assert len(lab.processes) > 5


@pytest.mark.parametrize("clauses", [{}, {"idempotency": Key.forever(), "retry": Retry()}], ids=["plain", "declared"])
@virtual
async def test_a_plain_write_and_a_declared_policy_stay_as_they_are(lab: Lab, clauses: dict[str, Any]):
    service = Service(lab, back_at=BEYOND, error=BUSY)
    desk = desk_of(service, **clauses)
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="4 of 4 attempts were made"):
            await app.run(desk, "ann")
    assert service.asked[-1] - service.asked[0] < 2
