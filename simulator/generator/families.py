"""From a seed to a plan with child runs. These seeds are a range of their own, so the plans of all others stay."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from simulator.agents.families import FAMILY, names_of
from simulator.generator.calls import dice
from simulator.plan import ChildPlan, Plan, QueueOrder, Script, Step

FAMILIES: Final = 6_000_000
"""The first seed of a plan with child runs."""
_CALLS: Final = ("pay", "note", "mail", "look", "order", "ship", "charge")
_APART: Final = frozenset({"backup", "restore", "disk_broken"})
_MINUTE: Final = 60_000
_DEEP: Final = 2
_MARK: Final = "~"


def with_families(plan: Plan, seed: int) -> Plan:
    """The plan with runs that start others, some of which are cancelled or paused meanwhile."""
    chance = dice("families", seed)
    scripts = tuple(Script(one.id, _steps(chance, one.id, 0)) for one in plan.scripts)
    used = {*_CALLS, "people"}
    faults = tuple(one for one in plan.faults if one.kind not in _APART and (not one.service or one.service in used))
    orders = tuple(order for script in scripts for order in _orders(chance, script.id, script.steps))
    return replace(
        plan, seed=seed, scripts=scripts, faults=faults, permits=(), policy=False, reviews=False, strangers=0,
        orders=orders,
    )  # fmt: skip


def _steps(chance: random.Random, name: str, depth: int) -> tuple[Step, ...]:
    """A few short steps, most of them calls. Runs start children, and some children do, too."""
    steps: list[Step] = []
    for position in range(chance.choice((1, 2, 2, 3))):
        thing, drawn = f"{name}-{position}", chance.random()
        group = 1 if chance.random() < 0.3 else 0
        if drawn < (0.55, 0.25, 0)[depth]:
            steps.append(Step(FAMILY, thing, group, children=_children(chance, thing, depth + 1)))
        elif drawn < 0.7:
            steps.append(Step("rest", thing, group, ms=chance.randrange(200, 2 * _MINUTE)))
        else:
            steps.append(Step(chance.choice(_CALLS), thing, group, by_model=chance.random() < 0.2))
    return tuple(steps)


def _children(chance: random.Random, thing: str, depth: int) -> tuple[ChildPlan, ...]:
    return tuple(
        ChildPlan(
            _steps(chance, f"{thing}-c{number}", depth), joined=chance.random() < 0.75, outlives=chance.random() < 0.3
        )
        for number in range(chance.choice((1, 2, 2, 3)))
    )


def _orders(chance: random.Random, run: str, steps: tuple[Step, ...]) -> list[QueueOrder]:
    """Some runs and some of their children are cancelled, and some are paused for a while."""
    found: list[QueueOrder] = []
    names = [run] + [
        f"{run}{_MARK}{name}" for step in steps if step.kind == FAMILY and not step.group for name in names_of(step)
    ]
    for name in names:
        drawn, at = chance.random(), chance.randrange(4 * _MINUTE)
        if drawn < 0.2:
            found.append(QueueOrder(name, "cancel", at))
        elif drawn < 0.35:
            found += [QueueOrder(name, "pause", at), QueueOrder(name, "unpause", at + chance.randrange(5 * _MINUTE))]
    return found
