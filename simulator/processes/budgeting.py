"""The people who raise the budgets of runs that stopped at them, after a while, or leave them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from beforehand.control.service import ControlService
from beforehand.policies import RunBudget
from simulator.agents.budgets import amounts
from simulator.processes.operators import set_out

if TYPE_CHECKING:
    from simulator.world import World

_RAISED: Final = 12
"""So often a budget is raised at most: then the person leaves the run as it is."""


def stopped_at_budget(world: World, run: str, budget: RunBudget, times: int, then: Callable[[], None]) -> None:
    """A run has stopped for the n-th time. Usually a person raises its budget; once that is accepted, `then`."""
    chance = world.draws.of("raises", run, times)
    if world.closing or times > _RAISED or chance.random() < 0.15:
        return
    raise_it = functools.partial(_raise, run, amounts(budget, world.plan.generous))
    set_out(world, f"raises the budget of {run} ({times})", raise_it, chance.randrange(1_000, 120_000), then)


async def _raise(run: str, more: dict[str, int], service: ControlService) -> None:
    await service.raise_budget(run, more, by="ann")
