"""The requirements on two journals that share one store, as tests: a fleet is that, in processes that die.

    class TestMyFleet(FleetConformance):
        @staticmethod
        def make_journal(place: Path) -> Journal:
            return MyJournal(place / "journal")

`make_journal` returns an unopened journal, and a second one for the same place. The second process imports the module
of the class and calls it. A store that one process has for itself is tested by `SharedStoreConformance`: both journals
are then in this process, and may be one object.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from beforehand.errors import BeforehandError, BudgetSpent, LeaseLost, LedgerTaken, LimitsChanged, QueueFull
from beforehand.journal.backend_rules import FOREVER_MS
from beforehand.journal.cells import budget_uses, last_firing, limit_uses, read_hint
from beforehand.journal.host import this_process
from beforehand.journal.port import (
    Busy,
    ClaimRequest,
    CommitRequest,
    Firing,
    HintRequest,
    Journal,
    LeaseGranted,
    NewRun,
    Permit,
    PermitRequest,
    Post,
    Posts,
    QueuePlace,
    ReleaseRequest,
    RunChange,
    TakeRequest,
    Worker,
    Write,
)
from beforehand.journal.run_log import RunLog, genesis, verify_chain
from beforehand.model.shared_use import Charge
from beforehand.queues.call_limits import CallLimit
from beforehand.queues.limits import STREAM, Declaration, DeclaredLimits, QueueLimits
from beforehand.queues.schedules import STREAM as SCHEDULES
from beforehand.testing.queue_conformance import AGENTS, ALICE, BOB, LONG_MS, OVER_MS

BODY, DESK, MAIL = b'{"n":1}', NewRun("desk"), QueuePlace("mail")
WAITS, FREE = RunChange("queued", due_ms=1, release=True), RunChange("running", release=True)
ROUNDS: Final = range(12)
PATIENCE_S: Final = 60
"""A second process that gets no further command for so long, or does not end one, ends."""


class Member:
    """One of the two journals. Its answers come from this process, or from another one."""

    def __init__(self, journal: Any = None) -> None:
        self.journal = journal

    @property
    def lives(self) -> bool:
        """False where its process has ended."""
        return True

    async def do(self, method: str, *arguments: object) -> Any:
        """The answer of a method of the journal."""
        return await perform(self.journal, method, arguments)

    async def ask(self, *requests: CommitRequest[Any]) -> list[Any]:
        """The answers to requests that are committed one after the other: the class of its error for a refused one."""
        answers: list[Any] = await self.do("ask", *requests)
        return answers


class OtherProcess(Member):
    """A journal in a process of its own, which does one thing after the other: values come and go by pickle."""

    def __init__(self) -> None:
        super().__init__()
        program = "from beforehand.testing.fleet_conformance import serve; serve()"
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(  # noqa: S603 -- this interpreter, with a program from here
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=paths
        )

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    async def do(self, method: str, *arguments: object) -> Any:
        self.tell(method, *arguments)
        return await asyncio.to_thread(self.hear)

    def tell(self, method: str, *arguments: object) -> None:
        """Let it begin. Its answer is to be heard."""
        assert self.process.stdin is not None
        pickle.dump((method, arguments), self.process.stdin)
        self.process.stdin.flush()

    def hear(self) -> Any:
        """Wait for its answer; raises `EOFError` where it was killed."""
        assert self.process.stdout is not None
        return pickle.load(self.process.stdout)  # noqa: S301 -- from the process that was started above

    def kill(self) -> None:
        """End it where it is, without a word, and return when it has ended."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


