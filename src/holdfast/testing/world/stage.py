"""One run of an agent in a world of its own: processes that die, virtual time, a journal in memory."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from holdfast.agent.agent import Agent
from holdfast.agent.tool import Tool
from holdfast.app import Holdfast
from holdfast.engine.seams import Seams
from holdfast.engine.settings import Settings
from holdfast.errors import HoldfastError, RunStopped, RunSuspended
from holdfast.journal.codec import decode
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.port import Worker, Write
from holdfast.model.run import RunHistory
from holdfast.testing.clock import EPOCH_MS, InlineThreads, SeededRng
from holdfast.testing.simulator.disk import Disk, Store
from holdfast.testing.simulator.loop import Actor, Died, SimLoop, Stuck

LIMIT_S: Final = 400 * 86_400.0
"""The virtual time after which a run that has not come to rest is given up: more than a year."""

LOOK_S: Final = 300.0
UNHURRIED: Final = Settings(poll_ms=300_000, recover_every_ms=300_000, lease_ms=36_000_000)
"""Time is free here, and looking around is not: processes look less often than real ones."""


class Ended(msgspec.Struct):
    """How a run ended. `boundaries` are the points it came by, in order; `stopped` is why, in one word, if it did."""

    status: str = "never began"
    result: Any = None
    error: BaseException | None = None
    reason: str = ""
    stopped: str = ""
    asks: str = ""
    boundaries: list[str] = []
    history: RunHistory | None = None


class Stage:
    """A world for one run. `kill_at` is the boundary, counted from 1, at which its first process dies."""

    def __init__(self, agent: Agent[Any, Any], tools: Iterable[Tool[Any, Any]], kill_at: int = 0) -> None:
        self.loop: Final = SimLoop(lambda actors: actors[0], most_steps=5_000_000)
        self.boot = "boot"
        self.contained: dict[str, bool] = {}
        self._agent = agent
        self._tools = tuple(tools)
        self._kill_at = kill_at
        self._store: Final = Store(self.now_ms, self.wall_ms, namespace="test")
        self._store.stored = _nothing
        self._chance = random.Random(1)  # noqa: S311 - a test repeats
        self._context = contextvars.copy_context()
        self._actor: Actor | None = None
        self._disk: Disk | None = None
        self.ended: Final = Ended(boundaries=[])

    # --- what processes stand on: see `Ground` ---------------------------------------------------------------

    @property
    def store(self) -> MemoryJournal:
        """The journal."""
        return self._store

    def now_ms(self) -> int:
        """Milliseconds since the run began."""
        return round(self.loop.time() * 1000)

    def wall_ms(self) -> int:
        """The wall clock."""
        return EPOCH_MS + self.now_ms()

    async def sleep(self, seconds: float) -> None:
        """Pause; time jumps."""
        await asyncio.sleep(seconds)

    def point(self, actor: Actor, label: str) -> bool:
        """A boundary of the run: here its process dies, if it is the one."""
        if not actor.alive:
            raise Died
        self.ended.boundaries.append(label)
        if len(self.ended.boundaries) == self._kill_at:
            self._kill(actor)
            raise Died
        return False

    def reached(self, point: str) -> None:
        """A crash point of the runtime."""
        if self._actor is not None:
            self.point(self._actor, point.replace("_", " "))

    def outside(self, label: str) -> None:
        """A boundary in the world outside."""
        self.reached(label)

    def disk_s(self) -> float:
        """A write takes a millisecond."""
        return 0.001

    def unreachable(self, actor: Actor, *, writing: bool) -> str:
        """The journal can always be reached here."""
        del actor, writing
        return ""

    def hidden(self, worker: str, contained: bool) -> bool:
        """All processes share a machine."""
        del worker, contained
        return False

    def acknowledged(self, write: Write) -> None:
        """Nobody checks here."""

    # --- running -----------------------------------------------------------------------------------------------

    def perform(self, given: Any, run_id: str | None) -> Ended:
        """Run the agent until it ends, or waits for a person or an event; a process that dies is started again."""
        name = run_id or (self._agent.run_id_for(given) if self._agent.template else "run")
        try:
            self.loop.run(self._main(given, name), until=LIMIT_S)
        except Stuck as stuck:
            self.ended.status, self.ended.reason = "stuck", str(stuck)
        return self.ended

    async def _main(self, given: Any, name: str) -> None:
        await self._store.open()
        self._start(given, name)
        while not await self._at_rest(name):
            await asyncio.sleep(LOOK_S)
            if self._actor is not None and not self._actor.alive:
                self._start(given, name)
        self.ended.history = await _history(self._store, name)

    def _start(self, given: Any, name: str) -> None:
        self._context.run(lambda: self._spawn(given, name))

    def _spawn(self, given: Any, name: str) -> None:
        self._actor = actor = self.loop.spawn("worker", lambda: self._live(given, name))
        self._disk = Disk(self, actor, contained=False)

    async def _live(self, given: Any, name: str) -> None:
        assert self._disk is not None
        seams = Seams(self, SeededRng(self._chance.getrandbits(32)), InlineThreads(), self)
        app = Holdfast(
            self._disk, agents=[self._agent], tools=self._tools, settings=UNHURRIED, seams=seams, worker=_worker
        )
        async with app:
            await self._ask(lambda: app.run(self._agent, given, run_id=name))
            while not await self._over(name):  # noqa: ASYNC110 - the journal sets no event
                await asyncio.sleep(LOOK_S)  # what is due is driven meanwhile
            if self.ended.status == "completed":
                await self._ask(lambda: app.run(self._agent, given, run_id=name))

    async def _ask(self, ask: Callable[[], Any]) -> None:
        ended = self.ended
        ended.result, ended.error, ended.reason, ended.stopped = None, None, "", ""
        try:
            ended.result = await ask()
        except (RunSuspended, RunStopped) as error:
            ended.reason = str(error)
            ended.stopped = error.reason if isinstance(error, RunStopped) else ""
        except HoldfastError as error:
            ended.error, ended.reason = error, str(error)
        except Exception as error:  # noqa: BLE001 - whatever the agent raised is what the test wants to see
            ended.error = error

    async def _over(self, name: str) -> bool:
        rows = await self._store.runs(run=name)
        if not rows:
            return self.ended.error is not None  # it was refused before it began
        row = rows[0]
        self.ended.status, self.ended.asks = row.status, ""
        if row.status == "suspended" and (b'"person"' in row.waits or b'"event"' in row.waits) and row.due_ms is None:
            self.ended.asks = row.reason
            return True
        return row.status in {"completed", "stopped"}

    async def _at_rest(self, name: str) -> bool:
        finished = self._actor is not None and all(task.done() for task, _ in self._actor.tasks)
        return finished and self._actor is not None and self._actor.alive and await self._over(name)

    def _kill(self, actor: Actor) -> None:
        actor.die()
        for worker in self._disk.workers if self._disk is not None else ():
            self._store.kill(worker)


def _worker(token: str) -> Worker:
    return Worker(token, machine="test")


async def _history(store: MemoryJournal, name: str) -> RunHistory:
    history = RunHistory(name)
    for row in await store.read(name, limit=1_000_000):
        history.add(decode(row.body))
    return history


def _nothing(_write: Write) -> None:
    """Nobody checks here."""
