"""A desk that refunds, of which people are asked first."""

from typing import Any

import pytest

from beforehand import Key, Operation, Run, agent, tool
from beforehand.errors import Declined, RunSuspended
from beforehand.people import Gate
from tests.unit.engine.lab import Lab

REFUND = "r-ann/refund#1"


def refunds(lab: Lab, cents: int = 9000, *, gate: str | Gate = "cents > 5000", instead: int = 0, **clauses: Any) -> Any:
    """An agent that refunds `cents`, or `instead` where a person asks back, and tells what became of it."""

    @tool(gate=gate, **clauses)
    async def refund(cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        try:
            return await refund(cents)
        except Declined as no:
            if instead and no.code == "asked_back":
                return await refund(instead)
            return f"{no.code}: {no.message}"

    return desk


def refunds_of_any(lab: Lab) -> Any:
    """An agent that refunds what it is asked for: a policy says whether people are asked."""

    @tool(idempotency=Key.forever())
    async def refund(cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @refund.compensate
    async def charge(operation: Operation[str], cents: int) -> None:
        lab.sent.append(f"charge {cents}")

    @agent(run_id="r-{cents}", tools=[refund])
    async def desk(run: Run, cents: int) -> str:
        return await refund(cents)

    return desk


async def asked(app: Any, desk: Any, item: str = REFUND) -> None:
    """The run goes on, and a person is asked about that."""
    with pytest.raises(RunSuspended, match=f"beforehand answer {item} yes"):
        await app.run(desk, "ann")
