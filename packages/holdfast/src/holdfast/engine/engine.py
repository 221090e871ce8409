"""The engine of one process: its journal, tools and agents, its lease, and the runs it drives."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from holdfast.engine.active_run.run import ActiveRun
from holdfast.engine.breaker import Breakers, paused_tools
from holdfast.engine.commands import Command, command_post
from holdfast.engine.crash_isolation import IsolationGate
from holdfast.engine.deferred import DELIVERIES, AnswerNotice
from holdfast.engine.environment import Environment, thread_of
from holdfast.engine.executor import file_late_end
from holdfast.engine.housekeeping import Housekeeping, Loop
from holdfast.engine.invoke import CallTimeouts
from holdfast.engine.leases import Leases
from holdfast.engine.operation_driver import OperationDriver
from holdfast.engine.outbox import Outbox
from holdfast.engine.pending import PendingIndex
from holdfast.engine.previous_owner import remember_calls
from holdfast.engine.rulings import InboxDepth, PolicyCode
from holdfast.engine.scopes import Scope, number_tasks, stop_numbering
from holdfast.engine.settings import Settings
from holdfast.engine.suspension import Ending
from holdfast.engine.tool_protocol import Codec, ToolCode
from holdfast.errors import HoldfastError, JournalUnavailable, LedgerTaken
from holdfast.journal.entry_codec import written
from holdfast.journal.port import Identity, Journal, Post, Worker
from holdfast.model import records as r
from holdfast.model.ids import operation_id
from holdfast.model.run_history import RunHistory
from holdfast.model.secret import resolver_from

T = TypeVar("T")
LOG: Final = logging.getLogger("holdfast")


class AgentCode(Protocol):
    """One agent, as an app holds it."""

    @property
    def name(self) -> str:
        """The name in records and commands."""
        ...

    @property
    def program(self) -> str:
        """The program that the agent belongs to; empty for the runtime's own agents."""
        ...

    @property
    def version(self) -> str:
        """What the author calls this version of the code; empty where nothing is said."""
        ...

    @property
    def deadline_ms(self) -> int | None:
        """How long a run may take from its start, in milliseconds."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """The tools whose effects have to stand when a run completes."""
        ...

    @property
    def codec(self) -> Codec:
        """The codec of its result."""
        ...

    def begin(self, scope: Scope, stored_input: bytes) -> Any:
        """The coroutine of one instance."""
        ...


class Engine:
    """Everything one process needs to drive runs. Open it before use; close it at the end."""

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
        self.breakers: Final = Breakers(self)
        self.leases: Final = Leases(self)
        self.company: Final = IsolationGate()
        self.limits: Final = CallTimeouts()
        self.house: Final = Housekeeping(self)
        self.outbox: Final = Outbox(self)
        self.pauses: dict[str, str] = {}
        self.pending_ways: Final = PendingIndex()
        self.instances: dict[str, ActiveRun] = {}
        self.identity: Identity = Identity("", b"", "")
        self.closing = False
        self._beat_up = 0
        self._beating: Loop | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._watched: set[asyncio.Future[Any]] = set()
        self.begun: Final[set[asyncio.Future[Any]]] = set()
        """Calls of tools that this app began and whose end nobody has seen yet."""
        self._late_calls: dict[str, dict[int, asyncio.Future[Any]]] = {}
        self._unread_keys: set[str] = set()
        self.resolver = resolver_from(os.environ)
        self.judge: PolicyCode | None = None
        """The policy of this app, if it has one. Set it before the engine is opened."""
        self.policies_kept: Final[set[str]] = set()
        """The versions whose text is in the journal, as far as this process knows."""
        self.crowd: Final = InboxDepth(self)

    # --- open and close ------------------------------------------------------------------------------------

    async def open(self) -> Identity:
        """Open the journal, take a lease for this process, number tasks of agent code, keep house."""
        self.identity = await self.journal.open()
        for notice in self.identity.notices:
            LOG.info(notice)
        await self._beat()
        await self._read_pauses()
        await self.pending_ways.refresh(self.journal)
        await self.outbox.refresh()
        number_tasks(asyncio.get_running_loop())
        self._beating = self.house.keep("the task that renews the lease", self._keep_lease)
        self.house.keep("the task that looks for commands and pauses", self._keep_house)
        return self.identity

    async def shut_down(self, driving: list[asyncio.Task[Any]]) -> None:
        """Seal every instance, let calls in flight end within the grace time, and suspend what runs."""
        self.company.close()
        for instance in list(self.instances.values()):
            instance.end(Ending("shutdown", "the process shuts down"))
        if driving:
            await asyncio.wait(driving, timeout=2 * self.settings.grace_ms / 1000)

    async def close(self) -> None:
        """Stop keeping house and let go of the journal."""
        if self.closing:
            return
        self.closing = True
        remember_calls(self.worker, WeakSet(self.begun))
        await self.house.close(keep=self._beating)
        for task in list(self._background):
            await _cancelled(task)
        await self.house.close()
        stop_numbering(asyncio.get_running_loop())
        await self.journal.close()

    def background(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run something that outlives its caller; it is cancelled when the engine closes."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # --- the lease of this process ---------------------------------------------------------------------------

    async def _beat(self) -> None:
        asked = self.journal.now().ms
        await self.journal.beat(self.worker, self.settings.lease_ms)
        self._beat_up = asked  # counted from before the request left

    async def _keep_lease(self) -> None:
        while True:
            await self.environment.clock.sleep(self.settings.lease_ms / 3000)
            await self.house.round("the lease could not be renewed", self._beat)

    def lease_is_fresh(self, up: int) -> bool:
        """Whether this process may act on its lease at the moment `up`: it holds for longer than the margin."""
        return up - self._beat_up < self.settings.lease_ms - self.settings.margin_ms

    async def renew_lease(self, instance: ActiveRun) -> None:
        """Renew before acting; the instance may have been taken over meanwhile.

        Raises `Sealed` then. An evicted instance still finishes what its record has begun, so it goes on.
        """
        await self._beat()
        if instance.sealed is not None:
            raise instance.sealed

    # --- keeping house -----------------------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        """Look at what came from outside: commands for our runs, pauses, breakers."""
        tick = 0
        while True:
            await self.environment.clock.sleep(self.settings.poll_ms / 1000)
            tick += 1
            await self.look(everything=tick % 8 == 0)

    async def look(self, *, everything: bool = True) -> None:
        """Take commands for the runs driven here and read what was ever pending; with `everything` more than that.

        Each is a round of its own: what one run or one note cannot do keeps no other from being looked at.
        """
        from holdfast.engine.commands import take_commands  # noqa: PLC0415 - commands needs the engine's types

        rounds: dict[str, Callable[[], Awaitable[object]]] = {
            f"could not look at what came from outside for run {instance.run}": partial(take_commands, instance)
            for instance in list(self.instances.values())
            if instance.sealed is None
        }
        # At each look: until it is read, a call of a tool that never left anything pending before meets nothing.
        rounds["could not read what was ever pending"] = partial(self.pending_ways.refresh, self.journal)
        over = {task for task in self.house.failing() if " for run " in task} - rounds.keys()
        await self.house.forget(over)
        if everything:
            rounds |= {
                "could not look which tools are paused": self._read_pauses,
                "could not read the breakers": self.breakers.refresh,
                "could not read who is told": self.outbox.refresh,
            }
            await self.house.forget_restarts()
        for task, work in rounds.items():
            await self.house.round(task, work)

    async def _read_pauses(self) -> None:
        before, self.pauses = self.pauses, await paused_tools(self.journal)
        if before != self.pauses:
            for instance in self.instances.values():
                instance.wake()

    # --- what instances ask for ----------------------------------------------------------------------------------

    def deadline_of(self, history: RunHistory) -> int | None:
        """The wall clock at which the run's time is over."""
        if history.started is None or (agent := self.agents.get(history.started.agent)) is None:
            return None
        return None if agent.deadline_ms is None else history.started.at + agent.deadline_ms

    def works_on(self, run: str) -> bool:
        """Whether a run that is driven here does something: one that waits to begin, or rests, holds no place."""
        if run in self.company.waiting:
            return False
        instance = self.instances.get(run)
        return instance is None or not instance.at_rest()

    def watch_late(self, flight: OperationDriver, number: int, call: asyncio.Future[Any]) -> None:
        """File what a call answers after its attempt was given up."""
        if call in self._watched:
            return
        self._watched.add(call)
        flight.instance.late.add(flight.step)
        self._late_calls[flight.id] = flight.calls

        def report(_: asyncio.Future[Any]) -> None:
            self._watched.discard(call)
            self.has_ended(call)
            if not self.closing:
                self.background(file_late_end(flight, number, call), "holdfast-late")

        call.add_done_callback(report)

    def has_ended(self, call: asyncio.Future[Any]) -> None:
        """The end of a call was seen. A thread goes on after its future was cancelled."""
        if not call.cancelled() or thread_of(call) is None:
            self.begun.discard(call)

    def late_calls(self, run: str, step: str) -> dict[int, asyncio.Future[Any]] | None:
        """Calls of an operation that outlived their attempts in this process, whichever instance made them."""
        if not self._late_calls:
            return None
        self._late_calls = {
            name: calls for name, calls in self._late_calls.items() if any(not call.done() for call in calls.values())
        }
        return self._late_calls.get(operation_id(run, step))

    async def file_late(self, run: str, report: r.LateReport) -> None:
        """A fenced-out owner knows something about an attempt: leave it in the ledger for the present owner.

        While this process lives nobody else can tell that its call is over, so what the journal does not take now
        is offered again until it does.
        """
        body = written(Command(record=report))
        key = f"late/{report.step}/{report.number}/{report.up}"
        news = Post(DELIVERIES, f"{run}/{key}", written(AnswerNotice("", key, run)))

        async def file() -> None:
            with suppress(LedgerTaken):  # it was filed, and the answer to that was lost
                # In one commit: of a run that has ended, only what is announced is looked at.
                await self.journal.post_all((command_post(run, body, key), news))

        try:
            await file()
        except JournalUnavailable as error:
            LOG.warning("run %s: how a call ended could not be recorded yet: %s", run, error)
            self.insist(file)

    def insist(self, what: Callable[[], Awaitable[object]]) -> None:
        """Do it as soon as the journal can be reached again, while this app is open."""
        self.house.keep("a task that files how a call ended", partial(self._insist, what))

    async def _insist(self, what: Callable[[], Awaitable[object]]) -> None:
        while not self.closing:
            await self.environment.clock.sleep(self.settings.poll_ms / 1000)
            try:
                await what()
            except JournalUnavailable:
                continue
            except HoldfastError as error:
                LOG.warning("how a call ended could not be recorded: %s", error)
            return

    def report_unread_key(self, tool: str) -> None:
        """A keyed tool never looked at its key: nothing was deduped."""
        if tool not in self._unread_keys:
            self._unread_keys.add(tool)
            LOG.warning(
                "%s declares an idempotency key and never read current_operation().key: "
                "its writes are treated as plain ones from now on. "
                "Pass the key to the system, or drop idempotency=Key(...)",
                tool,
            )


async def _cancelled(task: asyncio.Task[Any] | None) -> None:
    if task is None or task is asyncio.current_task():
        return
    task.cancel()
    await asyncio.wait({task}, timeout=5)
