"""The requirements of the port on queues: what starts when, and what a process that dies gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import TypeVar

from beforehand.errors import LimitsChanged, QueueDraining, QueueFull
from beforehand.journal.cells import limit_uses, opens_in_ms
from beforehand.journal.host import this_process
from beforehand.journal.port import (
    Busy,
    ClaimRequest,
    Journal,
    Lease,
    LeaseGranted,
    LimitState,
    NewRun,
    Permit,
    PermitAnswer,
    PermitRequest,
    Post,
    QueuePlace,
    QueueState,
    ReleaseRequest,
    RunChange,
    SlowRequest,
    TakeRequest,
    Worker,
    Write,
)
from beforehand.journal.run_log import RunLog, genesis
from beforehand.queues.call_limits import AppliedLimit, CallLimit
from beforehand.queues.limits import STREAM, Declaration, DeclaredLimits, QueueLimits, TenantLimits
from beforehand.queues.modes import QueueMode, Restriction

ALICE, BOB = Worker("alice"), Worker("bob")
LONG_MS, OVER_MS = 3_600_000, -60_000  # a lease of the second length has ended before it began
AGENTS = (("desk", ""),)
LATER_MS = 2**52
PAUSED = Declaration(modes={"mail": QueueMode(paused=Restriction("ann", 1))})


async def submit(
    journal: Journal, run: str, place: QueuePlace, *, due_ms: int | None = 1, agent: str = "desk", program: str = ""
) -> None:
    """Store a run that waits in a queue."""
    change = RunChange("queued", due_ms=due_ms, release=True)
    claimed = await journal.commit(ClaimRequest(run, "alice", NewRun(agent, (), change, program, place)))
    assert isinstance(claimed, LeaseGranted)
    assert claimed.fresh


async def names(
    journal: Journal, worker: str, room: int, limits: DeclaredLimits | None = None, skip: Collection[str] = ()
) -> list[str]:
    """The runs that this worker gets now."""
    request = TakeRequest(worker, AGENTS, room, Declaration(limits or DeclaredLimits()), skip)
    return [one.lease.run for one in await journal.commit(request)]


async def refused(call: Awaitable[object], *kinds: type[Exception]) -> Exception | None:
    """The error of one of these kinds which the call raises."""
    try:
        await call
    except kinds as error:
        return error
    return None


async def start_log(journal: Journal, run: str = "r", worker: str = "alice") -> RunLog:
    """Claim a run and log to it. The chains of these tests start at the genesis of namespace "n"."""
    claimed = await journal.commit(ClaimRequest(run, worker, NewRun("desk")))
    assert isinstance(claimed, LeaseGranted), claimed
    return RunLog(journal, claimed.lease, claimed.last, genesis("n", run))


async def end(journal: Journal, run: str, change: RunChange | None = None) -> None:
    """Let the owner of a run end it, or give it back with another change."""
    (line,) = await journal.runs(run=run)
    assert line.owner is not None
    lease = Lease(run, line.row, line.token, line.owner)
    await journal.commit(Write(lease, (), change or RunChange("completed", release=True)))


async def permitted(
    journal: Journal, worker: str, number: int, *limits: CallLimit | AppliedLimit, declared: int = 0
) -> PermitAnswer:
    """The answer to a worker that asks for a permit; a worker that is silent for a second counts as gone."""
    applied = tuple(one.cell("charge") if isinstance(one, CallLimit) else one.cell for one in limits)
    return await journal.commit(PermitRequest(Permit(worker, number, f"r/{number}"), applied, declared, 1_000))


Suite = TypeVar("Suite", bound="QueueConformance")


def requirement(check: Callable[[Suite, Journal], Awaitable[None]]) -> Callable[[Suite, Path], None]:
    """Make a test of a method: it gets an open, empty journal in which the workers `alice` and `bob` live."""

    def test(self: Suite, tmp_path: Path) -> None:
        self.on_journal(tmp_path, partial(check, self))

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


class QueueConformance:
    """The requirements on queues, one test each, and the way in which every requirement of the port is tested."""

    make_journal: Callable[[Path], Journal]

    @requirement
    async def test_a_submitted_run_waits_for_a_slot_and_is_found_nowhere_else(self, journal: Journal) -> None:
        await submit(journal, "r", QueuePlace("mail", "acme"))
        (line,) = await journal.runs()
        assert (line.status, line.owner, line.queue, line.tenant) == ("queued", None, "mail", "acme")
        assert await journal.due(AGENTS, 9) == []
        assert await journal.runs(wakeable=True) == []
        again = await journal.commit(ClaimRequest("r", "bob", NewRun("desk", (), place=QueuePlace("mail"))))
        assert isinstance(again, Busy)
        assert again.row == line
        (granted,) = await journal.commit(TakeRequest("bob", AGENTS, 9, Declaration()))
        assert (granted.row.status, granted.row.owner, granted.fresh) == ("running", "bob", False)
        assert granted.ready_ms == line.due_ms
        assert granted.lease.token > line.token
        await journal.commit(Write(granted.lease))
        assert await names(journal, "alice", 9) == []

    @requirement
    async def test_a_run_that_leaves_its_queue_is_due_without_a_slot(self, journal: Journal) -> None:
        change = RunChange("suspended", due_ms=1, release=True, leaves_queue=True)
        for run in ("first", "second", "urgent"):
            await submit(journal, run, QueuePlace("mail", key="order-1"))
        assert await names(journal, "bob", 9) == ["first"]
        claimed = await journal.commit(ClaimRequest("urgent", "alice"))
        assert isinstance(claimed, LeaseGranted)
        await journal.commit(Write(claimed.lease, (), change))
        assert [(line.run, line.queue) for line in await journal.due(AGENTS, 9)] == [("urgent", "")]
        assert [(one.waiting, one.running) for one in await journal.queues()] == [(1, 1)]
        assert await names(journal, "bob", 9) == []
        await end(journal, "first", change)  # its key goes to the next
        assert await names(journal, "bob", 9) == ["second"]

    @requirement
    async def test_priority_and_age_decide_in_a_queue(self, journal: Journal) -> None:
        limits = DeclaredLimits({"mail": QueueLimits(ageing_ms=3)})
        for run, priority, ready in (("old", 0, 1), ("later", 0, 6), ("urgent", 2, 4), ("low", -1, 2)):
            await submit(journal, run, QueuePlace("mail", priority=priority), due_ms=ready)
        await submit(journal, "scheduled", QueuePlace("mail", priority=9), due_ms=LATER_MS)
        assert await names(journal, "bob", 1, limits) == ["urgent"]
        assert await names(journal, "bob", 9, limits) == ["old", "low", "later"]

    @requirement
    async def test_a_tenant_has_its_share(self, journal: Journal) -> None:
        limits = DeclaredLimits({"mail": QueueLimits(concurrency=1)})
        for number in range(30):
            await submit(journal, f"big {number:02}", QueuePlace("mail", "big"))
        assert await names(journal, "bob", 9, limits) == ["big 00"]
        await submit(journal, "small", QueuePlace("mail", "small"), due_ms=2)
        await end(journal, "big 00")
        assert await names(journal, "bob", 9, limits) == ["small"]

    @requirement
    async def test_every_limit_holds(self, journal: Journal) -> None:
        for queue in ("mail", "web"):
            for tenant in ("a", "b"):
                for number in range(4):
                    await submit(journal, f"{queue} {tenant} {number}", QueuePlace(queue, tenant))
        limits = DeclaredLimits(
            {"mail": QueueLimits(concurrency=3, per_tenant=2)},
            {},
            {"b": TenantLimits(2), "*": TenantLimits(5)},
        )
        found = [await names(journal, worker, 99, limits) for worker in ("alice", "bob")]
        assert (len([run for run in found[0] if run.startswith("mail")]), found[1]) == (3, [])
        assert len([run for run in found[0] if " b " in run]) == 2
        assert len([run for run in found[0] if " a " in run]) <= 5
        assert len(found[0]) == 6 or len(found[0]) == 7
        await journal.beat(ALICE, OVER_MS)
        assert len(await names(journal, "bob", 99, DeclaredLimits(agents={"desk": TenantLimits(2)}))) == 2

    @requirement
    async def test_runs_of_one_key_follow_each_other(self, journal: Journal) -> None:
        for number in range(5):
            await submit(journal, f"one {number}", QueuePlace("mail", key="order-1"))
        await submit(journal, "two", QueuePlace("mail", key="order-2"), due_ms=2)
        await submit(journal, "elsewhere", QueuePlace("web", key="order-1"), due_ms=3)
        assert sorted(await names(journal, "bob", 9)) == ["elsewhere", "one 0", "two"]
        await end(journal, "one 0", RunChange("suspended", release=True))
        assert await names(journal, "bob", 9) == []  # it waits, and has its key
        (granted,) = [await journal.commit(ClaimRequest("one 0", "alice"))]
        assert isinstance(granted, LeaseGranted)
        await journal.commit(Write(granted.lease, (), RunChange("suspended", due_ms=1, release=True)))
        assert await names(journal, "bob", 9) == ["one 0"]
        await end(journal, "one 0", RunChange("stopped", release=True))
        assert await names(journal, "bob", 9) == ["one 1"]
        (reopened,) = [await journal.commit(ClaimRequest("one 0", "alice"))]
        assert isinstance(reopened, LeaseGranted)
        await journal.commit(Write(reopened.lease, (), RunChange("running", release=True)))
        assert await names(journal, "bob", 9) == []  # another one has the key now
        for _ in range(4):
            (driven,) = [line.run for line in await journal.runs() if line.owner and line.run.startswith("one")]
            await end(journal, driven)
            assert len(await names(journal, "bob", 9)) <= 1
        assert [line.run for line in await journal.runs(status="queued")] == []

    @requirement
    async def test_runs_that_have_their_key_do_not_wait_for_each_other(self, journal: Journal) -> None:
        two = DeclaredLimits({"mail": QueueLimits(key="order-{order}", per_key=2)})
        for number in range(3):
            await submit(journal, f"r{number}", QueuePlace("mail", key="order-1"))
        assert await names(journal, "bob", 9, two) == ["r0", "r1"]
        for run in ("r0", "r1"):
            await end(journal, run, RunChange("suspended", due_ms=1, release=True))
        assert sorted(await names(journal, "bob", 9)) == ["r0", "r1"]  # one at a time now, and both have begun
        for run in ("r0", "r1"):
            assert await names(journal, "bob", 9) == []
            await end(journal, run)
        assert await names(journal, "bob", 9) == ["r2"]

    @requirement
    async def test_a_higher_limit_lets_those_in_that_wait_for_a_key(self, journal: Journal) -> None:
        two = DeclaredLimits({"mail": QueueLimits(key="order-{order}", per_key=2)})
        for number in range(3):
            await submit(journal, f"r{number}", QueuePlace("mail", key="order-1"))
        assert await names(journal, "bob", 9) == ["r0"]
        entry = await journal.commit(Post(STREAM, "", b"{}"))
        granted = await journal.commit(TakeRequest("bob", AGENTS, 9, Declaration(two, entry.id)))
        assert [one.lease.run for one in granted] == ["r1"]

    @requirement
    async def test_a_run_that_is_paused_behind_its_key_keeps_no_other_waiting(self, journal: Journal) -> None:
        async def change(run: str, to: RunChange) -> None:
            claimed = await journal.commit(ClaimRequest(run, "alice"))
            assert isinstance(claimed, LeaseGranted)
            await journal.commit(Write(claimed.lease, (), to))

        for number in range(3):
            await submit(journal, f"r{number}", QueuePlace("mail", key="order-1"))
        assert await names(journal, "bob", 9) == ["r0"]
        await end(journal, "r0", RunChange("stopped", release=True))
        assert await names(journal, "bob", 9) == ["r1"]
        for to in (RunChange("running", release=True), RunChange("suspended", release=True)):
            await change("r0", to)  # it is reopened behind r1, and paused there
            assert await names(journal, "bob", 9) == []
        await end(journal, "r1")
        assert await names(journal, "bob", 9) == ["r2"]
        await change("r0", RunChange("suspended", due_ms=1, release=True))
        assert await names(journal, "bob", 9) == []
        await end(journal, "r2")
        assert await names(journal, "bob", 9) == ["r0"]

    @requirement
    async def test_a_process_whose_lease_is_over_takes_each_run_once(self, journal: Journal) -> None:
        await journal.beat(BOB, OVER_MS)
        for number in range(3):
            await submit(journal, f"r{number}", QueuePlace("mail", key=f"k{number % 2}"))
        assert sorted(await names(journal, "bob", 9)) == ["r0", "r1"]
        assert await names(journal, "bob", 9, skip={"r0", "r1"}) == []

    @requirement
    async def test_runs_whose_key_is_taken_hide_no_others(self, journal: Journal) -> None:
        for number in range(6):
            await submit(journal, f"one {number}", QueuePlace("mail", key="order-1"), due_ms=number)
        await submit(journal, "two", QueuePlace("mail", key="order-2"), due_ms=9)
        assert await names(journal, "bob", 1) == ["one 0"]
        assert await names(journal, "bob", 1) == ["two"]
        stopped = await journal.commit(ClaimRequest("one 2", "alice"))
        assert isinstance(stopped, LeaseGranted)
        await journal.commit(Write(stopped.lease, (), RunChange("stopped", due_ms=2, release=True)))
        for number in (0, 1, 3, 4):  # one that stopped while it waited for the key keeps no other waiting
            assert await names(journal, "bob", 1) == [f"one {number}"] * (number > 0)
            await end(journal, f"one {number}")
        assert await names(journal, "bob", 1) == ["one 5"]

    @requirement
    async def test_a_dead_process_gives_back_its_slots(self, journal: Journal) -> None:
        limits = DeclaredLimits({"mail": QueueLimits(concurrency=2)})
        for number in range(3):
            await submit(journal, f"r{number}", QueuePlace("mail", key=f"k{number % 2}"))
        assert sorted(await names(journal, "alice", 9, limits)) == ["r0", "r1"]
        assert await names(journal, "bob", 9, limits) == []
        await journal.beat(ALICE, OVER_MS)
        assert sorted(await names(journal, "bob", 9, limits)) == ["r0", "r1"]
        assert await names(journal, "bob", 9, limits) == []

    @requirement
    async def test_a_full_queue_refuses_and_stores_nothing(self, journal: Journal) -> None:
        place = QueuePlace("mail", capacity=2)
        for run in ("r0", "r1"):
            await submit(journal, run, place)
        for _ in range(2):
            assert await refused(submit(journal, "r2", place), QueueFull)
        assert len(await journal.runs()) == 2
        assert await names(journal, "bob", 1) == ["r0"]
        await submit(journal, "r2", place)

    def test_a_paused_queue_starts_nothing_new_and_what_has_begun_continues(self, tmp_path: Path) -> None:
        async def taken(journal: Journal, newest: Declaration, skip: Collection[str] = ()) -> list[str]:
            return sorted(one.lease.run for one in await journal.commit(TakeRequest("bob", AGENTS, 9, newest, skip)))

        async def check(journal: Journal) -> None:
            begun = ["asks", "dies", "goes on", "later"]
            for run in begun:
                await submit(journal, run, QueuePlace("mail"), due_ms=3)
            assert sorted(await names(journal, "alice", 9)) == begun
            for number in range(12):  # ready before those that have begun, so they are in front of them
                await submit(journal, f"new {number}", QueuePlace("mail"), due_ms=1)
            await end(journal, "asks", RunChange("suspended", due_ms=2, release=True))
            await end(journal, "goes on", RunChange("running", release=True))
            await end(journal, "later", RunChange("suspended", due_ms=LATER_MS, release=True))
            assert await taken(journal, PAUSED, {"goes on"}) == ["asks"]
            assert await taken(journal, PAUSED) == ["goes on"]
            await journal.beat(ALICE, OVER_MS)
            assert await taken(journal, PAUSED) == ["dies"]
            await submit(journal, "elsewhere", QueuePlace("web"))
            await submit(journal, "new 12", QueuePlace("mail"))
            assert await taken(journal, PAUSED) == ["elsewhere"]
            assert await taken(journal, PAUSED) == []
            assert len(await taken(journal, Declaration())) == 9

        self.on_journal(tmp_path, check)

    @requirement
    async def test_limits_hold_for_what_continues_in_a_paused_queue(self, journal: Journal) -> None:
        for number in range(3):
            await submit(journal, f"r{number}", QueuePlace("mail"))
        assert len(await names(journal, "bob", 9)) == 3
        for number in range(3):
            await end(journal, f"r{number}", RunChange("suspended", due_ms=1 + number, release=True))
        two = Declaration(DeclaredLimits({"mail": QueueLimits(concurrency=2)}), 0, PAUSED.modes)
        assert [one.lease.run for one in await journal.commit(TakeRequest("bob", AGENTS, 9, two))] == ["r0", "r1"]
        assert await journal.commit(TakeRequest("bob", AGENTS, 9, two)) == []

    @requirement
    async def test_a_queue_that_is_drained_refuses_and_stores_nothing(self, journal: Journal) -> None:
        draining = QueuePlace("mail", draining=True)
        await submit(journal, "r0", QueuePlace("mail"))
        assert await refused(submit(journal, "r1", draining), QueueDraining)
        assert len(await journal.runs()) == 1
        assert isinstance(await journal.commit(ClaimRequest("r0", "bob", NewRun("desk", (), place=draining))), Busy)
        assert await names(journal, "bob", 9) == ["r0"]

    @requirement
    async def test_limits_that_were_replaced_give_no_slot_and_store_no_run(self, journal: Journal) -> None:
        await submit(journal, "r", QueuePlace("mail"))
        entry = await journal.commit(Post(STREAM, "", b"{}"))
        for read in (0, entry.id):
            replaced = read != entry.id
            stored = submit(journal, f"after {read}", QueuePlace("mail", declared=read))
            assert bool(await refused(stored, LimitsChanged)) == replaced
            taken = journal.commit(TakeRequest("bob", AGENTS, 1, Declaration(entry=read)))
            assert bool(await refused(taken, LimitsChanged)) == replaced
            (line,) = await journal.runs(run="r")
            assert line.owner == (None if replaced else "bob")
        assert len(await journal.runs()) == 2

    @requirement
    async def test_only_the_code_at_hand_is_started(self, journal: Journal) -> None:
        for number in range(9):
            await submit(journal, f"other {number}", QueuePlace("mail"), agent="other")
            await submit(journal, f"program {number}", QueuePlace("mail"), program="shop")
        await submit(journal, "r", QueuePlace("mail"), due_ms=2)
        assert await names(journal, "bob", 1, skip={"r"}) == []
        assert await names(journal, "bob", 1) == ["r"]
        found = await journal.queues()
        assert found == [QueueState("mail", 18, 1, 1, (("desk", "shop"), ("other", "")))]

    @requirement
    async def test_no_more_permits_are_granted_than_calls_may_be_under_way(self, journal: Journal) -> None:
        limit = CallLimit(at_once=2)
        answers = await asyncio.gather(
            *(permitted(journal, worker, number, limit) for number in (1, 2) for worker in ("alice", "bob"))
        )
        assert sorted(one.granted for one in answers) == [False, False, True, True]
        assert [one.limits[0].full for one in answers].count(False) == 1
        assert (await permitted(journal, "alice", 3, AppliedLimit("mail", limit))).granted
        uses = {use.name: use.permits for use in await limit_uses(journal)}
        assert (len(uses["charge"]), len(uses["mail"])) == (2, 1)
        first = uses["charge"][0]
        await journal.commit(ReleaseRequest(first, {"charge": None}))
        await journal.commit(ReleaseRequest(first, {"charge": None}))
        last = await permitted(journal, "bob", 9, limit)
        assert last == PermitAnswer(granted=True, limits=(LimitState("charge", full=True, wait_ms=0),))
        assert not (await permitted(journal, "bob", 10, limit)).granted
        assert (await permitted(journal, "bob", 10, CallLimit(at_once=3))).granted
        assert not (await permitted(journal, "bob", 11, limit)).granted

    @requirement
    async def test_a_permit_is_granted_under_all_limits_or_under_none(self, journal: Journal) -> None:
        tool, service = AppliedLimit("tool", CallLimit(rate="1/hour")), AppliedLimit("service", CallLimit(at_once=1))
        assert (await permitted(journal, "alice", 1, service)).granted
        refused = await permitted(journal, "bob", 1, tool, service)
        assert refused.granted is False
        assert refused.limits == (LimitState("tool", full=False, wait_ms=0), LimitState("service", True, 0))
        assert {use.name: len(use.permits) for use in await limit_uses(journal)} == {"service": 1, "tool": 0}
        await journal.commit(ReleaseRequest(Permit("alice", 1, "r/1"), {"service": None}))
        assert (await permitted(journal, "bob", 1, tool, service)).granted
        assert {use.name: len(use.permits) for use in await limit_uses(journal)} == {"service": 1, "tool": 1}
        await journal.commit(ReleaseRequest(Permit("bob", 1, "r/1"), {"tool": None, "service": None}))
        late = await permitted(journal, "bob", 2, tool, service)
        assert not late.granted
        assert late.limits[0].wait_ms > 3_500_000
        assert {use.name: len(use.permits) for use in await limit_uses(journal)} == {"service": 0, "tool": 0}

    @requirement
    async def test_a_call_counts_as_much_as_it_has_used(self, journal: Journal) -> None:
        limit = CallLimit(rate="1000/hour")
        for number, used, waits_s in ((1, None, 360), (2, 50, 180), (3, 200, 720)):
            name = f"tokens {number}"
            answer = await permitted(journal, "bob", number, AppliedLimit(name, limit, units=100))
            assert answer.granted
            await journal.commit(ReleaseRequest(Permit("bob", number, f"r/{number}"), {name: used}))
            await journal.commit(ReleaseRequest(Permit("bob", number, f"r/{number}"), {name: 5}))
            refused = await permitted(journal, "bob", 9, AppliedLimit(name, limit, units=100))
            assert not refused.granted
            assert waits_s * 1000 - 60_000 < refused.limits[0].wait_ms <= waits_s * 1000

    @requirement
    async def test_the_permits_of_a_process_that_is_gone_are_free(self, journal: Journal) -> None:
        limit = CallLimit(at_once=1)
        await journal.beat(ALICE, OVER_MS)
        assert (await permitted(journal, "alice", 1, limit)).granted
        assert not (await permitted(journal, "alice", 2, limit)).granted
        assert [use.permits for use in await limit_uses(journal, -OVER_MS * 10)] == [(Permit("alice", 1, "r/1"),)]
        assert (await permitted(journal, "bob", 1, limit)).granted
        await journal.beat(ALICE, LONG_MS)
        assert not (await permitted(journal, "bob", 2, CallLimit(at_once=2))).granted

    @requirement
    async def test_a_process_that_is_seen_to_live_keeps_its_permits_whatever_its_silence(
        self, journal: Journal
    ) -> None:
        """That of a worker that cannot be observed is free after the bound; alice and bob have no process."""
        limit, here = CallLimit(at_once=1), this_process("carol")
        for number, worker in enumerate((here, ALICE)):
            await journal.beat(worker, LONG_MS)
            held = AppliedLimit(f"held by {worker.id}", limit)
            assert (await permitted(journal, worker.id, number, held)).granted
            await journal.beat(worker, OVER_MS)
            lives = (await journal.fate(worker.id)).fate == "alive"
            answer = await permitted(journal, "bob", number, held)
            assert answer.granted is not lives
            silent_ms = answer.limits[0].silent_ms
            assert answer.limits == (LimitState(held.name, lives or answer.granted, 0, worker.pid * lives, silent_ms),)
            assert (silent_ms >= -OVER_MS) is lives
            (use,) = [use for use in await limit_uses(journal, 1_000) if use.name == held.name]
            holder = worker.id if lives else "bob"
            assert use.permits == (Permit(holder, number, f"r/{number}"),)
            assert use.hung == worker.pid * lives

    @requirement
    async def test_a_rate_and_a_service_say_when_the_next_permit_is_granted(self, journal: Journal) -> None:
        hourly = CallLimit(rate="2/hour", burst=2)
        assert [(await permitted(journal, "bob", number, hourly)).granted for number in (1, 2)] == [True, True]
        refused = await permitted(journal, "alice", 3, hourly)
        (state,) = refused.limits
        assert (refused.granted, state.full) == (False, False)
        assert 0 < state.wait_ms <= 1_800_000
        (use,) = await limit_uses(journal)
        now = journal.clock()
        assert opens_in_ms(hourly.cell(), use.pace, now.epoch, now.earliest_ms) <= state.wait_ms
        await journal.commit(SlowRequest(("mail", "post"), 60_000))
        await journal.commit(SlowRequest(("mail",), 1_000))
        slowed = await permitted(journal, "alice", 4, AppliedLimit("mail", CallLimit()))
        assert not slowed.granted
        assert 1_000 < slowed.limits[0].wait_ms <= 60_000
        assert not (await permitted(journal, "alice", 4, AppliedLimit("post", CallLimit()))).granted

    @requirement
    async def test_no_permit_is_granted_under_limits_that_others_have_replaced(self, journal: Journal) -> None:
        entry = await journal.commit(Post(STREAM, "", b"{}"))
        assert await refused(permitted(journal, "bob", 1, CallLimit(at_once=1)), LimitsChanged)
        assert await limit_uses(journal) == []
        assert (await permitted(journal, "bob", 1, CallLimit(at_once=1), declared=entry.id)).granted

    def on_journal(self, place: Path, check: Callable[[Journal], Awaitable[None]]) -> None:
        """Open a journal with two living workers, check it, close it."""

        async def whole() -> None:
            journal = self.make_journal(place)
            await journal.open()
            try:
                await journal.beat(ALICE, LONG_MS)
                await journal.beat(BOB, LONG_MS)
                await check(journal)
            finally:
                await journal.close()

        asyncio.run(whole())
