"""When exactly a run is ready, and which of those that are comes first: to the millisecond, alike in both journals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from beforehand.journal.host import HostFacts
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import (
    ClaimRequest,
    Journal,
    LeaseGranted,
    NewRun,
    QueuePlace,
    QueueState,
    RunChange,
    TakeRequest,
    Write,
)  # fmt: skip
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.queues.limits import Declaration
from beforehand.testing.queue_conformance import AGENTS, ALICE, BOB, LONG_MS, OVER_MS, PAUSED, end, submit

NOW_MS = 1_000


class Moment:
    """An open journal whose clock stands until a test moves it."""

    def __init__(self, place: Path, kind: str) -> None:
        self.now_ms = NOW_MS
        here = HostFacts("m", "b", lambda: self.now_ms, lambda: self.now_ms, lambda _: "alive")
        self.journal: Journal = (
            MemoryJournal(lambda: self.now_ms)
            if kind == "memory"
            else SqliteJournal(place / "journal.db", parts=Parts(here=here, commits="loop"))
        )

    async def take(self, worker: str = "bob", newest: Declaration = PAUSED, room: int = 9) -> list[str]:
        return [one.lease.run for one in await self.journal.commit(TakeRequest(worker, AGENTS, room, newest))]

    async def begin(self, name: str, given_back: RunChange | None = None, **place: int) -> None:
        """Let `alice` take a run that has its queue for itself, and give it back."""
        await submit(self.journal, name, QueuePlace("mail", **place))
        assert await self.take("alice", Declaration()) == [name]
        if given_back is not None:
            await end(self.journal, name, given_back)


def at(kind: str, place: Path, check: Callable[[Moment], Awaitable[None]]) -> None:
    """Check something on an open, empty journal in which `alice` and `bob` live."""

    async def whole() -> None:
        moment = Moment(place, kind)
        await moment.journal.open()
        for worker in (ALICE, BOB):
            await moment.journal.beat(worker, LONG_MS)
        await check(moment)
        await moment.journal.close()

    asyncio.run(whole())


kinds = pytest.mark.parametrize("kind", ["memory", "sqlite"])
states = pytest.mark.parametrize("newest", [Declaration(), PAUSED], ids=["open", "paused"])
WAITS = {
    "queued": RunChange("queued"),
    "claimed by one that died": RunChange("queued"),
    "suspended": RunChange("suspended", release=True),
    "running": RunChange("running", release=True),
}


@kinds
@states
@pytest.mark.parametrize("early_ms", [0, 1])
@pytest.mark.parametrize("waits", WAITS)
def test_a_run_is_ready_from_the_very_millisecond_for_which_it_waits(
    kind: str, newest: Declaration, waits: str, early_ms: int, tmp_path: Path
):
    """What has begun and wants to go on is ready at once, and a paused queue begins nothing."""

    async def check(moment: Moment) -> None:
        journal, due_ms = moment.journal, NOW_MS + 50
        if waits in {"queued", "claimed by one that died"}:
            await submit(journal, "r", QueuePlace("mail"), due_ms=due_ms)
        else:
            await moment.begin("r", RunChange(WAITS[waits].status, due_ms=due_ms, release=True))
        if waits == "claimed by one that died":
            assert isinstance(await journal.commit(ClaimRequest("r", "alice")), LeaseGranted)
            await journal.beat(ALICE, OVER_MS)
        moment.now_ms = due_ms - early_ms
        await journal.beat(BOB, LONG_MS)
        ready = waits == "running" or not early_ms
        begins = ready and not (newest is PAUSED and waits in {"queued", "claimed by one that died"})
        assert [one.agents for one in await journal.queues() if one.agents] == [AGENTS] * ready
        assert await moment.take(newest=newest) == ["r"] * begins

    at(kind, tmp_path, check)


@kinds
@states
def test_what_goes_on_comes_in_the_order_in_which_it_became_ready(kind: str, newest: Declaration, tmp_path: Path):
    """Of those that became ready together, the one that was submitted first. Priority comes before both."""

    async def check(moment: Moment) -> None:
        for name, due_ms in (("late", 90), ("b", 20), ("a", 20), ("early", 10)):
            await moment.begin(name, RunChange("suspended", due_ms=NOW_MS + due_ms, release=True))
        await moment.begin("urgent", RunChange("suspended", due_ms=NOW_MS + 95, release=True), priority=9)
        moment.now_ms += 95
        assert [name for _ in range(5) for name in await moment.take(newest=newest, room=1)] == [
            "urgent", "early", "b", "a", "late",
        ]  # fmt: skip

    at(kind, tmp_path, check)


@kinds
@states
def test_a_run_behind_its_key_ends_every_look_and_goes_on_in_its_turn(kind: str, newest: Declaration, tmp_path: Path):
    """It gave its key away when it stopped, and was reopened; a paused queue lets it go on, too."""

    async def check(moment: Moment) -> None:
        journal = moment.journal
        for name in ("first", "second"):
            await submit(journal, name, QueuePlace("mail", key="k"))
        assert await moment.take("alice", Declaration()) == ["first"]
        await end(journal, "first", RunChange("stopped", release=True))
        assert await moment.take("alice", Declaration()) == ["second"]
        reopened = await journal.commit(ClaimRequest("first", "bob"))
        assert isinstance(reopened, LeaseGranted)
        await journal.commit(Write(reopened.lease, (), RunChange("running", release=True)))
        for _ in range(3):
            assert await moment.take(newest=newest) == []
        await end(journal, "second", RunChange("suspended", due_ms=1, release=True))
        assert await moment.take(newest=newest) == ["second"], "it has the key"
        assert await moment.take(newest=newest) == []
        await end(journal, "second")
        assert await moment.take(newest=newest) == ["first"]

    at(kind, tmp_path, check)


@kinds
def test_those_of_a_process_that_is_gone_come_by_their_priority(kind: str, tmp_path: Path):
    async def check(moment: Moment) -> None:
        for name, priority in (("low", -1), ("high", 1), ("middle", 0)):
            await moment.begin(name, priority=priority)
        await moment.journal.beat(ALICE, OVER_MS)
        assert [name for _ in range(3) for name in await moment.take(newest=Declaration(), room=1)] == [
            "high", "middle", "low",
        ]  # fmt: skip

    at(kind, tmp_path, check)


@kinds
def test_a_slot_changes_what_is_listed_of_a_run_that_begins_and_little_of_one_that_goes_on(kind: str, tmp_path: Path):
    async def check(moment: Moment) -> None:
        journal = moment.journal
        begins = RunChange("queued", "waits in mail", due_ms=1, release=True)
        assert isinstance(
            await journal.commit(ClaimRequest("r", "alice", NewRun("desk", (), begins, "", QueuePlace("mail")))),
            LeaseGranted,
        )
        await moment.take("alice", Declaration())
        (line,) = await journal.runs()
        assert (line.status, line.reason, line.due_ms, line.owner, line.token) == ("running", "", None, "alice", 3)
        moment.now_ms += 5
        await end(journal, "r", RunChange("suspended", "sleeps", due_ms=NOW_MS, waits=b'["sleep"]', release=True))
        moment.now_ms += 5
        (granted,) = await journal.commit(TakeRequest("bob", AGENTS, 9, Declaration()))
        (line,) = await journal.runs()
        assert granted.row == line
        assert (line.status, line.reason, line.due_ms, line.owner, line.token) == (
            "suspended",
            "sleeps",
            NOW_MS,
            "bob",
            5,
        )
        assert (line.updated_ms, line.waits) == (NOW_MS + 10, b'["sleep"]')

    at(kind, tmp_path, check)


@kinds
def test_the_oldest_run_that_waits_is_told_of_each_queue(kind: str, tmp_path: Path):
    """Whatever its tenant and priority, and however many are younger."""

    async def check(moment: Moment) -> None:
        for number, (queue, tenant, priority) in enumerate(
            [("mail", "a", 2), ("mail", "a", 0), ("mail", "b", 0), ("web", "a", 0), ("mail", "", 0), ("web", "", 9)]
        ):
            for more in (30, 10, 20):
                place = QueuePlace(queue, tenant, priority=priority)
                await submit(moment.journal, f"r{number} {more}", place, due_ms=NOW_MS - 100 - number + more)
        assert await moment.journal.queues() == [
            QueueState("mail", 12, 0, NOW_MS - 94, AGENTS), QueueState("web", 6, 0, NOW_MS - 95, AGENTS),
        ]  # fmt: skip
        left: dict[str, int | None] = {}
        while taken := await moment.take(newest=Declaration(), room=2):
            left |= {one.queue: one.oldest_ms for one in await moment.journal.queues()}
            for name in taken:
                await end(moment.journal, name)
        assert left == {"mail": None, "web": None}

    at(kind, tmp_path, check)


@kinds
@pytest.mark.parametrize("number", range(4))
def test_the_tenant_that_got_its_last_slot_longest_ago_is_the_next(kind: str, number: int, tmp_path: Path):
    """However often it was served before, and since when its runs have waited."""
    draw, tenants = random.Random(number), ("", "a", "b", "c", "d")

    async def check(moment: Moment) -> None:
        last, waiting = dict.fromkeys(tenants, 0), dict[str, str]()
        for turn in range(25):
            moment.now_ms += draw.randint(1, 5)
            for tenant in draw.sample(tenants, 2):
                if tenant not in waiting:
                    waiting[tenant] = f"r{turn} {tenant}"
                    await submit(moment.journal, waiting[tenant], QueuePlace("mail", tenant), due_ms=100 - turn)
            (name,) = await moment.take(newest=Declaration(), room=1)
            await end(moment.journal, name)
            longest = min(last[tenant] for tenant in waiting)
            assert name in {run for tenant, run in waiting.items() if last[tenant] == longest}
            last[name.partition(" ")[2]] = moment.now_ms
            del waiting[name.partition(" ")[2]]

    at(kind, tmp_path, check)


@kinds
@states
@pytest.mark.parametrize("died", [True, False])
def test_what_has_begun_goes_on_with_its_own_code_alone(kind: str, newest: Declaration, died: bool, tmp_path: Path):
    """Neither a pause of its queue nor the death of its process brings it to a worker that has another program."""

    async def check(moment: Moment) -> None:
        own = (("clerk", ""), ("desk", "shop"), ("desk", ""))
        for agent, program in own:
            await submit(moment.journal, f"{agent} {program}", QueuePlace("mail"), agent=agent, program=program)
        taken = await moment.journal.commit(TakeRequest("alice", own, 9, Declaration()))
        if died:
            await moment.journal.beat(ALICE, OVER_MS)
        else:
            for one in taken:
                await end(moment.journal, one.lease.run, RunChange("running", release=True))
        for agent in own:
            found = await moment.journal.commit(TakeRequest("bob", (agent,), 9, newest))
            assert [one.lease.run for one in found] == [" ".join(agent)]

    at(kind, tmp_path, check)


@kinds
@pytest.mark.parametrize("tenants", [1, 2, 6], ids=["one tenant", "two", "each its own"])
def test_queues_are_served_in_turn_however_many_tenants_each_of_them_has(kind: str, tenants: int, tmp_path: Path):
    """A worker with one slot. What was served last may have no run any more in its queue that waits."""

    async def check(moment: Moment) -> None:
        for number in range(6):
            place = QueuePlace("mail", f"t{number % tenants}")
            await submit(moment.journal, f"mail {number}", place, due_ms=1)
            await submit(moment.journal, f"web {number}", QueuePlace("web", "t"), due_ms=2)
        served: list[str] = []
        for _ in range(12):
            moment.now_ms += 1
            (name,) = await moment.take(newest=Declaration(), room=1)
            await end(moment.journal, name)
            served.append(name)
        assert served == [f"{queue} {number}" for number in range(6) for queue in ("mail", "web")]

    at(kind, tmp_path, check)
