"""One run of an agent in a world of its own: processes that die, virtual time, a journal."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import random
import warnings
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Protocol

import msgspec

from beforehand.agent.agent import Agent
from beforehand.app import Beforehand
from beforehand.engine.environment import Environment
from beforehand.engine.settings import Settings
from beforehand.errors import (
    BeforehandError,
    OperationFailed,
    ReplayDiverged,
    RunStopped,
    RunSuspended,
    TransactionAborted,
)
from beforehand.journal.port import Journal, Row, RunRow, Worker, Write
from beforehand.journal.record_codec import decode
from beforehand.model.run_history import RunHistory
from beforehand.testing.clock import EPOCH_MS, InlineThreads, SeededRng
from beforehand.testing.loop import Actor, Died, OutsideTime, Stuck, VirtualLoop
from beforehand.testing.wire import Underway
from beforehand.testing.world.disk import Disk, Store

AnyAgent = Agent[Any, Any]

LIMIT: Final = timedelta(days=400)
"""The virtual time after which a run that still goes on is given up: more than a year."""

RESTART_S: Final = 1.0
"""The time between a death and the start of the next process."""

LOOK_S: Final = 300.0
UNHURRIED: Final = Settings(poll_ms=300_000, recover_every_ms=300_000, lease_ms=36_000_000, answer_within_ms=0)
"""Virtual time is free, but polling is not: processes poll less often than real ones. No answers arrive, and
a run that waits for a person without a deadline is suspended there."""


class Task(msgspec.Struct, frozen=True):
    """The task to perform: an agent on one input."""

    agent: AnyAgent
    given: Any
    run_id: str | None = None


class StageEnded(msgspec.Struct):
    """How a run ended. `boundaries` are the points it came by, in order; `stopped` is why, in one word, if it did.

    `unknown` is the first step that was left unknown, `unknown_tool` the tool it called; `error` is the agent's
    exception. It `failed` if that exception is none of the world's (a refusal, an abort): the code is wrong, or was
    called in a wrong way.
    """

    status: str = "never began"
    result: Any = None
    error: BaseException | None = None
    failed: bool = False
    reason: str = ""
    stopped: str = ""
    asks: str = ""
    unknown: str = ""
    unknown_tool: str = ""
    boundaries: list[str] = []


class Before(msgspec.Struct, frozen=True):
    """The state left by earlier processes: the points they passed, the time, and which workers are dead."""

    boundaries: Sequence[str] = ()
    now_s: float = 0.0
    lives: int = 0
    dead: Sequence[str] = ()


class Surroundings(Protocol):
    """The outside world of a stage: it says at which places a process may die, and keeps requests on their way."""

    reached: Callable[[str], None]

    @property
    def underway(self) -> Underway:
        """The requests that arrive later."""
        ...


class Home(Protocol):
    """The place where the processes of a stage keep their journal; it also ends a process that dies."""

    async def open(self) -> None:
        """Make it ready for the first process."""
        ...

    def disk(self, actor: Actor) -> Journal:
        """The journal as a new process sees it."""
        ...

    def kill(self, actor: Actor) -> None:
        """End this process. May never return."""
        ...

    async def runs(self, run: str) -> list[RunRow]:
        """The row of a run, if there is one."""
        ...

    async def read(self, run: str) -> list[Row]:
        """Its records."""
        ...


def in_this_process(task: Task, outside: Surroundings, kills: Sequence[int]) -> StageEnded:
    """Perform the task in processes that are simulated in this one, over a journal in memory."""
    return Stage(task, outside, kills, InMemory, Before()).perform()


class Stage:
    """The place where a run is performed. `kills` are the boundaries, from 1 over all processes, at which one dies.

    A subclass may give its processes an outside that takes real time, and another way to live.
    """

    outside_of_loop: ClassVar[OutsideTime] = "none"
    look_s: ClassVar[float] = LOOK_S
    """How often the stage looks whether the run is over."""

    def __init__(
        self, task: Task, outside: Surroundings, kills: Sequence[int], home: Callable[[Stage], Home], before: Before
    ) -> None:
        self.loop: Final = VirtualLoop(LIMIT, outside=self.outside_of_loop, most_steps=5_000_000, now_s=before.now_s)
        self.loop.set_exception_handler(_ignored)
        self.boot = "boot"
        self.contained: dict[str, bool] = {}
        self.skew_ms = 0
        self.full_until = 0
        self.before: Final = before
        self.ended: Final = StageEnded(boundaries=list(before.boundaries))
        self._task = task
        self._outside = outside
        outside.reached = self.outside
        self._run = task.run_id or (task.agent.run_id_for(task.given) if task.agent.template else "run")
        self._kills = frozenset(kills)
        self._chance = random.Random(1 + before.lives)  # noqa: S311 - a test has to repeat
        self._context = contextvars.copy_context()
        self._actor: Actor | None = None
        self._failed: Exception | None = None
        self._news = asyncio.Event()
        """Set when the process has died, or has ended."""
        self._home: Final = home(self)

    # --- the environment of processes: see `Ground` ----------------------------------------------------------

    @property
    def store(self) -> Store:
        """The journal that processes share in memory."""
        assert isinstance(self._home, InMemory), "only processes in memory ask for it"
        return self._home.store

    def now_ms(self) -> int:
        """Milliseconds since the run began."""
        return round(self.loop.time() * 1000)

    def wall_ms(self) -> int:
        """The wall clock."""
        return EPOCH_MS + self.now_ms()

    async def sleep(self, seconds: float) -> None:
        """Pause; time jumps."""
        await asyncio.sleep(seconds)

    def point(self, actor: Actor, label: str, about: str = "") -> bool:
        """A boundary of the run: its process dies here, if it is the chosen one."""
        del about
        if not actor.alive:
            raise Died
        self.ended.boundaries.append(label)
        if len(self.ended.boundaries) in self._kills:
            self._home.kill(actor)
            self._news.set()
            raise Died
        return False

    def reached(self, point: str) -> None:
        """A crash point of the runtime."""
        self.outside(point.replace("_", " "))

    def outside(self, boundary: str) -> None:
        """A boundary in the world outside."""
        if self._actor is not None:
            self.point(self._actor, boundary)

    def disk_s(self, about: str = "") -> float:
        """A write takes a millisecond."""
        del about
        return 0.001

    def unreachable(self, actor: Actor, *, writing: bool) -> str:
        """Always empty: the journal can always be reached here."""
        del actor, writing
        return ""

    def hidden(self, worker: str, contained: bool) -> bool:
        """Always false: all processes share a machine."""
        del worker, contained
        return False

    def acknowledged(self, write: Write) -> None:
        """Do nothing: no check needs it here."""

    # --- running -----------------------------------------------------------------------------------------------

    def perform(self) -> StageEnded:
        """Run the agent until it ends, or waits for a person or an event; a process that dies is started again."""
        try:
            self.loop.simulate(self._main())
        except Stuck as stuck:
            self.ended.status, self.ended.reason = "stuck", str(stuck)
        return self.ended

    async def _main(self) -> None:
        await self._home.open()
        self._outside.underway.resume(self.loop)
        self._start()
        while not await self._at_rest():
            if self._failed is not None:
                raise self._failed
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), self.look_s)
                self._news.clear()
                if self._actor is not None and not self._actor.alive:
                    await asyncio.sleep(RESTART_S)
                    self._start()
        await self._outside.underway.landed()
        self.ended.unknown, self.ended.unknown_tool = _unknown(self._run, await self._home.read(self._run))

    def _start(self) -> None:
        self._context.run(self._spawn)

    def _spawn(self) -> None:
        self._actor = self.loop.spawn("worker", self._live_or_fail)

    async def _live_or_fail(self) -> None:
        try:
            await self._live()
        except Exception as error:  # noqa: BLE001 - `perform` raises it: an app that cannot open, for one
            self._failed = error
            self._news.set()

    async def _live(self) -> None:
        assert self._actor is not None, "it lives in an actor"
        task = self._task
        environment = Environment(self, SeededRng(self._chance.getrandbits(32)), InlineThreads(), self)
        app = Beforehand(
            self._home.disk(self._actor),
            agents=[task.agent],
            settings=UNHURRIED,
            environment=environment,
            worker=worker_of,
        )
        async with app:
            await self._ask(lambda: app.run(task.agent, task.given, run_id=self._run))
            while not await self._over():  # noqa: ASYNC110 - the journal sets no event
                await asyncio.sleep(LOOK_S)  # what is due is driven meanwhile
            if self.ended.status == "completed":
                await self._ask(lambda: app.run(task.agent, task.given, run_id=self._run))

    async def _ask(self, ask: Callable[[], Any]) -> None:
        ended = self.ended
        ended.result, ended.error, ended.failed, ended.reason, ended.stopped = None, None, False, "", ""
        try:
            ended.result = await ask()
        except (RunSuspended, RunStopped) as error:
            ended.reason = str(error)
            ended.stopped = error.reason if isinstance(error, RunStopped) else ""
        except BeforehandError as error:
            ended.error, ended.reason = error, str(error)
            ended.failed = not isinstance(error, (OperationFailed, TransactionAborted))
            ended.stopped = "diverged" if isinstance(error, ReplayDiverged) else ""
        except Exception as error:  # noqa: BLE001 - the test reports any exception of the agent
            ended.error, ended.failed, ended.reason = error, True, f"{type(error).__name__}: {error}"

    async def _over(self) -> bool:
        rows = await self._home.runs(self._run)
        if not rows:
            return self.ended.error is not None  # it was refused before it began
        row = rows[0]
        self.ended.status, self.ended.asks = row.status, ""
        if row.status == "suspended" and row.due_ms is None:
            self.ended.asks = row.reason  # nothing is due: it waits for a person or an event
            return True
        return row.status in {"completed", "stopped"}

    async def _at_rest(self) -> bool:
        finished = self._actor is not None and all(task.done() for task, _ in self._actor.tasks)
        return finished and self._actor is not None and self._actor.alive and await self._over()


class InMemory:
    """All processes are in this one, over a journal in memory. A dead one is cut off; its tasks stay as they are."""

    def __init__(self, stage: Stage, namespace: str = "test") -> None:
        self.store: Final = Store(stage.now_ms, stage.wall_ms, namespace=namespace)
        self.store.stored = ignore
        self._stage = stage
        self._disk: Disk | None = None

    async def open(self) -> None:
        await self.store.open()

    def disk(self, actor: Actor) -> Journal:
        self._disk = Disk(self._stage, actor, contained=False)
        return self._disk

    def kill(self, actor: Actor) -> None:
        actor.die()
        for worker in self._disk.workers if self._disk is not None else ():
            self.store.kill(worker)

    async def runs(self, run: str) -> list[RunRow]:
        return await self.store.runs(run=run)

    async def read(self, run: str) -> list[Row]:
        return await self.store.read(run, limit=1_000_000)


def _ignored(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """Ignore an error that nothing retrieves: the result of the run says what its caller learns."""


def ignore(_write: Write) -> None:
    """Ignore what becomes durable."""


def worker_of(token: str) -> Worker:
    """A process of the one simulated machine."""
    return Worker(token, machine="test")


def _unknown(run: str, rows: Sequence[Row]) -> tuple[str, str]:
    """The first step that was left unknown, and its tool; empty if there is none."""
    history = RunHistory(run)
    for row in rows:
        history.add(decode(row.body))
    left = ((step, one.intent.tool) for step, one in history.operations.items() if one.phase == "unknown")
    return next(left, ("", ""))


@contextlib.contextmanager
def without_warnings() -> Generator[None]:
    """Suppress what the runtime logs about the simulated crashes."""
    log = logging.getLogger("beforehand")
    before, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)  # its process died
            yield
    finally:
        log.disabled = before
