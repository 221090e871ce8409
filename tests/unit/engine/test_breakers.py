"""The circuit breaker and the shared retry budget of a tool, which all processes on a journal see."""

import asyncio
import itertools
from datetime import timedelta

import msgspec
import pytest

from beforehand import Ambiguous, CannotTell, Happened, Natural, NotSent, Operation, Run, Verdict, agent, tool
from beforehand.engine import breaker
from beforehand.errors import OperationFailed
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

STUBBORN = Retry(
    attempts=100, elapsed=timedelta(hours=5), base=timedelta(milliseconds=1), cap=timedelta(milliseconds=2)
)


class Service:
    """A system that is down until a moment."""

    def __init__(self, lab: Lab, down_until_s: float) -> None:
        self.lab = lab
        self.down_until_s = down_until_s
        self.asked: list[float] = []

    def ask(self) -> str:
        self.asked.append(self.lab.loop.time())
        if self.lab.loop.time() < self.down_until_s:
            raise NotSent("down")
        return "ok"


def asking(service: Service):
    @tool(retry=STUBBORN)
    async def send(to: str) -> str:
        return service.ask()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    return desk


@virtual
async def test_an_open_breaker_makes_nothing_failed_and_closes_again(lab: Lab):
    service = Service(lab, down_until_s=100)
    desk = asking(service)
    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "ok"
        assert app.engine.breakers.wait_ms("send", retry=False) == 0
    assert len(service.asked) < 20
    gaps = [later - sooner for sooner, later in itertools.pairwise(service.asked)]
    assert max(gaps) > 30
    assert [settled.status for settled in lab.of("r-ann", r.OperationSettled)] == ["succeeded"]


@virtual
async def test_two_processes_share_the_breaker_through_the_journal(lab: Lab):
    service = Service(lab, down_until_s=10**9)
    desk = asking(service)
    async with lab.app(desk, hold_ms=10**9) as app, lab.app(desk, hold_ms=10**9) as other:
        first = app.start(desk, "ann")
        await lab.pass_time(seconds=20)
        asked = len(service.asked)
        second = other.start(desk, "bob")
        await lab.pass_time(seconds=1)
        assert len(service.asked) - asked <= 1
        service.down_until_s = 0
        assert [await first.result(), await second.result()] == ["ok", "ok"]


@virtual
async def test_many_runs_meeting_one_outage_do_not_storm_it(lab: Lab):
    service = Service(lab, down_until_s=60)
    desk = asking(service)
    async with lab.app(desk, hold_ms=10**9) as app:
        handles = [app.start(desk, f"c{number}") for number in range(60)]
        await asyncio.gather(*(handle.result() for handle in handles))
    assert len(service.asked) <= 60 + 60 + breaker.BUCKET + 60 * 1000 * breaker.REFILL_PER_MS


@virtual
async def test_verification_does_not_pass_through_the_breaker(lab: Lab):
    checked: list[float] = []

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise Ambiguous("no answer")

    @send.verify(settle_window=timedelta(minutes=10), every=timedelta(seconds=2))
    async def find(operation: Operation[str]) -> Verdict[str]:
        checked.append(lab.loop.time())
        return Happened("found") if lab.loop.time() > 20 else CannotTell("lag")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        for _ in range(20):
            await app.engine.breakers.failed("send")
        assert app.engine.breakers.wait_ms("send", retry=False) == 60_000
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(app.run(desk, "never"), 1)
        assert lab.sent == []
        await lab.pass_time(seconds=60)
        await app.run(desk, "never")
    assert lab.sent == ["never"]
    assert len(checked) >= 1


@virtual
async def test_a_success_after_failures_closes_the_breaker_for_all(lab: Lab):
    service = Service(lab, down_until_s=0)
    desk = asking(service)
    async with lab.app(desk) as app, lab.app(desk) as other:
        for _ in range(4):
            await app.engine.breakers.failed("send")
        assert await app.run(desk, "ann") == "ok"
        await other.engine.breakers.refresh()
        await other.engine.breakers.failed("send")
        assert other.engine.breakers.wait_ms("send", retry=False) == 0


@virtual
async def test_two_processes_that_count_at_once_lose_no_count(lab: Lab):
    desk = asking(Service(lab, 0))
    async with lab.app(desk) as app, lab.app(desk) as other:
        await asyncio.gather(*(one.engine.breakers.failed("send") for one in (app, other) * 2))
        await app.engine.breakers.refresh()
        assert app.engine.breakers.states["send"][0].failures == 4


@virtual
async def test_a_read_that_fails_opens_the_breaker_too(lab: Lab):
    @tool(effect="read", retry=Retry(attempts=6, base=timedelta(0), cap=timedelta(0)))
    async def look() -> int:
        raise ConnectionResetError("gone")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await look()

    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed):
            await app.run(desk, "ann")
        assert app.engine.breakers.wait_ms("look", retry=False) > 0


def test_the_pause_doubles_while_probes_fail_and_has_an_end():
    state, pauses = breaker.CLOSED, []
    for _ in range(20):
        state = breaker.after_failure(state, 1000)
        pauses.append(breaker.wait_ms(state, 1000, retry=False))
    assert pauses[: breaker.FAILURES_TO_OPEN] == [0, 0, 0, 0, 1000]
    assert pauses[4:12] == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]


