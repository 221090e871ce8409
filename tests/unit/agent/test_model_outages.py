"""A model that does not answer for a while: it is asked again, and a failure is no final answer."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from beforehand import Key, Run, TransactionAborted, agent, current_operation, tool
from beforehand.agent.model_decisions import RetryBudget, is_outage
from beforehand.errors import DecisionFailed, OperationFailed, RunStopped, RunSuspended
from beforehand.journal.memory import MemoryJournal
from beforehand.model import records as r
from beforehand.policies import DECISION_RETRY, Retry
from beforehand.testing.clock import EPOCH_MS, SeededRng, ticks_ms
from tests.unit.engine.lab import Lab, virtual

MINUTE = timedelta(minutes=1)


class Model:
    """A model that is out until a moment of the lab's clock, in seconds. It counts how often it was asked."""

    def __init__(self, lab: Lab, back_at: float, error: Callable[[], Exception] = ConnectionError) -> None:
        self.lab = lab
        self.back_at = back_at
        self.error = error
        self.asked: list[float] = []

    @property
    def rule(self) -> Callable[[str], Awaitable[int]]:
        async def rule(ticket: str) -> int:
            self.asked.append(self.lab.loop.time())
            if self.lab.loop.time() < self.back_at:
                raise self.error()
            return 7

        return rule


def desk_of(model: Model, **settings: Any) -> Any:
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await run.options(**settings).decide(model.rule, name)

    return desk


@virtual
async def test_an_outage_of_minutes_loses_no_run(lab: Lab, seed: int):
    model = Model(lab, back_at=500)
    desk = desk_of(model)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == 7
    pauses = [later - earlier for earlier, later in zip(model.asked, model.asked[1:], strict=False)]
    assert 500 <= model.asked[-1] <= 530
    assert max(pauses) <= 30
    assert len(model.asked) < 120, f"it is not pressed while it is out (seed {seed})"


@virtual
async def test_a_failure_is_no_final_answer_and_reopening_asks_again(lab: Lab):
    model = Model(lab, back_at=3600)
    desk = desk_of(model)
    async with lab.app(desk) as app:
        with pytest.raises(DecisionFailed) as failed:
            await app.run(desk, "ann")
        assert (failed.value.run, failed.value.step) == ("r-ann", "rule#1")
        assert failed.value.next_step == "beforehand resume r-ann"
        assert 600 <= lab.loop.time() <= 630, "ten minutes, and the try that was under way"
        with pytest.raises(RunStopped):
            await app.run(desk, "ann")
        asked = len(model.asked)
        with pytest.raises(DecisionFailed):
            await app.resume("r-ann")
        assert len(model.asked) > asked, "it asked again, and the outage goes on"
        await lab.pass_time(hours=1)
        assert await app.resume("r-ann") == 7
        assert await app.run(desk, "ann") == 7
    answers = [one.status for one in lab.of("r-ann", r.DecisionRecorded)]
    assert answers == ["failed", "failed", "succeeded"]


@virtual
async def test_code_that_catches_the_failure_goes_on_and_a_replay_takes_the_same_way(lab: Lab):
    model, told = Model(lab, back_at=10**6), list[str]()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await run.options(retry=Retry(attempts=2)).decide(model.rule, name)
        except OperationFailed as failed:
            told.append(type(failed).__name__)
        await run.sleep(timedelta(hours=1))
        if not lab.changed:
            raise RuntimeError("a bug")

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        with pytest.raises(RuntimeError):
            await app.run(desk, "ann")
        lab.changed = True
        await app.resume("r-ann")
    assert told == ["DecisionFailed"] * 3
    assert len(model.asked) == 2, "what the code did on the failure is on record, so it is kept"


