"""Tools of the simulated agents whose outcome comes later, and agents that ask for one thing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from beforehand.agent.run import Run
from beforehand.agent.tool import Tool, tool
from beforehand.errors import Deferred
from beforehand.model.contract import Key, Once
from beforehand.model.outcome import CannotTell, DidNotHappen, Happened, Outcome, Verdict
from beforehand.model.view import Operation
from simulator.agents.tools import ANSWERS, NETWORK, result_of, send
from simulator.plan import Step

ASYNCHRONOUS: Final = frozenset({"rent", "visa", "permit"})
SOON: Final = timedelta(minutes=2)
LATER: Final = timedelta(minutes=4)


async def apply_for(service: str, thing: str, within: timedelta, **more: Any) -> str:
    """Send a request that is accepted, or refused, and not finished."""
    reply = await send(service, thing=thing, keyed=service == "rent", marked=service == "visa")
    if reply.status != 202:
        return result_of(reply)
    key = "" if service == "rent" else reply.body
    raise Deferred(f"accepted as {reply.body}", within=within, key=key, **more)


def answer_tools() -> Iterable[Tool[Any, Any]]:
    """One answer comes under our key; two under a number of the office's own, of which one can be looked for."""

    @tool(idempotency=Key.forever(stores="all"), **ANSWERS)
    async def rent(thing: str) -> str:
        return await apply_for("rent", thing, LATER)

    @tool(**ANSWERS)
    async def visa(thing: str) -> str:
        return await apply_for("visa", thing, SOON, every=timedelta(seconds=30))

    @visa.verify(settle_window=timedelta(seconds=30), every=timedelta(seconds=10))
    async def in_the_register(operation: Operation[str]) -> Verdict[str]:
        found = await NETWORK.get().application("visa", operation.marker)
        if found is None or found.status == "failed":
            return DidNotHappen()
        return CannotTell("it is being worked on") if found.status == "pending" else Happened(found.value)

    @tool(once=Once("thing"), **ANSWERS)
    async def permit(thing: str) -> str:
        return await apply_for("permit", thing, LATER)

    del in_the_register
    return rent, visa, permit


async def nag(run: Run, step: Step, calls: Callable[[], None]) -> AsyncIterator[Outcome[Any]]:
    """A model that asks for one thing, and asks again whatever it is told. `calls` is called before each call.

    One that insists asks once more after a while: by then the office has answered, or a person is asked.
    """
    for number in range(3 if step.kind == "insist" else 2):
        if number == 2:
            await run.sleep(timedelta(milliseconds=step.ms))
        calls()
        yield await run.call(TOOLS_OF[step.kind], {"thing": step.thing})


def told(outcomes: Iterable[Outcome[Any]]) -> str:
    """What came of it, in words."""
    return ", ".join(f"{one.tool} {one.status}" for one in outcomes)


TOOLS_OF: Final[Mapping[str, str]] = {"rent": "rent", "visa": "visa", "permit": "permit", "nag": "permit",
                                         "insist": "rent"}  # fmt: skip
"""Which service each kind of step asks."""
