"""Firing schedules in one process, declaring them, and the commands of people about them.

A process reads the schedules once, and again when the ledger has new entries about them. In between it knows when the
next one fires, so waiting for it costs no statement. The journal decides whether a moment may fire: see `NewRun`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from beforehand.agent.agent import Agent
from beforehand.agent.submission import Submission, place_in
from beforehand.control.code_location import unknown_agents
from beforehand.control.input_checks import checked_by
from beforehand.engine.engine import LOG, Engine
from beforehand.engine.run_start import first_records
from beforehand.errors import LimitsChanged, QueueDraining, UsageError
from beforehand.inspect.reader import read_schedules
from beforehand.journal.backend_rules import FOREVER_MS
from beforehand.journal.cells import last_firing
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Busy, ClaimRequest, Firing, Post, RunChange
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import beginning
from beforehand.model.system import is_system
from beforehand.queues.firing_times import MOST_AT_ONCE, Schedule, due, next_moment
from beforehand.queues.limits import Declaration, LimitsError
from beforehand.queues.schedules import (
    STREAM,
    KnownSchedule,
    ScheduleBook,
    ScheduleEntry,
    run_id_of,
    scheduled_agents,
)

AnyAgent = Agent[Any, Any]
_LONGEST_SLEEP_S: Final = 5.0  # the wall clock may be set meanwhile


async def declare_schedules(
    engine: Engine, schedules: Mapping[str, Schedule], agents: Mapping[str, AnyAgent]
) -> list[str]:
    """Make these the schedules of every process over this journal, if they are not already. Remarks about their agents.

    Raises `LimitsError` for an input that does not fit its agent; agents that are not here are not checked.
    """
    faults = [
        f"schedules.{name}.input: {fault}"
        for name, one in schedules.items()
        if (agent := agents.get(one.agent)) is not None and (fault := _input_fault(agent, one, engine)) is not None
    ]
    if faults:
        raise LimitsError("the declaration of schedules", tuple(faults))
    while True:
        book = await read_schedules(engine.journal)
        if {name: one.schedule for name, one in book.schedules.items()} == schedules:
            break
        # The key makes it a compare-and-set: of two declarations over the same book, the second one reads again.
        post = Post(STREAM, f"declare/{book.entry}", written(ScheduleEntry("declare", dict(schedules))))
        if (await engine.journal.commit(post)).fresh:
            engine.schedules_changed.set()
            break
    return await unknown_agents(engine.journal, scheduled_agents(schedules), agents)


async def steer_schedule(
    engine: Engine, name: str, word: Literal["pause", "resume"], *, by: str, why: str = ""
) -> tuple[KnownSchedule, bool]:
    """Pause a schedule, or resume it. The schedule, and whether this has changed it.

    Once this returns, no process fires a paused schedule. Raises `UsageError` for a name that is not declared.
    """
    known = (await read_schedules(engine.journal)).named(name)
    if bool(known.paused) == (word == "pause"):
        return known, False
    await engine.journal.commit(
        Post(STREAM, "", written(ScheduleEntry(word, schedule=name, by=checked_by(by), why=why)))
    )
    engine.schedules_changed.set()
    return (await read_schedules(engine.journal)).named(name), True


class Scheduler:
    """Fires the schedules of these agents. Several processes may: each moment is one run.

    With `on_time`, a task of its own fires between the rounds of housekeeping, from the first schedule on.
    """

    def __init__(self, engine: Engine, agents: Mapping[str, AnyAgent], *, on_time: bool = False) -> None:
        self._engine = engine
        self._agents = {name: agent for name, agent in agents.items() if not is_system(name)}
        self._book = ScheduleBook()
        self._to_start = on_time  # True while that task has to be started
        self._stale = True  # True until the book was read; also after a read that failed
        self._looks: dict[str, int] = {}  # by schedule, the wall clock at which it is looked at next
        self._wall_ms = 0  # the wall clock when something was looked at last
        self._firing = asyncio.Lock()

    async def keep_firing(self) -> None:
        """Fire what is due, whenever something is, until cancelled."""
        engine = self._engine
        while True:
            await engine.housekeeping.round("the schedules could not be read", self.fire)
            waits: list[asyncio.Future[Any]] = []
            if not self._stale:  # else it is read again after a pause
                waits.append(asyncio.ensure_future(engine.schedules_changed.wait()))
            if (pause := self._pause_s()) is not None:
                waits.append(asyncio.ensure_future(engine.environment.clock.sleep(pause)))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()

    async def fire(self) -> None:
        """Fire what is due now. While nothing is due and nothing was declared, this reads nothing."""
        engine = self._engine
        async with self._firing:
            if self._stale or engine.schedules_changed.is_set():
                engine.schedules_changed.clear()  # before the read: what comes meanwhile is read again
                self._stale = True
                await self._know(await read_schedules(engine.journal))
                self._stale = False
                if self._to_start and self._book.schedules:
                    self._to_start = False
                    engine.housekeeping.keep("the task that fires schedules", self.keep_firing)
            before, self._wall_ms = self._wall_ms, engine.wall_ms()
            if (now := self._wall_ms) < before:  # it was set back: a moment may be due before the noted ones
                self._looks.clear()
            for name, one in self._mine().items():
                if self._looks.get(name, 0) <= now:
                    self._looks[name] = now + engine.settings.recover_every_ms  # where it fails
                    await engine.housekeeping.round(_task(name), partial(self._fire_due, name, one))

    def _mine(self) -> dict[str, KnownSchedule]:
        """The schedules that this process may fire."""
        known = self._book.schedules.items()
        return {name: one for name, one in known if not one.paused and one.schedule.agent in self._agents}

    async def _know(self, book: ScheduleBook) -> None:
        before, known, self._book = self._mine(), self._book.schedules, book
        for name, one in book.schedules.items():
            if known.get(name) != one:
                self._looks.pop(name, None)
        # One that is paused or removed has no later round that would end its failure.
        await self._engine.housekeeping.forget({_task(name) for name in before.keys() - self._mine().keys()})

    def _pause_s(self) -> float | None:
        """How long until something may be due; None: only a new entry can change that."""
        if self._stale:
            return self._engine.settings.recover_every_ms / 1000
        looks = [at for name in self._mine() if (at := self._looks.get(name, 0)) < FOREVER_MS]
        if not looks:
            return None
        return min(max((min(looks) - self._engine.wall_ms()) / 1000, 0.0), _LONGEST_SLEEP_S)

    async def _fire_due(self, name: str, known: KnownSchedule) -> None:
        newest = self._engine.queues.newest
        if newest is not None and newest.mode(known.schedule.queue).draining is not None:
            return  # it fires when the queue is resumed: what was missed by then follows its declaration
        now = self._engine.wall_ms()  # other schedules and a slow disk came before this one
        last = await last_firing(
            self._engine.journal, name, now
        )  # what a wrong clock fired ahead of now delays nothing
        after = known.since_ms if last is None else max(known.since_ms, last.moment_ms)
        moments = due(known.schedule, after, now)
        for moment in moments:
            if not await self._fire(name, known.schedule, moment):
                # Another process was faster, or has declared something: a look at once would only be refused again.
                self._looks[name] = now + self._engine.settings.poll_ms
                return
        self._looks[name] = now if len(moments) == MOST_AT_ONCE else next_moment(known.schedule, now) or FOREVER_MS

    async def _fire(self, name: str, schedule: Schedule, moment: int) -> bool:
        """Submit the run of one moment. False where the journal refuses the firing."""
        engine, run, agent = self._engine, run_id_of(name, moment), self._agents[schedule.agent]
        newest = engine.queues.newest or await engine.queues.begin(engine.journal)
        given = _input_of(agent, schedule)
        place = place_in(newest, agent, given, _submission(schedule))
        started, _ = first_records(engine, agent, agent.stored_input(given, engine.identity.secret))
        started = replace(started, queue=schedule.queue, tenant=schedule.tenant, schedule=name, moment=moment)
        change = RunChange("queued", f"in the queue {schedule.queue}", engine.wall_ms(), release=True)
        new = beginning(engine.identity.namespace, run, agent.name, [encode(started)], change, agent.program)
        new = replace(new, place=place, firing=Firing(name, moment, self._book.entry))
        try:
            claimed = await engine.journal.commit(ClaimRequest(run, engine.worker.id, new))
        except (LimitsChanged, QueueDraining):  # the key, the capacity and the names are those of the limits in force
            await engine.queues.begin(engine.journal)
            return False
        if isinstance(claimed, Busy):
            LOG.warning("the schedule %s has fired with run %s, which existed: its input was not changed", name, run)
        engine.came_due.set()
        return claimed is not None


def _task(name: str) -> str:
    return f"the schedule {name} could not be fired"


def _input_of(agent: AnyAgent, schedule: Schedule) -> Any:
    return agent.parse_input(msgspec.json.encode(schedule.input))


def _submission(schedule: Schedule) -> Submission:
    return Submission(schedule.queue, schedule.priority, tenant=schedule.tenant)


def _input_fault(agent: AnyAgent, schedule: Schedule, engine: Engine) -> str | None:
    try:
        given = _input_of(agent, schedule)
        agent.stored_input(given, engine.identity.secret)
        place_in(engine.queues.newest or Declaration(), agent, given, _submission(schedule))
    except UsageError as error:
        cause = None if error.__cause__ is None else error.__cause__.__cause__  # the decoder's own sentence
        return error.message if cause is None else f"it does not fit the agent {agent.name}: {cause}"
    return None
