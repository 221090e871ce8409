"""The engine of one process: opens and closes it, keeps its lease, and takes commands for the runs that it drives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from beforehand.engine import breaker
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import number_tasks, stop_numbering
from beforehand.engine.calls import remember_calls
from beforehand.engine.commands import apply_commands, take_commands
from beforehand.engine.environment import GARBAGE
from beforehand.engine.housekeeping import Loop
from beforehand.engine.process import Process
from beforehand.engine.sealing import waiting_place
from beforehand.engine.shared_budgets import wake_waiting
from beforehand.engine.suspension import Ending, told_to_end
from beforehand.errors import BeforehandError, JournalError, LeaseLost
from beforehand.journal.port import Identity
from beforehand.model import pending
from beforehand.model.shell import to_type
from beforehand.model.webhooks import ENDPOINTS
from beforehand.queues import limits as queues
from beforehand.queues import schedules

LOG: Final = logging.getLogger("beforehand")
_LOOK_ANYWAY_MS: Final = 2_000
"""How often the ledger is read while the journal seems unchanged."""
_EVERYTHING_EVERY: Final = 8  # times `poll_ms`: what only makes attempts wait is read less often


class Engine(Process):
    """Everything one process needs to drive runs. Open it before use; close it at the end."""

    active_runs: dict[str, ActiveRun]
    _beating: Loop
    _tuned = False  # True once this app has tuned the garbage collector
    _NOTES: Final = {  # ledger streams, by their prefix, that concern the whole process
        pending.WAYS: "could not read what was ever pending",
        breaker.PAUSES: "could not read which tools are paused",
        ENDPOINTS: "could not read the webhook endpoints",
        queues.STREAM: "could not read the limits of the queues",
        schedules.STREAM: "could not read the schedules",
    }

    # --- open and close ------------------------------------------------------------------------------------

    async def open(self) -> Identity:
        """Open the journal, take a lease for this process, number tasks of agent code, keep house."""
        self.active_runs = {}
        self.bring, self.isolation.end_lost_runs = self._bring, self._end_lost_runs
        self.wake_drivers = self._wake_drivers
        self._silent: dict[str, tuple[int, int]] = {}  # runs out of step: their last record, and since when; -1: named
        self.identity = await self.journal.open()
        for notice in self.identity.notices:
            LOG.info(notice)
        await self.beat()
        await self.ledger.begin()  # first: what comes after it is found by a later look
        self._unread: set[str] = set()  # of `_NOTES`, those that have grown
        await self.read_pauses()
        await self.pending_index.refresh(self.journal)
        await self.outbox.refresh()
        await self.queues.refresh(self.journal)
        number_tasks(asyncio.get_running_loop())
        self._beating = self.housekeeping.keep("the task that renews the lease", self._keep_lease)
        self.housekeeping.keep("the task that looks for commands and pauses", self._keep_house)
        if self.settings.gc_threshold:
            GARBAGE.tune(self.settings.gc_threshold)
            self._tuned = True
        return self.identity

    async def shut_down(self, driving: list[asyncio.Task[Any]]) -> None:
        """Seal every run, let calls in flight end within the grace time, and suspend what runs."""
        self.isolation.close()
        if self.active_runs:  # a service manager may kill this process before its calls have ended
            driving = [*driving, self.background(self.journal.commit(told_to_end(self.worker.id)), "beforehand-told")]
        for active in list(self.active_runs.values()):
            active.end(Ending("shutdown", "the process shuts down"))
        if driving:
            await asyncio.wait(driving, timeout=2 * self.settings.grace_ms / 1000)

    async def close(self) -> None:
        """Stop house-keeping and close the journal."""
        if self.closing:
            return
        self.closing = True
        if self._tuned:  # first: whatever fails below, the application has its collector back
            GARBAGE.restore(self.settings.gc_threshold)
        remember_calls(self.worker, WeakSet(self.calls.open))
        # The lease is renewed until the last task has ended: a process that still writes must not look dead.
        await self.housekeeping.close(keep=self._beating)
        await self.end_background()
        await self.housekeeping.close()
        with contextlib.suppress(JournalError):
            await self.limits.release_rest(self.active_runs)
        stop_numbering(asyncio.get_running_loop())
        await self.journal.close()

    # --- the loops of house-keeping ----------------------------------------------------------------------------

    async def _keep_lease(self) -> None:
        while True:
            await self.environment.clock.sleep(self.settings.lease_ms / 3000)
            await self.housekeeping.round("the lease could not be renewed", self.beat)
            if self.settings.silent_ms:
                await self.housekeeping.round("could not look for runs without a step", self._name_silent_runs)

    async def _name_silent_runs(self) -> None:
        """Warn of runs whose code has made no step for long: it may wait for something that never comes.

        Nothing else would notice: such a run neither waits for the runtime nor fails, and holds its lease.
        """
        now, before, self._silent = self.journal.clock().earliest_ms, self._silent, {}
        for run, active in self.active_runs.items():
            if active.root.in_step() or active.drivers.tasks or not (tasks := active.root.tasks()):
                continue
            seq = active.log.journal_log.seq
            known_seq, since = before.get(run, (-1, 0))
            self._silent[run] = seq, since if known_seq == seq else now
            if known_seq == seq and 0 <= since <= now - self.settings.silent_ms:
                LOG.warning(
                    "run %s: its code has made no step for %d s, and waits at %s. If that never ends, end it with a "
                    "time limit of its own, or stop the run: %s",
                    run, (now - since) // 1000, waiting_place(tasks[0]), to_type("cancel", run),
                )  # fmt: skip
                self._silent[run] = seq, -1  # once

    async def _end_lost_runs(self) -> None:
        """End the code of runs that others took while this process was paused: it may go on, and crash the process."""
        tasks = list[asyncio.Task[object]]()
        for active in list(self.active_runs.values()):
            if any(row.token != active.lease.token for row in await self.journal.runs(run=active.run)):
                active.fail(LeaseLost(f"run {active.run} was taken over by another process"))
                tasks += active.root.tasks()
        if tasks:
            await asyncio.wait(tasks, timeout=self.settings.grace_ms / 1000)

    async def _keep_house(self) -> None:
        """Check for input from outside: commands for our runs, pauses, breakers."""
        poll, looked, whole, stale, marked = self.settings.poll_ms, 0, self.journal.clock().earliest_ms, True, False
        while True:
            # Told before the journal is read: what is committed meanwhile is told next time.
            told = await self.journal.changed(partial(self.environment.clock.sleep, poll / 1000))
            changed, now = told is not False or self._has_work_left(), self.journal.clock().earliest_ms
            stale, marked = stale or changed, marked or told is not None
            if not changed and now - looked < _LOOK_ANYWAY_MS:
                continue
            looked = now
            everything = stale and now - whole >= _EVERYTHING_EVERY * poll and (not marked or self._works())
            if everything:
                whole, stale = now, False
            await self.look(everything=everything)

    def _works(self) -> bool:
        """True if a run is at work. While all wait, nothing is sent, and no breaker is asked for."""
        return any(not active.waiters.at_rest() for active in self.active_runs.values())

    def _has_work_left(self) -> bool:
        """True if something failed and is tried again at the next look, whether or not the journal has changed."""
        return bool(self._unread or self.ledger.pending or self.housekeeping.failing())

    async def look(self, *, everything: bool = True) -> None:
        """Read what is new in the ledger, once for all runs, and act on it; with `everything` more than that.

        Each task is a round of its own: a failure in one run or note does not keep the others from being done, and what
        failed is done again at the next look.
        """
        await self.housekeeping.round("could not look for commands", self._read_news)
        rounds: dict[str, Callable[[], Awaitable[object]]] = {
            f"could not read the commands and events for run {run}": partial(self._take_commands, active)
            for run in sorted(self.ledger.pending)
            if (active := self.active_runs.get(run)) is not None and active.sealed is None
        }
        over = {task for task in self.housekeeping.failing() if " for run " in task} - rounds.keys()
        await self.housekeeping.forget(over)
        rounds |= {self._NOTES[prefix]: partial(self._read_notes, prefix) for prefix in sorted(self._unread)}
        if everything:
            rounds["could not read the breakers"] = self.breakers.refresh
            await self.housekeeping.forget_restarts()
        for task, work in rounds.items():
            await self.housekeeping.round(task, work)

    async def _read_news(self) -> None:
        grown = await self.ledger.look()
        self._unread.update(prefix for prefix in self._NOTES if any(one.startswith(prefix) for one in grown))

    async def _take_commands(self, active: ActiveRun) -> None:
        # Before they are taken: one that comes meanwhile is found again, and one that fails is kept.
        self.ledger.pending.discard(active.run)
        try:
            await take_commands(active)
        except BaseException:
            self.ledger.pending.add(active.run)
            raise

    async def _read_notes(self, prefix: str) -> None:
        self._unread.discard(prefix)  # before they are read: as for commands
        try:
            match prefix:
                case pending.WAYS:
                    await self.pending_index.refresh(self.journal)
                case queues.STREAM:
                    await self.queues.refresh(self.journal)
                    self.came_due.set()  # limits were raised, or a queue was resumed: others may start at once
                    self.limits.look_again()
                    for active in self.active_runs.values():
                        active.waiters.budget_changed()
                    await wake_waiting(self)
                case schedules.STREAM:
                    self.schedules_changed.set()  # they are read by the task that fires them
                case breaker.PAUSES:
                    await self.read_pauses()
                    await self.wake_unpaused()
                case _:
                    await self.outbox.refresh()
        except BaseException:
            self._unread.add(prefix)
            raise

    def _wake_drivers(self) -> None:
        for active in self.active_runs.values():
            active.waiters.wake()

    def _bring(self, runs: Iterable[str]) -> list[asyncio.Task[None]]:
        found: list[asyncio.Task[None]] = []
        for run in runs:
            self.environment.crash.reached("after_told")
            found.append(self.background(self._bring_one(run), f"beforehand-bring-{run}"))
        return found

    async def _bring_one(self, run: str) -> None:
        try:
            await apply_commands(self, self.active_runs, run)
        except BeforehandError as error:
            LOG.info("the notice for run %s is brought later: %s", run, error)

    def works_on(self, run: str) -> bool:
        """True if a run that is driven here is at work: one that waits to begin, or waits otherwise, holds no place."""
        if run in self.isolation.waiting:
            return False
        active = self.active_runs.get(run)
        return active is None or not active.waiters.at_rest()
