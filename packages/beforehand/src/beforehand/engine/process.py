"""One process with an open app: the state that all its runs share, and no state of a single run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from beforehand.engine.breaker import Breakers, pauses_of
from beforehand.engine.caches import InboxDepth, PendingIndex, RecentHistories
from beforehand.engine.call_limits import CallLimits
from beforehand.engine.calls import Calls
from beforehand.engine.crash_isolation import IsolationGate
from beforehand.engine.environment import Environment, gather_bounded
from beforehand.engine.housekeeping import Housekeeping
from beforehand.engine.outbox import Outbox
from beforehand.engine.settings import Settings
from beforehand.engine.suspension import LedgerWatch
from beforehand.engine.tool_protocol import AgentCode, PolicyCode, ToolCode, Tracing
from beforehand.errors import BeforehandError, JournalError, JournalUnavailable, LeaseLost, Unreadable
from beforehand.journal.entry_codec import read, readable, set_aside, written
from beforehand.journal.port import (
    Busy,
    ClaimRequest,
    ClockReading,
    Identity,
    Journal,
    JournalReads,
    Lease,
    LeaseGranted,
    LedgerEntry,
    NewRun,
    Post,
    RunChange,
    RunRow,
    Worker,
    Write,
)
from beforehand.journal.run_log import RunLog, genesis
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory
from beforehand.model.secret import resolver_from
from beforehand.model.usage import PriceSource
from beforehand.model.waits import decode_waits
from beforehand.policies import RunBudget
from beforehand.queues.limits import BEGUN, STREAM, Declaration, DeclaredLimits
from beforehand.queues.modes import QueueCommand, QueueMode, queue_of, with_command

T = TypeVar("T")
LOG: Final = logging.getLogger("beforehand")
_PAUSED: Final = b'"paused"'
_AT_ONCE: Final = 100  # runs that are made due in the same commits


class Process:
    """State shared by the runs of one process: its journal, tools, environment, leases and begun calls.

    `policy`, `tracing` and `prices` are set before the journal is opened, `identity` when it is.
    """

    def __init__(
        self,
        journal: Journal,
        environment: Environment,
        settings: Settings,
        tools: Mapping[str, ToolCode],
        agents: Mapping[str, AgentCode],
        worker: Callable[[str], Worker],
    ) -> None:
        self.journal: Final = journal
        self.environment: Final = environment
        self.settings: Final = settings
        self.tools: Final = tools
        self.agents: Final = agents
        self.worker: Final = worker(environment.rng.token())
        self.identity: Identity = Identity("", b"", "")
        self.resolver = resolver_from(os.environ)
        self.policy: PolicyCode | None = None
        self.tracing: Tracing | None = None
        self.prices: Callable[[], PriceSource | None] = lambda: None  # asked only under a budget in a currency
        self.policies_archived: Final[set[str]] = set()  # versions whose text is in the journal, as far as is known
        self.breakers: Final = Breakers(journal, self.wall_ms, tools)
        self.pauses: dict[str, str] = {}
        self.wake_drivers: Callable[[], None] = lambda: None  # set by the engine
        self.leases: Final = Leases(self)
        self.ledger: Final = LedgerWatch(journal, self.leases.concern)
        self.isolation: Final = IsolationGate()
        self.calls: Final = Calls()
        self.housekeeping: Final = Housekeeping(journal, environment.clock, self.worker.id)
        self.outbox: Final = Outbox(journal, self.wall_ms)
        self.pending_index: Final = PendingIndex()
        self.inbox_depth: Final = InboxDepth(journal)
        self.recent_histories: Final = RecentHistories(journal)
        self.came_due: Final = asyncio.Event()
        """Set when an answer or command made an idle run due here: it need not wait for the next look for due runs."""
        self.queues: Final = Queues()
        self.limits: Final = CallLimits(journal, self.queues, settings, self.worker.id, self)
        self.schedules_changed: Final = asyncio.Event()
        """Set when the ledger has new declarations of schedules, or commands about them."""
        self.live_text: Final = LiveText()
        self.tree_limits: Final[dict[str, RunBudget]] = {}
        """The limits of runs above those that this process drives, as it last read them."""
        self.bring: Callable[[Iterable[str]], list[asyncio.Task[None]]] = lambda _: []
        """Applies commands that were stored for these runs. Set by the engine; house-keeping brings what it cannot."""
        self.closing = False
        self._beat_up = 0
        self._background: dict[asyncio.Task[Any], None] = {}  # ended in the order in which they began
        self._unread_keys: set[str] = set()

    # --- the lease of this process ---------------------------------------------------------------------------

    async def beat(self) -> None:
        """Renew the lease."""
        asked = self.journal.clock().earliest_ms
        await self.journal.beat(self.worker, self.settings.lease_ms)
        self._beat_up = asked  # counted from before the request was sent, so that we never trust it for too long

    def lease_is_fresh(self, latest_ms: int) -> bool:
        """True if this process may act on its lease at that moment: it lasts for longer than the margin."""
        return self.lease_left_ms(latest_ms) > 0

    def lease_left_ms(self, latest_ms: int) -> int:
        """How much longer it may act on its lease, if it is not renewed."""
        return self.settings.lease_ms - self.settings.margin_ms - (latest_ms - self._beat_up)

    # --- pauses ----------------------------------------------------------------------------------------------

    async def read_pauses(self) -> None:
        """Read which tools are paused, and let what waits here judge its situation again where that has changed."""
        before, self.pauses = self.pauses, await pauses_of(self.journal)
        if before != self.pauses:
            self.wake_drivers()

    async def wake_unpaused(self) -> None:
        """Make the runs due that were suspended since a tool was paused, or all sending, and it no longer is."""
        ended = {tool for tool, why in self.pauses.items() if not why}
        lines = await self.journal.waiting("suspended") if ended else ()
        waits = ((line.run, decode_waits(line.waits)) for line in lines if _PAUSED in line.waits)
        runs = (run for run, some in waits if any(one.kind == "paused" and one.tool in ended for one in some))
        async for _ in gather_bounded(map(self.leases.make_due, runs), _AT_ONCE):
            pass

    # --- work that outlives its caller -----------------------------------------------------------------------

    def background(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run something that outlives its caller; it is cancelled when the engine closes."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name, context=self.housekeeping.outside.copy())
        self._background[task] = None
        task.add_done_callback(lambda ended: self._background.pop(ended, None))
        return task

    async def end_background(self) -> None:
        """Cancel what still runs in the background, and wait for each of these tasks for some seconds."""
        for task in list(self._background):
            if task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait({task}, timeout=5)

    def insist(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work as soon as the journal can be reached again, while this app is open."""
        self.housekeeping.keep("a task that records the end of a call", partial(self._insist, work))

    async def _insist(self, work: Callable[[], Awaitable[object]]) -> None:
        while not self.closing:
            await self.environment.clock.sleep(self.settings.poll_ms / 1000)
            try:
                await work()
            except JournalUnavailable:
                continue
            except BeforehandError as error:
                LOG.warning("the end of a call could not be recorded: %s", error)
            return

    # --- services for runs -----------------------------------------------------------------------------------

    def wall_ms(self) -> int:
        """The journal's calendar, by which all that is stored is dated."""
        return self.journal.clock().wall_ms

    def claim(self, now: ClockReading, token: int = 1, number: int = 1) -> r.Claimed:
        """The record with which this process takes a run."""
        restored = "" if self.identity.trust == "trusted" else self.identity.incarnation
        return r.Claimed(
            worker=self.worker.id, token=token, boot=now.epoch, number=number, restored=restored,
            at=now.wall_ms, up=now.latest_ms,
        )  # fmt: skip

    def deadline_of(self, history: RunHistory) -> int | None:
        """The wall clock at which the run's time is over: its own, or that of the run that started it."""
        started, owners = history.lifecycle.started, history.ownership.owners
        if started is None or (agent := self.agents.get(started.agent)) is None:
            return None
        above = None if started.parent is None else started.parent.until or None
        if agent.deadline_ms is None:
            return above
        begun = next(iter(owners.values()), started) if started.queue else started  # the wait in a queue does not count
        own = begun.at + agent.deadline_ms
        return own if above is None else min(own, above)

    def report_unread_key(self, tool: str) -> None:
        """Warn once that a keyed tool never read its key: nothing was deduplicated."""
        if tool not in self._unread_keys:
            self._unread_keys.add(tool)
            LOG.warning(
                "%s declares an idempotency key and never read current_operation().key: "
                "its writes are treated as plain ones from now on. "
                "Pass the key to the system, or drop idempotency=Key(...)",
                tool,
            )


