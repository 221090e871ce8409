"""Tools of the simulated agents that a person has to approve first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from holdfast.agent.tool import Tool, tool
from holdfast.model.contract import Key
from holdfast.model.outcome import Verdict
from holdfast.model.view import Operation
from holdfast.policies import Gate
from holdfast.testing.simulator.tools import ANSWERS, NETWORK, verdict, write

GATED: Final = ("wire", "grant", "adjust")
GREAT: Final = "great"
"""How a thing begins about which nobody may decide alone: what is small is sent unasked."""


def gate_tools(*, newer: bool) -> Iterable[Tool[Any, Any]]:
    """Two people within a time, one person within a time, and one person about what somebody else may change.

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

    del as_it_is, adjusted
    return wire, grant, adjust


def asks(service: str, thing: str) -> bool:
    """Whether a person has to approve a call of that service about this thing."""
    return service in GATED and (service != "wire" or thing.startswith(GREAT))
