"""One life of a worker process: from its start to its death, over and over."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.agent.agent import Agent, agent
from holdfast.agent.run import Run
from holdfast.app import Holdfast
from holdfast.engine.awaiting import Arrival
from holdfast.engine.seams import Seams
from holdfast.engine.settings import Settings
from holdfast.errors import HoldfastError, JournalUnavailable, RunBusy, RunStopped, RunSuspended, UsageError
from holdfast.interfaces.service import Service
from holdfast.journal.port import Worker
from holdfast.model.records import NOTHING, Raw
from holdfast.model.secret import Secret
from holdfast.policies import Retry
from holdfast.testing.clock import EPOCH_MS, InlineThreads, SeededRng
from holdfast.testing.simulator import answers, proposals
from holdfast.testing.simulator.errands import Errand
from holdfast.testing.simulator.loop import Actor, Died
from holdfast.testing.simulator.network import Traffic
from holdfast.testing.simulator.offices import ANSWERED, Message
from holdfast.testing.simulator.plan import Script, Step, WorkerPlan
from holdfast.testing.simulator.tools import NETWORK, standard_tools
from holdfast.testing.simulator.trips import make_trip

if TYPE_CHECKING:
    from holdfast.testing.simulator.world import World

TOOLS = {newer: standard_tools(newer=newer) for newer in (False, True)}


class _Clock:
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
        self.app: Holdfast | None = None
        """The app, while it is open."""
        self.hooks: Service | None = None
        """Where webhooks go; they do not ask whether the app is closing."""
        self.actor = world.loop.spawn(f"{plan.name}{number}", self._main, world.priority())
        self.disk = world.disk_of(self.actor, contained=plan.contained)

    async def _main(self) -> None:
        """Open the app, ask for our runs until each has an answer, and serve until we are told to leave."""
        world = self.world
        LIFE.set(self)
        NETWORK.set(Traffic(world, self.actor))
        chance = SeededRng(random.Random(f"{world.plan.seed}/{self.actor.name}").getrandbits(64))  # noqa: S311 - a seed
        seams = Seams(_Clock(world), chance, InlineThreads(), _Points(world, self.actor))
        app = Holdfast(
            self.disk, agents=[agent_of(self.newer)], seams=seams, settings=world.settings, worker=self._worker
        )
        try:
            async with app:
                app.engine.resolver = world.secret
                self.app, self.hooks = app, app.service
                asking = [asyncio.create_task(self._ask(app, world.plan.scripts[n])) for n in self.plan.scripts]
                await self.leaving.wait()
                for task in asking:
                    task.cancel()
        except JournalUnavailable as error:
            world.tell(self.actor, f"gives up: {error.message}")
        self.app = None
        if self.actor.alive:
            self.kill()

    def _worker(self, token: str) -> Worker:
        return Worker(token, machine="m", boot=self.world.boot, pid=self.number, pid_namespace=self.plan.name)

    async def _ask(self, app: Holdfast, script: Script) -> None:
        """Call as often as it takes: the same id is the same run."""
        world = self.world
        while True:
            try:
                result = await app.run(agent_of(self.newer), script)
            except RunSuspended as waits:
                world.tell(self.actor, f"run {script.id} waits: {waits.message}")
                return  # whoever recovers goes on with it
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
            except HoldfastError as error:
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
        result = Raw(msgspec.json.encode(message.value)) if message.status == "succeeded" else NOTHING
        arrival = Arrival(message.id, message.status, result, ANSWERED, source=message.application.request.service)
        try:
            await self.hooks.deliver(message.key, arrival)
        except UsageError:
            message.refused = True
        except HoldfastError as error:
            world.tell(self.actor, f"cannot take in the webhook {message.id}: {error.message}")
            return
        message.heard = True
        world.checker.answers.acknowledged(self.actor, message)

    async def hear_out(self, errand: Errand) -> None:
        """Somebody has something to say."""
        if self.hooks is not None:
            await errand.run(self.actor, self.hooks)

    async def hear(self, run: str, event: str, key: str, heard: Callable[[], None]) -> None:
        """A webhook came in. It is acknowledged with `heard` once it is durable."""
        if self.app is None:
            return
        self.world.tell(self.actor, f"gets the webhook {event} {key} for {run}")
        with contextlib.suppress(HoldfastError):
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


def agent_of(newer: bool) -> Agent[Script, list[str]]:
    """The agent of one version of the code."""
    return AGENTS[newer]


def _make(newer: bool) -> Agent[Script, list[str]]:
    tools = TOOLS[newer]

    @agent(run_id="{script.id}", tools=tools.values(), version="2" if newer else "1", name="scripted")
    async def scripted(run: Run, script: Script) -> list[str]:
        """Perform the script. What it is told about each step is noted, and returned."""
        told: list[str] = []
        for group in _groups(script.steps):
            if len(group) == 1:
                told.append(await _perform(run, tools, group[0]))
            else:
                told.extend(await run.gather(*(_perform(run, tools, step) for step in group)))
        return told

    return scripted


async def _perform(run: Run, tools: Any, step: Step) -> str:
    if step.kind == "trip":
        text, gone = await make_trip(run, tools, step)
        LIFE.get().world.checker.trips.told(LIFE.get().actor, text, gone)
        return text
    if step.kind == "think":
        asking = run.options(step=f"think {step.thing}", retry=PATIENT)
        return await asking.decide(think, run.id, step.thing)
    if step.kind == "plan":
        text, done, gone = await proposals.carry_out(run, step)
        LIFE.get().world.checker.trips.told(LIFE.get().actor, text, gone)
        LIFE.get().world.checker.plans.told(run.id, step, done)
        return text
    if step.kind == "nag":
        heard = await answers.nag(run, step)
        for outcome in heard:
            LIFE.get().world.checker.told(LIFE.get().actor, outcome)
        return f"nag {step.thing}: {answers.told(heard)}"
    if step.kind == "hurry":
        return await _hurry(run, tools, step)
    if step.kind == "sign":
        signed = await tools["sign"].outcome(step.thing, Secret("vault"))
        LIFE.get().world.checker.told(LIFE.get().actor, signed)
        return f"sign {step.thing}: {signed.status}"
    if step.by_model:
        outcome = await run.call(step.kind, arguments_of(step))
    else:
        outcome = await tools[step.kind].outcome(**arguments_of(step))
    value = outcome.value if outcome.status == "succeeded" and not outcome.code else ""
    told = f"{step.kind} {step.thing}: {outcome.status} {value}".strip()
    life = LIFE.get()
    life.world.checker.told(life.actor, outcome)
    if step.kind == "transfer" and outcome.status == "succeeded":
        event = await run.wait_for("settled", str(value))
        told += f", settled {event}"
    return told


def arguments_of(step: Step) -> dict[str, Any]:
    """What a tool is called with."""
    return {"thing": step.thing, "cents": step.cents} if step.kind == "spend" else {"thing": step.thing}


async def think(run: str, thing: str) -> str:
    """A model that never says the same twice."""
    life = LIFE.get()
    life.world.checker.asked(run, f"think {thing}", life.disk.workers)
    life.world.point(life.actor, "ask the model")
    await life.world.travel()
    return f"about {thing}: {life.world.chance.getrandbits(32):x}"


async def _hurry(run: Run, tools: Any, step: Step) -> str:
    """A mail under a time limit: where that ends first, the call goes on without its caller."""
    try:
        async with run.timeout(timedelta(seconds=3)):
            outcome = await tools["mail"].outcome(step.thing)
    except TimeoutError:
        LIFE.get().world.tell(LIFE.get().actor, f"waits no longer for mail {step.thing}")
        return f"hurry {step.thing}: gave up"
    LIFE.get().world.checker.told(LIFE.get().actor, outcome)
    return f"hurry {step.thing}: {outcome.status}"


def _groups(steps: tuple[Step, ...]) -> list[list[Step]]:
    groups: list[list[Step]] = []
    for step in steps:
        if step.group and groups and groups[-1][0].group == step.group:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


PATIENT: Final = Retry(attempts=100, elapsed=timedelta(hours=10))
"""A model is asked until it answers: that the tries of a process that dies again and again count is not a violation."""
ANSWER_MS: Final = 30 * 60_000
LIFE: Final[ContextVar[Life]] = ContextVar("holdfast_simulated_life")
AGENTS = {newer: _make(newer) for newer in (False, True)}


def settings_from(changes: dict[str, int]) -> Settings:
    """Settings of the product with what the plan changes. A simulated day is short, and so is people's time."""
    return Settings(**{"answer_within_ms": ANSWER_MS, **changes})  # type: ignore[arg-type]  # what is changed here are numbers
