"""The worker loop: look for runs that are due, drive them, and end in good order."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from beforehand.cli.apps import Beforehand, ending_by_signal
from beforehand.cli.common import CommandCall
from beforehand.cli.exit_status import DONE, FAILED, INTERRUPTED, WAITS
from beforehand.cli.monitors import declared_settings
from beforehand.cli.undriven import UndrivenFinder, worker_of
from beforehand.engine.queueing import take_slots
from beforehand.engine.recovery import StoppedRunVerified, verify_stopped_run
from beforehand.engine.run_driver import Conclusion, drive_run
from beforehand.errors import BeforehandError, ChainBroken, JournalError, JournalLocked, RunBusy, Unreadable
from beforehand.inspect.monitors.counting import RecordTallies
from beforehand.inspect.monitors.passes import watch
from beforehand.inspect.text import count
from beforehand.journal.backend_rules import due_since
from beforehand.journal.port import AgentKey, RunRow
from beforehand.model.system import is_system

HELD: Final = 25
"""Runs that are held at once for each one that may be at work: most of them wait."""
_AGAIN_MS: Final = 30_000  # a run that cannot even be begun is not tried in a tight loop
_WATCH_EVERY_MS: Final = 60_000  # how often the monitors look for silent failures
_BEHIND_MS: Final = 1_000  # and how soon again while much is uncounted
_STOPPED_EVERY_MS: Final = 60_000  # how often to ask which stopped runs are due to be looked at again


class Driven(msgspec.Struct, frozen=True):
    """One run that the worker drove, and how that ended."""

    run: str
    status: str
    reason: str = ""


class WorkerLoop:
    """One worker's time at work. `foreign` are agents whose code it does not have."""

    def __init__(self, call: CommandCall, app: Beforehand, concurrency: int) -> None:
        self._call = call
        self._app = app
        self._concurrency = concurrency
        self.tasks: dict[str, asyncio.Task[Conclusion] | asyncio.Task[StoppedRunVerified]] = {}
        self.driven: list[Driven] = []
        self.foreign: set[AgentKey] = set()
        self._notices: set[str] = set()
        self.failed: JournalError | None = None
        self._not_before: dict[str, int] = {}
        self._looked_up: int | None = None
        self._errands_done: int | None = None
        self._watch_at = app.engine.journal.clock().earliest_ms + _WATCH_EVERY_MS
        self._monitors = declared_settings()
        self._tallies = RecordTallies()

    async def look(self) -> None:
        """Start what is due, as far as there is room; now and then also looks at stopped runs."""
        now = self._app.engine.journal.clock().earliest_ms
        if self._errands_done is None or now - self._errands_done >= self._app.engine.settings.poll_ms:
            self._errands_done = now  # also if places become free more often
            await self._app.run_housekeeping()
        if now >= self._watch_at:
            self._watch_at = now + _WATCH_EVERY_MS
            await self._app.engine.housekeeping.round("the monitors could not judge", self._watch)
        self._not_before = {run: until for run, until in self._not_before.items() if until > now}
        if self._looked_up is None or now - self._looked_up >= _STOPPED_EVERY_MS:
            self._looked_up = now
            await self._tell_foreign()
            await self._begin_due()
            async for row in self._app.service.reader.every_run(status="stopped", wakeable=True):
                is_new = row.run not in self.tasks and row.run not in self._not_before
                if is_new and self._knows(row.agent, row.program) and self._room() > 0:
                    self._start(row)
        else:
            await self._begin_due()

    async def _watch(self) -> None:
        """Look for silent failures. Of several workers that find the same, one records it."""
        engine, now_ms = self._app.engine, self._app.engine.environment.clock.wall_ms()
        if not await watch(
            self._app.service.reader, engine.journal, engine.outbox, now_ms, self._monitors, self._tallies
        ):
            self._watch_at = engine.journal.clock().earliest_ms + _BEHIND_MS

    async def _begin_due(self) -> None:
        """Start what is due, the one due first first. Notices take a quarter of the room at most."""
        agents, journal = self._app.engine.agents, self._app.engine.journal
        room, skip = self._room(), {*self.tasks, *self._not_before}
        if room <= 0:
            return
        notices = min(room, max(1, self._concurrency // 4) - len(self._notices))
        keys = [(name, agent.program) for name, agent in agents.items()]
        rows = await journal.due([key for key in keys if not is_system(key[0])], room, skip)
        if notices > 0:
            rows += await journal.due([key for key in keys if is_system(key[0])], notices, skip)
        for row in sorted(rows, key=due_since)[:room]:
            self._start(row)
        for row in await take_slots(self._app.engine, self._room(), skip):
            self._start(row)

    async def _tell_foreign(self) -> None:
        queued = {key for queue in await self._app.engine.journal.queues() for key in queue.agents}
        reader = self._app.service.reader
        found = queued | {(row.agent, row.program) async for row in reader.every_run(wakeable=True)}
        finder = UndrivenFinder(reader, self._app.engine.journal.clock().earliest_ms)
        for agent, program in sorted(found - self.foreign):
            if self._knows(agent, program):
                continue
            self.foreign.add((agent, program))
            gone = await finder.find_queued(agent, program)
            self._call.screen.note(
                f"Runs of {agent} of the program {program} wait too, and their code is not here. "
                f"Next: {gone.command if gone is not None else worker_of(program)}"
            )

    async def leaves_queued(self) -> bool:
        """True if runs in queues are left whose code is here."""
        async for row in self._app.service.reader.every_run(status="queued"):
            if self._knows(row.agent, row.program):
                return True
        return False

    def _knows(self, agent: str, program: str) -> bool:
        """True if the agent is here: one of the same name in another program is another agent."""
        known = self._app.engine.agents.get(agent)
        return known is not None and known.program == program

    def _room(self) -> int:
        """How many more may be driven. A run in which everything waits holds no place."""
        working = sum(1 for run in self.tasks if self._app.engine.works_on(run))
        return min(self._concurrency - working, HELD * self._concurrency - len(self.tasks))

    def _start(self, row: RunRow) -> None:
        run, engine, loop = row.run, self._app.engine, asyncio.get_running_loop()
        if row.status == "stopped":
            task = self.tasks[run] = loop.create_task(verify_stopped_run(engine, run))
            task.add_done_callback(lambda done: self._ended(run, done))
            return
        if is_system(row.agent):
            self._notices.add(run)
        driving = self.tasks[run] = loop.create_task(drive_run(engine, run))
        driving.add_done_callback(lambda done: self._ended(run, done))

    def _ended(self, run: str, task: asyncio.Task[Conclusion] | asyncio.Task[StoppedRunVerified]) -> None:
        self.tasks.pop(run, None)
        notice = run in self._notices
        self._notices.discard(run)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, RunBusy):
            return  # another worker was faster
        if isinstance(error, JournalError) and not isinstance(error, (ChainBroken, JournalLocked, Unreadable)):
            self.failed = error  # those are about one run, or over when another process goes on
        if error is not None:
            text = error.message if isinstance(error, BeforehandError) else f"{type(error).__name__}: {error}"
            self._tell(Driven(run, "refused", text))
            self._not_before[run] = self._app.engine.journal.clock().earliest_ms + _AGAIN_MS
            return
        end = task.result()
        if isinstance(end, StoppedRunVerified):
            self._tell(
                Driven(run, "looked at", f"settled: {', '.join(end.settled)}" if end.settled else "still unknown")
            )
        elif not notice:  # `beforehand webhooks` shows the state of those
            self._tell(Driven(run, end.status, end.detail or end.reason))

    def _tell(self, driven: Driven) -> None:
        self.driven.append(driven)
        self._call.screen.note((driven.run, "bold"), f" {driven.status} ", (driven.reason, "dim"))


async def work(call: CommandCall, app: Beforehand, concurrency: int, *, once: bool) -> int:
    """Drive what is due until a signal comes, or with `once` until nothing is due any more."""
    shift = WorkerLoop(call, app, concurrency)
    call.screen.note((f"Driving {', '.join(app.agents)}. Press Ctrl-C to end.", "dim")) if not once else None
    with ending_by_signal() as stop:
        await drive_until(shift, app, stop, once=once)
        await app.engine.shut_down(list(shift.tasks.values()))
    if shift.failed is not None:
        raise shift.failed
    if call.screen.as_json:
        call.screen.document({"driven": shift.driven})
    elif once:
        call.screen.line(f"{count(len({driven.run for driven in shift.driven}), 'run')} driven.")
        if await shift.leaves_queued():
            call.screen.note("Runs are left in queues: for a slot, for their time, or paused. Next: beforehand queues")
    if stop.interrupted or (once and stop.is_set()):
        return INTERRUPTED
    if stop.is_set():
        return DONE  # a service manager ended it, as it should end
    ends = set({driven.run: driven.status for driven in shift.driven}.values())  # of each run, the last one
    if ends & {"stopped", "refused"}:
        return FAILED
    return WAITS if "suspended" in ends else DONE


async def drive_until(shift: WorkerLoop, app: Beforehand, stop: asyncio.Event, *, once: bool = False) -> None:
    """Drive what becomes due until `stop` is set, or the journal fails; with `once` until nothing is due.

    A parent goes on when the child that it waits for has ended.
    """
    pause = None if once else app.engine.settings.poll_ms / 1000
    while not stop.is_set() and shift.failed is None:
        await shift.look()
        if once and not shift.tasks:
            return
        stopping = asyncio.ensure_future(stop.wait())
        ends = {*shift.tasks.values(), stopping}  # a place that becomes free is taken at once
        await asyncio.wait(ends, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