def test_what_a_clock_noted_that_was_set_back_since_holds_nothing_up():
    """A process whose clock was six hours ahead opened the breaker, and spent the bucket."""
    ahead = 6 * 3_600_000
    state = breaker.CLOSED
    for _ in range(6):
        state = breaker.after_failure(state, ahead)
    state = msgspec.structs.replace(state, tokens=0.0)
    assert breaker.wait_ms(state, ahead, retry=True) > 0
    assert breaker.wait_ms(state, 0, retry=True) == 0
    assert breaker.credible(state, 0) == breaker.CLOSED


def test_a_machine_whose_clock_is_a_little_behind_knows_the_longest_pause_of_another():
    state = breaker.CLOSED
    for _ in range(20):
        state = breaker.after_failure(state, 50_000)
    assert breaker.credible(state, 20_000) == state
    assert breaker.wait_ms(state, 20_000, retry=False) == breaker.LONGEST_PAUSE_MS


def test_failures_far_apart_do_not_open_it():
    state = breaker.CLOSED
    for number in range(20):
        state = breaker.after_failure(state, number * (breaker.FORGET_MS + 1))
    assert state.failures == 1
    assert breaker.wait_ms(state, 10**9, retry=False) == 0


def test_retries_spend_from_a_bucket_that_refills_slowly():
    state = breaker.CLOSED
    for _ in range(int(breaker.BUCKET)):
        assert breaker.wait_ms(state, 5, retry=True) == 0
        state = breaker.after_retry(state, 5)
    wait = breaker.wait_ms(state, 5, retry=True)
    assert 0 < wait <= 501
    assert breaker.wait_ms(state, 5 + wait, retry=True) == 0
    assert breaker.wait_ms(state, 5, retry=False) == 0
    assert breaker.after_retry(state, 5).tokens == 0


@pytest.mark.parametrize("took_ms", [0, 500, 900])
def test_the_bucket_refills_while_a_call_runs_that_fails(took_ms: int):
    """Two tokens come each second, and each of these seconds has one retry."""
    state = breaker.CLOSED
    for second in range(100):
        state = breaker.after_failure(breaker.after_retry(state, second * 1000), second * 1000 + took_ms)
    assert breaker.tokens_now(state, 100_000) == breaker.BUCKET


def test_failures_on_either_side_of_an_open_breaker_are_failures_in_a_row():
    state, now = breaker.CLOSED, 0
    for _ in range(breaker.FAILURES_TO_OPEN + 12):
        state = breaker.after_failure(state, now)
        now += max(1, breaker.wait_ms(state, now, retry=False))
    assert breaker.wait_ms(breaker.after_failure(state, now), now, retry=False) == breaker.LONGEST_PAUSE_MS


def impatient(service: Service, **declared: object):
    """A tool with little time for its attempts, and an agent that calls it."""
    retry = Retry(attempts=100, elapsed=timedelta(seconds=20), base=timedelta(0), cap=timedelta(milliseconds=2))

    @tool(retry=retry, **declared)
    async def send(to: str) -> str:
        return service.ask()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    return send, desk


@virtual
async def test_time_behind_an_open_breaker_is_no_time_for_attempts(lab: Lab):
    service = Service(lab, down_until_s=300)
    _, desk = impatient(service)
    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "ok"
    assert any(wait.why == "breaker" for wait in lab.of("r-ann", r.WaitScheduled))


@virtual
async def test_nor_is_it_where_the_world_is_read_back_meanwhile_or_the_process_dies(lab: Lab):
    service = Service(lab, down_until_s=300)

    class Unsure(Service):
        def ask(self) -> str:
            try:
                return service.ask()
            except NotSent as error:
                raise Ambiguous("no answer") from error

    send, desk = impatient(Unsure(lab, 0), idempotency=Natural(within=timedelta(hours=9)))

    @send.verify(settle_window=timedelta(hours=2), every=timedelta(seconds=7), deadline=timedelta(hours=9))
    async def find(operation: Operation[str]) -> Verdict[str]:
        return CannotTell("closed")

    app = lab.make(desk)
    process = lab.processes[-1]
    await app.open()
    app.start(desk, "ann")
    await lab.pass_time(seconds=40)
    await lab.bury(app, process)
    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "ok"


@virtual
async def test_time_in_front_of_an_open_breaker_still_counts(lab: Lab):
    """Where the system answers slowly, and not behind the breaker, the time for attempts ends."""

    @tool(retry=Retry(attempts=100, elapsed=timedelta(seconds=20), base=timedelta(0), cap=timedelta(milliseconds=2)))
    async def crawl(to: str) -> str:
        await asyncio.sleep(3)
        raise NotSent("down")

    @agent(run_id="r-{name}")
    async def slow(run: Run, name: str) -> str:
        return await crawl(name)

    async with lab.app(slow, hold_ms=10**9) as app:
        with pytest.raises(OperationFailed, match="the time for attempts is over"):
            await app.run(slow, "bob")
    assert len(lab.of("r-bob", r.AttemptStarted)) in range(7, 10)