@virtual
async def test_after_a_reopening_branches_that_the_failure_cancelled_go_on(lab: Lab):
    model = Model(lab, back_at=10_000)
    attempts: list[str] = []

    @tool(idempotency=Key.forever())
    async def book(city: str) -> str:
        attempts.append(current_operation().key)
        await lab.pass_time(seconds=1)
        lab.sent.append(f"book {city}")
        return city

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[Any]:
        async def slow() -> str:
            first = await book("Rome")
            await run.sleep(timedelta(seconds=2000))
            return first + await book("Lima")

        once = run.options(retry=Retry(attempts=1))
        decided = [once.decide(model.rule, f"{name} {number}") for number in range(3)]
        return await run.gather(*decided, slow(), book("Oslo"))

    async with lab.app(desk, hold_ms=10**7) as app:
        with pytest.raises(DecisionFailed):
            await app.run(desk, "ann")
        model.back_at = 0
        assert await app.resume("r-ann") == [7, 7, 7, "RomeLima", "Oslo"]
    assert sorted(lab.sent) == ["book Lima", "book Oslo", "book Rome"]
    assert len(model.asked) == 6


@virtual
async def test_a_decision_in_a_transaction_that_it_called_off_is_made_anew(lab: Lab):
    model = Model(lab, back_at=5000)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        async with run.transaction("all"):
            return await run.decide(model.rule, name)

    async with lab.app(desk) as app:
        with pytest.raises(TransactionAborted, match="DecisionFailed"):
            await app.run(desk, "ann")
        await lab.pass_time(hours=2)
        assert await app.resume("r-ann") == 7


class Overloaded(Exception):
    """As an SDK raises it."""

    def __init__(self, status: int = 429, after: str = "") -> None:
        super().__init__("overloaded")
        self.status_code = status
        self.headers = {"Retry-After": after} if after else {}


@virtual
async def test_what_the_service_asks_for_is_waited(lab: Lab):
    model = Model(lab, back_at=100, error=lambda: Overloaded(503, "120"))
    desk = desk_of(model)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == 7
    first, second = model.asked
    assert 120 <= second - first <= 121


@virtual
async def test_what_asks_for_more_than_patience_has_is_not_tried_in_vain(lab: Lab):
    model = Model(lab, back_at=10**6, error=lambda: Overloaded(429, "7200"))
    desk = desk_of(model)
    async with lab.app(desk) as app:
        with pytest.raises(DecisionFailed, match="tried again in 7200 s"):
            await app.run(desk, "ann")
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (ConnectionError(), True),
        (TimeoutError(), True),
        (RuntimeError("overloaded"), True),
        (Overloaded(429), True),
        (Overloaded(529), True),
        (Overloaded(401), False),
        (Overloaded(400), False),
        (KeyError("cents"), False),
        (ValueError("no JSON"), False),
        (TypeError(), False),
    ],
)
def test_what_is_an_outage(error: Exception, *, outage: bool):
    assert is_outage(error) is outage


@virtual
async def test_a_refusal_is_not_repeated_for_minutes(lab: Lab):
    model = Model(lab, back_at=10**6, error=lambda: Overloaded(400))
    desk = desk_of(model)
    async with lab.app(desk) as app:
        with pytest.raises(DecisionFailed, match="Overloaded"):
            await app.run(desk, "ann")
    assert len(model.asked) == 5
    assert lab.loop.time() < 20


@virtual
async def test_a_bug_in_the_code_of_a_model_stops_the_run_at_once_and_after_the_fix_the_model_is_asked(lab: Lab):
    asked = list[str]()

    async def rule(ticket: str) -> int:
        asked.append(ticket)
        return 7 if lab.changed else {}["cents"]

    async def on_error(run: Run, name: str, error: Exception) -> int:
        asked.append("on_error")
        return 0

    @agent(run_id="r-{name}", on_error=on_error)
    async def desk(run: Run, name: str) -> int:
        try:
            return await run.options(retry=Retry(attempts=1)).decide(rule, name)
        except OperationFailed:
            return 0

    async with lab.app(desk) as app:
        with pytest.raises(KeyError, match="cents"):
            await app.run(desk, "ann")
        assert asked == ["ann"]
        (stopped,) = lab.of("r-ann", r.RunStoppedRecord)
        place = stopped.frames[-1]
        assert (place.function, place.source) == ("rule", 'return 7 if lab.changed else {}["cents"]')
        (decided,) = lab.of("r-ann", r.DecisionRecorded)
        assert decided.reason == f"KeyError: 'cents', at {place}"
        lab.changed = True
        assert await app.resume("r-ann") == 7


