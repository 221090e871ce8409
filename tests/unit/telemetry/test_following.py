"""What followers receive of a run whose branches record side by side, are cancelled, or lose their run."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import BudgetExceeded, LeaseLost, LimitsChanged
from beforehand.journal.port import Busy, ClaimRequest, Lease, LeaseGranted, RunChange, Write
from beforehand.journal.record_codec import decode, encode
from beforehand.journal.run_log import RunLog, beginning, genesis
from beforehand.model import records as r
from beforehand.telemetry import following as telemetry
from beforehand.telemetry.following import Drive, FollowedJournal
from beforehand.telemetry.prometheus import Prometheus
from beforehand.telemetry.spans import RunSpans, SpanValue
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
        self.late: list[float] = []

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

    def claimed_after(self, seconds: float) -> None:
        self.late.append(seconds)

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
    journal = FollowedJournal(lab.processes[-1], app.engine.environment, follower)  # type: ignore[arg-type]  # as users write
    namespace = app.engine.identity.namespace
    new = beginning(namespace, "run", "desk", [])
    claimed = await journal.commit(ClaimRequest("run", app.engine.worker.id, new))
    assert isinstance(claimed, LeaseGranted)
    return journal, RunLog(journal, claimed.lease, None, genesis(namespace, "run")), claimed.lease  # type: ignore[arg-type]  # it has every method of a journal


@virtual
async def test_a_cancelled_append_is_given_with_the_next_one(lab: Lab):
    lab.lag_s = 0.01
    kept = Kept()
    journal, log, _ = await following(lab, kept)
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
async def test_a_drive_whose_first_records_were_left_out_is_followed_from_there_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    kept = Kept()
    journal, log, lease = await following(lab, kept)
    with monkeypatch.context() as full:
        full.setattr(telemetry, "BACKLOG", 1)
        await log.append([started("s#1"), ended("s#1")])
        await asyncio.sleep(1)
    assert (kept.calls, kept.ends) == ([], [])
    await log.append([started("s#2"), ended("s#2")])
    await journal.commit(Write(lease, (), RunChange("running", release=True)))
    await asyncio.sleep(1)
    assert kept.calls == [("s#1", 1), ("s#2", 1)]
    assert kept.ends == [("", "")]
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
async def test_what_is_read_back_makes_no_room_for_more(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """It was left out, so it had no place among what waits."""
    kept = Kept()
    journal, log, _ = await following(lab, kept)
    for room, step in ((0, "s#1"), (2, "s#2")):
        monkeypatch.setattr(telemetry, "BACKLOG", room)
        await log.append([started(step), ended(step)])
    await asyncio.sleep(1)
    assert kept.calls == [("s#1", 1), ("s#2", 1)]
    for step in ("s#3", "s#4"):
        await log.append([started(step), ended(step)])
    await asyncio.sleep(1)
    assert kept.calls[2:] == [("s#3", 1)]
    await journal.close()


@virtual
async def test_a_follower_that_raises_learns_how_the_drive_ended(lab: Lab):
    class Raising(Kept):
        def ended(self, drive: Drive, spans: Sequence[SpanValue], /) -> None:
            raise RuntimeError("an exporter with a bug")

    raising = Raising()
    journal, log, lease = await following(lab, raising)
    await log.append([started("s#1"), ended("s#1")])
    await journal.commit(Write(lease, (), RunChange("running", release=True)))
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
    monkeypatch.setattr(lab.journal, "commit", lost)
    with pytest.raises(LeaseLost):
        await log.flush()
    await asyncio.sleep(1)
    with pytest.raises(LeaseLost):  # giving the lease back
        await journal.commit(Write(lease, (), RunChange("running", release=True)))
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


async def cut_off(work: Coroutine[Any, Any, Any]) -> None:
    """Cancel this work while its answer is on the way: what it asked for is done."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


WRITES = ("append", "ride", "flush", "cancelled append", "cancelled flush", "refused")


@pytest.mark.parametrize("seed", range(8))
@virtual
async def test_every_span_of_the_journal_is_given_once_and_in_order(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seed: int
):
    """However the records were written, and however many were left out meanwhile: those are read back."""
    monkeypatch.setattr(telemetry, "BACKLOG", 7)
    monkeypatch.setattr(telemetry, "_PAGE", 5)
    draw, kept, lab.lag_s = random.Random(seed), Kept(), 0.01
    journal, log, lease = await following(lab, kept)
    for number in range(60):
        step = f"s#{number}"
        bodies = [started(step), ended(step)]
        match draw.choice(WRITES):
            case "append":
                await log.append(bodies)
            case "ride":
                log.ride(bodies)
            case "flush":
                log.ride(bodies)
                await log.flush()
            case "cancelled append":
                await cut_off(log.append(bodies))
            case "cancelled flush":
                log.ride(bodies)
                await cut_off(log.flush())
            case _:
                with pytest.raises(LimitsChanged):
                    await log.append(bodies, declared=99)
        await asyncio.sleep(draw.choice((0, 0, 0.03, 0.2)))
    await log.flush()
    await asyncio.sleep(1)
    await log.append([started("last#1"), ended("last#1")])
    await journal.commit(Write(lease, (), RunChange("running", release=True)))
    await asyncio.sleep(1)
    spans = RunSpans("run")
    stored = [span.call for row in await lab.journal.read("run") for span in spans.add(decode(row.body))]
    assert kept.calls == stored
    assert len(stored) > 30
    assert kept.ends == [("", "")]
    assert "falls behind" in caplog.text


