"""Shared budgets as tables: what a spent one never stops, and what counts with its cost."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Natural,
    Operation,
    Run,
    RunSuspended,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.policies import Budget, RunBudget
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_run_budgets import budget_of
from tests.unit.engine.test_shared_budgets import check_sums, counted, limits

HOUR = timedelta(hours=1)

# --- what serves another effect --------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["wait", "stop"])
@pytest.mark.parametrize("spent", [{"effects": 1}, {"cost": "0.40 EUR"}, {"effects": 1, "cost": "0.40 EUR"}], ids=str)
@pytest.mark.parametrize("price", ["", "0.10 EUR"])
@pytest.mark.parametrize("ends", ["abort", "commit"])
@virtual
async def test_a_spent_budget_stops_no_call_that_ends_an_earlier_effect(
    lab: Lab, then: Any, spent: dict[str, Any], price: str, ends: str
):
    """A compensation and a confirmation are sent, and count with their cost."""
    serves = {"idempotency": Natural(within=HOUR), "budget": Budget(call=price) if price else Budget()}

    @tool(budget=Budget(call="0.40 EUR"))
    async def reserve(name: str) -> str:
        lab.sent.append("reserve")
        return name

    @reserve.confirm(expires=HOUR)
    @tool(**serves)
    async def confirm(operation: Operation[str]) -> None:
        lab.sent.append("confirm")

    @reserve.compensate(restores=True)
    @tool(**serves)
    async def cancel(operation: Operation[str]) -> None:
        lab.sent.append("cancel")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with contextlib.suppress(TransactionAborted):
            async with run.transaction("trip") as trip:
                await reserve(name)
                if ends == "abort":
                    trip.abort("too late")
        return name

    async with lab.app(desk, queues=limits(**spent, then=then)) as app:
        assert await app.run(desk, "ann") == "ann"
    assert lab.sent == ["reserve", "cancel" if ends == "abort" else "confirm"]
    if "cost" in spent:
        assert counted(lab)["support", "cost EUR"] == (500_000_000 if price else 400_000_000, 0)
    if "effects" in spent:
        assert counted(lab)["support", "effects"] == (1, 0)
    check_sums(lab)


@pytest.mark.parametrize("shared", [True, False])
@virtual
async def test_one_call_costs_its_price_once_however_many_parts_of_it_are_pending(lab: Lab, shared: bool):
    @tool(idempotency=Natural(within=HOUR), budget=Budget(call="0.40 EUR"))
    async def send(name: str) -> str:
        for part in "ab":
            current_operation().pending(part, within=HOUR, key=part)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return (await send.outcome(name)).result

    own = None if shared else RunBudget(cost="9 EUR")
    async with lab.app(desk, queues=limits(cost="9 EUR") if shared else None) as app:
        with pytest.raises(RunSuspended, match="accepted, answer later: a"):
            await app.run(desk, "ann", budget=own)
        if shared:
            assert counted(lab)["support", "cost EUR"] == (400_000_000, 0)
        else:
            assert (await budget_of(app)).calling == 0
            assert (await budget_of(app)).cost == 400_000_000
    check_sums(lab)
