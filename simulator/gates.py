"""Tools of the simulated agents that a person has to approve first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from holdfast.agent.tool import Tool, tool
from holdfast.model.contract import Key
from holdfast.model.outcome import Verdict
from holdfast.model.view import Operation
from holdfast.policies import Gate
from simulator.tools import ANSWERS, NETWORK, verdict, write

GATED: Final = ("wire", "grant", "adjust", "spend")
GREAT: Final = "great"
"""How a thing begins about which nobody may decide alone: what is small is sent unasked."""
PETTY: Final = 100
"""So many cents are spent unasked."""


def gate_tools(*, newer: bool) -> Iterable[Tool[Any, Any]]:
    """Two people within a time, one within a time, one about what somebody else may change, two about money.

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
            return service in GATED
