"""A host as a nemesis: an agent framework that spawns tasks at random, forgets, calls twice, and swallows exceptions.

It does what adapters do: each of its calls of a tool or a model goes through `HostedRun`, in a task of its own. Only
the recorded answers of its model say what it calls; what its tasks look like differs each time that it is called.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from beforehand.agent.hosted import HostControl, in_hosted_run, late_tool, name_calls
from beforehand.agent.run import Run
from beforehand.agent.tool import Tool
from beforehand.errors import UsageError
from beforehand.model.contract import Key
from beforehand.model.outcome import Outcome
from beforehand.testing.loop import Died
from simulator.agents.tools import ANSWERS, write
from simulator.plan import HostCall, Step

T = TypeVar("T")
Call = Mapping[str, Any]
Tell = Callable[[Outcome[Any]], str]
DEPTH: Final = 4
"""A call is made in a task of a task, at most so many."""
ODD_IDS: Final = ("", "a/b", "~1", "call#1", "x" * 300)
"""Ids that cannot name a step, as some models give them."""


def _of_host(name: str, **clauses: Any) -> Tool[..., Any]:
    schema = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}
    return late_tool(name, schema, {**ANSWERS, **clauses})


LATE: Final = {
    one.name: one
    for one in (_of_host("lend"), _of_host("fund", idempotency=Key.forever()), _of_host("vouch", gate="true"))
}
"""Tools whose bodies only the host has: a plain write, one with a key, and one that a person approves."""

OURS: Final = ("pay", "mail", "ship", "look")
"""Tools of the app that a host calls too."""


async def call_host(run: Run, tools: Mapping[str, Tool[Any, Any]], step: Step, tell: Tell) -> str:
    """One conversation of the host: its model is asked, its calls are made, and it is asked again."""
    host = _Host(run, tools, step, tell)
    said = await host.converse()
    run.scope().active.check()  # a host that swallows the end of its run says nothing that counts
    return f"host {step.thing}: {said}"


class _Host:
    """One execution of the host. What it does beside its calls is drawn anew each time."""

    def __init__(self, run: Run, tools: Mapping[str, Tool[Any, Any]], step: Step, tell: Tell) -> None:
        from simulator.agents.scripted import LIFE  # noqa: PLC0415 - it performs the steps that stand here

        self._life = LIFE.get()
        self._run, self._tools, self._step, self._tell = run, tools, step, tell
        self._chance: Final = random.Random(self._life.world.draws.of("host", run.id).getrandbits(64))  # noqa: S311 - a simulation
        self._over: Final[set[str]] = set()
        self._anew = self._life.world.checker.hosts.begins(run.id)

    async def converse(self) -> str:
        name = in_hosted_run("the host").begin("host")
        news: list[str] = []
        for number, turn in enumerate(self._step.turns, 1):
            news.append(await self._turn(f"{name}.turn-{number}", number, turn, list(news)))
        return "; ".join(news)

    async def _turn(self, name: str, number: int, turn: tuple[HostCall, ...], seen: list[str]) -> str:
        async def model() -> list[dict[str, Any]]:
            return await self._answer(name, number, len(turn))

        async def ask() -> Any:
            return await in_hosted_run("a model").turn(name, {"seen": seen}, model)

        calls: list[dict[str, Any]] = await self._in_tasks(ask)
        name_calls(name, calls, "id")
        chosen = [(call, turn[int(call["at"])]) for call in calls]
        made = [self._begin(call, wanted) for call, wanted in chosen]
        told: list[str] = []
        for (call, wanted), task in zip(chosen, made, strict=True):
            if wanted.dropped:
                told.append(f"{call['tool']} was begun")
                continue
            told.append(await task)
            if wanted.again == "after":
                told.append(await self._in_tasks(functools.partial(self._swallowing, call, wanted)))
        return ", ".join(told)

    async def _answer(self, name: str, number: int, calls: int) -> list[dict[str, Any]]:
        """The model: it orders its calls as it likes, and gives ids as it likes."""
        life, chance = self._life, self._chance
        life.world.checker.asked(self._run.id, f"{name}/model#1", life.disk.workers)
        life.world.point(life.actor, "ask the model", f"{self._run.id} {name}")
        await life.world.travel("model", self._run.id, name)
        order = list(range(calls))
        chance.shuffle(order)
        kind = chance.choice(("own", "own", "same", "odd"))
        drawn, turn = chance.getrandbits(32), self._step.turns[number - 1]
        ids = {"own": "", "same": "call_0", "odd": ODD_IDS[number % len(ODD_IDS)]}
        own = [kind == "own" or one.again == "beside" or one.dropped for one in turn]  # no later call may have its id
        return [
            {
                "at": at,
                "id": f"c{drawn:x}-{at}" if own[at] else ids[kind],
                "tool": turn[at].tool,
                "thing": f"{self._step.thing}.{number}.{at}",
            }
            for at in order
        ]

    def _begin(self, call: Call, wanted: HostCall) -> asyncio.Task[str]:
        """Make one call in a task of the host, and perhaps the same one beside it."""
        return asyncio.get_running_loop().create_task(self._made(call, wanted))

    async def _made(self, call: Call, wanted: HostCall) -> str:
        if wanted.forgotten and self._anew and self._chance.random() < 0.5:
            self._life.world.checker.hosts.forgets(self._run.id)
            return f"{call['tool']} is forgotten"
        await asyncio.sleep(wanted.ms / 1000)
        again = self._life.world.checker.hosts.refused(self._run.id, call["id"])
        once = self._in_tasks(lambda: self._swallowing(call, wanted, repeats=again or wanted.again != "beside"))
        if wanted.again not in {"beside", "cancelled"}:
            return await once
        first = asyncio.get_running_loop().create_task(once)
        if wanted.again == "cancelled":
            return await self._impatient(call, wanted, first)
        await asyncio.sleep(0 if again else self._chance.choice((0, 0.001, 0.05, 3)))
        second = await self._in_tasks(lambda: self._swallowing(call, wanted, repeats=again))
        return " and ".join(sorted(one for one in (await first, second) if one))  # which is first differs each time

    async def _impatient(self, call: Call, wanted: HostCall, first: asyncio.Task[str]) -> str:
        """The host has a time limit of its own: it cancels the call, and makes it again. A replay takes no time."""
        await asyncio.wait({first}, timeout=60 if self._anew else self._chance.choice((0, 0.01, 0.03, 3)))
        if not first.done():
            first.cancel()
            await asyncio.wait({first})
        return await self._in_tasks(lambda: self._swallowing(call, wanted)) if first.cancelled() else first.result()

    async def _swallowing(self, call: Call, wanted: HostCall, *, repeats: bool = True) -> str:
        """One call. Some hosts catch whatever comes out of it, and tell their model."""
        if not repeats and call["id"] in self._over:
            return ""
        try:
            return await self._call(call, wanted)
        except Died:
            raise
        except UsageError:
            return ""  # the first one of this id says how it ended
        except BaseException:
            if self._step.fails and wanted.again != "cancelled":
                return f"{call['tool']} ended with an exception"
            raise
        finally:
            self._over.add(call["id"])

    async def _call(self, call: Call, wanted: HostCall) -> str:
        hosted, name, tool = in_hosted_run(call["tool"]), call["id"], call["tool"]
        arguments = {"thing": call["thing"]}
        if tool not in LATE:
            return f"{tool} {self._tell(await hosted.call_checked(name, self._tools[tool], arguments))}"

        async def body() -> str:
            if wanted.again == "after" and self._chance.random() < 0.5:
                raise HostControl("try_again", "with other arguments", {"drawn": self._chance.getrandbits(32)})
            return await write(tool, keyed=tool == "fund", **arguments)

        outcome, control = await hosted.call_body(name, LATE[tool], arguments, body)
        return f"{tool} {self._tell(outcome)}{'' if control is None else f' {control}'}"

    async def _in_tasks(self, call: Callable[[], Awaitable[T]], deep: int | None = None) -> T:
        """The call in a task of a task, beside helpers that wait, tick, or are left behind."""
        chance = self._chance
        deep = chance.randrange(DEPTH) if deep is None else deep
        helpers = [asyncio.create_task(one()) for one in chance.sample((_idle, _ticking), chance.randrange(3))]
        try:
            if not deep:
                return await call()
            loop, inner = asyncio.get_running_loop(), self._in_tasks(call, deep - 1)
            same = chance.random() < 0.3  # in a context of the host's own, which is given to the task
            return await (
                loop.create_task(inner, context=contextvars.copy_context()) if same else loop.create_task(inner)
            )
        finally:
            _end(helpers if chance.random() < 0.7 else ())


def _end(helpers: Iterable[asyncio.Task[Any]]) -> None:
    for helper in helpers:
        helper.cancel()


async def _idle() -> None:
    await asyncio.Event().wait()


async def _ticking() -> None:
    while True:  # noqa: ASYNC110 - it only ticks
        await asyncio.sleep(30)
