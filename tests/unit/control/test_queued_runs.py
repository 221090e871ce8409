"""What is stored of a run that is submitted, by whom and by what it was, in which order such runs begin, and how soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from beforehand import Beforehand, Run, agent
from beforehand.control.queues import steer_queue
from beforehand.control.schedules import Scheduler, declare_schedules
from beforehand.engine.queueing import needs_slot, take_slots
from beforehand.errors import JournalUnavailable, ParameterMismatch, RunQueued, UsageError
from beforehand.journal.port import Lease, LeaseGranted, QueuePlace, RunRow, TakeRequest
from beforehand.model import records as r
from beforehand.policies import RunBudget
from beforehand.queues.firing_times import Schedule
from beforehand.queues.limits import DeclaredLimits, QueueLimits, TenantLimits
from beforehand.testing.clock import EPOCH_MS
from tests.commits import Commit, intercept
from tests.unit.engine.lab import DAYS, Lab, virtual

MINUTE, HOUR = 60_000, 3_600_000
OWN, GIVEN = RunBudget(tokens=10), RunBudget(model_calls=5)


def desk_of(lab: Lab, seconds: float = 1) -> Any:
    """An agent that notes when each of its runs begins, and works on it for so long."""

    @agent(name="desk", run_id="ticket-{ticket[id]}", budget=OWN)
    async def desk(run: Run, ticket: dict[str, str]) -> str:
        lab.sent.append(run.id.removeprefix("ticket-"))
        await asyncio.sleep(seconds)
        return ticket["id"]

    return desk


def ticket(name: str) -> dict[str, str]:
    return {"id": name, "order": "A"}


def moment(after_ms: int) -> datetime:
    return datetime.fromtimestamp((EPOCH_MS + after_ms) / 1000, UTC)


LIMITS = DeclaredLimits(
    {"mail": QueueLimits(key="order-{ticket.order}", capacity=3)}, tenants={"acme": TenantLimits(2)}
)
PLAIN: dict[str, Any] = {
    "run": "ticket-a", "queue": "default", "tenant": "", "key": "", "priority": 0, "capacity": 100_000, "due": 0, "by": "",
    "budget": OWN,
}  # fmt: skip
SUBMISSIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "with no option": ({}, {}),
    "to a queue": ({"queue": "mail"}, {"queue": "mail", "key": "order-A", "capacity": 3}),
    "of a tenant": ({"tenant": "acme"}, {"tenant": "acme"}),
    "with a priority": ({"priority": -9}, {"priority": -9}),
    "for later": ({"at": moment(HOUR)}, {"due": HOUR}),
    "for earlier": ({"at": moment(-HOUR)}, {}),
    "under a key": ({"key": "job-1"}, {"run": "job-1"}),
    "by a person": ({"by": "ann"}, {"by": "ann"}),
    "with a budget": ({"budget": GIVEN}, {"budget": GIVEN}),
    "with all of these": (
        {"queue": "mail", "tenant": "acme", "priority": 9, "at": moment(HOUR), "key": "job-1", "by": "ann",
         "budget": GIVEN},
        {"queue": "mail", "key": "order-A", "capacity": 3, "tenant": "acme", "priority": 9, "due": HOUR,
         "run": "job-1", "by": "ann", "budget": GIVEN},
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", SUBMISSIONS)
@virtual
async def test_a_run_is_stored_as_it_was_submitted_and_once(lab: Lab, how: str):
    options, changed = SUBMISSIONS[how]
    expected, desk = PLAIN | changed, desk_of(lab)
    async with lab.app(desk, queues=LIMITS) as app:
        declared = app.engine.queues.newest
        assert declared is not None
        first, again = [await app.submit(desk, ticket("a"), **options) for _ in range(2)]
        assert (first.run, first.queue, first.new) == (expected["run"], expected["queue"], True)
        assert again == replace(first, new=False)
        (line,) = await lab.journal.runs()
        (state,) = await lab.journal.queues()
    (started,) = lab.records(first.run)
    assert isinstance(started, r.RunStarted)
    about = {
        name: getattr(started, name) for name in ("agent", "queue", "tenant", "by", "budget", "schedule", "moment")
    }
    assert about == {
        "agent": "desk", "queue": expected["queue"], "tenant": expected["tenant"], "by": expected["by"],
        "budget": expected["budget"], "schedule": "", "moment": 0,
    }  # fmt: skip
    assert (line.run, line.agent, line.status, line.owner) == (first.run, "desk", "queued", None)
    assert (line.queue, line.tenant, line.reason) == (started.queue, started.tenant, f"in the queue {started.queue}")
    assert line.due_ms == EPOCH_MS + expected["due"]
    assert lab.journal._runs[first.run].place == QueuePlace(
        expected["queue"], expected["tenant"], expected["key"], expected["priority"], expected["capacity"],
        declared.entry,
    )  # fmt: skip
    assert (state.queue, state.waiting, state.running) == (line.queue, 1, 0)
    assert state.oldest_ms == (None if expected["due"] else line.due_ms)


@pytest.mark.parametrize("how", ["plain", "with options"])
@virtual
async def test_a_schedule_stores_what_a_submission_at_its_moment_would(lab: Lab, how: str):
    """But for the name of the run, and that a schedule has made it."""
    desk = desk_of(lab)
    options: dict[str, Any] = {} if how == "plain" else {"queue": "mail", "tenant": "acme", "priority": 3}
    async with lab.app(desk, queues=LIMITS) as app:
        await declare_schedules(app.engine, {"n": Schedule("desk", ticket("a"), every_ms=HOUR, **options)}, app.agents)
        await lab.pass_time(hours=1, seconds=7)
        await Scheduler(app.engine, app.agents).fire()
        await app.submit(desk, ticket("a"), key="by-hand", **options)
        submitted, fired = await lab.journal.runs()  # the newest first
    assert fired.run == "n@2026-01-01T01:00:00Z"
    assert replace(fired, run="", row=0) == replace(submitted, run="", row=0)
    (one,), (other,) = lab.records(fired.run), lab.records(submitted.run)
    assert isinstance(one, r.RunStarted)
    assert (one.schedule, one.moment) == ("n", EPOCH_MS + HOUR)
    assert replace(one, schedule="", moment=0) == other
    places = [lab.journal._runs[run.run].place for run in (fired, submitted)]
    assert places[0] == places[1]


@virtual
async def test_the_journal_notes_each_firing_and_fires_no_moment_before_its_time(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await declare_schedules(app.engine, {"n": Schedule("desk", ticket("a"), every_ms=HOUR)}, app.agents)
        firing, found = Scheduler(app.engine, app.agents), list[int]()
        for _ in range(8):
            await firing.fire()
            found.append(len(await lab.journal.runs()))
            await lab.pass_time(minutes=15)
    assert found == [0, 0, 0, 0, 1, 1, 1, 1]


ORDERS: dict[str, tuple[list[tuple[str, int, dict[str, Any]]], list[str]]] = {
    "as they came": ([("a", 0, {}), ("b", 1, {}), ("c", 2, {})], ["a", "b", "c"]),
    "the higher priority first": (
        [("low", 0, {"priority": -1}), ("plain", 0, {}), ("high", 0, {"priority": 9})], ["high", "plain", "low"],
    ),
    "a low priority that is old enough": ([("old", 0, {}), ("high", 10, {"priority": 9})], ["old", "high"]),
    "a low priority that is not": ([("old", 0, {}), ("high", 8, {"priority": 9})], ["high", "old"]),
    "one that is for later last": ([("later", 0, {"at": moment(HOUR)}), ("a", 1, {}), ("b", 2, {})], ["a", "b", "later"]),
    "each tenant in turn": (
        [(f"acme-{number}", 0, {"tenant": "acme"}) for number in range(3)]
        + [("bolt", 1, {"tenant": "bolt"}), ("own", 2, {})],
        ["acme-0", "bolt", "own", "acme-1", "acme-2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ORDERS)
@virtual
async def test_runs_of_a_queue_begin_in_the_order_that_is_promised(lab: Lab, row: str):
    """And at each moment, each of them waits, is driven or has ended, and is counted so."""
    submissions, expected = ORDERS[row]
    desk = desk_of(lab, seconds=90)
    limits = DeclaredLimits(
        {"mail": QueueLimits(concurrency=1)}, tenants={"acme": TenantLimits(), "bolt": TenantLimits()}
    )
    async with lab.app(desk, queues=limits) as app:
        for name, minute, options in submissions:
            await lab.pass_time(seconds=(EPOCH_MS + minute * MINUTE - lab.clock.wall_ms()) / 1000)
            await app.submit(desk, ticket(name), queue="mail", **options)
    async with lab.app(desk, recover=True):
        for _ in range(90):
            await lab.pass_time(minutes=1)
            lines, states = await lab.journal.runs(), {one.queue: one for one in await lab.journal.queues()}
            by_status = [line.status for line in lines]
            assert len(lines) == len(submissions)
            counted = (states["mail"].waiting, states["mail"].running) if states else (0, 0)
            assert counted == (by_status.count("queued"), by_status.count("running"))
            assert by_status.count("running") <= 1
            assert len(lab.sent) == len(lines) - by_status.count("queued")
    assert lab.sent == expected


async def submits(lab: Lab, app: Beforehand, desk: Any) -> None:
    await app.submit(desk, ticket("b"), queue="mail")


async def resumes(lab: Lab, app: Beforehand, desk: Any) -> None:
    await steer_queue(app.engine, "mail", "pause", by="ann")
    await app.submit(desk, ticket("b"), queue="mail")
    await lab.pass_time(minutes=10)
    assert lab.sent == []
    await steer_queue(app.engine, "mail", "resume", by="ann")


async def gives_way(lab: Lab, app: Beforehand, desk: Any) -> None:
    await app.submit(desk, ticket("a"), queue="mail")
    await app.submit(desk, ticket("b"), queue="mail")
    await lab.pass_time(seconds=100)
    assert lab.sent == ["a"]
    await lab.pass_time(seconds=20)
    lab.sent.remove("a")


@pytest.mark.parametrize("what", [submits, resumes, gives_way], ids=lambda what: what.__name__)
@virtual
async def test_a_run_begins_as_soon_as_it_may(lab: Lab, what: Callable[[Lab, Beforehand, Any], Awaitable[None]]):
    """The worker looks once in a minute. It is told of what this process does."""
    desk, limits = desk_of(lab, seconds=120), DeclaredLimits({"mail": QueueLimits(concurrency=1)})
    await lab.pass_time(seconds=1)
    async with lab.app(desk, queues=limits, recover=True, **DAYS) as app:
        await lab.pass_time(seconds=61)
        await what(lab, app, desk)
        await lab.pass_time(seconds=1)
        assert lab.sent == ["b"]


@pytest.mark.parametrize("word", ["", "pause", "drain"])
@virtual
async def test_who_drives_a_run_that_waits_is_told_for_what(lab: Lab, word: Any):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await app.submit(desk, ticket("a"))
        if word:
            await steer_queue(app.engine, "default", word, by="ann", why="we move")
        with pytest.raises(RunQueued) as waits:
            await app.drive("ticket-a")
        (line,) = await lab.journal.runs()
    paused = word == "pause"
    assert (waits.value.run, waits.value.message) == ("ticket-a", "run ticket-a waits in the queue default for a slot")
    assert waits.value.known == (
        "it is stored; the queue is paused by ann: we move" if paused
        else "it is stored, and a worker starts it when the limits of the queue permit"
    )  # fmt: skip
    assert waits.value.next_step.endswith(
        "beforehand queues resume default" if paused else "start it: beforehand worker"
    )
    assert (line.status, line.owner) == ("queued", None)


@virtual
async def test_no_slot_is_taken_without_room_or_before_limits_are_read(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await app.submit(desk, ticket("a"))
        assert await take_slots(app.engine, 0, ()) == []
        assert await take_slots(app.engine, 1, {"ticket-a"}) == []
        (row,) = await take_slots(app.engine, 1, ())
        assert (row.run, row.status) == ("ticket-a", "running")
        assert (await app.drive("ticket-a")).status == "completed"


@pytest.mark.parametrize("queue", ["mail", ""])
@pytest.mark.parametrize("slot", [True, False])
@pytest.mark.parametrize("status", ["running", "suspended", "halted", "completed", "stopped", "undone"])
def test_a_run_of_a_queue_goes_on_with_a_slot_and_ends_without_one(queue: str, slot: bool, status: Any):
    row = RunRow("r", 1, "desk", "", "running", "", None, b"[]", 1, "w", 0, 0, queue)
    history: Any = SimpleNamespace(lifecycle=SimpleNamespace(status=status))
    needs = needs_slot(LeaseGranted(Lease("r", 1, 1, "w"), row, None, slot=slot), history)
    assert needs == (queue == "mail" and not slot and status in {"running", "suspended", "halted"})


@pytest.mark.parametrize("again", [False, True], ids=["one failed", "and so did the next"])
@pytest.mark.parametrize("lost", [True, False], ids=["the answer was lost", "nothing was taken"])
@virtual
async def test_the_look_after_a_failed_one_gives_back_what_that_has_taken_and_nothing_else(
    lab: Lab, lost: bool, again: bool
):
    """Not the runs of another process, nor those that this one drives, in a queue or in none."""
    desk = desk_of(lab, seconds=100)
    async with lab.app(desk, **DAYS) as other, lab.app(desk, **DAYS) as mine:

        async def taking(request: Any, commit: Commit) -> Any:
            if lost:
                await commit(request)
            raise JournalUnavailable("the answer was lost")

        for number, app in enumerate((other, mine)):
            await app.submit(desk, ticket(f"queued-{number}"))
            (row,) = await take_slots(app.engine, 1, ())
            driven = asyncio.ensure_future(app.drive(row.run))
            app.start(desk, ticket(f"alone-{number}"))
            await lab.pass_time(seconds=1)
            assert not driven.done()
        await mine.submit(desk, ticket("lost"))
        as_before = intercept(lab.journal, TakeRequest, taking)
        with pytest.raises(JournalUnavailable):
            await take_slots(mine.engine, 9, ())
        as_before()
        if again:
            lab.journal.fail_next()
            with pytest.raises(JournalUnavailable):
                await take_slots(mine.engine, 9, {"ticket-lost"})
        before = {line.run: line for line in await lab.journal.runs()}
        assert await take_slots(mine.engine, 9, {"ticket-lost"}) == []
        await lab.pass_time(seconds=1)
        after = {line.run: line for line in await lab.journal.runs()}
        assert {run for run, line in after.items() if line != before[run]} == ({"ticket-lost"} if lost else set())
        assert after["ticket-lost"].owner is None
        assert [row.run for row in await take_slots(mine.engine, 9, ())] == ["ticket-lost"]
        assert (await mine.drive("ticket-lost")).status == "completed"
        await lab.pass_time(minutes=5)
        assert {line.status for line in await lab.journal.runs()} == {"completed"}


@virtual
async def test_a_submission_is_refused_where_the_run_is_another_one_and_stores_nothing(lab: Lab):
    desk = desk_of(lab)

    @agent(name="clerk", run_id="ticket-{ticket[id]}")
    async def clerk(run: Run, ticket: dict[str, str]) -> str:
        return ticket["id"]

    @agent(name="desk", run_id="ticket-{ticket[id]}", program="elsewhere")
    async def other(run: Run, ticket: dict[str, str]) -> str:
        return ticket["id"]

    async with lab.app(desk, clerk) as app:
        await app.submit(desk, ticket("a"))
        before = lab.everything()
        with pytest.raises(ParameterMismatch, match="another input"):
            await app.submit(desk, {"id": "a", "order": "B"})
        for strange in (clerk, other):
            with pytest.raises(
                ParameterMismatch, match=r"run ticket-a belongs to the agent desk of the program"
            ) as refused:
                await app.submit(strange, ticket("a"))
            assert (refused.value.known, refused.value.next_step) == (
                "nothing was stored",
                "submit it under another key",
            )
        for given, message in (({"by": 7}, "by=7"), ({"budget": 7}, "budget=7"), ({"at": "now"}, "at='now'")):
            with pytest.raises(UsageError, match=message):
                await app.submit(desk, ticket("b"), **given)
        assert lab.everything() == before