class Piece(NamedTuple):
    """A piece of the answer that a model is giving at this step. `speaker` numbers the calls of models."""

    step: str
    speaker: int
    text: str


class LiveText:
    """The text of answers that models are giving, for readers in this process. It is not on record."""

    def __init__(self) -> None:
        self._readers: Final[dict[str, list[Callable[[Piece | None], None]]]] = {}
        self._so_far: Final[dict[str, dict[int, tuple[str, list[str]]]]] = {}
        self._speakers = 0

    def read(self, run: str, reader: Callable[[Piece | None], None]) -> Callable[[], None]:
        """Add a reader of a run; the function that removes it.

        It first receives the text so far of each answer that is being given. None stands for new records of the run.
        """
        readers = self._readers.setdefault(run, [])
        readers.append(reader)
        for number, (step, said) in self._so_far.get(run, {}).items():
            if said:
                reader(Piece(step, number, "".join(said)))

        def remove() -> None:
            readers.remove(reader)
            if not readers and self._readers.get(run) is readers:
                del self._readers[run]

        return remove

    @contextlib.contextmanager
    def speaker(self, run: str, step: str) -> Generator[Callable[[str], None]]:
        """One call of a model: a function that gives pieces of its answer to the readers of the run."""
        self._speakers += 1
        number, answers = self._speakers, self._so_far.setdefault(run, {})
        said: list[str] = []  # joined for a reader that comes later: joining it for each piece is quadratic
        answers[number] = step, said

        def say(text: str) -> None:
            said.append(text)
            for reader in tuple(self._readers.get(run, ())):
                reader(Piece(step, number, text))

        try:
            yield say
        finally:
            answers.pop(number, None)
            if not answers and self._so_far.get(run) is answers:
                del self._so_far[run]

    def recorded(self, run: str) -> None:
        """Tell the readers of a run that it has new records."""
        for reader in tuple(self._readers.get(run, ())):
            reader(None)


