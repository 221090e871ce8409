"""What followers receive of a run whose branches record side by side, are cancelled, or lose their run."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import BudgetExceeded, LeaseLost
from beforehand.journal.port import Lease, LeaseGranted, RunChange, Write
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import RunLog, beginning, genesis
from beforehand.model import records as r
from beforehand.telemetry import following as telemetry
from beforehand.telemetry.following import Drive, FollowedJournal
from beforehand.telemetry.prometheus import Prometheus
from beforehand.telemetry.spans import SpanValue
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_shared_budgets import limits
from tests.unit.telemetry.test_prometheus import values


class Kept:
    """A follower that keeps the calls of which it received a span, and how drives ended."""

    contents = False
    tracing = None

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.ends: list[Any] = []

    def begin(self, environment: Any) -> None:
        pass

    def opened(self, namespace: str) -> None:
        pass

    def forget(self, drive: Drive) -> None:
        self.ends.append("forgotten")

    def ended(self, drive: Drive, spans: Sequence[SpanValue], /) -> None:
        self.calls += [span.call for span in spans]

    def released(self, drive: Drive, at_ms: int, ending: tuple[str, str], /) -> None:
        self.ends.append(ending)

    def claimed_after(self, seconds: float) -> None: ...

    def committed(self, seconds: float, records: int) -> None:
        raise RuntimeError("an exporter with a bug")


@virtual
async def test_records_that_ride_while_others_are_committed_are_given_once(lab: Lab):
    lab.lag_s = 0.001
    measured, count = Prometheus(), 30

    @tool(effect="read")
    async def look(number: str) -> str:
        await asyncio.sleep(int(number) % 7 / 2000)
        return number

    @tool
    async def send(number: str) -> str:
        await asyncio.sleep(int(number) % 5 / 2000)
        return number

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def one(number: int) -> None:
            await look(str(number))
            await send(str(number))
            await look(str(number + 1))

        await run.map(one, range(count), id=str)
        return name

    async with lab.app(desk, tools=[look, send], telemetry=measured) as app:
        await app.run(desk, "ann")
        await lab.pass_time(seconds=5)
        page = values(await measured.scrape(app.engine))
    assert page["beforehand_attempts_total", "look", "succeeded"] == 2 * count
    assert page["beforehand_attempts_total", "send", "returned"] == count


def started(step: str) -> bytes:
    intent = r.Intent(tool="t", arguments=r.Raw(b"{}"), digest="", contract="", origin="code")
    return encode(r.AttemptStarted(step=step, number=1, token=1, send_by=0, intent=intent, at=1, up=1))


def ended(step: str) -> bytes:
    return encode(r.AttemptEnded(step=step, number=1, end=r.End("returned"), at=2, up=2))


async def following(lab: Lab, follower: Kept) -> tuple[FollowedJournal, RunLog, Lease]:
    """A journal that is followed, and a run in it that a worker has just begun."""
    app = lab.make()
    await app.open()
    journal = FollowedJournal(lab.journal, app.engine.environment, follower)  # type: ignore[arg-type]  # as users write
    namespace = app.engine.identity.namespace
    new = beginning(namespace, "run", "desk", [])
    claimed = await journal.claim("run", app.engine.worker.id, new)
    assert isinstance(claimed, LeaseGranted)
    return journal, RunLog(journal, claimed.lease, None, genesis(namespace, "run")), claimed.lease  # type: ignore[arg-type]  # it has every method of a journal


@virtual
async def test_a_cancelled_append_is_given_with_the_next_one(lab: Lab):
    kept = Kept()
    journal, log, _ = await following(lab, kept)
    lab.lag_s = 0.01
    cancelled = asyncio.create_task(log.append([started("s#1")]))
    await asyncio.sleep(0.005)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await log.append([ended("s#1")])
    await asyncio.sleep(1)
    assert kept.calls == [("s#1", 1)]
    await journal.close()


@virtual
async def test_what_was_left_out_between_two_records_of_a_batch_is_read_back(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    kept = Kept()
    journal, log, _ = await following(lab, kept)
    await log.append([started("s#1")])
    with monkeypatch.context() as full:
        full.setattr(telemetry, "BACKLOG", 0)
        await log.append([ended("s#1")])
    await log.append([started("s#2"), ended("s#2")])
    await asyncio.sleep(1)
    assert kept.calls == [("s#1", 1), ("s#2", 1)]
    await journal.close()


@virtual
async def test_what_was_given_on_leaves_its_room_to_what_comes_later(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    kept = Kept()
    journal, log, _ = await following(lab, kept)
    monkeypatch.setattr(telemetry, "BACKLOG", 4)
    for number in range(5):
        await log.append([started(f"s#{number}"), ended(f"s#{number}")])
        await asyncio.sleep(1)
    assert kept.calls == [(f"s#{number}", 1) for number in range(5)]
    await journal.close()


@virtual
async def test_a_follower_that_raises_learns_how_the_drive_ended(lab: Lab):
    class Raising(Kept):
        def ended(self, drive: Drive, spans: Sequence[SpanValue], /) -> None:
            raise RuntimeError("an exporter with a bug")

    raising = Raising()
    journal, log, lease = await following(lab, raising)
    await log.append([started("s#1"), ended("s#1")])
    await journal.append(Write(lease, (), RunChange("running", release=True)))
    await asyncio.sleep(1)
    assert raising.ends == [("", "")]
    await journal.close()


@virtual
async def test_a_lease_that_a_flush_finds_lost_ends_its_drive_once(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    kept = Kept()
    journal, log, lease = await following(lab, kept)
    await log.append([started("s#1")])
    log.ride([ended("s#1")])

    async def lost(*_: object) -> None:
        raise LeaseLost("another process has the run")

    monkeypatch.setattr(lab.journal, "flush", lost)
    monkeypatch.setattr(lab.journal, "append", lost)
    with pytest.raises(LeaseLost):
        await log.flush()
    await asyncio.sleep(1)
    with pytest.raises(LeaseLost):  # giving the lease back
        await journal.append(Write(lease, (), RunChange("running", release=True)))
    await asyncio.sleep(1)
    assert kept.ends == [("lost", "LeaseLost"), "forgotten"]


@pytest.mark.parametrize("limit", ["model_calls", "effects"])
@virtual
async def test_a_drive_goes_on_after_a_shared_budget_has_refused_a_call(lab: Lab, limit: str):
    kept = Kept()

    @tool
    async def send(text: str) -> str:
        return text

    async def ask(question: str) -> str:
        return question

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        for number in range(2):
            with contextlib.suppress(BudgetExceeded):
                await (run.decide(ask, f"{number}") if limit == "model_calls" else send(f"{number}"))
        if limit == "model_calls":
            await send("at last")
        return name

    async with lab.app(desk, tools=[send], telemetry=kept, queues=limits(then="stop", **{limit: 1})) as app:
        await app.run(desk, "ann")
        await lab.pass_time(seconds=1)
    assert kept.ends == [("completed", "")]
    assert [call for call in kept.calls if call is not None] == [("send#1", 1)]
