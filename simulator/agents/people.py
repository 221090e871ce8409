"""Tools that a person has to approve first, and agents that ask people or hand their run over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from beforehand.agent.run import Run
from beforehand.agent.tool import Tool, tool
from beforehand.model.contract import Key
from beforehand.model.outcome import Verdict
from beforehand.model.questions import Scalar
from beforehand.model.view import Operation
from beforehand.policies import Gate
from simulator.agents.tools import ANSWERS, NETWORK, verdict, write
from simulator.plan import Plan, Step

GATED: Final = ("wire", "grant", "adjust", "spend")
GREAT: Final = "great"
"""The beginning of things about which no person may decide alone: what is small is sent unasked."""
PETTY: Final = 100
"""So many cents are spent unasked."""


def gate_tools(*, newer: bool) -> Iterable[Tool[Any, Any]]:
    """Two people within a time, one within a time, one about what another party may change, two about money.

    About the last one only a policy asks.
    A yes to older code is none to newer code that promises something else.
    """

    @tool(
        idempotency=Key.forever(),
        gate=Gate(f"thing.startsWith('{GREAT}')", people=2, within=timedelta(minutes=4)),
        **ANSWERS,
    )
    async def wire(thing: str) -> str:
        return await write("wire", keyed=True, thing=thing)

    @tool(gate=Gate("true", within=timedelta(minutes=3)), **ANSWERS)
    async def grant(thing: str) -> str:
        return await write("grant", thing=thing)

    @tool(idempotency=Key.forever(), gate="true", **ANSWERS)
    async def adjust(thing: str) -> str:
        return await write("adjust", keyed=True, thing=thing)

    @adjust.observe
    async def as_it_is(_operation: Operation[str], thing: str) -> str:
        return await NETWORK.get().state("adjust", thing)

    @adjust.verify(settle_window=timedelta(seconds=15 if newer else 20), every=timedelta(seconds=5))
    async def adjusted(operation: Operation[str]) -> Verdict[str]:
        return verdict(await NETWORK.get().find("adjust", key=operation.key))

    @tool(idempotency=Key.forever(), gate=f"cents > {PETTY}", **ANSWERS)
    async def spend(thing: str, cents: int) -> str:
        return await write("spend", keyed=True, thing=thing, cents=str(cents))

    @tool(idempotency=Key.forever(), **ANSWERS)
    async def buy(thing: str, cents: int) -> str:
        return await write("buy", keyed=True, thing=thing, cents=str(cents))

    del as_it_is, adjusted
    return wire, grant, adjust, spend, buy


def asks(service: str, arguments: Mapping[str, str]) -> bool:
    """Whether a person has to approve a call of that service with these arguments."""
    match service:
        case "wire":
            return arguments["thing"].startswith(GREAT)
        case "spend":
            return int(arguments["cents"]) > PETTY
        case _:
            return service in GATED or service == "vouch"


# --- questions and hand-overs -----------------------------------------------------------------------------------------


CHOICES: Final = ("red", "green", "blue")
SPECIALISTS: Final = ("pay", "ship", "mail")
"""The tools of the agent that runs are handed over to."""


class Wanted(msgspec.Struct, frozen=True):
    """What code wants of the person who answers: for how long it waits, and what stands in for an answer."""

    ms: int
    default: Scalar | None


def text_of(step: Step) -> str:
    """What is asked at that step."""
    return f"which {step.thing}?" if step.kind == "ask" else f"who does {step.thing}?"


def wanted_of(step: Step) -> Wanted:
    """What its code wants."""
    default = (CHOICES[step.cents % 3] if step.kind == "ask" else step.cents) if step.cents else None
    return Wanted(step.ms, default)


async def ask(run: Run, step: Step) -> Scalar | None:
    """Ask people, or hand the run over to them. The answer of one of them, or nothing if none comes in time."""
    wanted, within = wanted_of(step), timedelta(milliseconds=step.ms)
    try:
        if step.kind == "ask":
            return await run.ask(
                text_of(step), choices=CHOICES, timeout=within, default=str(wanted.default or "") or None
            )
        number = int(wanted.default) if wanted.default else None
        return await run.hand_off(
            "desk", why=text_of(step), state={"thing": step.thing}, returns=int, within=within, default=number
        )
    except TimeoutError:
        return None


def asked_by(plan: Plan, run: str, text: str) -> Wanted | None:
    """What the code of a run wants that asks this."""
    steps = (step for script in plan.scripts if script.id == run for step in script.steps)
    return next(
        (wanted_of(step) for step in steps if step.kind in {"ask", "hand_over"} and text_of(step) == text), None
    )


def handed_to(plan: Plan, thing: str) -> bool:
    """Whether another agent is to do this."""
    return any(
        thing.startswith(f"{step.thing}/") for script in plan.scripts for step in script.steps if step.kind == "pass"
    )
