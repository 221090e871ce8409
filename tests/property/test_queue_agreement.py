"""Memory and SQLite keep queues alike: whatever is submitted, taken, given back or left behind, in whatever order."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from beforehand.errors import BeforehandError
from beforehand.journal.host import HostFacts
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import (
    ClaimRequest,
    Journal,
    Lease,
    LeaseGranted,
    NewRun,
    QueuePlace,
    QueueState,
    RunChange,
    RunRow,
    RunStatus,
    TakeRequest,
    Worker,
    Write,
)  # fmt: skip
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.queues.limits import ConcurrencyLimit, Declaration, DeclaredLimits, QueueLimits, TenantLimits
from beforehand.queues.modes import QueueMode, Restriction
from tests.property.test_journal_agreement import IN_MEMORY

RUNS = [f"r{number}" for number in range(7)]
AGENTS = (("clerk", ""), ("desk", ""), ("desk", "shop"))
QUEUES, TENANTS, KEYS, WORKERS = ("mail", "web"), ("", "acme"), ("", "", "k1", "k2"), ("w1", "w2")
STATUSES: st.SearchStrategy[RunStatus] = st.sampled_from(["running", "suspended", "suspended", "completed", "stopped"])
few = st.none() | st.integers(1, 2)
OF_ONE_KEY = QueuePlace("mail", key="k1", capacity=9)


@dataclass(frozen=True)
class Submit:
    run: str
    agent: tuple[str, str]
    place: QueuePlace
    due_ms: int


@dataclass(frozen=True)
class Take:
    worker: str
    agents: tuple[tuple[str, str], ...]
    room: int
    newest: Declaration
    skip: frozenset[str]


@dataclass(frozen=True)
class Change:
    run: str
    change: RunChange


@dataclass(frozen=True)
class Claim:
    run: str
    worker: str


@dataclass(frozen=True)
class Beat:
    worker: str
    lease_ms: int


@dataclass(frozen=True)
class Pass:
    ms: int


places = st.builds(
    QueuePlace,
    st.sampled_from(QUEUES),
    st.sampled_from(TENANTS),
    st.sampled_from(KEYS),
    st.integers(-1, 1),
    st.sampled_from((1, 3, 9, 9)),
    draining=st.sampled_from((False,) * 9 + (True,)),
)
limits = st.builds(
    DeclaredLimits,
    st.fixed_dictionaries(
        {}, optional={name: st.builds(QueueLimits, few, few, st.just("k"), st.integers(1, 2)) for name in QUEUES}
    ),
    st.fixed_dictionaries({}, optional={"desk": st.builds(ConcurrencyLimit, few)}),
    st.fixed_dictionaries({}, optional={"acme": st.builds(TenantLimits, few)}),
)
paused = st.sampled_from(({}, {}, {}, {"mail": QueueMode(paused=Restriction("ann", 1))}))
takes = st.builds(
    Take,
    st.sampled_from(WORKERS),
    st.sampled_from((AGENTS, AGENTS, AGENTS[:1], AGENTS[1:])),
    st.integers(0, 4),
    st.builds(Declaration, limits, modes=paused),
    st.frozensets(st.sampled_from(RUNS), max_size=1),
)
changes = st.builds(
    RunChange,
    STATUSES,
    st.just("why"),
    st.none() | st.integers(0, 300),
    st.just(b"[]"),
    st.sampled_from((True, True, False)),
    st.sampled_from((False,) * 5 + (True,)),
)
calls = st.one_of(
    st.builds(Submit, st.sampled_from(RUNS), st.sampled_from(AGENTS), places, st.integers(0, 200)),
    takes,
    st.builds(Change, st.sampled_from(RUNS), changes),
    st.builds(Claim, st.sampled_from(RUNS), st.sampled_from(WORKERS)),
    st.builds(Beat, st.sampled_from(WORKERS), st.sampled_from((-5, 50, 1000, 1000))),
    st.builds(Pass, st.integers(1, 100)),
)
Call = Submit | Take | Change | Claim | Beat | Pass


@dataclass
class Player:
    """Plays calls on one journal, and counts how often each run left its queue for its first slot."""

    journal: Journal
    clock: list[int]
    begun: Counter[str] = field(default_factory=Counter[str])

    async def play(self, call: Call) -> object:
        try:
            return await self._play(call)
        except BeforehandError as error:
            return type(error).__name__

    async def _play(self, call: Call) -> object:
        journal = self.journal
        match call:
            case Submit(run, (agent, program), place, due_ms):
                change = RunChange("queued", "waits", due_ms, release=True)
                return type(
                    await journal.commit(ClaimRequest(run, "w1", NewRun(agent, (), change, program, place)))
                ).__name__
            case Take(worker, agents, room, newest, skip):
                return await self._take(TakeRequest(worker, agents, room, newest, skip))
            case Change(run, change):
                for line in await journal.runs(run=run):
                    if line.status == "queued":  # who has claimed it can only call it off
                        change = RunChange("stopped", "called off", release=True)
                    if line.owner is not None:
                        await journal.commit(Write(Lease(run, line.row, line.token, line.owner), (), change))
            case Claim(run, worker):
                return await journal.commit(ClaimRequest(run, worker))
            case Beat(worker, lease_ms):
                await journal.beat(Worker(worker, machine="m"), lease_ms)
            case Pass(ms):
                self.clock[0] += ms
        return None

    async def _take(self, request: TakeRequest) -> list[LeaseGranted]:
        before = {line.run: line for line in await self.journal.runs()}
        granted = await self.journal.commit(request)
        names = [one.lease.run for one in granted]
        assert len(names) == len(set(names)) <= request.room
        assert set(request.skip).isdisjoint(names)
        for name in names:
            line = before[name]
            assert (line.agent, line.program) in request.agents
            assert line.owner != request.worker, "it drives this run already"
            assert line.due_ms is None or line.status != "queued" or line.due_ms <= self.journal.clock().earliest_ms
            self.begun[name] += line.status == "queued"
        return granted

    async def check(self) -> tuple[list[RunRow], list[QueueState]]:
        """What is listed. Each run stands there once, has begun once at most, and is counted in its queue until then."""
        lines, states = await self.journal.runs(), await self.journal.queues()
        assert len({line.run for line in lines}) == len(lines)
        for line in lines:
            assert self.begun[line.run] <= (line.status != "queued")
        waiting = Counter(line.queue for line in lines if line.status == "queued")
        assert {one.queue: one.waiting for one in states if one.waiting} == dict(waiting)
        return lines, states


def shortened(states: list[QueueState], queues: set[str], now_ms: int) -> list[QueueState]:
    """States without what is told of the runs that are ready, for these queues, and of those that are to come."""
    found: list[QueueState] = []
    for one in states:
        told = one.queue not in queues
        ready = told and one.oldest_ms is not None and one.oldest_ms <= now_ms
        if told or one.waiting or one.running:
            found.append(replace(one, oldest_ms=one.oldest_ms if ready else None, agents=one.agents if told else ()))
    return found


@settings(max_examples=60)
@given(st.lists(calls, min_size=10, max_size=50))
def test_memory_and_sqlite_keep_queues_alike(script: list[Call]) -> None:
    async def main(place: str) -> None:
        clock = [0]
        memory = MemoryJournal(lambda: clock[0], lambda: clock[0])
        here = HostFacts("m", "b", lambda: clock[0], lambda: clock[0], lambda _: "alive")
        sqlite = SqliteJournal(Path(place) / "journal.db", parts=Parts(here=here, commits="loop"))
        await memory.open()
        await sqlite.open()
        players = (Player(memory, clock), Player(sqlite, [0]))
        keyed: set[str] = set()
        try:
            for call in [Beat("w1", 1000), Beat("w2", 50), *script]:
                answers = [await player.play(call) for player in players]
                assert answers[0] == answers[1], call
                (lines, states), (others, of_others) = [await player.check() for player in players]
                assert lines == others, call
                keyed |= {call.place.queue} if isinstance(call, Submit) and call.place.key else set()
                now = clock[0]  # in memory a run is ready behind its key, too
                assert shortened(states, keyed, now) == shortened(of_others, keyed, now), call
        finally:
            await sqlite.close()

    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        asyncio.run(main(place))


TAKE = Take("w1", AGENTS, 2, Declaration(), frozenset())
crowded = st.one_of(
    st.just(TAKE),
    st.builds(Change, st.sampled_from(RUNS[:2]), st.builds(replace, changes, leaves_queue=st.booleans())),
    st.builds(Claim, st.sampled_from(RUNS[:2]), st.sampled_from(WORKERS)),
    st.builds(Beat, st.sampled_from(WORKERS), st.sampled_from((-5, 1000))),
)
OPENING = [Beat("w1", 1000), Beat("w2", 50), *(Submit(run, ("desk", ""), OF_ONE_KEY, 0) for run in RUNS[:2]), TAKE]
"""One run has the key, and the other one is known to wait for it."""


@settings(max_examples=30)
@given(st.lists(crowded, min_size=5, max_size=20))
def test_no_run_waits_for_ever_behind_others_of_its_key(script: list[Call]) -> None:
    """Whatever they did, once all that have begun are ended, each of the others begins in its turn."""

    async def main(place: str) -> None:
        clock = [0]
        here = HostFacts("m", "b", lambda: clock[0], lambda: clock[0], lambda _: "alive")
        journal = SqliteJournal(Path(place) / "journal.db", parts=Parts(here=here, commits="loop"))
        await journal.open()
        player = Player(journal, clock)
        try:
            for call in [*OPENING, *script]:
                await player.play(call)
            for call in [Pass(1000), *(Beat(worker, -5) for worker in WORKERS), Beat("w3", 1000)]:
                await player.play(call)
            begun = [line.run for line in await journal.runs() if line.status in {"running", "suspended"}]
            for run in begun:
                await player.play(Claim(run, "w3"))
                await player.play(Change(run, RunChange("completed", release=True)))
            while taken := await journal.commit(TakeRequest("w3", AGENTS, 4, Declaration())):
                for one in taken:
                    await player.play(Change(one.lease.run, RunChange("completed", release=True)))
            assert [line.run for line in await journal.runs(status="queued")] == []
        finally:
            await journal.close()

    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        asyncio.run(main(place))
