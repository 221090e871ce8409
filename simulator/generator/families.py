"""From a seed to a plan with child runs. These seeds are a range of their own, so the plans of all others stay."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from simulator.agents.budgets import QUERY, QUERY_FAULTS
from simulator.agents.families import FAMILY, names_of
from simulator.generator.budgets import own_budget
from simulator.generator.calls import dice
from simulator.plan import ChildPlan, Fault, Plan, QueueOrder, Script, Step

FAMILIES: Final = 6_000_000
"""The first seed of a plan with child runs."""
BUDGETED_TREES: Final = 4
"""Seeds that leave this rest when divided by five ask models, and most of their trees of runs have budgets."""
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
    made = replace(
        plan, seed=seed, scripts=scripts, faults=faults, permits=(), policy=False, reviews=False, strangers=0,
        orders=orders,
    )  # fmt: skip
    return made if seed % 5 != BUDGETED_TREES else _with_budgets(made, dice("budgets of trees", seed))


def _with_budgets(plan: Plan, chance: random.Random) -> Plan:
    """The plan with questions to models in place of some calls, and with budgets that people raise now and then."""
    scripts = tuple(replace(one, steps=_asking(chance, one.steps)) for one in plan.scripts)
    budgets = {one.id: own_budget(chance) for one in scripts if chance.random() < 0.8}
    orders, faults = list(plan.orders), list(plan.faults)
    for run in budgets:
        moments = sorted(chance.randrange(6 * _MINUTE) for _ in range(chance.randrange(3)))
        orders += [QueueOrder(run, "raise", at) for at in moments]
        orders.append(QueueOrder(run, "raise", chance.randrange(7, 12) * _MINUTE, more=1_000))
    faults += [
        Fault(chance.choice(QUERY_FAULTS), call, QUERY)
        for call in range(1, 40)
        if chance.random() < chance.choice((0, 0.2))
    ]
    orders.sort(key=lambda one: one.at_ms)
    return replace(plan, scripts=scripts, budgets=budgets, orders=tuple(orders), faults=tuple(faults))


def _asking(chance: random.Random, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    made: list[Step] = []
    for step in steps:
        if step.kind == FAMILY:
            children = tuple(
                replace(
                    one, steps=_asking(chance, one.steps), budget=own_budget(chance) if chance.random() < 0.2 else None
                )
                for one in step.children
            )
            made.append(replace(step, children=children))
        elif step.kind != "rest" and chance.random() < 0.5:
            made.append(Step(QUERY, step.thing, step.group, cents=chance.choice((30, 90, 300, 900))))
        else:
            made.append(step)
    return tuple(made)


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
