"""A ready loop under `explore`: a crash at every boundary, with a model that names its calls anew when asked again."""

from __future__ import annotations

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.loop import ModelCall, ModelLoop
from beforehand.testing import World
from beforehand.testing.services import Payments, ScriptedModel

payments = Payments()


def charges(number: str) -> tuple[ModelCall, ...]:
    return tuple(ModelCall(f"{name}-{number}", "charge", f'{{"account": "{name}"}}') for name in ("ann", "bea"))


model = ScriptedModel([charges("1"), charges("2")], "Both are charged.")


@tool(idempotency=Key.forever())
async def charge(account: str) -> str:
    return await payments.charge(account, 5, key=current_operation().key)


@agent(run_id="loop-{name}", tools=[charge])
async def looping(run: Run, name: str) -> str:
    return await ModelLoop(model)(run, f"charge {name}")


def test_a_crash_at_every_boundary_changes_nothing_outside(world: World):
    world.use(model, payments)
    explored = world.explore(looping, "them")
    assert "a crash at each" in str(explored)
    assert sorted(world.run(looping, "them").effects) == ["charge", "charge"]
