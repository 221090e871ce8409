"""The simulated agents: each performs its script, notes what it is told about each step, and returns that."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from beforehand.agent.agent import Agent, agent
from beforehand.agent.run import Run
from beforehand.agent.tool import Tool
from beforehand.errors import Interrupted, TransactionAborted, UnknownTool
from beforehand.model.ids import operation_id
from beforehand.model.outcome import INTERRUPTED, STOPPED, Outcome
from beforehand.model.secret import Secret
from beforehand.policies import Retry
from simulator.agents import budgets, deferred, families, hosts, people, plans, timing_and_processes
from simulator.agents.tools import standard_tools
from simulator.agents.transactions import make_trip, name_of
from simulator.checkers.records import PLACE
from simulator.plan import BODY, Script, Step

if TYPE_CHECKING:
    from simulator.processes.worker import Life

PATIENT: Final = Retry(attempts=100, elapsed=timedelta(hours=10))
"""A model is asked until it answers: that the tries of a process that dies again and again count is not a violation."""
HURRY_MS: Final = 3_000
LIFE: Final[ContextVar[Life]] = ContextVar("beforehand_simulated_life")
"""The process in which the code runs that looks."""


class Ears:
    """What one branch of one execution of an agent has heard of the messages to its run."""

    def __init__(self, run: str, heard: tuple[str, ...] = ()) -> None:
        self.run: Final = run
        self.heard = heard

    def branches(self, count: int) -> list[Ears]:
        """Those of branches that begin now: they know what this one knows."""
        return [Ears(self.run, self.heard) for _ in range(count)]

    def join(self, branches: list[Ears]) -> None:
        """Who waited for branches knows what they heard."""
        self.heard = max((branch.heard for branch in branches), key=lambda heard: len(set(heard)))

    def hear(self, said: str) -> str:
        """The run received a message. The note that code keeps of it."""
        told = LIFE.get().world.checker.messages.told(LIFE.get().actor, self.run, self.heard, said)
        self.heard = (*self.heard, *told)
        return f"heard {', '.join(told)}"


EARS: Final[ContextVar[Ears]] = ContextVar("beforehand_simulated_ears")
"""What the branch has heard in which another agent goes on."""


def agent_of(newer: bool) -> Agent[Script, list[str]]:
    """The agent of one version of the code."""
    return AGENTS[newer][0]


def helper_of(newer: bool) -> Agent[Script, list[str]]:
    """The agent of child runs, in one version of the code."""
    return AGENTS[newer][2]


def _make(newer: bool) -> tuple[Agent[Script, list[str]], Agent[str, list[str]], Agent[Script, list[str]]]:
    """The agent that performs scripts, the one that it hands some of its runs over to, and the one of child runs."""
    tools = standard_tools(newer=newer)

    @agent(run_id="{script.id}", tools=tools.values(), version="2" if newer else "1", name="scripted")
    async def scripted(run: Run, script: Script) -> list[str]:
        """Perform the script."""
        return await perform(run, tools, script)

    @agent(tools=[tools[name] for name in people.SPECIALISTS], version="2" if newer else "1", name="specialist")
    async def specialist(run: Run, thing: str) -> list[str]:
        """Do something with each tool that it was given, and try one that it was not."""
        ears = EARS.get()
        return [await _as_given(run, name, f"{thing}/{name}", ears) for name in ("pay", "dare", "ship")]

    @agent(tools=tools.values(), version="2" if newer else "1", name="helper", deadline=families.DEADLINE)
    async def helper(run: Run, script: Script) -> list[str]:
        """Perform the script, as a child."""
        return await perform(run, tools, script)

    return scripted, specialist, helper


async def perform(run: Run, tools: Mapping[str, Tool[Any, Any]], script: Script) -> list[str]:
    """Perform a script. What the code is told about each step is noted, and returned."""
    told: list[str] = []
    ears, life = Ears(run.id), LIFE.get()
    checker = life.world.checker
    replays = checker.replays
    execution = replays.begin()
    for number, group in enumerate(_groups(script.steps)):
        PLACE.set((run.id, number))
        news = await _together(run, tools, group, ears)
        owned = checker.owned(run.id, run.scope().active.lease.token)
        if not checker.hosts.forgot(run.id):
            replays.told(life.actor, execution, (run.id, number), news, owned=owned)
        told += news
    return told


async def _together(run: Run, tools: Any, group: list[Step], ears: Ears) -> list[str]:
    """Take the steps of one group: alone, in branches, or in tasks beside the body, which takes the last one itself."""
    if len(group) == 1:
        return [await _perform(run, tools, group[0], ears)]
    branches = ears.branches(len(group))
    calls = [_perform(run, tools, step, own) for step, own in zip(group, branches, strict=True)]
    if group[0].group < BODY:
        news = [*await run.gather(*calls)]
    else:
        async with run.task_group() as task_group:
            tasks = [task_group.create_task(call) for call in calls[:-1]]
            last = await calls[-1]
        news = [*(task.result() for task in tasks), last]
    ears.join(branches)
    return news


async def _pass_on(run: Run, step: Step, ears: Ears) -> str:
    """Let the other agent go on in this run."""
    EARS.set(ears)
    specialist = AGENTS[LIFE.get().newer][1]
    done = await run.hand_off(specialist, why="it knows how", state=step.thing)
    return ", ".join(done)


async def _as_given(run: Run, tool: str, thing: str, ears: Ears) -> str:
    try:
        return f"{tool} {thing}: {_told(await run.call(tool, {'thing': thing}), ears)}"
    except UnknownTool:
        return f"{tool} is held by another party"


async def _perform(run: Run, tools: Any, step: Step, ears: Ears) -> str:
    """Do one step. A message that comes meanwhile is noted, and the next step is begun."""
    try:
        return await _do(run, tools, step, ears)
    except Interrupted as message:
        return f"{step.kind} {step.thing}: {ears.hear(message.text)}"


async def _do(run: Run, tools: Any, step: Step, ears: Ears) -> str:
    checker = LIFE.get().world.checker
    match step.kind:
        case "trip":
            inside = functools.partial(_inside, run, tools, step, ears)
            text, gone = await make_trip(run, tools, step, lambda outcome: _told(outcome, ears), inside)
            checker.trips.told(LIFE.get().actor, text, gone, ended=operation_id(run.id, name_of(step)))
            return _called_off(text, gone, ears)
        case "think":
            patiently = run.options(step=f"think {step.thing}", retry=PATIENT)
            return await patiently.decide(think, run.id, step.thing)
        case "plan":
            text, done, gone = await plans.carry_out(run, step)
            checker.trips.told(LIFE.get().actor, text, gone)
            checker.plans.told(run.id, step, done)
            return _called_off(text, gone, ears)
        case "nag" | "insist":
            return await _nag(run, step, ears)
        case "ask" | "hand_over":
            said = await people.ask(run, step)
            checker.questions.told(LIFE.get().actor, run.id, people.text_of(step), said)
            return f"{people.text_of(step)} {said}"
        case "pass":
            return await _pass_on(run, step, ears)
        case "hurry" | "limit":
            return await _limited(run, tools, step, ears)
        case "host":
            return await hosts.call_host(run, tools, step, lambda outcome: _told(outcome, ears))
        case "rest":
            await run.sleep(timedelta(milliseconds=step.ms))
            return f"rested {step.thing}"
        case _:
            return await _call(run, tools, step, ears)


async def _nag(run: Run, step: Step, ears: Ears) -> str:
    """Ask for one thing, and ask again."""
    life, heard = LIFE.get(), list[str]()
    calls = functools.partial(life.world.checker.answers.calls, run.id, life.disk.workers)
    async for outcome in deferred.nag(run, step, calls):
        heard.append(_told(outcome, ears))
    return f"{step.kind} {step.thing}: {', '.join(heard)}"


async def _call(run: Run, tools: Any, step: Step, ears: Ears) -> str:
    """Call one tool, or what is about time."""
    if step.kind == "relabel":
        relabelled = [_told(one, ears) for one in await timing_and_processes.relabel(tools, step)]
        return f"relabel {step.thing}: {', '.join(relabelled)}"
    if step.kind == "consult":
        return await timing_and_processes.consult(run, step)
    if step.kind == budgets.QUERY:
        return await budgets.query(run, step)
    if step.kind == families.FAMILY:
        return await families.start_and_join(run, step, helper_of(LIFE.get().newer))
    if step.kind == "crash":
        await timing_and_processes.die()
    if step.kind == "creep":
        await timing_and_processes.creep(run, step)
    if step.kind == "sign":
        outcome = await tools["sign"].outcome(step.thing, Secret("vault"))
    elif step.by_model:
        outcome = await run.call(step.kind, arguments_of(step))
    else:
        outcome = await tools[step.kind].outcome(**arguments_of(step))
    told = f"{step.kind} {step.thing}: {_told(outcome, ears)}"
    if step.kind == "transfer" and outcome.status == "succeeded":
        event = await run.wait_for("settled", str(outcome.value))
        told += f", settled {event}"
    return told


def _told(outcome: Outcome[Any], ears: Ears) -> str:
    """An outcome in words."""
    LIFE.get().world.checker.told(LIFE.get().actor, outcome)
    if outcome.code in {INTERRUPTED, STOPPED}:
        return ears.hear(outcome.reason)
    return f"{outcome.status} {outcome.value if outcome.status == 'succeeded' and not outcome.code else ''}".strip()


def _called_off(text: str, gone: TransactionAborted | None, ears: Ears) -> str:
    """How a transaction ended, with the message that called it off, if one did."""
    cause = gone.__cause__ if gone is not None else None
    return f"{text}, {ears.hear(cause.text)}" if isinstance(cause, Interrupted) else text


def arguments_of(step: Step) -> dict[str, Any]:
    """What a tool is called with."""
    return {"thing": step.thing, "cents": step.cents} if step.kind in {"spend", "buy"} else {"thing": step.thing}


async def think(run: str, thing: str) -> str:
    """A model that never says the same twice."""
    life = LIFE.get()
    life.world.checker.asked(run, f"think {thing}", life.disk.workers)
    life.world.point(life.actor, "ask the model", f"{run} {thing}")
    await life.world.travel("model", run, thing)
    return f"about {thing}: {life.world.draws.of('answer', run, thing).getrandbits(32):x}"


async def _limited(run: Run, tools: Any, step: Step, ears: Ears) -> str:
    """Do something under a time limit: where that ends first, a call goes on without its caller."""
    life, done = LIFE.get(), list[str]()
    parts, ms = (step.parts, step.ms) if step.kind == "limit" else (("mail",), HURRY_MS)

    async def body() -> None:
        async with _on_the_way_out(run, tools, step, done, ears):
            for number, part in enumerate(parts):
                thing = step.thing if len(parts) == 1 else f"{step.thing}.{number}"
                done.append(await _in_time(run, tools, step, part, thing, ears))
            done.extend(await _inside(run, tools, step, ears))

    try:
        if step.fails:
            await run.gather(body(), _fail_after(run, ms))
        else:
            async with run.timeout(timedelta(milliseconds=ms)):
                await body()
    except (TimeoutError, PartFailed):
        life.world.tell(life.actor, f"waits no longer for {step.thing}")
        life.world.reach.endings["time limit: over"] += 1
        return f"{step.kind} {step.thing}: gave up after {', '.join(done)}"
    life.world.reach.endings["time limit: kept"] += 1
    return f"{step.kind} {step.thing}: {', '.join(done)}"


class PartFailed(Exception):
    """The plan lets this part of a gather fail."""


async def _fail_after(run: Run, ms: int) -> None:
    await run.sleep(timedelta(milliseconds=ms))
    raise PartFailed


async def _inside(run: Run, tools: Any, step: Step, ears: Ears) -> list[str]:
    """Take the steps inside of this one."""
    return [news for group in _groups(step.inside) for news in await _together(run, tools, group, ears)]


@contextlib.asynccontextmanager
async def _on_the_way_out(run: Run, tools: Any, step: Step, done: list[str], ears: Ears) -> AsyncGenerator[None]:
    """Do something more where the time limit ends the body: no limit ends that."""
    try:
        yield
    except asyncio.CancelledError:
        for number, part in enumerate(step.way_out):
            done.append(await _in_time(run, tools, step, part, f"{step.thing}.{step.ms}out{number}", ears))
            LIFE.get().world.reach.endings["time limit: on the way out"] += 1
        raise


async def _in_time(run: Run, tools: Any, step: Step, part: str, thing: str, ears: Ears) -> str:
    """One part of that. Pauses are as long as the whole, or twice or half as long."""
    match part:
        case "beside":
            own = ears.branches(3)
            calls = (_mail_or_look(tools, number, f"{thing}.{number}", one) for number, one in enumerate(own))
            news = [*await run.gather(*calls)]
            ears.join(own)
            return ", ".join(news)
        case "within":
            inner = Step("limit", thing, parts=("mail", "pause"), way_out=step.way_out[:1], ms=step.ms // 2)
            return await _limited(run, tools, inner, ears)
        case "pause" | "nap" | "oversleep":
            await run.sleep(timedelta(milliseconds=step.ms * {"nap": 1, "pause": 2, "oversleep": 4}[part] // 2))
            return part
        case "think" | "transfer":
            return await _do(run, tools, Step(part, thing), ears)
        case _:
            return _told(await tools[part].outcome(thing), ears)


async def _mail_or_look(tools: Any, number: int, thing: str, ears: Ears) -> str:
    return _told(await tools["look" if number == 1 else "mail"].outcome(thing), ears)


def _groups(steps: tuple[Step, ...]) -> list[list[Step]]:
    groups: list[list[Step]] = []
    for step in steps:
        if step.group and groups and groups[-1][0].group == step.group:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


AGENTS = {newer: _make(newer) for newer in (False, True)}
