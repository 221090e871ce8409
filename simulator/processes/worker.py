"""One life of a worker process: from its start to its death, over and over."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from beforehand.agent.agent import Agent
from beforehand.app import Beforehand
from beforehand.control.service import ControlService
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.engine.environment import Environment
from beforehand.engine.recovery import verify_stopped_run
from beforehand.engine.settings import Settings
from beforehand.errors import BeforehandError, JournalUnavailable, RunBusy, RunStopped, RunSuspended, UsageError
from beforehand.journal.port import RunRow, Worker
from beforehand.loop.route import Route
from beforehand.model.records import NOTHING, Raw
from beforehand.testing.clock import EPOCH_MS, InlineThreads, SeededRng
from beforehand.testing.loop import Actor, Died
from simulator.agents.queued import queued_agents
from simulator.agents.scheduled import scheduled_agent
from simulator.agents.scripted import LIFE, agent_of, helper_of
from simulator.agents.tools import NETWORK
from simulator.people.approvers import Errand
from simulator.people.policies import POLICIES
from simulator.plan import Script, WorkerPlan
from simulator.processes.submitting import declared_by, submitting
from simulator.services.deferred import ANSWERED, Message
from simulator.services.network import Traffic

if TYPE_CHECKING:
    from simulator.world import World


T = TypeVar("T")
ANSWER_MS: Final = 30 * 60_000
FEW: Final = 20
"""Runs that a process recovers at once: fewer than the other program has, which could take all places."""
STOPPED_S: Final = 20
"""Seconds between two looks for stopped runs that are due."""


class WallClock:
    """The machine's wall clock, as wrong as the plan says."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall_ms(self) -> int:
        return EPOCH_MS + self._world.now_ms() + self._world.skew_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Points:
    """The crash points of the product are points of the nemesis."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    def reached(self, point: str) -> None:
        self._world.point(self._actor, point)


class Life:
    """A process of one worker, from its start on."""

    def __init__(self, world: World, plan: WorkerPlan, number: int) -> None:
        self.world = world
        self.plan = plan
        self.number = number
        self.newer: bool = world.newer
        self.leaving = asyncio.Event()
        self.stopped = False
        """Whether it was stopped in the middle of a call, for hours."""
        self.app: Beforehand | None = None
        """The app, while it is open."""
        self.hooks: ControlService | None = None
        """Where webhooks go; they do not ask whether the app is closing."""
        self.routes: Final[dict[str, Route]] = {}
        """The routes of this process, which know the health of their models."""
        self.actor = world.loop.spawn(f"{plan.name}{number}", self._main, world.priority())
        self.disk = world.disk_of(self.actor, contained=plan.contained)

    async def _main(self) -> None:
        """Open the app, ask for our runs until each has an answer, and serve until we are told to leave."""
        world = self.world
        LIFE.set(self)
        NETWORK.set(Traffic(world, self.actor))
        chance = SeededRng(random.Random(f"{world.plan.seed}/{self.actor.name}").getrandbits(64))  # noqa: S311 - a seed
        environment = Environment(WallClock(world), chance, InlineThreads(), _Points(world, self.actor))
        agents: list[Agent[Any, Any]] = [agent_of(self.newer)]
        if world.plan.has_families:
            agents.append(helper_of(self.newer))
        if world.plan.submissions:
            agents += queued_agents(newer=self.newer)
        if world.plan.timetables:
            agents.append(scheduled_agent(newer=self.newer))
        app = Beforehand(
            self.disk, agents=agents, environment=environment, settings=world.settings,
            worker=self._worker, queues=declared_by(self),
            policy=POLICIES[self.newer] if world.plan.policy else None,
        )  # fmt: skip
        try:
            async with app:
                app.engine.resolver = world.secret
                self.app, self.hooks = app, app.service
                asking = [
                    asyncio.create_task(self.ask(app, agent_of(self.newer), script, script))
                    for script in (world.plan.scripts[n] for n in self.plan.scripts)
                ]
                asking += [asyncio.create_task(one) for one in submitting(self, app)]
                asking.append(asyncio.create_task(self._read_stopped(app)))
                await self.leaving.wait()
                for task in asking:
                    task.cancel()
        except JournalUnavailable as error:
            world.tell(self.actor, f"gives up: {error.message}")
        self.app = None
        if self.actor.alive:
            self.kill()

    async def _read_stopped(self, app: Beforehand) -> None:
        """Read back what stopped runs left open whenever that is due, as `beforehand worker` does."""
        while True:
            await asyncio.sleep(STOPPED_S)
            rows: list[RunRow] = []
            with contextlib.suppress(BeforehandError):
                rows = await app.engine.journal.runs(status="stopped", wakeable=True)
            for row in rows:
                with contextlib.suppress(BeforehandError):
                    await verify_stopped_run(app.engine, row.run)

    def _worker(self, token: str) -> Worker:
        return Worker(token, machine="m", boot=self.world.boot, pid=self.number, pid_namespace=self.plan.name)

    async def ask(self, app: Beforehand, agent: Agent[T, list[str]], given: T, script: Script) -> None:
        """Call as often as it takes: the same id is the same run."""
        world = self.world
        while True:
            try:
                result = await app.run(agent, given, budget=world.plan.budgets.get(script.id))
            except RunSuspended as waits:
                world.tell(self.actor, f"run {script.id} waits: {waits.message}")
                return  # the process that recovers it goes on with it
            except RunStopped as stopped:
                world.tell(self.actor, f"run {script.id} stopped: {stopped.message}")
                return
            except RunBusy:
                await asyncio.sleep(1)
            except JournalUnavailable as error:
                world.tell(self.actor, f"run {script.id}: {error.message}")
                self.leaving.set()
                return
            except Died:
                raise
            except BeforehandError as error:
                world.tell(self.actor, f"run {script.id}: {type(error).__name__}: {error.message}")
                await asyncio.sleep(5)
            else:
                world.checker.answered(script, result)
                return

    async def take_in(self, message: Message) -> None:
        """A webhook with an answer came in. It is acknowledged once the product says that it has it."""
        if self.hooks is None:
            return
        world = self.world
        world.tell(self.actor, f"gets the webhook {message.id} for {message.key}: {message.status}")
        world.checker.answers.comes(message)
        result = Raw(msgspec.json.encode(message.value)) if message.status == "succeeded" else NOTHING
        arrival = ArrivedAnswer(
            message.id, message.status, result, ANSWERED, source=message.application.request.service
        )
        try:
            await self.hooks.deliver(message.key, arrival)
        except UsageError:
            message.refused = True
        except BeforehandError as error:
            world.tell(self.actor, f"cannot take in the webhook {message.id}: {error.message}")
            return
        message.heard, message.heard_ms = True, world.now_ms()
        world.checker.answers.acknowledged(self.actor, message)
        if message.then is not None:
            message.then()

    async def hear_out(self, errand: Errand) -> None:
        """A message for the run arrives."""
        if self.hooks is not None:
            await errand.run(self.actor, self.hooks)

    async def hear(self, run: str, event: str, key: str, heard: Callable[[], None]) -> None:
        """A webhook came in. It is acknowledged with `heard` once it is durable."""
        if self.app is None:
            return
        self.world.tell(self.actor, f"gets the webhook {event} {key} for {run}")
        with contextlib.suppress(BeforehandError):
            await self.app.service.signal(run, event, key=key, payload=key, once=key)
            heard()
            self.world.tell(self.actor, f"acknowledges the webhook {event} {key} for {run}")

    def leave(self) -> None:
        """SIGTERM: end in good order."""
        if self.actor.alive:
            self.leaving.set()

    def kill(self) -> None:
        """SIGKILL, now."""
        self.actor.die()
        self.disk.die()
        for worker in self.disk.workers:
            self.world.journal.kill(worker)
        self.world.restart(self)


def settings_from(changes: dict[str, int]) -> Settings:
    """Settings of the product with what the plan changes. A simulated day is short, and so is people's time."""
    return Settings(**{"answer_within_ms": ANSWER_MS, "recover_at_once": FEW, **changes})  # type: ignore[arg-type]  # what is changed here are numbers