async def perform(journal: Journal, method: str, arguments: tuple[Any, ...]) -> Any:
    """Do what the other side asks for."""
    if method == "ask":
        return [await _answer(journal, request) for request in arguments]
    if method == "live":  # as this process, whose death is proven
        return await journal.beat(this_process(*arguments), LONG_MS)
    answer = getattr(journal, method)(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def _answer(journal: Journal, request: CommitRequest[Any]) -> Any:
    try:
        return await journal.commit(request)
    except BeforehandError as error:
        return type(error)


def serve() -> None:
    """The second process: opens a journal, performs commands until it is told to close it, and waits for the next."""
    asyncio.run(_serve())


def _turned(wall_ns: Callable[[], int], ahead_ns: int) -> int:
    return wall_ns() + ahead_ns


async def _serve() -> None:
    journal: Any = None
    wall_ns = time.time_ns
    while True:
        signal.alarm(PATIENCE_S)
        try:
            method, arguments = await asyncio.to_thread(pickle.load, sys.stdin.buffer)
        except EOFError:
            return
        answer = None
        if method == "make":
            make, place = arguments
            journal = make(place)
            await journal.open()
        elif method == "turn the calendar":
            time.time_ns = partial(_turned, wall_ns, *arguments)
        else:
            answer = await perform(journal, method, arguments)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


async def race(here: Member, there: Member, mine: list[Any], theirs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The answers of both sides, each of which commits its own requests as fast as it can."""
    second, first = await asyncio.gather(there.ask(*theirs), here.ask(*mine))
    return first, second


async def claimed(side: Member, worker: str, run: str = "r") -> RunLog:
    """Claim a run, which is created where it is missing. The log numbers and chains; it writes for no other process."""
    (granted,) = await side.ask(ClaimRequest(run, worker, DESK))
    assert isinstance(granted, LeaseGranted), granted
    return RunLog(side.journal, granted.lease, granted.last, genesis("n", run))


def writes(log: RunLog, count: int, **more: Any) -> list[Write]:
    """Writes of a record each, in order."""
    return [Write(log.lease, log.rows([BODY]), **more) for _ in range(count)]


def won(answers: list[Any]) -> list[str]:
    """The runs that these claims took."""
    return [one.lease.run for one in answers if isinstance(one, LeaseGranted)]


Suite = TypeVar("Suite", bound="SharedStoreConformance")


def between(check: Callable[[Suite, Member, Member], Awaitable[None]]) -> Callable[[Suite, Path], None]:
    """Make a test of a method: it gets two open journals on an empty store; `alice` lives here and `bob` there."""

    def test(self: Suite, tmp_path: Path) -> None:
        async def whole() -> None:
            here = Member(self.make_journal(tmp_path))
            await here.do("open")
            there = await self.join(tmp_path)
            try:
                await here.do("beat", ALICE, LONG_MS)
                await there.do("beat", BOB, LONG_MS)
                await check(self, here, there)
                await agree(here, there if there.lives else here)
            finally:
                await self.leave(there)
                await here.do("close")

        asyncio.run(whole())

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


async def agree(here: Member, there: Member) -> None:
    """Assert that both read the same, and that the chain of each run holds."""
    for method, arguments in {"head": (), "runs": (), "queues": (), "entries": ("s/",), "counts": ()}.items():
        assert await here.do(method, *arguments) == await there.do(method, *arguments), method
    for line in await here.do("runs"):
        rows = await there.do("read", line.run)
        assert rows == await here.do("read", line.run)
        assert verify_chain(rows, genesis("n", line.run)) is None


class SharedStoreConformance:
    """The requirements on two journals on one store, one test each. Both journals are in this process."""

    make_journal: Callable[[Path], Journal]

    async def join(self, place: Path) -> Member:
        """The second journal, opened."""
        side = Member(self.make_journal(place))
        await side.do("open")
        return side

    async def leave(self, side: Member) -> None:
        """Close the second journal."""
        await side.do("close")

    @between
    async def test_a_run_has_one_owner_when_both_claim_it_at_once(self, here: Member, there: Member) -> None:
        await here.do("beat", Worker("carl"), OVER_MS)
        await here.ask(*(ClaimRequest(f"old {n}", "carl", DESK) for n in ROUNDS))
        for n in ROUNDS:
            runs = [f"new {n}", f"old {n}"]
            mine, theirs = await race(
                here, there, *([ClaimRequest(run, worker, DESK) for run in runs] for worker in ("alice", "bob"))
            )
            assert sorted(won(mine) + won(theirs)) == runs
            assert sum(isinstance(one, Busy) for one in mine + theirs) == 2

    @between
    async def test_a_late_owner_stores_nothing(self, here: Member, there: Member) -> None:
        late = await claimed(here, "alice")
        await here.ask(*writes(late, 2))
        await there.do("beat", ALICE, OVER_MS)
        new = await claimed(there, "bob")
        await there.ask(*writes(new, 1))
        before = await there.do("head")
        row, charge = late.rows([BODY]), (Charge("support", "day", "tokens", 1, 0),)
        refused = [Write(late.lease, row), Write(late.lease), Write(late.lease, (), FREE)]
        refused += [Write(late.lease, row, posts=(Post("s/1", "k", b"1"),)), Write(late.lease, row, charges=charge)]
        assert await here.ask(*refused) == [LeaseLost] * 5
        assert await asyncio.gather(*(_answer(here.journal, one) for one in refused)) == [LeaseLost] * 5
        for one in refused:
            here.journal.ride(one)
            try:
                await here.journal.flush(late.lease)
            except LeaseLost:
                continue
            raise AssertionError("what rode under a lost lease was called durable")
        assert await there.do("head") == before
        assert [(line.owner, line.token) for line in await there.do("runs")] == [("bob", new.lease.token)]
        assert await budget_uses(here.journal, None) == []
        await there.ask(*writes(new, 1, change=FREE))
        back = await claimed(here, "alice")
        assert back.seq == 4
        assert await here.ask(*writes(back, 2), Write(late.lease)) == [None, None, LeaseLost]

    @between
    async def test_what_is_in_flight_is_stored_before_a_claim_or_never(self, here: Member, there: Member) -> None:
        for n in ROUNDS[:6]:
            late = await claimed(here, "alice", f"r{n}")
            await there.do("beat", ALICE, OVER_MS)
            stored, (granted,) = await race(
                here, there, writes(late, 6, change=RunChange("running")), [ClaimRequest(f"r{n}", "bob")]
            )
            assert isinstance(granted, LeaseGranted)
            rows = await there.do("read", f"r{n}")
            known = granted.last.seq if granted.last else 0
            assert len(rows) == known == stored.count(None)
            assert stored == [None] * known + [LeaseLost] * (6 - known)
            assert granted.lease.token > late.lease.token
            assert await here.ask(Write(late.lease, late.rows([BODY]))) == [LeaseLost]

    @between
    async def test_the_lease_that_was_given_back_is_worth_nothing_in_either_process(
        self, here: Member, there: Member
    ) -> None:
        tokens: list[int] = []
        for n in ROUNDS[:6]:
            sides = ((here, "alice"), (there, "bob")) if n % 2 else ((there, "bob"), (here, "alice"))
            log = await claimed(*sides[0])
            assert log.seq == 2 * n
            await sides[0][0].ask(*writes(log, 1), *writes(log, 1, change=FREE))
            late = Write(log.lease, log.rows([BODY]), RunChange("completed"))
            assert await sides[0][0].ask(late) == await sides[1][0].ask(late) == [LeaseLost]
            tokens.append(log.lease.token)
        assert tokens == sorted(set(tokens))

    @between
    async def test_the_first_entry_under_a_key_wins_for_both(self, here: Member, there: Member) -> None:
        for n in ROUNDS:
            mine, theirs = await race(
                here, there, *([Post("s/1", f"{n} {k}", body) for k in range(3)] for body in (b"1", b"2"))
            )
            for one, other in zip(mine, theirs, strict=True):
                assert sorted((one.fresh, other.fresh)) == [False, True]
                assert (one.id, one.body) == (other.id, other.body)
        logs = [await claimed(here, "alice", "a"), await claimed(there, "bob", "b")]
        taken = (Post("s/1", "new", b"1"), Post("s/1", "0 0", b"3"))
        assert await here.ask(Posts(taken), *writes(logs[0], 1, posts=taken)) == [LedgerTaken] * 2
        assert await there.ask(Posts(taken), *writes(logs[1], 1, posts=taken)) == [LedgerTaken] * 2
        assert len(await there.do("entries", "s/")) == 36
        assert (await there.do("head")).records == 0

    @between
    async def test_each_entry_is_news_once_and_in_one_order(self, here: Member, there: Member) -> None:
        async def follow() -> bool:
            news = await here.do("news", position[-1])
            for stream in news.streams:
                entries = await here.do("entries", stream, position[-1])
                seen.extend(one.id for one in entries if one.id <= news.last)
            position.append(news.last)
            return bool(news.streams)

        seen: list[int] = []
        position = [(await here.do("news", None)).last]
        posting = asyncio.ensure_future(there.ask(*(Post(f"s/{n % 3}", "", BODY) for n in range(60))))
        for n in range(30):
            await here.ask(Post(f"s/{n % 2 + 2}", "", BODY))
            await follow()
        await posting
        while await follow():
            pass
        entries = await there.do("entries", "s/")
        assert (len(entries), len({one.id for one in entries})) == (90, 90)
        assert sorted(seen) == [one.id for one in entries]
        for one in [0, *seen[::9]]:
            assert await here.do("news", one) == await there.do("news", one)
            streams = dict.fromkeys(entry.stream for entry in entries if entry.id > one)
            assert (await there.do("news", one)).streams == tuple(streams)

    @between
    async def test_a_shared_budget_is_counted_over_both(self, here: Member, there: Member) -> None:
        logs = [await claimed(here, "alice", "a"), await claimed(there, "bob", "b")]
        charge = (Charge("support", "day", "tokens", 0, 1, 40),)
        mine, theirs = await race(
            here, there, *([Write(log.lease, charges=charge, declared=0) for _ in range(30)] for log in logs)
        )
        assert Counter(mine + theirs) == {None: 40, BudgetSpent: 20}
        assert [use.reserved for use in await budget_uses(here.journal, {"support": "day"})] == [40]
        settled = (Charge("support", "day", "tokens", 1, -1),)
        await race(here, there, *([Write(log.lease, charges=settled)] * 20 for log in logs))
        assert [(use.used, use.reserved) for use in await budget_uses(here.journal, None)] == [(40, 0)]

    @between
    async def test_limits_of_calls_hold_over_both(self, here: Member, there: Member) -> None:
        for limit in (CallLimit(at_once=15), CallLimit(rate="15/hour", burst=15)):
            cells, limits = (limit.cell("charge"),), {"charge": None}
            permits = [[Permit(worker, n) for n in range(12)] for worker in ("alice", "bob")]
            mine, theirs = await race(
                here, there, *([PermitRequest(one, cells, 0) for one in some] for some in permits)
            )
            assert Counter(one.granted for one in mine + theirs) == {True: 15, False: 9}
            (use,) = await limit_uses(here.journal)
            assert len(use.permits) == 15
            await race(here, there, *([ReleaseRequest(one, limits) for one in some] for some in permits))
            (again,) = await there.ask(PermitRequest(Permit("bob", 99), cells, 0))
            assert again.granted is (not limit.rate)
            await here.ask(ReleaseRequest(Permit("bob", 99), limits))
        assert [use.permits for use in await limit_uses(here.journal)] == [()]

    @between
    async def test_a_moment_fires_once(self, here: Member, there: Member) -> None:
        for moment in (n + 1 for n in ROUNDS):
            mine, theirs = await race(here, there, *([_fired(f"{who}{moment}", moment)] for who in "ab"))
            assert sorted(map(bool, mine + theirs)) == [False, True]
            last = await last_firing(here.journal, "nightly", FOREVER_MS)
            assert last is not None
            assert [last.run] == won(mine + theirs)
        assert len(await there.do("runs")) == 12
        (entry,) = await there.ask(Post(SCHEDULES, "", b"{}"))
        assert await here.ask(_fired("late", 13)) == [None]
        assert won(await here.ask(_fired("r", 13, entry.id))) == ["r"]

    @between
    async def test_one_of_two_replaces_a_hint(self, here: Member, there: Member) -> None:
        before: bytes | None = None
        for n in ROUNDS:
            new = [b'"%s%d"' % (who, n) for who in (b"a", b"b")]
            mine, theirs = await race(here, there, *([HintRequest("breaker", one, before)] for one in new))
            assert sorted(mine + theirs) == [False, True]
            before = new[theirs[0]]
            assert await read_hint(here.journal, "breaker") == before
            assert [cell.body for cell in await there.do("cells", "hint")] == [before]

    @between
    async def test_a_queue_is_full_for_both_together_and_starts_each_run_once(
        self, here: Member, there: Member
    ) -> None:
        place = QueuePlace("mail", capacity=20)
        mine, theirs = await race(
            here, there, *([ClaimRequest(f"{who}{n:02}", "alice", _new(place)) for n in range(15)] for who in "ab")
        )
        assert (len(won(mine + theirs)), (mine + theirs).count(QueueFull)) == (20, 10)
        limits = Declaration(DeclaredLimits({"mail": QueueLimits(concurrency=16)}))
        mine, theirs = await race(
            here, there, *([TakeRequest(worker, AGENTS, 1, limits)] * 12 for worker in ("alice", "bob"))
        )
        started = won([one for some in mine + theirs for one in some])
        assert len(started) == len(set(started)) == 16
        assert [(one.waiting, one.running) for one in await there.do("queues")] == [(4, 16)]

    @between
    async def test_limits_that_the_other_has_declared_are_in_force(self, here: Member, there: Member) -> None:
        logs = [await claimed(here, "alice", "a"), await claimed(there, "bob", "b")]
        await here.ask(ClaimRequest("queued", "alice", _new(MAIL)))
        read, sides = 0, ((here, there, "bob", logs[1]), (there, here, "alice", logs[0]))
        for declares, commits, worker, log in sides:
            (entry,) = await declares.ask(Post(STREAM, "", b"{}"))
            cells = (CallLimit(at_once=1).cell("charge"),)
            stale = [
                Write(log.lease, declared=read),
                TakeRequest(worker, AGENTS, 1, Declaration(entry=read)),
                PermitRequest(Permit(worker, 1), cells, read),
                ClaimRequest("late", worker, _new(QueuePlace("mail", declared=read))),
            ]
            before = await commits.do("head")
            assert await commits.ask(*stale) == [LimitsChanged] * 4
            assert await commits.do("head") == before
            read = entry.id
            assert await commits.ask(Write(log.lease, declared=read)) == [None]
        assert await limit_uses(here.journal) == []

    @between
    async def test_two_operators_words_are_both_recorded(self, here: Member, there: Member) -> None:
        first = await here.do("confirm", "doubtful", "ann")
        last = await there.do("confirm", "trusted", "ben")
        assert first.incarnation != last.incarnation
        entries = await here.do("entries", "journal")
        assert [b"ben" in one.body for one in entries] == [False, True]
        await race(here, there, [Post("s/1", "", BODY)] * 5, [Post("s/1", "", BODY)] * 5)
        assert (await there.do("head")).entries == 12


def _new(place: QueuePlace, firing: Firing | None = None) -> NewRun:
    return NewRun("desk", (), WAITS, place=place, firing=firing)


def _fired(run: str, moment: int, entry: int = 0) -> ClaimRequest:
    return ClaimRequest(run, "alice", _new(MAIL, Firing("nightly", moment, entry)))


class FleetConformance(SharedStoreConformance):
    """The requirements on a fleet: the same ones with the second journal in a process of its own, which may die."""

    _idle: ClassVar[list[OtherProcess]] = []

    async def join(self, place: Path) -> Member:
        other = self._idle.pop() if self._idle else OtherProcess()
        await other.do("make", self.make_journal, place)
        return other

    async def leave(self, side: Member) -> None:
        assert isinstance(side, OtherProcess)
        if side.lives:
            await side.do("turn the calendar", 0)
            await side.do("close")
            self._idle.append(side)

    @classmethod
    def teardown_class(cls) -> None:
        """End the process that is left."""
        while cls._idle:
            cls._idle.pop().kill()

    @between
    async def test_a_calendar_that_is_wrong_ends_no_lease(self, here: Member, there: Member) -> None:
        await claimed(here, "alice")
        for ahead in (10**18, -(10**18)):
            await there.do("turn the calendar", ahead)
            (refused,) = await there.ask(ClaimRequest("r", "bob"))
            assert isinstance(refused, Busy)
            await there.do("beat", BOB, LONG_MS)
            assert (await here.do("fate", "bob")).silent_ms == 0
        await there.do("beat", BOB, OVER_MS)
        assert (await here.do("fate", "bob")).gone

    @between
    async def test_what_a_killed_process_held_is_taken_over_once(self, here: Member, there: Member) -> None:
        assert isinstance(there, OtherProcess)
        await there.do("live", "carol")
        limits = Declaration(DeclaredLimits({"mail": QueueLimits(concurrency=2)}))
        cells = (CallLimit(at_once=2).cell("charge"),)
        await claimed(there, "carol")
        await there.ask(*(ClaimRequest(f"q{n}", "carol", _new(MAIL)) for n in range(3)))
        held = await there.ask(
            TakeRequest("carol", AGENTS, 9, limits), *(PermitRequest(Permit("carol", n), cells, 0) for n in range(2))
        )
        assert (len(held[0]), held[1].granted, held[2].granted) == (2, True, True)

        async def taken(worker: str) -> tuple[int, int, int]:
            claim, take, *permits = await here.ask(
                ClaimRequest("r", worker),
                TakeRequest(worker, AGENTS, 9, limits),
                *(PermitRequest(Permit(worker, n), cells, 0) for n in range(3)),
            )
            return len(won([claim])), len(take), sum(one.granted for one in permits)

        assert await taken("alice") == (0, 0, 0)
        there.kill()
        assert (await here.do("fate", "carol")).fate == "dead"
        assert [await taken(worker) for worker in ("alice", "bob")] == [(1, 2, 2), (0, 0, 0)]

    @between
    async def test_of_a_commit_whose_answer_never_came_all_is_stored_or_nothing(
        self, here: Member, there: Member
    ) -> None:
        assert isinstance(there, OtherProcess)
        await there.do("live", "carol")
        log = await claimed(there, "carol")
        charge = (Charge("support", "day", "tokens", 1, 0),)
        there.tell(
            "ask",
            *(
                Write(log.lease, log.rows([BODY]), RunChange("running", str(n)), (Post("s/1", str(n), BODY),), charge)
                for n in range(1, 400)
            ),
        )
        while len(await here.do("read", "r")) < 3:
            pass  # a moment in the middle of its writes
        there.kill()
        stored = len(await here.do("read", "r"))
        assert 3 <= stored < 399, "it was killed while it wrote"
        assert [one.key for one in await here.do("entries", "s/")] == [str(n + 1) for n in range(stored)]
        assert [use.used for use in await budget_uses(here.journal, None)] == [stored]
        assert [line.reason for line in await here.do("runs")] == [str(stored)]
        assert ((await here.do("head")).records, (await here.do("head")).entries) == (stored, stored)
        next_owner = await claimed(here, "alice")
        assert next_owner.seq == stored
        assert await here.ask(*writes(next_owner, 2)) == [None, None]
