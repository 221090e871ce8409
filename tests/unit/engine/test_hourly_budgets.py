"""Shared budgets of an hour: a loop that asks without end makes so many calls in each, over all processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from beforehand import Natural, Run, RunSuspended, agent, tool
from beforehand.errors import BudgetExceeded
from beforehand.policies import Budget
from beforehand.queues.zones import day_of, hour_of
from tests.unit.engine.lab import DAYS, Lab, virtual
from tests.unit.engine.test_run_budgets import asking
from tests.unit.engine.test_shared_budgets import check_sums, counted, limits

CALLS = 10
UNITS = {"model_calls": 1, "effects": 1, "tokens": 10, "cost EUR": 10**9}
"""What one call counts under each limit."""


def looping(lab: Lab, hours: Counter[str], spent: str):
    """An agent that calls a model, or a tool, again and again; `hours` counts its calls."""

    def count() -> None:
        for use in lab.uses():
            if use.limit.startswith(spent):
                assert use.used + use.reserved < 6 * UNITS[use.limit], "only the call that crosses the limit passes it"
        hours[hour_of("Europe/Berlin", lab.clock.wall_ms()).name] += 1

    async def ask(question: str) -> dict[str, Any]:
        count()
        return {"text": question, "usage": {"input_tokens": 10, "output_tokens": 0}}

    @tool(idempotency=Natural(), budget=Budget(call="1 EUR"))
    async def pay(number: int) -> int:
        count()
        return number

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> int:
        for number in range(CALLS):
            await (run.decide(ask, f"{name} {number}") if spent in {"model_calls", "tokens"} else pay(number))
        return CALLS

    return desk


@pytest.mark.parametrize("most", [{"model_calls": 5}, {"tokens": 50}, {"effects": 5}, {"cost": "5 EUR"}], ids=str)
@virtual
async def test_two_processes_make_so_many_calls_in_each_hour_and_go_on_after_it(lab: Lab, most: dict[str, Any]):
    hours = Counter[str]()
    desk = looping(lab, hours, *most)
    budgets = limits(agent="desk", per="hour", zone="Europe/Berlin", **most)
    async with (
        lab.app(desk, queues=budgets, recover=True, **DAYS) as one,
        lab.app(desk, queues=budgets, recover=True, **DAYS) as other,
    ):
        ends = await asyncio.gather(one.run(desk, "ann"), other.run(desk, "bob"), return_exceptions=True)
        assert [type(end) for end in ends] == [RunSuspended] * 2
        await lab.pass_time(hours=4)
        assert {row.status for row in await one.engine.journal.runs()} == {"completed"}
    assert sum(hours.values()) == 2 * CALLS
    assert set(hours.values()) == {5}
    check_sums(lab)


@virtual
async def test_a_run_wakes_after_the_hour_when_its_process_was_killed_meanwhile(lab: Lab):
    desk, budgets = asking(lab, calls=4), limits(model_calls=3, per="hour")
    app = lab.make(desk, queues=budgets)
    await app.open()
    with pytest.raises(RunSuspended, match=r"reached for the hour \d{4}-\d\d-\d\d \d\d:00\+00:00 \(UTC\): 3 of 3 used"):
        await app.run(desk, "ann")
    await lab.bury(app, lab.processes[-1])
    async with lab.app(desk, queues=budgets, recover=True, **DAYS) as worker:
        end = hour_of("UTC", lab.clock.wall_ms()).end_ms
        await lab.pass_time(seconds=(end - lab.clock.wall_ms()) / 1000 - 1)
        assert len(lab.sent) == 3
        await lab.pass_time(minutes=2)
        assert (await worker.engine.journal.runs(run="r-ann"))[0].status == "completed"
    check_sums(lab)


@virtual
async def test_a_budget_that_stops_permits_no_call_before_the_hour_is_over(lab: Lab):
    desk, budgets = asking(lab, calls=2), limits(model_calls=1, per="hour", then="stop")
    async with lab.app(desk, queues=budgets) as app:
        with pytest.raises(BudgetExceeded, match="reached for the hour"):
            await app.run(desk, "ann")
    check_sums(lab)


@virtual
async def test_a_call_that_was_reserved_in_a_day_is_settled_there_when_hours_are_declared(lab: Lab):
    entered, answered = asyncio.Event(), asyncio.Event()

    async def ask(question: str) -> dict[str, Any]:
        lab.sent.append(question)
        entered.set()
        await answered.wait()
        return {"text": question, "usage": {"input_tokens": 10, "output_tokens": 0}}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        for number in range(3):
            await run.decide(ask, f"{name} {number}")
        return 3

    async with lab.app(desk, queues=limits(model_calls=3), recover=True) as app:
        task = asyncio.create_task(app.run(desk, "ann"))
        await entered.wait()
        day, hour = (kind("UTC", lab.clock.wall_ms()).name for kind in (day_of, hour_of))
        async with lab.app(desk, queues=limits(model_calls=3, per="hour")):
            await lab.pass_time(minutes=1)
            assert counted(lab)["support", "model_calls"] == (0, 1)
            answered.set()
            assert await task == 3
    used = {use.period: (use.used, use.reserved) for use in lab.uses() if use.limit == "model_calls"}
    assert used == {day: (1, 0), hour: (2, 0)}
    check_sums(lab)


@virtual
async def test_a_run_that_waits_for_the_next_day_goes_on_once_hours_are_declared(lab: Lab):
    desk = asking(lab, calls=2)
    async with lab.app(desk, queues=limits(model_calls=1)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    async with lab.app(desk, queues=limits(model_calls=1, per="hour"), recover=True) as app:
        await lab.pass_time(minutes=1)
        assert (await app.engine.journal.runs(run="r-ann"))[0].status == "completed"
    check_sums(lab)
