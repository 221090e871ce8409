"""Finds abandoned and due runs, on open and while running, and drives them as places become free.

A run whose process died is found here. `run_driver.drive_run` claims it under a new fencing token,
`steps.drive_open_operations` drives its open operations, and `previous_owner` ends the attempts of the dead process.
From then on `decide` treats them like any other ambiguous attempt.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.engine.active_run.log import load
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.approvals import park
from beforehand.engine.commands import take_commands
from beforehand.engine.engine import LOG, Engine
from beforehand.engine.executor import settle
from beforehand.engine.operation_driver import OperationDriver, tool_of
from beforehand.engine.previous_owner import account_for_previous_owners
from beforehand.engine.process import unchanged_listing
from beforehand.engine.queueing import take_slots
from beforehand.engine.situation import next_move
from beforehand.engine.suspension import release_post, stopped_change
from beforehand.engine.verification import verify
from beforehand.engine.waiting import schedule
from beforehand.errors import BeforehandError, LedgerTaken, RunBusy
from beforehand.journal.port import LeaseGranted, RunChange, RunRow
from beforehand.journal.run_log import RunLog
from beforehand.model.decision import moves as m
from beforehand.model.system import is_system

if TYPE_CHECKING:
    from beforehand.engine.run_driver import Conclusion
    from beforehand.journal.port import AgentKey
    from beforehand.model.operation import OperationState


NOTICES_AT_ONCE: Final = 5
"""Runs that send notices and work at once: they have places of their own, so neither kind starves the other."""
_TASK: Final = "the search for abandoned runs failed"
_LOOK_AGAIN_S: Final = 0.05  # while all places are taken: a run that begins to wait frees one without a notice


class Recovery:
    """Looks for runs without a living owner, and for suspended ones that are due, and drives those due first.

    `drive` drives one run to its next end, and `housekeeping` is called every `recover_every_ms`. Runs of an agent that
    this app does not know, or of another program's agent of the same name, are not read. One that could not be driven
    is tried again after `recover_every_ms`.
    """

    def __init__(
        self,
        engine: Engine,
        drive: Callable[[str], Awaitable[Conclusion]],
        housekeeping: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._engine = engine
        self._drive = drive
        self._housekeeping = housekeeping
        held = engine.settings.recover_held
        self._runs = _Places(engine.settings.recover_at_once, held)
        self._notices = _Places(NOTICES_AT_ONCE, held)
        self._not_before: dict[str, int] = {}
        self._freed = asyncio.Event()
        self._more = False  # True if more due runs may wait for a place

    async def keep_looking(self) -> None:
        """Look for runs repeatedly, until cancelled."""
        pause = self._engine.settings.recover_every_ms
        while True:
            begun = self._engine.journal.clock().earliest_ms
            await self._engine.housekeeping.round(_TASK, self.look)
            while (left := pause - (self._engine.journal.clock().earliest_ms - begun)) > 0:
                event, seconds = (self._freed, _LOOK_AGAIN_S) if self._more else (self._engine.came_due, left / 1000)
                await self._until(event, seconds)
                if self._more or self._engine.came_due.is_set():
                    await self._engine.housekeeping.round(_TASK, self._fill)

    async def look(self) -> list[asyncio.Task[None]]:
        """Do the housekeeping and start to drive due runs, as far as there are places; return the started tasks."""
        if self._housekeeping is not None:
            await self._engine.housekeeping.round("housekeeping failed", self._housekeeping)
        return await self._fill()

    async def _fill(self) -> list[asyncio.Task[None]]:
        engine, now = self._engine, self._engine.journal.clock().earliest_ms
        self._not_before = {run: until for run, until in self._not_before.items() if until > now}
        started: list[asyncio.Task[None]] = []
        self._freed.clear()
        engine.came_due.clear()  # before the read: what becomes due during it is looked for again
        skip = {*self._runs.driving, *self._notices.driving, *engine.active_runs, *self._not_before}
        room = {places: places.room(engine) for places in (self._runs, self._notices)}
        agents: dict[_Places, list[AgentKey]] = {places: [] for places in room}
        for name, agent in engine.agents.items():
            agents[self._places_of(name)].append((name, agent.program))
        self._more = any(free <= 0 for free in room.values())
        asked = [agent for places, some in agents.items() if room[places] > 0 for agent in some]
        most = sum(free for free in room.values() if free > 0)
        rows = await engine.journal.due(asked, most, skip) if asked else []
        for places, free in room.items():
            mine = [row for row in rows if self._places_of(row.agent) is places]
            if free > 0 and (len(rows) == most or len(mine) >= free):  # not all of them were read, or have room
                mine = await self._fairly(agents[places], free, skip, places)
                self._more = self._more or len(mine) == free
            started += [self._start(row, places) for row in mine]
        free = self._runs.room(engine)
        slots = await take_slots(engine, free, skip)
        self._more = self._more or (bool(slots) and len(slots) == free)
        return started + [self._start(row, self._runs) for row in slots]

    def _start(self, row: RunRow, places: _Places) -> asyncio.Task[None]:
        places.driving[row.run] = row.agent
        return self._engine.background(self._drive_one(row.run, places), f"beforehand-recover-{row.run}")

    def _places_of(self, agent: str) -> _Places:
        return self._notices if is_system(agent) else self._runs

    async def _fairly(
        self, agents: Collection[AgentKey], room: int, skip: Collection[str], places: _Places
    ) -> list[RunRow]:
        """The due runs that are driven next: the one due first, of the agent that has the fewest places."""
        journal = self._engine.journal
        if len(agents) <= 1:
            return await journal.due(agents, room, skip)
        # One agent with very many due runs must not keep those of the others waiting.
        queues = {agent[0]: deque(await journal.due([agent], room, skip)) for agent in agents}
        taken, chosen = Counter(places.driving.values()), list[RunRow]()
        while len(chosen) < room and (waiting := [name for name, queue in queues.items() if queue]):
            name = min(waiting, key=taken.__getitem__)
            chosen.append(queues[name].popleft())
            taken[name] += 1
        return chosen

    async def _until(self, event: asyncio.Event, seconds: float) -> None:
        """Return when this happens, and after so many seconds in any case."""
        waits = [asyncio.ensure_future(event.wait())]
        waits.append(asyncio.ensure_future(self._engine.environment.clock.sleep(seconds)))  # type: ignore[arg-type]  # one gives a bool
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _drive_one(self, run: str, places: _Places) -> None:
        engine, again = self._engine, False
        try:
            conclusion = await self._drive_taken(run)
            LOG.info("run %s was recovered: %s %s", run, conclusion.status, conclusion.reason)
            again = conclusion.due is not None and conclusion.due <= engine.wall_ms()
        except BeforehandError as error:
            again = True
            LOG.warning("run %s could not be recovered: %s", run, error)
        except Exception as error:  # noqa: BLE001 - this task is not awaited: what it raised would be lost
            again = True
            LOG.error("run %s could not be recovered", run, exc_info=error)
        finally:
            places.driving.pop(run, None)
            self._freed.set()
            if engine.queues.limits is not None:
                engine.came_due.set()  # a slot became free, whether or not all places were taken
            if again:  # not in a tight loop
                self._not_before[run] = engine.journal.clock().earliest_ms + engine.settings.recover_every_ms

    async def _drive_taken(self, run: str) -> Conclusion:
        """Drive the run. A drive that had begun before the run got its slot is joined, and leaves that slot unused."""
        slots = self._engine.queues.slots
        try:
            conclusion = await self._drive(run)
        except BeforehandError:
            if run not in slots:
                raise
        else:
            if run not in slots:
                return conclusion
        return await self._drive(run)


class _Places:
    """The runs of one kind that are driven, and how many more may be."""

    def __init__(self, at_once: int, held: int) -> None:
        self._at_once = at_once
        self._held = held  # runs that work, and those that wait: one that waits, for a retry for example, has no place
        self.driving: dict[str, str] = {}
        """The runs that are driven, and their agents."""

    def room(self, engine: Engine) -> int:
        working = sum(1 for run in self.driving if engine.works_on(run))
        return min(self._at_once - working, self._held - len(self.driving))


# --- stopped runs --------------------------------------------------------------------------------------------------
# An unknown effect is read back on a slow schedule, and nothing is ever sent. A run that was cancelled, or that stopped
# with an error, may leave an effect unknown, or accepted and not yet answered. Recovery claims such a run now and then,
# reads the outside system once, records the reading and the time of the next one, and gives the run back. The pauses
# grow with the time since the run stopped, and the readings end after `watch_stopped_ms`. An answer that comes for an
# operation of a stopped run makes the run due at once, at any time.


_MOVES = 6
"""More moves than one reading can need: an end that is settled after its reading, and the pause before the next."""


class StoppedRunVerified(msgspec.Struct, frozen=True):
    """The result of one verification of a stopped run: the operations that it settled, and when to verify next."""

    run: str
    settled: tuple[str, ...] = ()
    due_ms: int | None = None


async def verify_stopped_run(engine: Engine, run: str) -> StoppedRunVerified:
    """Read back the unknown effects of a stopped run, once. Raises `RunBusy` while another process holds the run."""
    claimed = await engine.leases.claim(run)
    if not isinstance(claimed, LeaseGranted):
        raise RunBusy(f"run {run} is not free", run=run)
    with engine.leases.idle(claimed) as log:
        return await _verify_once(engine, claimed.row, log)


def first_reading_due(active: ActiveRun) -> int | None:
    """When a run that stops now is first read back; None if reading back can settle nothing."""
    now = active.process.wall_ms()
    return min((_next_reading(one, now) for one in _readable(active)), default=None)


async def _verify_once(engine: Engine, row: RunRow, log: RunLog) -> StoppedRunVerified:
    run, history = row.run, await load(engine, row.run)
    active = ActiveRun(engine, history, log)
    if history.lifecycle.status != "stopped":
        await log.append((), unchanged_listing(row, engine.wall_ms()))
        return StoppedRunVerified(run)
    active.evict("it has stopped")
    number = history.ownership.number_of_claim + 1
    active.log.buffer(engine.claim(engine.journal.clock(), log.lease.token, number))
    await take_commands(active)
    before = {operation.step for operation in history.open_operations()}
    if history.lifecycle.status == "stopped":
        for operation in history.open_operations():
            await _read_back(active, operation)
    return await _give_back(active, before)


async def _give_back(active: ActiveRun, before: set[str]) -> StoppedRunVerified:
    """Release the run, with the time of the next reading. Commands that came meanwhile are applied first.

    If one of them lets the run go on, the next owner does the rest.
    """
    run, history = active.run, active.history
    await take_commands(active)
    due, stopped = _next_due(active), history.lifecycle.stopped
    agent = "" if history.lifecycle.started is None else history.lifecycle.started.agent
    change = RunChange("running", release=True) if stopped is None else stopped_change(stopped, agent, due)
    try:
        await active.log.append(change=change, posts=(release_post(run, active.lease.token),))
    except LedgerTaken:  # a command or event came meanwhile: the next owner applies it at once
        due = active.log.now().wall
        await active.log.append(change=msgspec.structs.replace(change, due_ms=due))
    active.seal("it was looked at")
    still = {operation.step for operation in history.open_operations()}
    return StoppedRunVerified(run, tuple(sorted(before - still)), due)


async def _read_back(active: ActiveRun, operation: OperationState) -> None:
    """Make the moves that are due now. An operation that reading cannot settle stays as it is."""
    driver = _driver(active, operation)
    if driver is None:
        return
    await account_for_previous_owners(driver)
    for _ in range(_MOVES):
        move = next_move(driver, driver.operation, active.log.now())
        match move:
            case m.Verify():
                await verify(driver)
            case m.Settle():
                await settle(driver, move)
                if driver.operation.final:
                    return
            case m.Park():
                await park(driver, move)
            case m.Wait() if move.why == "verify" and not move.drawn:
                await schedule(driver, move)
                return
            case _:
                return


def _driver(active: ActiveRun, operation: OperationState) -> OperationDriver | None:
    """The operation, if a reading, an answer from outside or time can settle it."""
    tool = tool_of(operation.intent, active.process.tools)
    if tool is None:
        return None
    # One that returned only waits for another attempt: time settles it.
    readable = operation.may_have_landed and ("verify" in tool.handlers or operation.returned)
    if not (readable or operation.phase == "awaiting" or _answered(operation)):
        return None
    return OperationDriver(active, operation.step, tool, None)


def _answered(operation: OperationState) -> bool:
    """True if the end of its last attempt came after that attempt was given up or deferred, and can settle it."""
    last = operation.attempts[-1] if operation.attempts else None
    if last is None or last.end is None or not last.late:
        return False
    return operation.phase != "unknown" or not last.end.unfit


def _readable(active: ActiveRun) -> list[OperationDriver]:
    found = (_driver(active, one) for one in active.history.open_operations())
    return [driver for driver in found if driver is not None]


def _next_reading(driver: OperationDriver, otherwise: int) -> int:
    """When the pause before its next reading ends, its answer is overdue, or an earlier attempt can no longer land."""
    wait, now = driver.operation.wait, driver.active.log.now()
    if wait is not None and wait.why == "verify":
        return wait.until
    move = next_move(driver, driver.operation, now)
    if type(move) is m.Wait and move.why in {"end", "answer"} and move.high_ms:
        return now.wall + move.high_ms
    return otherwise


def _next_due(active: ActiveRun) -> int | None:
    """When to read back next, on the wall clock; None if there is nothing to read, or the time for readings is over."""
    stopped, settings, now = active.history.lifecycle.stopped, active.process.settings, active.log.now().wall
    if stopped is None or now - stopped.at >= settings.watch_stopped_ms:
        return None
    later = now + settings.slow_verify_ms  # if no reading is planned: for example, a call may still run
    due = min((_next_reading(one, later) for one in _readable(active)), default=None)
    return None if due is None else max(now + 1, due)