@virtual
async def test_a_mistake_that_a_library_raises_is_tried_again_as_an_answer_that_does_not_fit(lab: Lab):
    asked = list[str]()

    async def rule(ticket: str) -> str:
        asked.append(ticket)
        return str(ZoneInfo(ticket))

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.decide(rule, name)

    async with lab.app(desk) as app:
        with pytest.raises(DecisionFailed, match="ZoneInfoNotFoundError"):  # a KeyError
            await app.run(desk, "no-zone")
    assert len(asked) == 5


@pytest.mark.parametrize("asleep", ["in a pause", "in a call"])
@virtual
async def test_a_clock_that_jumps_uses_up_no_patience(lab: Lab, asleep: str):
    """A laptop that sleeps for a night, and whose network needs a minute after that."""
    slept = [0]
    night = 8 * 3600
    lab.journal = MemoryJournal(
        lambda: ticks_ms(lab.loop) + slept[0] * 1000, lambda: EPOCH_MS + ticks_ms(lab.loop) + slept[0] * 1000
    )
    model = Model(lab, back_at=100)
    tried = [0]

    async def rule(ticket: str) -> int:
        tried[0] += 1
        if tried[0] == 2 and asleep == "in a call":
            slept[0] = night
        return await model.rule(ticket)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await run.decide(rule, name)

    async def sleeps() -> None:
        while not model.asked:
            await lab.pass_time(milliseconds=1)
        await lab.pass_time(milliseconds=1)
        slept[0] = night

    async with lab.app(desk, lease_ms=10**9) as app:
        sleeping = asyncio.ensure_future(sleeps()) if asleep == "in a pause" else None
        assert await app.run(desk, "ann") == 7
        if sleeping is not None:
            await sleeping
    assert model.asked[-1] >= 100


def test_no_pause_is_longer_than_what_is_left_and_a_try_follows_each(seed: int):
    patience, rng, clock, tries = RetryBudget(None, 0, 5000), SeededRng(seed), 0.0, 0
    while True:
        tries += 1
        patience.tries += 1
        patience.failed(ConnectionError(), "gone", 1000)
        clock += 1000
        pause = patience.pause_ms(rng)
        if pause is None:
            break
        patience.paused(pause, int(pause) + 10**9)
        clock += pause
    assert clock >= DECISION_RETRY.elapsed / timedelta(milliseconds=1)
    assert clock <= (DECISION_RETRY.elapsed + MINUTE) / timedelta(milliseconds=1)
    assert 20 < tries < 120


def test_the_wait_for_which_a_service_asks_is_spread():
    patience = RetryBudget(None, 1, 5000)
    patience.failed(Overloaded(429, "3"), "429", 1)
    pauses = {patience.pause_ms(SeededRng(seed)) for seed in range(50)}
    assert len(pauses) == 50
    assert all(pause is not None and 3000 <= pause <= 3500 for pause in pauses)


@virtual
async def test_code_that_cancels_itself_stops_its_run_and_nothing_else(lab: Lab):
    @agent(run_id="c-{name}")
    async def desk(run: Run, name: str) -> int:
        raise asyncio.CancelledError

    async with lab.app(desk) as app:
        with pytest.raises(RunStopped, match="cancelled itself"):
            await app.run(desk, "ann")
        assert (await app.service.row("c-ann")).status == "stopped"