class Queues:
    """The limits of the queues, as the journal declares them, and the slots that this process has and does not use yet.

    Without limits no run was ever submitted, and no process looks for one. `limited_tools` and `limited_models` are
    those of which calls need a permit. `remarked` are the models that were found to have no limit.
    `in_doubt`: the last look failed, and may have taken slots.
    """

    def __init__(self) -> None:
        self.newest: Declaration | None = None
        self.limited_tools: frozenset[str] = frozenset()
        self.limited_models: frozenset[str] = frozenset()
        self.remarked: set[str] = set()
        self.slots: dict[str, LeaseGranted] = {}
        self.taking = asyncio.Lock()
        self.in_doubt = False

    @property
    def limits(self) -> DeclaredLimits | None:
        """The limits in force, as far as this process knows."""
        return None if self.newest is None else self.newest.limits

    async def refresh(self, journal: Journal) -> None:
        """Read the newest declaration."""
        self.newest = await newest_limits(journal)
        limits = self.limits or DeclaredLimits()
        self.limited_tools, self.limited_models = limits.limited_tools(), limits.limited_models()

    async def declare(self, journal: Journal, limits: DeclaredLimits) -> None:
        """Make these the limits of every process over this journal, if they are not already."""
        await self.refresh(journal)
        if limits != self.limits:
            await journal.commit(Post(STREAM, "", written(limits)))
            await self.refresh(journal)

    async def begin(self, journal: Journal) -> Declaration:
        """The limits in force. Where none are declared an entry is made, so that all processes look for runs."""
        await self.refresh(journal)
        if self.newest is None:
            # Its key keeps it from replacing limits that another process declares at the same time.
            await journal.commit(Post(STREAM, BEGUN, written(DeclaredLimits())))
            await self.refresh(journal)
        return self.newest or Declaration()


async def newest_limits(journal: JournalReads) -> Declaration | None:
    """The limits and modes in force; None where no limits were declared and no run was ever submitted."""
    entries = await journal.entries(STREAM)
    declarations = [entry for entry in entries if not queue_of(entry.key)]
    found = [(entry.key, limits) for entry, limits in await readable(journal, declarations, DeclaredLimits)]
    declared = [limits for key, limits in found if not key] or [limits for _, limits in found]
    modes = await _modes(journal, [entry for entry in entries if queue_of(entry.key)])
    budgeted = any(limits.budgets for limits in declared)
    return Declaration(declared[-1], entries[-1].id, modes, budgeted) if declared else None


async def _modes(journal: JournalReads, commands: Iterable[LedgerEntry]) -> Mapping[str, QueueMode]:
    modes: Mapping[str, QueueMode] = {}
    for entry in commands:
        command = None
        try:
            command = read(entry, QueueCommand)
        except Unreadable as error:
            await set_aside(journal, entry, error)
        modes = with_command(modes, entry.id, entry.key, entry.at_ms, command)
    return modes