@virtual
async def test_each_time_that_telemetry_falls_behind_is_said_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(telemetry, "BACKLOG", 4)
    said: list[int] = []
    journal, log, _ = await following(lab, Kept())
    await asyncio.sleep(1)
    for number in (2, 1, 3, 4):  # as many fit as may wait
        for turn in range(number):
            await log.append([started(f"s{number}#{turn}"), ended(f"s{number}#{turn}")])
        said.append(caplog.text.count("telemetry falls behind: some records are left out. Runs are not affected"))
        await asyncio.sleep(1)
    assert said == [0, 0, 1, 2]
    await journal.close()


@virtual
async def test_a_drive_that_found_no_room_is_forgotten_at_its_end(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """What follows keeps something for each drive until it hears of its end."""
    monkeypatch.setattr(telemetry, "BACKLOG", 1)
    kept = Kept()
    journal, _, lease = await following(lab, kept)
    new = beginning(
        lab.journal.clock().epoch, "other", "desk", [encode(r.RunStarted(agent="a", input=r.NOTHING, digest=""))]
    )
    other = await journal.commit(ClaimRequest("other", lease.worker, new))
    assert isinstance(other, LeaseGranted)
    for one in (lease, other.lease):
        await journal.commit(Write(one, (), RunChange("running", release=True)))
    assert kept.ends == ["forgotten"]
    await asyncio.sleep(1)
    assert len(kept.ends) == 2
    await journal.close()


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("status", "due", "after_s", "late"),
    [
        ("suspended", HOUR, 3620, [20.0]),
        ("suspended", HOUR, 3600.25, [0.25]),
        ("suspended", HOUR, 3600, [0.0]),
        ("suspended", HOUR, 3599, []),
        ("suspended", None, 3600, []),
        ("running", None, 3600, []),
    ],
)
@virtual
async def test_how_late_a_run_is_claimed_is_told_where_it_was_due(
    lab: Lab, status: Any, due: int | None, after_s: float, late: list[float]
):
    """One that is claimed before its time is claimed for a command, and one that waits for a person is never late."""
    kept = Kept()
    journal, _, lease = await following(lab, kept)
    now = lab.clock.wall_ms()
    change = RunChange(status, "", None if due is None else now + due, release=True)
    await journal.commit(Write(lease, (), change))
    await asyncio.sleep(after_s)
    assert isinstance(await journal.commit(ClaimRequest("run", lease.worker)), LeaseGranted)
    assert kept.late == pytest.approx(late)
    await journal.close()


@virtual
async def test_a_claim_that_is_refused_is_forgotten_but_for_what_is_driven_here(lab: Lab):
    mine, theirs = Kept(), Kept()
    journal, log, lease = await following(lab, mine)
    lab.make()
    other = FollowedJournal(lab.processes[-1], journal._environment, theirs)
    new = beginning(lab.journal.clock().epoch, "run", "desk", [])
    assert isinstance(await journal.commit(ClaimRequest("run", lease.worker, new)), Busy)
    assert isinstance(await other.commit(ClaimRequest("run", "w2", new)), Busy)
    await log.append([started("s#1"), ended("s#1")])
    await asyncio.sleep(1)
    assert (mine.ends, mine.calls, theirs.ends, theirs.calls) == ([], [("s#1", 1)], ["forgotten"], [])
    await journal.close()


@virtual
async def test_a_follower_is_told_which_journal_it_is_and_how_long_each_commit_took(
    lab: Lab, caplog: pytest.LogCaptureFixture
):
    """What it raises is said once, however often it does."""
    told: list[Any] = []

    class Told(Kept):
        def opened(self, namespace: str) -> None:
            told.append(namespace)
            raise RuntimeError("an exporter with a bug")

        def committed(self, seconds: float, records: int) -> None:
            told.append((round(seconds, 3), records))
            raise RuntimeError("an exporter with a bug")

    journal, log, lease = await following(lab, Told())
    with pytest.raises(RuntimeError, match="a bug"):  # before anything runs, a mistake may be said aloud
        await journal.open()
    assert told == [(await lab.journal.open()).namespace]
    lab.processes[-1].lag_s = 0.25
    await log.append([started("s#1")])
    await log.append([ended("s#1"), started("s#2")])
    await journal.commit(Write(lease, (), RunChange("suspended", release=True)))
    assert told[1:] == [(0.25, 1), (0.25, 2), (0.25, 0)]
    await journal.close()
    assert [line.message for line in caplog.records] == [
        "telemetry failed (logged once): RuntimeError: an exporter with a bug. Runs are not affected"
    ]


@virtual
async def test_closing_a_followed_journal_gives_on_what_is_left_and_closes_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    closed: list[str] = []

    async def close() -> None:
        closed.append("closed")

    kept = Kept()
    journal, log, _ = await following(lab, kept)
    monkeypatch.setattr(lab.processes[-1], "close", close)
    await log.append([started("s#1"), ended("s#1")])
    assert kept.calls == []
    await journal.close()
    assert (kept.calls, closed) == ([("s#1", 1)], ["closed"])
    await journal.close()
    assert closed == ["closed"] * 2


@pytest.mark.parametrize(
    ("status", "due_s", "late"),
    [("suspended", -5, [5.0]), ("suspended", 0, [0.0]), ("suspended", 5, []), ("suspended", None, []),
     ("running", -5, []), ("queued", -5, [])],
)  # fmt: skip
@virtual
async def test_how_late_a_run_is_claimed_is_told_of_one_that_had_slept(
    lab: Lab, status: Any, due_s: int | None, late: list[float]
):
    """One that is claimed before its time, or that never slept, was not late."""
    kept = Kept()
    journal, _, lease = await following(lab, kept)
    due = None if due_s is None else lab.clock.wall_ms() + due_s * 1000
    await lab.journal.commit(Write(lease, (), RunChange(status, due_ms=due, release=True)))
    assert isinstance(await journal.commit(ClaimRequest("run", lease.worker)), LeaseGranted)
    assert kept.late == late
