"""Schedules in processes: each moment is one run, whichever process fires it, and declarations and pauses hold at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.control.queues import steer_queue
from beforehand.control.schedules import Scheduler, declare_schedules, steer_schedule
from beforehand.engine.engine import LOG
from beforehand.errors import UsageError
from beforehand.inspect.reader import read_schedules, troubles_of
from beforehand.journal.cells import LastFiring, last_firing
from beforehand.journal.host import JournalClock
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import LedgerEntry, Post
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.model import records as r
from beforehand.queues.firing_times import MOST_AT_ONCE, MissedRule, Schedule
from beforehand.queues.limits import DeclaredLimits, LimitsError, QueueLimits, TenantLimits
from beforehand.queues.schedules import STREAM, QueuesAndSchedules
from beforehand.testing.schedule_conformance import fire
from tests.unit.engine.lab import Lab, virtual

began: list[str] = []


@agent(name="desk")
async def desk(run: Run, ticket: dict[str, str]) -> str:
    began.append(run.id)
    return ticket["id"]


@agent(name="clerk")
async def clerk(run: Run, count: int) -> int:
    return count


@pytest.fixture(autouse=True)
def fresh():
    began.clear()


def every(minutes: int = 0, missed: MissedRule = "skip", **fields: Any) -> Schedule:
    """A schedule; the virtual clock starts at midnight."""
    return Schedule("desk", {"id": "1"}, every_ms=minutes * 60_000, missed=missed, **fields)


def scheduler(app: Beforehand) -> Scheduler:
    return Scheduler(app.engine, app.agents)


async def declared(app: Beforehand, **schedules: Schedule) -> None:
    await declare_schedules(app.engine, schedules, app.agents)
    await app.engine.look()


def at(*times: str) -> list[str]:
    """Ids of the runs that the schedule `n` submits at these times."""
    return [f"n@2026-01-01T{time}Z" for time in times]


async def stored(lab: Lab) -> list[str]:
    return [line.run for line in await lab.journal.runs()]


@virtual
async def test_an_open_app_fires_and_drives_what_is_due_at_its_moment(lab: Lab):
    await lab.pass_time(seconds=2)  # apart from the rounds that look for due runs each five seconds
    async with lab.app(desk, recover=True) as app:
        await declared(app, n=every(10))
        await lab.pass_time(minutes=31)
        assert began == at("00:10:00", "00:20:00", "00:30:00")
        (started,) = lab.of(began[0], r.RunStarted)
        assert (started.schedule, started.queue, started.by) == ("n", "default", "")
        assert began[0].endswith("00:10:00Z")
        (claimed,) = lab.of(began[0], r.Claimed)
        assert claimed.at - started.moment < 1_000
        assert (await lab.journal.runs(run=began[0]))[0].status == "completed"


@virtual
async def test_of_many_processes_one_fires_each_moment(lab: Lab):
    lab.lag_s = 0.01  # so that each of them asks before it knows of the others
    apps = [lab.make(desk, recover=True) for _ in range(4)]
    for app in apps:
        await app.open()
    await declared(apps[0], n=every(1))
    await lab.pass_time(minutes=10, seconds=30)
    assert sorted(began) == at(*(f"00:{minute:02}:00" for minute in range(1, 11)))
    for app in apps:
        await app.aclose()


@virtual
async def test_a_process_that_waits_for_a_firing_reads_nothing(lab: Lab):
    async with lab.app(desk) as app:
        await declared(app, n=every(60), m=every(600))
        firing = scheduler(app)
        await firing.fire()
        before = lab.journal.calls
        for _ in range(500):
            await firing.fire()
        assert lab.journal.calls == before


@pytest.mark.parametrize(("missed", "expected"), [
    ("skip", ["05:00:00"]), ("once", ["05:00:00"]),
    ("all", ["01:00:00", "02:00:00", "03:00:00", "04:00:00", "05:00:00"]),
])  # fmt: skip
def test_what_was_missed_while_no_process_lived(missed: MissedRule, expected: list[str]):
    @virtual
    async def story(lab: Lab) -> None:
        async with lab.app(desk) as app:
            await declared(app, n=every(60, missed))
        await lab.pass_time(hours=5)
        async with lab.app(desk) as app:
            await scheduler(app).fire()
            assert await stored(lab) == at(*expected)

    story()


@virtual
async def test_one_run_for_all_that_was_missed_where_none_is_on_time(lab: Lab):
    async with lab.app(desk) as app:
        await declared(app, n=every(60, "once"), s=every(60))
        await lab.pass_time(hours=5, minutes=2)
        await scheduler(app).fire()
        await scheduler(app).fire()
    assert await stored(lab) == at("05:00:00")


@virtual
async def test_a_clock_that_is_set_back_fires_nothing_again(lab: Lab):
    async with lab.app(desk, recover=True) as app:
        await declared(app, n=every(60, "all"))
        await lab.pass_time(hours=2, minutes=1)
        wall, journal_wall = lab.clock.wall_ms, lab.journal._wall
        back = 90 * 60_000
        lab.clock.wall_ms = lambda: wall() - back  # type: ignore[method-assign]  # the clock is set
        lab.journal._wall = lambda: journal_wall() - back
        await lab.pass_time(hours=1)
        assert began == at("01:00:00", "02:00:00")
        await lab.pass_time(hours=2)
        assert began == at("01:00:00", "02:00:00", "03:00:00")
        lab.clock.wall_ms, lab.journal._wall = wall, journal_wall  # type: ignore[method-assign]  # and forward again
        await lab.pass_time(minutes=1)
        assert began == at("01:00:00", "02:00:00", "03:00:00", "04:00:00", "05:00:00")


WRONG = [
    (365 * 24 * 3_600_000, "skip", ["02:00:00", "03:00:00", "04:00:00", "05:00:00"]),
    (365 * 24 * 3_600_000, "once", ["02:00:00", "03:00:00", "04:00:00", "05:00:00"]),
    (3 * 3_600_000, "skip", ["02:00:00", "03:00:00", "05:00:00"]),
    (3 * 3_600_000, "once", ["02:00:00", "03:00:00", "05:00:00"]),
    (3 * 3_600_000, "all", ["05:00:00"]),  # the others have fired early
]


@pytest.mark.parametrize(("ahead_ms", "missed", "expected"), WRONG)
def test_a_clock_that_was_wrong_for_a_moment_silences_no_schedule(
    ahead_ms: int, missed: MissedRule, expected: list[str]
):
    @virtual
    async def story(lab: Lab) -> None:
        lab.journal._wall = lab.clock.wall_ms
        async with lab.app(desk, recover=True) as app:
            await declared(app, n=every(60, missed))
            await lab.pass_time(hours=1, seconds=5)
            lab.clock.skew_ms = ahead_ms
            await lab.pass_time(seconds=20)
            lab.clock.skew_ms = 0
            early = await stored(lab)
            await lab.pass_time(minutes=150)
        async with lab.app(desk, recover=True):
            await lab.pass_time(hours=2)
        found = await stored(lab)
        assert set(early) > set(at("01:00:00")), "it has fired under the wrong clock"
        assert sorted(set(found) - set(early)) == at(*expected)
        assert len(found) == len(set(found))

    story()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_firing_that_is_still_to_come_by_the_clock_of_the_journal_delays_none(kind: str, tmp_path: Path):
    asyncio.run(_fired_by_that_clock(kind, tmp_path))


async def _fired_by_that_clock(kind: str, tmp_path: Path) -> None:
    wall = [10]
    clock = JournalClock("one", lambda: 1, lambda: wall[0])
    journal = (
        MemoryJournal(lambda: 1, wall=lambda: wall[0])
        if kind == "memory"
        else SqliteJournal(tmp_path / "j.db", clock=clock)
    )
    await journal.open()
    try:
        for now, moment, fires in ((10, 10, True), (5, 10, False), (5, 4, True), (5, 3, False), (9, 8, True),
                                   (10, 9, False), (11, 10, False), (12, 11, True)):  # fmt: skip
            wall[0] = now
            assert (await fire(journal, moment) is not None) == fires, (now, moment)
        assert await last_firing(journal, "nightly", 9) == LastFiring(8, "nightly@8")
    finally:
        await journal.close()


@virtual
async def test_a_schedule_that_was_declared_under_a_wrong_clock_begins_when_it_is_resumed(lab: Lab):
    async with lab.app(desk, recover=True) as app:
        lab.journal._wall = lab.clock.wall_ms
        lab.clock.skew_ms = 365 * 24 * 3_600_000
        await declared(app, n=every(60))
        lab.clock.skew_ms = 0
        await lab.pass_time(minutes=61)
        assert await stored(lab) == []
        await steer_schedule(app.engine, "n", "pause", by="anna")
        await steer_schedule(app.engine, "n", "resume", by="anna")
        await lab.pass_time(hours=1)
        assert await stored(lab) == at("02:00:00")


@virtual
async def test_a_process_whose_clock_is_fast_fires_by_the_journals(lab: Lab):
    async with lab.app(desk, recover=True) as app:
        wall = lab.clock.wall_ms
        lab.clock.wall_ms = lambda: wall() + 120_000  # type: ignore[method-assign]  # two minutes fast
        await declared(app, n=every(10))
        await lab.pass_time(minutes=9, seconds=50)
        assert await stored(lab) == []
        await lab.pass_time(seconds=15)
        assert await stored(lab) == at("00:10:00")  # its own clock, two minutes on, is not asked


@virtual
async def test_a_paused_schedule_fires_nowhere_and_continues_with_the_next_moment(lab: Lab):
    async with lab.app(desk, recover=True), lab.app(desk) as other:
        await declared(other, n=every(60, "all"))
        await lab.pass_time(minutes=61)
        assert began == at("01:00:00")
        known, changed = await steer_schedule(other.engine, "n", "pause", by="ann", why="the bank is closed")
        assert (known.paused, changed) == ("paused by ann: the bank is closed", True)
        assert await steer_schedule(other.engine, "n", "pause", by="bob") == (known, False)
        await lab.pass_time(hours=3)
        assert began == at("01:00:00")
        await declare_schedules(other.engine, {"n": every(60, "all", priority=3)}, {})
        assert (await read_schedules(lab.journal)).schedules["n"].paused  # a declaration does not resume it
        known, changed = await steer_schedule(other.engine, "n", "resume", by="ann")
        assert (known.paused, changed) == ("", True)
        await lab.pass_time(hours=1)
        assert began == at("01:00:00", "05:00:00")
        assert not (await steer_schedule(other.engine, "n", "resume", by="ann"))[1]
        with pytest.raises(UsageError, match=r"schedule 'nn' does not exist.*did you mean n"):
            await steer_schedule(other.engine, "nn", "pause", by="ann")


@virtual
async def test_a_process_that_slept_through_a_pause_does_not_fire(lab: Lab):
    async with lab.app(desk) as app, lab.app(desk) as other:
        await declared(other, n=every(60, "all"))
        await app.engine.look()
        firing = scheduler(app)
        await firing.fire()
        await lab.pass_time(minutes=61)
        await steer_schedule(other.engine, "n", "pause", by="ann")
        app.engine.schedules_changed.clear()  # it has not learned of the pause when it asks
        await firing.fire()
        assert await stored(lab) == []
        await steer_schedule(other.engine, "n", "resume", by="ann")
        await firing.fire()
        assert await stored(lab) == []


@virtual
async def test_what_a_new_declaration_changes(lab: Lab):
    async with lab.app(desk) as app:
        firing = scheduler(app)
        await declared(app, n=every(60, "all"), gone=every(60, "all"))
        entries = len(await lab.journal.entries("schedules"))
        await declared(app, n=every(60, "all"), gone=every(60, "all"))
        assert len(await lab.journal.entries("schedules")) == entries, "the same declaration is not stored again"
        await lab.pass_time(minutes=90)
        await declared(app, n=every(60, "all", priority=5))  # its timing is as before: it keeps its place
        await firing.fire()
        assert await stored(lab) == at("01:00:00")
        await lab.pass_time(minutes=60)
        await declared(app, n=every(30, "all"))  # from 02:30 on
        await firing.fire()
        assert await stored(lab) == at("01:00:00")
        await lab.pass_time(minutes=31)
        await firing.fire()
        assert await stored(lab) == at("01:00:00", "03:00:00")
        await declared(app)
        await lab.pass_time(minutes=60)
        await firing.fire()
        await declared(app, n=every(30, "all"))
        await firing.fire()
        assert await stored(lab) == at("01:00:00", "03:00:00"), "what fell into the time without it does not fire"


@virtual
async def test_a_full_queue_delays_a_firing_and_nothing_else(lab: Lab, caplog: pytest.LogCaptureFixture):
    async with lab.app(desk, recover_every_ms=5_000) as app:
        await app.engine.queues.declare(app.engine.journal, DeclaredLimits({"mail": QueueLimits(capacity=1)}))
        await declared(app, a=every(60, "all", queue="mail"), n=every(60, "all"))
        await lab.pass_time(minutes=121)
        firing = scheduler(app)
        with caplog.at_level("WARNING", LOG.name):
            await firing.fire()
        assert await stored(lab) == ["a@2026-01-01T01:00:00Z", *at("01:00:00", "02:00:00")]
        assert "the schedule a could not be fired: QueueFull" in caplog.text
        await app.engine.queues.declare(app.engine.journal, DeclaredLimits({"mail": QueueLimits(capacity=2)}))
        await lab.pass_time(seconds=5)
        await firing.fire()
        assert (await stored(lab))[:2] == ["a@2026-01-01T01:00:00Z", "a@2026-01-01T02:00:00Z"]
        assert app.engine.housekeeping.failing() == []


@virtual
async def test_only_processes_with_the_agent_fire(lab: Lab):
    async with lab.app(desk) as app, lab.app(clerk) as other:
        await declared(other, n=every(60, "all"))
        await app.engine.look()
        await lab.pass_time(minutes=61)
        await scheduler(other).fire()
        assert await stored(lab) == []
        await scheduler(app).fire()
        assert await stored(lab) == at("01:00:00")


@virtual
async def test_a_run_that_exists_is_the_run_of_its_moment(lab: Lab, caplog: pytest.LogCaptureFixture):
    async with lab.app(desk) as app:
        await declared(app, n=every(60, "all"))
        await app.run(desk, {"id": "mine"}, run_id=at("01:00:00")[0])
        await lab.pass_time(minutes=61)
        firing = scheduler(app)
        await firing.fire()
        await firing.fire()
        assert began == at("01:00:00")
        assert "has fired with run n@2026-01-01T01:00:00Z, which existed" in caplog.text


@virtual
async def test_an_entry_that_cannot_be_read_pauses_all(lab: Lab):
    async with lab.app(desk) as app:
        await declared(app, n=every(60, "all"))
        await lab.journal.commit(Post("schedules", "", b'{"word":"stop"}'))
        await app.engine.look()
        await lab.pass_time(minutes=61)
        firing = scheduler(app)
        await firing.fire()
        assert await stored(lab) == []
        assert "cannot be read" in (await read_schedules(lab.journal)).schedules["n"].paused
        await steer_schedule(app.engine, "n", "resume", by="ann")
        await lab.pass_time(minutes=60)
        await firing.fire()
        assert await stored(lab) == at("02:00:00")


@virtual
async def test_two_declarations_at_once_are_both_on_record_and_the_last_holds(lab: Lab):
    lab.lag_s = 0.01
    async with lab.app(desk) as app, lab.app(desk) as other:
        await asyncio.gather(declared(app, n=every(60)), declared(other, n=every(30), m=every(10)))
        book = await read_schedules(lab.journal)
        assert len(await lab.journal.entries("schedules")) == 2
        assert set(book.schedules) in ({"n"}, {"n", "m"})


@virtual
async def test_a_journal_that_fails_delays_a_firing(lab: Lab):
    async with lab.app(desk, recover=True) as app:
        await declared(app, n=every(60, "all"))
        await lab.pass_time(minutes=59, seconds=58)
        lab.journal.fail_next(1)
        await lab.pass_time(seconds=20)
        assert began == at("01:00:00")


@virtual
async def test_a_declaration_that_comes_while_the_schedules_are_read_is_read_too(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    async with lab.app(desk) as app:
        firing, read = scheduler(app), lab.journal.entries

        async def entries(stream: str, after: int = 0) -> list[LedgerEntry]:
            found = await read(stream, after)
            if stream == STREAM:
                monkeypatch.undo()
                await declared(app, n=every(60))
            return found

        monkeypatch.setattr(lab.journal, "entries", entries)
        await firing.fire()
        await lab.pass_time(minutes=60)
        await firing.fire()
        assert await stored(lab) == at("01:00:00")


@virtual
async def test_a_schedule_that_is_declared_with_earlier_moments_fires_at_them(lab: Lab):
    async with lab.app(desk) as app:
        await declared(app, n=every(600))
        firing = scheduler(app)
        await firing.fire()  # from here on it knows that nothing is due for ten hours
        await declared(app, n=every(60))
        await lab.pass_time(minutes=60)
        await firing.fire()
        assert await stored(lab) == at("01:00:00")


@virtual
async def test_more_moments_than_fire_at_once_fire_one_look_after_the_other(lab: Lab):
    async with lab.app(desk) as app:
        await declared(app, n=every(1, "all"))
        await lab.pass_time(minutes=2 * MOST_AT_ONCE + 1)
        firing = scheduler(app)
        for number in (MOST_AT_ONCE, 2 * MOST_AT_ONCE, 2 * MOST_AT_ONCE + 1):
            await firing.fire()
            assert len(await stored(lab)) == number


@virtual
async def test_a_schedule_whose_queue_was_removed_is_shown_and_fires_nothing(lab: Lab):
    async with lab.app(desk) as app:
        await app.engine.queues.declare(app.engine.journal, DeclaredLimits({"mail": QueueLimits()}))
        await declared(app, n=every(60, queue="mail"))
        await app.engine.queues.declare(app.engine.journal, DeclaredLimits({"bulk": QueueLimits()}))
        await lab.pass_time(minutes=60)
        await scheduler(app).fire()
        assert await stored(lab) == []
        assert app.engine.housekeeping.failing() == ["the schedule n could not be fired"]


# --- bad input -----------------------------------------------------------------------------------------------------------

ONE = "schedules: {n: {agent: desk, input: {id: a}"
FAULTS = {
    f"{ONE}}}}}": "schedules.n: give one of cron, every and at",
    f"{ONE}, every: 5m, cron: '0 3 * * *'}}}}": "schedules.n: give one of cron, every and at",
    f"{ONE}, cron: '0 0 30 2 *'}}}}": "schedules.n.cron: '0 0 30 2 *' never fires",
    f"{ONE}, cron: '61 * * * *'}}}}": "schedules.n.cron: '61 * * * *' never fires, or cannot be read: Bad minute",
    f"{ONE}, cron: '* * * * * *'}}}}": "schedules.n.cron: '* * * * * *' does not have five fields",
    f"{ONE}, cron: '@daily'}}}}": "schedules.n.cron: '@daily' does not have five fields",
    f"{ONE}, every: 0s}}}}": "schedules.n.every: it is longer than zero",
    f"{ONE}, every: 500ms}}}}": "schedules.n.every: it is at least 1s, in whole seconds",
    f"{ONE}, every: soon}}}}": "schedules.n.every: write a duration such as 30s, 5m or 1h",
    f"{ONE}, every: 5m, zone: Europe/Berln}}}}": "schedules.n.zone: time zone 'Europe/Berln' does not exist; did you mean Europe/Berlin",
    f"{ONE}, every: 5m, zone: Europe}}}}": "schedules.n.zone: time zone 'Europe' does not exist",
    f"{ONE}, every: 5m, zone: ../etc/passwd}}}}": "schedules.n.zone: time zone '../etc/passwd' does not exist",
    f"{ONE}, at: tomorrow}}}}": "schedules.n.at: 'tomorrow' is not a time; write 2027-01-31T12:00",
    f"{ONE}, every: 5m, missed: never}}}}": "schedules.n: Invalid enum value 'never'",
    f"{ONE}, every: 5m, queue: mial}}}}\nqueues: {{mail: {{}}}}": "schedules.n: queue 'mial' does not exist",
    f"{ONE}, every: 5m, priority: 10}}}}": "schedules.n.priority=10: it is from -9 to 9",
    f"{ONE}, every: 5m, tenant: bob}}}}\ntenants: {{acme: {{}}}}": "schedules.n: tenant 'bob' does not exist",
    f"{ONE}, every: 5m, evry: 1}}}}": "schedules.n.evry: unknown field; did you mean every?",
    f"{ONE}, every_ms: 5}}}}": "schedules.n.every_ms: unknown field; did you mean every?",
    "schedules: {n: {every: 5m}}": "schedules.n.agent: it is missing",
    "schedules: {n: {agent: 7, every: 5m}}": "schedules.n: Expected `str`, got `int`",
    "schedules: {n: 5m}": "schedules.n: it is a mapping with agent, input and one of cron, every and at",
    "schedules: [n]": "schedules: it is a mapping of names",
    "schedules: {'a b': {agent: desk, every: 5m}}": "schedules.a b: a name has 1 to 100 letters",
    "schedule: {}": "schedule: unknown field; did you mean schedules?",
    f"{ONE}, every: 5m}}}}\nqueues: {{mail: {{concurrency: 0}}}}": "queues.mail.concurrency=0: it is at least 1",
}  # fmt: skip


@pytest.mark.parametrize("text", FAULTS)
def test_a_file_of_schedules_that_cannot_hold_is_refused(text: str, tmp_path: Path):
    file = tmp_path / "queues.yaml"
    file.write_text(text)
    with pytest.raises(LimitsError) as refused:
        Beforehand("memory:", queues=file)
    assert FAULTS[text] in str(refused.value)
    assert (refused.value.known, refused.value.next_step) == ("nothing was changed", f"correct {file}")


def test_all_faults_of_limits_and_schedules_are_named_at_once(tmp_path: Path):
    file = tmp_path / "queues.yaml"
    file.write_text(f"{ONE}, every: 0s, zone: Mars/Olympus}}, m: {{}}}}\nqueues: {{mail: {{concurrency: 0}}}}")
    with pytest.raises(LimitsError, match="has 3 faults"):
        Beforehand("memory:", queues=file)


def test_schedules_in_code_are_checked_alike():
    never = QueuesAndSchedules(schedules={"n": Schedule("desk", cron="0 0 30 2 *")})
    with pytest.raises(LimitsError, match=r"queues= has a fault: schedules.n.cron: '0 0 30 2 \*' never fires"):
        Beforehand("memory:", queues=never)
    limits = DeclaredLimits({"mail": QueueLimits(concurrency=0)}, tenants={"acme": TenantLimits(2)})
    with pytest.raises(LimitsError, match=r"has 2 faults: queues.mail.concurrency=0.*tenant 'bob' does not exist"):
        Beforehand("memory:", queues=QueuesAndSchedules(limits, {"n": every(5, tenant="bob")}))


@virtual
async def test_an_input_that_does_not_fit_is_refused_where_the_agent_is_known(lab: Lab):
    async with lab.app(desk, clerk) as app:
        fits = Schedule("clerk", 7, every_ms=60_000)
        wrong = Schedule("clerk", "seven", every_ms=60_000)
        with pytest.raises(LimitsError, match=r"schedules.bad.input: it does not fit the agent clerk: Expected `int`"):
            await declare_schedules(app.engine, {"good": fits, "bad": wrong}, app.agents)
        assert await lab.journal.entries("schedules") == []
        await declare_schedules(app.engine, {"good": fits, "bad": wrong}, {})  # declared where the code is not
        await app.engine.look()
        await lab.pass_time(minutes=1)
        firing = scheduler(app)
        await firing.fire()
        assert await stored(lab) == ["good@2026-01-01T00:01:00Z"]
        (failing,) = app.engine.housekeeping.failing()
        assert failing == "the schedule bad could not be fired"
        await steer_schedule(app.engine, "bad", "pause", by="ann")
        await firing.fire()
        assert app.engine.housekeeping.failing() == []


def test_a_file_declares_them_for_every_process(tmp_path: Path):
    file = tmp_path / "queues.yaml"
    file.write_text(
        f"{ONE}, cron: '30 2 * * *', zone: Europe/Berlin, missed: once, grace: 5m}},\n"
        " once: {agent: clerk, at: 2027-01-31 12:00:00}}"
    )

    async def told(journal: MemoryJournal, **given: Any) -> list[str]:
        async with Beforehand(journal, agents=[desk], recover=False, **given) as app:
            return sorted((await read_schedules(app.engine.journal)).schedules)

    journal = MemoryJournal(lambda: 0)
    assert asyncio.run(told(journal, queues=file)) == ["n", "once"]
    assert asyncio.run(told(journal)) == ["n", "once"]
    assert asyncio.run(told(journal, queues=DeclaredLimits())) == ["n", "once"]
    file.write_text("queues: {}")
    assert asyncio.run(told(journal, queues=file)) == ["n", "once"], "a file without schedules leaves them"
    file.write_text("schedules: {}")
    assert asyncio.run(told(journal, queues=file)) == []


@pytest.mark.parametrize(("missed", "expected"), [
    ("skip", ["01:00:00", "05:00:00"]), ("once", ["01:00:00", "04:00:00", "05:00:00"]),
    ("all", ["01:00:00", "02:00:00", "03:00:00", "04:00:00", "05:00:00"]),
])  # fmt: skip
def test_a_drained_queue_delays_firings_and_a_paused_one_does_not(missed: MissedRule, expected: list[str]):
    @virtual
    async def story(lab: Lab) -> None:
        async with lab.app(desk, recover=True) as app, lab.app(desk) as other:
            await declared(other, n=every(60, missed))
            await lab.pass_time(minutes=62)  # a minute late is in time, so the firing of 04:00 has to be later
            await steer_queue(other.engine, "default", "drain", by="ann")
            await lab.pass_time(hours=3)
            assert await stored(lab) == at("01:00:00")
            assert await troubles_of(lab.journal, app.engine.worker.id) == []  # it is delayed, and nothing failed
            await steer_queue(other.engine, "default", "resume", by="ann")
            await steer_queue(other.engine, "default", "pause", by="ann")
            await lab.pass_time(hours=1)
            assert await stored(lab) == at(*expected)  # accepted, and not started
            assert began == at("01:00:00")
            await steer_queue(other.engine, "default", "resume", by="ann")
            await lab.pass_time(minutes=1)
            assert sorted(began) == at(*expected)

    story()


@virtual
async def test_a_process_that_slept_through_a_drain_submits_nothing(lab: Lab):
    async with lab.app(desk) as app, lab.app(desk) as other:
        await declared(other, n=every(60, "all"))
        await app.engine.look()
        firing = scheduler(app)
        await firing.fire()
        await app.engine.queues.begin(app.engine.journal)
        await lab.pass_time(minutes=61)
        await steer_queue(other.engine, "default", "drain", by="ann")
        await firing.fire()
        assert await stored(lab) == []
        await steer_queue(other.engine, "default", "resume", by="ann")
        await app.engine.queues.refresh(app.engine.journal)
        await lab.pass_time(seconds=6)
        await firing.fire()
        assert await stored(lab) == at("01:00:00")


@virtual
async def test_a_clock_that_was_wrong_for_a_while_delays_no_moment_of_today(lab: Lab):
    async with lab.app(desk, recover=True) as app:
        await declared(app, n=every(60))
        lab.clock.skew_ms = 30 * 3_600_000 + 1_800_000  # it shows tomorrow, between two moments
        await lab.pass_time(minutes=10)
        lab.clock.skew_ms = 0
        await lab.pass_time(hours=2)
        assert await stored(lab) == at("01:00:00", "02:00:00")
