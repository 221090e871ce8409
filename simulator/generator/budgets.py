"""From a seed to a plan with budgets. These seeds are a range of their own, so the plans of all others stay."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Final, Literal
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from beforehand.policies import RunBudget
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from beforehand.testing.clock import EPOCH_MS
from simulator.agents.budgets import QUERY, QUERY_FAULTS
from simulator.generator.calls import dice
from simulator.generator.queues import TENANTS
from simulator.plan import Declaration, Fault, Plan, Script, Step, Submission

BUDGETED: Final = 5_000_000
"""The first seed of a plan with budgets."""
EFFECTS: Final = 3
"""Seeds that leave this rest when divided by five limit effects in shared budgets, and few model calls."""
_MINUTE: Final = 60_000
MIDNIGHTS: Final = (
    ("Europe/Berlin", "2027-03-28"), ("Europe/Berlin", "2027-03-29"), ("America/New_York", "2027-11-07"),
    ("UTC", "2028-03-01"), ("Asia/Kolkata", "2027-06-15"),
)  # fmt: skip
"""A zone, and a day in it: a plan takes place around the midnight with which it begins."""
_WRITES: Final = ("note", "pay", "order", "charge")
_MOST_RUNS: Final = 6


def with_budgets(plan: Plan, seed: int) -> Plan:
    """The plan with runs that ask models and write under budgets of their own, and under some that they share."""
    chance = dice("budgets", seed)
    zone, day = chance.choice(MIDNIGHTS)
    midnight = round(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).timestamp() * 1000)
    kept = plan.submissions[:_MOST_RUNS]
    scripts = {one.script: _script(chance, plan.scripts[one.script].id) for one in kept}
    names = {script.id for script in scripts.values()}
    faults = [one for one in plan.faults if one.kind != "disk_broken"]
    faults += [
        Fault(chance.choice(QUERY_FAULTS), call, QUERY)
        for call in range(1, 40)
        if chance.random() < chance.choice((0, 0.2))
    ]
    return replace(
        plan,
        scripts=tuple(scripts.get(number, script) for number, script in enumerate(plan.scripts)),
        submissions=tuple(_limited(chance, one) for one in kept),
        declarations=_declarations(chance, plan.declarations, zone)
        if seed % 5 != EFFECTS
        else _of_effects(dice("budgets of effects", seed), _declarations(chance, plan.declarations, zone)),
        orders=tuple(one for one in plan.orders if one.run in names),
        faults=tuple(faults),
        skew_ms=midnight - chance.randrange(2, 30) * _MINUTE - EPOCH_MS,
        generous=chance.choice((1, 1, 3, 10)),
    )


def _script(chance: random.Random, name: str) -> Script:
    """Questions, and a few writes; some of them side by side."""
    steps: list[Step] = []
    for position in range(chance.randrange(2, 7)):
        thing, group = f"{name}-{position}", 1 if chance.random() < 0.35 else 0
        if chance.random() < 0.7:
            steps.append(Step(QUERY, thing, group, cents=chance.choice((30, 90, 300, 300, 900))))
        elif chance.random() < 0.15:
            steps.append(Step("rest", thing, ms=chance.randrange(1_000, 5 * _MINUTE)))
        else:
            steps.append(Step(chance.choice(_WRITES), thing, group))
    return Script(name, tuple(steps))


def _limited(chance: random.Random, one: Submission) -> Submission:
    """Most runs have a budget of their own."""
    return one if chance.random() < 0.35 else replace(one, budget=own_budget(chance))


def own_budget(chance: random.Random) -> RunBudget:
    """The budget of one run: one to three limits."""
    given = {
        "tokens": chance.choice((200, 500, 1_500)), "model_calls": chance.randrange(0, 4),
        "effects": chance.randrange(0, 3),
    }  # fmt: skip
    limits = {name: given[name] for name in chance.sample(sorted(given), chance.choice((1, 1, 2, 3)))}
    then: Literal["ask", "stop"] = "ask" if chance.random() < 0.6 else "stop"
    tokens, calls, effects = (limits.get(name) for name in ("tokens", "model_calls", "effects"))
    return RunBudget(tokens=tokens, model_calls=calls, effects=effects, then=then)


def _declarations(chance: random.Random, found: tuple[Declaration, ...], zone: str) -> tuple[Declaration, ...]:
    """Shared budgets beside the limits of queues. The last declaration leaves room for everything."""
    declared = [replace(one, limits=_sharing(chance, one.limits, zone)) for one in found]
    last = replace(declared[-1].limits, budgets={
        name: replace(one, tokens=None if one.tokens is None else 10**6, model_calls=10**4)
        for name, one in declared[-1].limits.budgets.items()
    })  # fmt: skip
    return *declared, Declaration(last, chance.randrange(45, 75) * _MINUTE)


def _of_effects(chance: random.Random, found: tuple[Declaration, ...]) -> tuple[Declaration, ...]:
    """The same declarations; most of their budgets limit effects. The last one leaves room for everything."""
    declared: list[Declaration] = []
    for number, one in enumerate(found, 1):
        room, budgets = number == len(found), dict[str, SharedBudget]()
        for name, budget in one.limits.budgets.items():
            effects = 10**4 if room else chance.choice((None, 0, 1, 2, 3, 5))
            calls = budget.model_calls if budget.model_calls is None or room else budget.model_calls + 20
            budgets[name] = replace(budget, effects=effects, model_calls=calls)
        declared.append(replace(one, limits=replace(one.limits, budgets=budgets)))
    return tuple(declared)


def _sharing(chance: random.Random, limits: DeclaredLimits, zone: str) -> DeclaredLimits:
    budgets = {name: _shared(chance, name, zone) for name in ("all", "desk", "acme", "both") if chance.random() < 0.4}
    queues = {name: replace(queue, capacity=100_000) for name, queue in limits.queues.items()}
    return replace(limits, tools={}, queues=queues, budgets=budgets)


def _shared(chance: random.Random, name: str, zone: str) -> SharedBudget:
    tokens = chance.choice((None, 400, 1_000, 3_000))
    calls = chance.choice((None, 2, 4, 8)) if tokens is not None else chance.choice((1, 3, 6))
    return SharedBudget(
        agent="desk" if name in {"desk", "both"} else "", tenant=TENANTS[1] if name in {"acme", "both"} else "",
        tokens=tokens, model_calls=calls, zone=zone, then="wait" if chance.random() < 0.7 else "stop",
    )  # fmt: skip