class Leases:
    """The leases of one process.

    A failing journal may have done what it was asked: a claim that raised can still be ours, and a lease that we gave
    back may still be there. No other process takes either while this one lives, so this one has to check.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._held: set[str] = set()
        self._asking: dict[str, int] = {}  # claims whose answer is under way: they may soon be ours

    async def claim(self, run: str, new: NewRun | None = None) -> LeaseGranted | Busy | None:
        """As a `ClaimRequest`; a lease that is ours although nothing here holds it is given back first."""
        journal, worker = self._process.journal, self._process.worker.id
        self._asking[run] = self._asking.get(run, 0) + 1
        try:
            found = await journal.commit(ClaimRequest(run, worker, new))
            # A look for slots that is under way may just have taken this lease, and drives the run once it is told.
            forgotten = self._asking[run] == 1 and run not in self._held and not self._process.queues.taking.locked()
            if isinstance(found, Busy) and found.row.owner == worker and forgotten:
                await journal.commit(self._giving_back(found.row))
                found = await journal.commit(ClaimRequest(run, worker, new))
            if isinstance(found, LeaseGranted):
                self._held.add(run)
            return found
        finally:
            self._asking[run] -= 1
            if not self._asking[run]:
                del self._asking[run]

    async def store(self, run: str, new: NewRun) -> bool:
        """Store a new run that nothing drives yet. False if there is a run of this name: it stays as it is."""
        claimed = await self.claim(run, new)
        if not isinstance(claimed, LeaseGranted):
            return False
        if not claimed.fresh:
            self.give_back(claimed.row)
        self.let_go(run)
        return claimed.fresh

    def hold(self, run: str) -> None:
        """Note that this process holds the lease of the run, which it was given together with others."""
        self._held.add(run)

    def concern(self, run: str) -> bool:
        """True if this process holds the lease of that run, or is about to learn whether it does."""
        return run in self._held or run in self._asking

    def let_go(self, run: str) -> None:
        """Note that this process no longer drives the run."""
        self._held.discard(run)

    @contextlib.contextmanager
    def idle(self, claimed: LeaseGranted) -> Generator[RunLog]:
        """The log of a claimed run that nothing drives: for the commit that releases it.

        After an error the lease is given back: no other process would take the run for as long as this one lives.
        """
        run, process = claimed.lease.run, self._process
        try:
            yield RunLog(process.journal, claimed.lease, claimed.last, genesis(process.identity.namespace, run))
        except Exception:
            self.give_back(claimed.row)
            raise
        finally:
            self.let_go(run)

    async def make_due(self, run: str) -> None:
        """Make a suspended run due: giving its lease back leaves it so, and a worker takes it up."""
        process = self._process
        if not isinstance(claimed := await self.claim(run), LeaseGranted):
            return
        try:
            await process.journal.commit(self._giving_back(claimed.row))
        except LeaseLost:
            return  # this process stood still meanwhile, and another one has the run
        except JournalError:
            self.give_back(claimed.row)
            raise
        finally:
            self.let_go(run)
        process.came_due.set()

    def give_back(self, row: RunRow) -> None:
        """Give back the lease of a run as soon as possible, after the journal failed while we held it."""
        self._process.background(self._give_back(row), f"beforehand-release-{row.run}")

    async def _give_back(self, row: RunRow) -> None:
        write = self._giving_back(row)
        while not self._process.closing:
            try:
                await self._process.journal.commit(write)
            except LeaseLost:
                return
            except JournalError as error:
                LOG.warning("the lease of run %s could not be given back: %s", row.run, error)
                await self._process.environment.clock.sleep(self._process.settings.poll_ms / 1000)
            else:
                return

    def _giving_back(self, row: RunRow) -> Write:
        """The write that frees the lease and keeps the listing as it was."""
        change = unchanged_listing(row, self._process.wall_ms())
        return Write(Lease(row.run, row.row, row.token, self._process.worker.id), (), change)


def unchanged_listing(row: RunRow, now_ms: int) -> RunChange:
    """The listing of a run that was held but not driven. One that waits or stopped is due: a command may have come."""
    due = now_ms if row.status in {"suspended", "stopped"} else row.due_ms
    return RunChange(row.status, row.reason, due, row.waits, release=True)
