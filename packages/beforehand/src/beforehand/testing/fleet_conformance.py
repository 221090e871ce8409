"""The requirements on two journals that share one store, as tests: a fleet is that, in processes that die.

    class TestMyFleet(FleetConformance):
        @staticmethod
        def make_journal(place: Path) -> Journal:
            return MyJournal(place / "journal")

`make_journal` returns an unopened journal, and a second one for the same place. The second process imports the module
of the class and calls it. For a store that one process has to itself there is `SharedStoreConformance`: both journals
are in this process then, and may be one object.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from beforehand.errors import BeforehandError, BudgetSpent, LeaseLost, LedgerTaken, LimitsChanged, QueueFull
from beforehand.journal import port as p
from beforehand.journal.backend_rules import FOREVER_MS
from beforehand.journal.cells import budget_uses, last_firing, limit_uses, read_hint
from beforehand.journal.host import this_process
from beforehand.journal.run_log import RunLog, genesis, verify_chain
from beforehand.model.shared_use import Charge
from beforehand.queues.call_limits import CallLimit
from beforehand.queues.limits import STREAM, Declaration, DeclaredLimits, QueueLimits
from beforehand.queues.schedules import STREAM as SCHEDULES
from beforehand.testing.queue_conformance import AGENTS, ALICE, BOB, LONG_MS, OVER_MS

BODY, DESK = b'{"n":1}', p.NewRun("desk")
WAITS, FREE = p.RunChange("queued", due_ms=1, release=True), p.RunChange("running", release=True)
ROUNDS: Final = range(1, 41)
Answers = list[Any]


class Peer:
    """One of the two journals, which is in this process."""

    lives = True

    def __init__(self, journal: Any = None) -> None:
        self.journal = journal

    async def do(self, method: str | Callable[..., Any], *arguments: object) -> Any:
        """The answer of a method of the journal, or of a function that its process calls."""
        return await perform(self.journal, method, arguments)

    async def ask(self, *requests: p.CommitRequest[Any]) -> Answers:
        """The answers to requests that are committed one after the other: the class of its error for a refused one."""
        answers: Answers = await self.do("ask", *requests)
        return answers


class OtherProcess(Peer):
    """A journal in a process of its own, which does one thing after the other: values come and go by pickle."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False
        program = "from beforehand.testing.fleet_conformance import serve; serve()"
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(  # noqa: S603 -- this interpreter, with a program from here
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=paths
        )

    async def do(self, method: str | Callable[..., Any], *arguments: object) -> Any:
        self.tell(method, *arguments)
        assert self.process.stdout is not None
        answer = await asyncio.to_thread(pickle.load, self.process.stdout)  # what was started above is trusted
        self.asked = False
        return answer

    def tell(self, method: str | Callable[..., Any], *arguments: object) -> None:
        """Let it begin, and do not wait for its answer."""
        assert self.process.stdin is not None
        self.asked = True
        pickle.dump((method, arguments), self.process.stdin)
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it where it is, and return when it has ended."""
        self.lives = False
        with self.process:  # which closes its pipes and waits for it
            os.kill(self.process.pid, signal.SIGKILL)


async def perform(journal: p.Journal, method: str | Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Do what is asked of a peer."""
    if method == "ask":
        return [await _answer(journal, request) for request in arguments]
    answer = (getattr(journal, method) if isinstance(method, str) else method)(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def _answer(journal: p.Journal, request: p.CommitRequest[Any]) -> Any:
    try:
        return await journal.commit(request)
    except BeforehandError as error:
        return type(error)


def serve() -> None:
    """The second process: performs commands on the journal that was made last, until there is no other process."""
    with contextlib.suppress(EOFError):
        asyncio.run(_serve())


async def _serve() -> None:
    journal: Any = None
    while True:
        signal.alarm(60)  # ends a process that gets no further, or whose parent has left it
        method, arguments = await asyncio.to_thread(pickle.load, sys.stdin.buffer)
        answer = await perform(journal, method, arguments)
        if not isinstance(method, str) and hasattr(answer, "commit"):
            journal, answer = answer, await answer.open()
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


async def race(here: Peer, there: Peer, requests: Callable[[str], list[Any]]) -> tuple[Answers, Answers]:
    """The answers of both, each of which commits what its own worker wants as fast as it can."""
    theirs, mine = await asyncio.gather(there.ask(*requests("bob")), here.ask(*requests("alice")))
    return mine, theirs


async def claimed(peer: Peer, worker: str, run: str = "r") -> RunLog:
    """Claim a run, which is created where it is missing. The log of a peer in another process only makes rows."""
    (granted,) = await peer.ask(p.ClaimRequest(run, worker, DESK))
    assert isinstance(granted, p.LeaseGranted), granted
    return RunLog(peer.journal, granted.lease, granted.last, genesis("n", run))


def writes(log: RunLog, count: int, **more: Any) -> list[p.Write]:
    """Writes of a record each, in order."""
    return [p.Write(log.lease, log.rows([BODY]), **more) for _ in range(count)]


def submitted(run: str, place: p.QueuePlace | None = None, firing: p.Firing | None = None) -> p.ClaimRequest:
    """The submission of a run to a queue."""
    return p.ClaimRequest(run, "alice", p.NewRun("desk", (), WAITS, "", place or p.QueuePlace("mail"), firing))


def won(answers: Answers) -> list[str]:
    """The runs that these claims took."""
    return [one.lease.run for one in answers if isinstance(one, p.LeaseGranted)]


async def agree(here: Peer, there: Peer) -> None:
    """Assert that both read the same, and that the chain of each run holds."""
    reads = [("head",), ("runs",), ("queues",), ("entries", "s/"), ("cells", "hint"), ("cells", "once")]
    reads += [("read", line.run) for line in await here.do("runs")]
    for read in reads:
        mine = await here.do(*read)
        assert mine == await there.do(*read), read
        assert read[0] != "read" or verify_chain(mine, genesis("n", read[-1])) is None


Suite = TypeVar("Suite", bound="SharedStoreConformance")


def between(check: Callable[[Suite, Peer, Peer], Awaitable[None]]) -> Callable[[Suite, Path], None]:
    """Make a test of a method: it gets two open journals on an empty store; `alice` lives here and `bob` there."""

    def test(self: Suite, tmp_path: Path) -> None:
        async def whole() -> None:
            here = Peer(self.make_journal(tmp_path))
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


class SharedStoreConformance:
    """The requirements on two journals on one store, one test each. Both journals are in this process."""

    make_journal: Callable[[Path], p.Journal]

    async def join(self, place: Path) -> Peer:
        """The second journal, opened."""
        peer = Peer(self.make_journal(place))
        await peer.do("open")
        return peer

    async def leave(self, peer: Peer) -> None:
        """Close the second journal."""
        await peer.do("close")

    @between
    async def test_a_run_has_one_owner_when_both_claim_it_at_once(self, here: Peer, there: Peer) -> None:
        await here.do("beat", p.Worker("carl"), OVER_MS)
        await here.ask(*(p.ClaimRequest(f"old {n}", "carl", DESK) for n in ROUNDS))
        for n in ROUNDS:
            runs = [f"new {n}", f"old {n}"]
            mine, theirs = await race(here, there, lambda who: [p.ClaimRequest(run, who, DESK) for run in runs])  # noqa: B023 -- called at once
            assert sorted(won(mine + theirs)) == runs
            assert sum(isinstance(one, p.Busy) for one in mine + theirs) == 2

    @between
    async def test_a_late_owner_stores_nothing(self, here: Peer, there: Peer) -> None:
        late = await claimed(here, "alice")
        await here.ask(*writes(late, 2))
        await there.do("beat", ALICE, OVER_MS)
        new = await claimed(there, "bob")
        await there.ask(*writes(new, 1))
        before = await there.do("head")
        row, charge = late.rows([BODY]), (Charge("support", "day", "tokens", 1, 0),)
        refused = [p.Write(late.lease, row), p.Write(late.lease), p.Write(late.lease, (), FREE)]
        refused += [
            p.Write(late.lease, row, posts=(p.Post("s/1", "k", b"1"),)),
            p.Write(late.lease, row, charges=charge),
        ]
        assert await here.ask(*refused) == [LeaseLost] * 5
        assert await asyncio.gather(*(here.ask(one) for one in refused)) == [[LeaseLost]] * 5
        for one in refused:
            here.journal.ride(one)
            with contextlib.suppress(LeaseLost):
                await here.journal.flush(late.lease)
                raise AssertionError("what rode under a lost lease was called durable")
        assert await there.do("head") == before
        assert [(line.owner, line.token) for line in await there.do("runs")] == [("bob", new.lease.token)]
        assert await budget_uses(here.journal, None) == []

    @between
    async def test_what_is_in_flight_is_stored_before_a_claim_or_never(self, here: Peer, there: Peer) -> None:
        for run in ("r1", "r2", "r3", "r4"):
            late = await claimed(here, "alice", run)
            await there.do("beat", ALICE, OVER_MS)
            flight: list[Any] = writes(late, 6, change=p.RunChange("running"))
            stored, (granted,) = await race(
                here,
                there,
                lambda who: flight if who == "alice" else [p.ClaimRequest(run, who)],  # noqa: B023 -- called at once
            )
            known = granted.last.seq if granted.last else 0
            assert stored == [None] * known + [LeaseLost] * (6 - known)
            assert len(await there.do("read", run)) == known
            assert granted.lease.token > late.lease.token

    @between
    async def test_a_lease_that_was_given_back_is_worth_nothing_to_either(self, here: Peer, there: Peer) -> None:
        tokens: list[int] = []
        for n in range(6):
            peer, worker, other = (here, "alice", there) if n % 2 else (there, "bob", here)
            log = await claimed(peer, worker)
            assert log.seq == 2 * n
            assert await peer.ask(*writes(log, 1), *writes(log, 1, change=FREE)) == [None, None]
            (late,) = writes(log, 1, change=p.RunChange("completed"))
            assert await peer.ask(late) == await other.ask(late) == [LeaseLost]
            tokens.append(log.lease.token)
        assert tokens == sorted(set(tokens))

    @between
    async def test_the_first_entry_under_a_key_wins_for_both(self, here: Peer, there: Peer) -> None:
        for n in ROUNDS:
            keys = [f"{n} {k}" for k in range(3)]
            answers = await race(here, there, lambda who: [p.Post("s/1", key, b'"%s"' % who.encode()) for key in keys])  # noqa: B023 -- called at once
            for one, other in zip(*answers, strict=True):
                assert {one.fresh, other.fresh} == {True, False}
                assert (one.id, one.body) == (other.id, other.body)
        taken = (p.Post("s/1", "new", b"1"), p.Post("s/1", "1 0", b"3"))
        for peer, worker in ((here, "alice"), (there, "bob")):
            log = await claimed(peer, worker, worker)
            assert await peer.ask(p.Posts(taken), *writes(log, 1, posts=taken)) == [LedgerTaken] * 2
        head = await there.do("head")
        assert (head.records, head.entries) == (0, 120)

    @between
    async def test_each_entry_is_news_once_and_in_one_order(self, here: Peer, there: Peer) -> None:
        async def follow() -> bool:
            news = await here.do("news", position[-1])
            for stream in news.streams:
                entries = await here.do("entries", stream, position[-1])
                seen.extend(one.id for one in entries if one.id <= news.last)
            position.append(news.last)
            return bool(news.streams)

        seen: list[int] = []
        position = [(await here.do("news", None)).last]
        posting = asyncio.ensure_future(there.ask(*(p.Post(f"s/{n % 3}", "", BODY) for n in range(60))))
        for n in range(30):
            await here.ask(p.Post(f"s/{n % 2 + 2}", "", BODY))
            await follow()
        await posting
        while await follow():
            pass
        entries = await there.do("entries", "s/")
        assert sorted(seen) == [one.id for one in entries] == sorted({one.id for one in entries})
        assert len(seen) == 90
        for last in [0, *seen[::9]]:
            later = tuple(dict.fromkeys(entry.stream for entry in entries if entry.id > last))
            expected = p.LedgerNews(entries[-1].id, later)
            assert await here.do("news", last) == await there.do("news", last) == expected

    @between
    async def test_a_shared_budget_is_counted_over_both(self, here: Peer, there: Peer) -> None:
        logs = {"alice": await claimed(here, "alice", "a"), "bob": await claimed(there, "bob", "b")}
        charge, settled = (Charge("support", "day", "tokens", 0, 1, 40),), (Charge("support", "day", "tokens", 1, -1),)
        mine, theirs = await race(here, there, lambda who: [p.Write(logs[who].lease, charges=charge, declared=0)] * 30)
        assert Counter(mine + theirs) == {None: 40, BudgetSpent: 20}
        assert [use.reserved for use in await budget_uses(here.journal, {"support": "day"})] == [40]
        await race(here, there, lambda who: [p.Write(logs[who].lease, charges=settled)] * 20)
        assert [(use.used, use.reserved) for use in await budget_uses(here.journal, None)] == [(40, 0)]

    @between
    async def test_limits_of_calls_hold_over_both(self, here: Peer, there: Peer) -> None:
        for limit in (CallLimit(at_once=15), CallLimit(rate="15/hour", burst=15)):
            cells = (limit.cell("charge"),)
            mine, theirs = await race(
                here,
                there,
                lambda who: [p.PermitRequest(p.Permit(who, n), cells, 0) for n in range(12)],  # noqa: B023 -- called at once
            )
            assert Counter(one.granted for one in mine + theirs) == {True: 15, False: 9}
            assert [len(use.permits) for use in await limit_uses(here.journal)] == [15]
            await race(
                here, there, lambda who: [p.ReleaseRequest(p.Permit(who, n), {"charge": None}) for n in range(12)]
            )
            assert [use.permits for use in await limit_uses(here.journal)] == [()]
        assert not (await there.ask(p.PermitRequest(p.Permit("bob", 99), cells, 0)))[0].granted

    @between
    async def test_a_moment_fires_once(self, here: Peer, there: Peer) -> None:
        for moment in ROUNDS:
            firing = p.Firing("nightly", moment)
            mine, theirs = await race(here, there, lambda who: [submitted(f"{who} {moment}", None, firing)])  # noqa: B023 -- called at once
            last = await last_firing(here.journal, "nightly", FOREVER_MS)
            assert last is not None
            assert won(mine + theirs) == [last.run]
        (entry,) = await there.ask(p.Post(SCHEDULES, "", b"{}"))
        answers = await here.ask(*(submitted("r", None, p.Firing("nightly", 41, read)) for read in (0, entry.id)))
        assert (answers[0], won(answers)) == (None, ["r"])

    @between
    async def test_one_of_two_replaces_a_hint(self, here: Peer, there: Peer) -> None:
        before: bytes | None = None
        for n in ROUNDS:
            new = {who: b'"%s %d"' % (who.encode(), n) for who in ("alice", "bob")}
            mine, theirs = await race(here, there, lambda who: [p.HintRequest("breaker", new[who], before)])  # noqa: B023 -- called at once
            assert sorted(mine + theirs) == [False, True]
            before = new["alice" if mine[0] else "bob"]
            assert await read_hint(here.journal, "breaker") == before

    @between
    async def test_a_queue_is_full_for_both_and_starts_each_run_once(self, here: Peer, there: Peer) -> None:
        place, limits = p.QueuePlace("mail", capacity=20), DeclaredLimits({"mail": QueueLimits(concurrency=16)})
        mine, theirs = await race(here, there, lambda who: [submitted(f"{who} {n}", place) for n in range(15)])
        assert (len(won(mine + theirs)), (mine + theirs).count(QueueFull)) == (20, 10)
        mine, theirs = await race(here, there, lambda who: [p.TakeRequest(who, AGENTS, 1, Declaration(limits))] * 12)
        started = won([one for some in mine + theirs for one in some])
        assert len(started) == len(set(started)) == 16
        assert [(one.waiting, one.running) for one in await there.do("queues")] == [(4, 16)]

    @between
    async def test_limits_that_the_other_has_declared_are_in_force(self, here: Peer, there: Peer) -> None:
        read = 0
        for declares, commits, worker in ((here, there, "bob"), (there, here, "alice")):
            log, cells = await claimed(commits, worker, worker), (CallLimit(at_once=1).cell("charge"),)
            assert won(await commits.ask(submitted(f"before {read}", p.QueuePlace("mail", declared=read))))
            (entry,) = await declares.ask(p.Post(STREAM, "", b"{}"))
            stale: list[p.CommitRequest[Any]] = [
                p.Write(log.lease, declared=read),
                p.TakeRequest(worker, AGENTS, 1, Declaration(entry=read)),
                p.PermitRequest(p.Permit(worker, 1), cells, read),
                submitted("late", p.QueuePlace("mail", declared=read)),
            ]
            assert await commits.ask(*stale) == [LimitsChanged] * 4
            read = entry.id
            assert await commits.ask(p.Write(log.lease, declared=read)) == [None]
        assert await limit_uses(here.journal) == []

    @between
    async def test_the_words_of_two_operators_are_both_recorded(self, here: Peer, there: Peer) -> None:
        words = [await here.do("confirm", "doubtful", "ann"), await there.do("confirm", "trusted", "ben")]
        assert len({identity.incarnation for identity in words}) == 2
        assert [b"ben" in one.body for one in await here.do("entries", "journal")] == [False, True]
        await race(here, there, lambda _: [p.Post("s/1", "", BODY)] * 5)
        assert (await there.do("head")).entries == 12


class FleetConformance(SharedStoreConformance):
    """The requirements on a fleet: the second journal is in a process of its own, which may die."""

    _idle: ClassVar[list[OtherProcess]] = []

    async def join(self, place: Path) -> Peer:
        other = self._idle.pop() if self._idle else OtherProcess()
        await other.do(self.make_journal, place)
        return other

    async def leave(self, peer: Peer) -> None:
        assert isinstance(peer, OtherProcess)
        if peer.lives and peer.asked:  # the test has failed, and its answer would be that of the next test
            peer.kill()
        elif peer.lives:
            await peer.do("close")
            self._idle.append(peer)

    @classmethod
    def teardown_class(cls) -> None:
        """End the process that is left."""
        while cls._idle:
            cls._idle.pop().kill()

    @between
    async def test_a_calendar_that_is_wrong_ends_no_lease(self, here: Peer, there: Peer) -> None:
        await claimed(there, "bob")
        calendar = time.time_ns
        try:
            for ahead_ns in (10**18, -(10**18)):
                time.time_ns = lambda: calendar() + ahead_ns  # noqa: B023 -- for as long as the loop is here
                assert [type(one) for one in await here.ask(p.ClaimRequest("r", "alice"))] == [p.Busy]
                await here.do("beat", ALICE, LONG_MS)
                assert not (await there.do("fate", "alice")).gone
            await here.do("beat", ALICE, OVER_MS)
            assert (await there.do("fate", "alice")).gone
        finally:
            time.time_ns = calendar

    @between
    async def test_what_a_killed_process_held_is_taken_over_once(self, here: Peer, there: Peer) -> None:
        async def taken(peer: Peer, worker: str) -> tuple[list[str], int, int]:
            claim, take, *permits = await peer.ask(
                p.ClaimRequest("r", worker, DESK),
                p.TakeRequest(worker, AGENTS, 9, limits),
                *(p.PermitRequest(p.Permit(worker, n), (CallLimit(at_once=2).cell("charge"),), 0) for n in range(3)),
            )
            return won([claim]), len(take), sum(one.granted for one in permits)

        assert isinstance(there, OtherProcess)
        limits = Declaration(DeclaredLimits({"mail": QueueLimits(concurrency=2)}))
        await there.do("beat", await there.do(this_process, "carol"), LONG_MS)
        await there.ask(*(submitted(f"q{n}") for n in range(3)))
        assert await taken(there, "carol") == (["r"], 2, 2)
        assert await taken(here, "alice") == ([], 0, 0)
        there.kill()
        assert (await here.do("fate", "carol")).fate == "dead"
        assert [await taken(here, worker) for worker in ("alice", "bob")] == [(["r"], 2, 2), ([], 0, 0)]

    @between
    async def test_of_a_commit_that_was_never_answered_all_is_stored_or_nothing(self, here: Peer, there: Peer) -> None:
        assert isinstance(there, OtherProcess)
        await there.do("beat", await there.do(this_process, "carol"), LONG_MS)
        log, charge = await claimed(there, "carol"), (Charge("support", "day", "tokens", 1, 0),)
        changes = ((p.RunChange("running", str(n)), (p.Post("s/1", str(n), BODY),)) for n in range(1, 600))
        there.tell("ask", *(p.Write(log.lease, log.rows([BODY]), *change, charge) for change in changes))

        async def counted() -> set[int]:
            (line,), uses = await here.do("runs"), await budget_uses(here.journal, None)
            return {len(await here.do("entries", "s/")), int(line.reason or 0), sum(use.used for use in uses)}

        stored = 0
        while stored < 40:  # until it is in the middle of its commits
            before, stored = await counted(), len(await here.do("read", "r"))
            assert max(before) <= stored <= min(await counted()), "a part of a commit was seen"
        there.kill()
        stored = len(await here.do("read", "r"))
        assert stored < 599, "it was killed while it wrote"
        assert await counted() == {stored}
        next_owner = await claimed(here, "alice")
        assert next_owner.seq == stored
        assert await here.ask(*writes(next_owner, 2)) == [None, None]
