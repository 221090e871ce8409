"""Runs that schedules submit: the limits of their tenant hold for them, like for runs that people submit."""

from beforehand import Run, agent, tool
from beforehand.queues.firing_times import Schedule
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from beforehand.queues.schedules import QueuesAndSchedules
from tests.unit.engine.lab import DAYS, Lab, virtual


@virtual
async def test_a_run_of_a_schedule_is_under_the_limits_of_its_tenant(lab: Lab):
    @tool
    async def pay(name: str) -> str:
        lab.sent.append(name)
        return "paid"

    @agent
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    limits = DeclaredLimits(budgets={"of acme": SharedBudget(tenant="acme", effects=1)})
    schedules = {name: Schedule("desk", name, every_ms=3_600_000, tenant=name) for name in ("acme", "bolt")}
    async with lab.app(desk, queues=QueuesAndSchedules(limits, schedules), recover=True, **DAYS):
        await lab.pass_time(hours=3, minutes=1)
    assert sorted(lab.sent) == ["acme", "bolt", "bolt", "bolt"]
    waiting = sorted(row.run for row in await lab.journal.runs(status="suspended"))
    assert waiting == ["acme@2026-01-01T02:00:00Z", "acme@2026-01-01T03:00:00Z"]
