"""One simulated world: its loop, its services, its journal, its processes, and who watches them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import random
from collections.abc import Callable, Generator, Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import msgspec

from beforehand.journal.port import RunRow, Write
from beforehand.model.waits import decode_waits
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import ACTOR, Actor, Died, Stuck, VirtualLoop
from beforehand.testing.world.disk import Backup, Disk, Store
from beforehand.testing.world.files import Files, SqliteDisk
from beforehand.testing.world.stage import without_warnings
from simulator.checkers.checker import Checker, Violation
from simulator.coverage import Reach
from simulator.draws import Draws
from simulator.people.approvers import People
from simulator.plan import Fault, Plan, WorkerPlan
from simulator.processes.nemesis import Nemesis, Place
from simulator.processes.other_programs import Strangers
from simulator.processes.queue_history import QueueDisk, QueueFiles, QueueSqliteDisk, QueueStore
from simulator.processes.scheduling import begin_schedules
from simulator.processes.submitting import begin_queues
from simulator.processes.worker import Life, settings_from
from simulator.services.deferred import Office
from simulator.services.service import CATALOGUE, Effect, Request, Service

Journal = Literal["memory", "sqlite"]
QUICK: Final = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
"""Files in memory, where the system has such a place: the power is never cut here, and syncs take most of the time."""
BOUND_S: Final = 6 * 3600.0
"""Virtual time in which every run has to come to rest."""
JUMP_MS: Final = 600_000
"""No clock is set by more at once."""

FAR_MS: Final = 30 * 60_000
"""Later than anything in a plan with schedules is due, as long as the clock is right."""

DRAIN_S: Final = 3600.0
LOOK_S: Final = 20.0
UNHURRIED: Final = {"poll_ms": 10_000, "recover_every_ms": 20_000, "lease_ms": 30_000}
"""Processes look around less often than real ones: hours pass here, and looking is most of the work."""


class Conditions(msgspec.Struct, frozen=True):
    """How a plan is simulated.

    With `by_purpose` numbers are drawn by their purpose, and the order of processes is fixed: then the number of steps
    that a process needs for the same work changes nothing. `strikes` says where the faults of processes strike, if a
    simulation before this one has said so. Where `most_steps` are taken, no end is in sight.
    """

    by_purpose: bool = False
    strikes: Mapping[Place, Fault] | None = None
    most_steps: int = 400_000


ORDINARY: Final = Conditions()


class Report(msgspec.Struct, frozen=True):
    """What came of one simulation."""

    plan: Plan
    violations: tuple[Violation, ...]
    reach: Reach
    digest: str
    points: int
    steps: int
    ms: int
    log: tuple[str, ...] = ()


class World:
    """A simulation of one plan. `story` keeps a log that a person can read.

    With a `directory` the journal is a SQLite file in it, without one it is in memory.
    """

    def __init__(
        self, plan: Plan, *, story: bool = False, directory: Path | None = None, conditions: Conditions = ORDINARY
    ) -> None:
        self.plan: Final = plan
        self.draws: Final = Draws(plan.seed, by_purpose=conditions.by_purpose)
        secret = random.Random(f"secret/{plan.seed}")  # noqa: S311 - as above
        self.canary: Final = f"canary-{secret.getrandbits(96):024x}"
        self.loop: Final = VirtualLoop(
            timedelta(seconds=BOUND_S + DRAIN_S + 1),
            outside="none",
            pick=self._pick,
            most_steps=conditions.most_steps,
        )
        self.loop.set_exception_handler(self._accident)
        self.accidents: Final[list[str]] = []
        """Errors that nothing retrieved."""
        self.reach: Final = Reach()
        self.people: Final = People(self)
        self.checker: Final = Checker(self)
        self.nemesis: Final = Nemesis(self, plan.faults, conditions.strikes)
        self.boot = "boot"
        self.skew_ms = plan.skew_ms
        self.jumped_ms = -3_600_000
        """When the wall clock was set last."""
        self.store: Final = self._store()
        self.store.stored = self.checker.stored
        self._place: Final = f"{directory}/" if directory else ""
        self.files: Final = self._files(directory) if directory else None
        self.journal: Final = self.files or self.store
        self.settings: Final = settings_from(UNHURRIED | plan.settings)
        self.requests: Final[list[tuple[int, Request]]] = []
        """The writes that arrived at the services, in order, with the time of each."""
        self.newer: bool = False
        self.lives: dict[Actor, Life] = {}
        self.contained: dict[str, bool] = {}
        self.outages: dict[str, int] = {}
        self.lost_until: dict[Actor, int] = {}
        self.dark_until = 0
        """Until then the machine is off."""
        self.woke_ms = 0
        """When a process that stood still last went on."""
        self.full_until = 0
        self.slow_until = 0
        self.restored_ms = -1
        """When an old copy was put in the place of the journal."""
        self._copy: Backup | None = None
        self.closing = False
        self.unsaid = 0
        """Commands to runs of queues that are still to be given."""
        self._births: dict[str, int] = {}
        self._down = 0
        self._context: Final = contextvars.copy_context()
        self._log: list[str] | None = [] if story else None
        self._noise = sha256()
        self.services: Final = {
            name: Service(able, self.draws, self.now_ms, self.later, self._happened) for name, able in CATALOGUE.items()
        }
        self.offices: Final = {name: Office(self, self.services[name]) for name in CATALOGUE if CATALOGUE[name].accepts}

    def _store(self) -> Store:
        def wall() -> int:
            return EPOCH_MS + self.now_ms() + self.skew_ms

        if not self.plan.submissions:
            return Store(self.now_ms, wall, namespace="simulated")
        store = QueueStore(self.now_ms, wall, namespace="simulated")
        store.listener, store.firings = self.checker.queues, self.checker.schedules
        return store

    def _files(self, directory: Path) -> Files:
        if self.plan.submissions:
            return QueueFiles(self, directory, self.checker.queues, self.checker.schedules)
        return Files(self, directory, self.plan.seed, self.checker.stored)

    # --- running ---------------------------------------------------------------------------------------------

    def simulate(self) -> Report:
        """Run the plan to its end."""
        try:
            self.loop.simulate(self._main())
        except Stuck as stuck:
            self.checker.broken(19, str(stuck))
        digest = self._digest()
        return Report(
            self.plan, tuple(self.checker.violations), self.reach, digest, self.nemesis.points, self.loop.steps,
            self.now_ms(), tuple(self._log or ()),
        )  # fmt: skip

    def end(self) -> None:
        """Close the files: nothing more is read of this world."""
        assert self.files is not None, "it was made for files"
        for life in self.lives.values():
            life.disk.die()
        self.files.close()

    def _accident(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, asyncio.CancelledError):
            self.accidents.append(f"{context.get('message')}: {error!r}")

    async def _main(self) -> None:
        await self.journal.open()
        for worker in self.plan.workers:
            self._start(worker)
        if self.plan.strangers:
            Strangers(self, self.plan.strangers)
        self.checker.permits.begin()
        self.checker.messages.begin()
        begin_queues(self)
        begin_schedules(self)
        while not await self._at_rest():
            if self.now_ms() > BOUND_S * 1000:
                self.checker.broken(19, f"after {BOUND_S / 3600:.0f} h not at rest: {await self._restless()}")
                return
            await asyncio.sleep(LOOK_S)
        self.closing = True
        for life in list(self.lives.values()):
            life.leave()
        while any(life.actor.alive for life in self.lives.values()):  # noqa: ASYNC110 - a dead process sets no event
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(DRAIN_S)
        await self.checker.at_the_end()

    async def _at_rest(self) -> bool:
        offices = any(one.busy() for one in self.offices.values())
        people = self.people.busy() or self.checker.reviews.busy() or self.checker.questions.busy()
        if self._down or offices or people or self.checker.processes.busy() or self.unsaid:
            return False
        return not await self._restless()

    async def _restless(self) -> list[str]:
        """The runs that have not come to rest: to an end, or to a person."""
        listed = {row.run: row for row in await self.journal.runs()}
        wall = EPOCH_MS + self.now_ms() + self.skew_ms
        resting = {
            row.run
            for row in listed.values()
            if self._far(row, wall) or (row.status == "suspended" and self._rests(row, wall))
        }
        found = self.checker.schedules.restless() + await self.checker.budgets.restless()
        families = self.checker.families
        for run in [*(script.id for script in self.plan.expected()), *self.checker.schedules.runs, *families.stored]:
            row = listed.get(run)
            if self.checker.queues.behind(run, resting) or (row is not None and self._far(row, wall)):
                continue
            if row is not None and _joins(row) and families.behind(run, resting):
                continue
            if row is None or not self._rests(row, wall) or self.checker.answers.awaited(run):
                found.append(f"{run} {row.status if row else 'never began'} {row.reason if row else ''}".strip())
        return found

    def _far(self, row: RunRow, wall: int) -> bool:
        """Whether a run is due in hours only, because the clock was wrong when it began to wait, and was set back.

        One that waits for a slot because its process was shut down is ready since then, by the same wrong clock.
        """
        waits = row.status == "running" and row.owner is None and bool(row.queue)
        ready = row.updated_ms if waits else row.due_ms
        return bool(self.plan.timetables) and ready is not None and ready > wall + FAR_MS

    def _at_once(self, row: RunRow, due_ms: int) -> bool:
        """Whether a run was made due by what was brought to it, just before the clock was set back.

        What is due by itself is due at a time for which the run waits, or much later than it was written.
        """
        jumps = any(one.kind == "clock_jump" for one in self.plan.faults)
        soon = row.status == "suspended" and due_ms - row.updated_ms <= JUMP_MS
        return jumps and soon and due_ms not in {one.due for one in decode_waits(row.waits)}

    def _rests(self, row: RunRow, wall: int) -> bool:
        """Whether a run has ended, or waits for a person. What it waits for may be lost with a journal.

        One that a process has taken does not rest: something was brought to it, and that process may be dead.
        """
        if row.status == "suspended" and row.owner is not None:
            return False
        # One that was due at once is due once the clock, which may have been set back, has come that far again.
        due = row.due_ms is not None and (row.due_ms <= wall or self._at_once(row, row.due_ms))
        if row.status != "suspended" or due:
            return row.status == "completed" or (row.status == "stopped" and not due)
        lost = self.restored_ms >= 0 and b'"event"' in row.waits
        return b'"person"' in row.waits or lost

    def _start(self, worker: WorkerPlan) -> None:
        number = self._births[worker.name] = self._births.get(worker.name, 0) + 1
        life = Life(self, worker, number)
        self.lives[life.actor] = life

    def restart(self, life: Life) -> None:
        """A process is gone: its supervisor starts it again."""
        self.tell(life.actor, "is gone")
        if self.closing:
            return
        self._down += 1

        def again() -> None:
            self._down -= 1
            if not self.closing:
                self._start(life.plan)

        patience = 2 ** min(life.number - 1, 6)  # as supervisors do with what keeps falling over
        dark = max(0, self.dark_until - self.now_ms())
        self.later(dark + min(30_000, life.plan.restart_ms * patience), again)

    def back_up(self) -> None:
        """Copy the journal. Real files are copied and restored by a story of their own."""
        self._copy = self.store.backup() if self.files is None else None

    def restore(self, looked_at_ms: int) -> bool:
        """Put the copy in the place of the journal, if there is one; an operator confirms it that much later."""
        if self._copy is None or self.restored_ms >= 0 or self.closing:
            return False
        self.store.restore(self._copy)
        self.restored_ms = self.now_ms()
        self.checker.restored(self._copy)
        self.later(looked_at_ms, self._confirm)
        return True

    def _confirm(self) -> None:
        """A person says that some of what was done may be missing, and processes start again with that."""
        self.store.identity = msgspec.structs.replace(self.store.identity, trust="doubtful", reason="an operator")
        self.tell(None, "an operator confirms that the journal is old")
        for life in self.lives.values():
            life.leave()

    # --- what the parts ask ----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Milliseconds since the simulation began."""
        return round(self.loop.time() * 1000)

    def point(self, actor: Actor, label: str, about: str = "") -> bool:
        """A process reached a point: true where it has to stand still. Raises `Died` where it is dead."""
        if not actor.alive:
            raise Died
        return self.nemesis.reached(actor, label, about)

    def outside(self, what: Callable[[], None]) -> None:
        """Let something happen outside of all processes, soon."""
        self.loop.call_soon(what, context=self._context)

    def later(self, ms: int, what: Callable[[], object]) -> None:
        """Let something happen outside of all processes, after `ms`."""
        self.loop.call_later(ms / 1000, what, context=self._context)

    def secret(self, name: str) -> str:
        """The value behind the name of a secret."""
        assert name == "vault", name
        return self.canary

    async def travel(self, *message: object) -> None:
        """The time that a message takes."""
        await asyncio.sleep(0.001 + self.draws.of(*message).random() * 0.02)

    def disk_of(self, actor: Actor, *, contained: bool) -> Disk | SqliteDisk:
        """The journal as a new process sees it."""
        disk: Disk | SqliteDisk
        if not self.plan.submissions:
            if self.files is not None:
                return SqliteDisk(self.files, actor, contained=contained)
            return Disk(self, actor, contained=contained)
        if self.files is not None:
            disk = QueueSqliteDisk(self.files, actor, contained=contained)
        else:
            disk = QueueDisk(self, actor, contained=contained)
        disk.looks, disk.firings = self.checker.queues.looks, self.checker.schedules
        return disk

    def disk_s(self, about: str = "") -> float:
        """How long the disk takes, in seconds."""
        slow = 500 if self.now_ms() < self.slow_until else 1
        return self.draws.of("disk", ACTOR.get(self.loop.world).name, about).random() * self.plan.disk_ms * slow / 1000

    def unreachable(self, actor: Actor, *, writing: bool) -> str:
        """Why the journal cannot be reached, or nothing."""
        if actor in self.lost_until and self.now_ms() < self.lost_until[actor]:
            return "the journal cannot be reached"
        return "the disk is full" if writing and self.now_ms() < self.full_until else ""

    def acknowledged(self, write: Write) -> None:
        """A process was told that this is durable."""
        self.checker.acknowledged(write)

    def outage(self, service: str) -> bool:
        """Whether a service is down."""
        return self.now_ms() < self.outages.get(service, 0)

    def hidden(self, worker: str, contained: bool) -> bool:
        """Whether that process cannot be observed from here."""
        return contained or self.contained.get(worker, False)

    def priority(self) -> float:
        """The priority of a new process, for schedules that have priorities."""
        return self.draws.of("priority").random()

    def tell(self, actor: Actor | None, what: str) -> None:
        """A line for the story, and for the digest that two equal seeds must share."""
        line = f"{self.loop.time():10.3f} {actor.name if actor else 'world'}: {what}"
        if self.canary in line:
            self.checker.leaked("what the simulation tells")
        if self._place:
            line = line.replace(self._place, "")  # it differs each time
        self._noise.update(line.encode())
        if self._log is not None:
            self._log.append(line)

    def _happened(self, effect: Effect) -> None:
        self.checker.happened(effect)
        if CATALOGUE[effect.service].answers_later:
            self._announce(effect)

    def _announce(self, effect: Effect) -> None:
        """A webhook, some time later: once or twice, and again until a process acknowledges it."""
        chance = self.draws.of("announces", effect.service, effect.operation)
        for _ in range(chance.choice((1, 1, 2))):
            self.later(round(chance.random() * 60_000), lambda: self._deliver(effect, [False]))

    def _deliver(self, effect: Effect, heard: list[bool]) -> None:
        if heard[0] or self.closing:
            return
        awake = [life for life in self.lives.values() if life.app is not None and life.actor.alive]
        if awake:
            chance, run = self.draws.of("webhook", effect.operation), effect.operation.partition("/")[0]
            life = chance.choice(awake)
            acknowledge = functools.partial(heard.__setitem__, 0, True)
            self.loop.inside(life.actor, life.hear(run, "settled", effect.value, acknowledge))
        self.later(10_000, lambda: self._deliver(effect, heard))

    def _pick(self, actors: list[Actor]) -> Actor:
        if self.draws.by_purpose:
            # The first of a fixed order, until it has nothing more to do: the number of its steps changes nothing.
            return actors[0] if self.plan.schedule == "fifo" else max(actors, key=_priority)
        chance = self.draws.of()
        match self.plan.schedule:
            case "fifo":
                return actors[0]
            case "random":
                return chance.choice(actors)
            case "priorities":
                if chance.random() < 0.01:
                    chance.choice(actors).priority = chance.random()
                return max(actors, key=_priority)

    def _digest(self) -> str:
        for part in self.journal.everything():
            self._noise.update(part)
        return self._noise.hexdigest()


def _joins(row: RunRow) -> bool:
    """Whether a run waits for nothing but its children."""
    return row.status == "suspended" and row.owner is None and row.due_ms is None and b'"child"' in row.waits


def _priority(actor: Actor) -> float:
    return actor.priority


def simulate(
    plan: Plan, *, story: bool = False, journal: Journal = "memory", conditions: Conditions = ORDINARY
) -> Report:
    """Simulate one plan."""
    with world_of(plan, story=story, journal=journal, conditions=conditions) as world:
        return world.simulate()


@contextlib.contextmanager
def world_of(
    plan: Plan, *, story: bool = False, journal: Journal = "memory", conditions: Conditions = ORDINARY
) -> Generator[World]:
    """The world of one plan. Its files are closed and removed afterwards."""
    with contextlib.ExitStack() as ending:
        ending.enter_context(without_warnings())
        if journal == "memory":
            yield World(plan, story=story, conditions=conditions)
            return
        made = TemporaryDirectory(prefix="beforehand-", dir=QUICK if QUICK.is_dir() else None)
        world = World(plan, story=story, directory=Path(ending.enter_context(made)), conditions=conditions)
        ending.callback(world.end)
        yield world
