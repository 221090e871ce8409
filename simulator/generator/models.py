"""From a seed to a plan with models that have limits. These seeds are a range of their own, so that others stay."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from beforehand.queues.call_limits import ModelLimit
from beforehand.queues.limits import DeclaredLimits, TenantLimits
from simulator.agents.budgets import QUERY
from simulator.agents.models import MODEL_FAULTS, MODELS, ROUTES
from simulator.generator.calls import dice
from simulator.generator.queues import TENANTS
from simulator.plan import HOLDS_UP, Fault, Plan, Script, Step

ROUTED: Final = 7_000_000
"""The first seed of a plan in which runs ask models by their names."""


def with_models(plan: Plan, seed: int) -> Plan:
    """The plan of a seed with budgets, in which most questions go to models with limits.

    Half of the plans have no budgets. Some have no faults that hold a process up, so that rates can be checked closely.
    """
    chance = dice("models", seed)
    scripts = tuple(_script(chance, script) for script in plan.scripts)
    submissions, declarations = plan.submissions, plan.declarations
    if chance.random() < 0.5:
        submissions = tuple(replace(one, budget=None) for one in submissions)
        declarations = tuple(replace(one, limits=replace(one.limits, budgets={})) for one in declarations)
    faults = plan.faults
    if chance.random() < 0.4:
        faults = tuple(one for one in faults if one.kind not in HOLDS_UP)
    models, tenants = _limits(chance), _shares(chance)
    declarations = tuple(replace(one, limits=_limited(one.limits, models, tenants)) for one in declarations)
    return replace(
        plan, seed=seed, scripts=scripts, submissions=submissions, declarations=declarations, undeclared=(),
        faults=faults + _faults(chance),
    )  # fmt: skip


def _script(chance: random.Random, script: Script) -> Script:
    return replace(script, steps=tuple(_routed(chance, step, at) for at, step in enumerate(script.steps)))


def _routed(chance: random.Random, step: Step, at: int) -> Step:
    """Questions ask models, and some other steps become questions."""
    drawn, route = chance.random(), chance.choice(tuple(ROUTES))
    if step.kind == QUERY and drawn < 0.9:
        return replace(step, route=route)
    if step.kind == "rest" or drawn < 0.6 or step.kind == QUERY:
        return step
    return Step(QUERY, f"{step.thing}-{at}", step.group, cents=chance.choice((30, 90, 300, 900)), route=route)


def _limits(chance: random.Random) -> dict[str, ModelLimit]:
    """Limits of one model or of both, with rates that let every run end in some hours."""
    return {name: _limit(chance) for name in chance.sample(MODELS, chance.choice((1, 1, 2)))}


def _limit(chance: random.Random) -> ModelLimit:
    rate, tokens = chance.choice(("", "", "12/minute", "1/second")), chance.choice(("", "", "3000/minute"))
    at_once = chance.choice((None, 1, 1, 2)) if rate or tokens else chance.choice((1, 1, 2))
    burst = chance.choice((1, 2)) if rate and at_once != 1 else 1
    return ModelLimit(at_once, rate, burst, tokens=tokens, token_burst=chance.choice((1, 600)) if tokens else 1)


def _shares(chance: random.Random) -> dict[str, TenantLimits]:
    """Shares of tenants in the models."""
    return {
        name: TenantLimits(models={model: ModelLimit(1) for model in MODELS if chance.random() < 0.5})
        for name in (*TENANTS[1:], "*")
        if chance.random() < 0.3
    }


def _limited(limits: DeclaredLimits, models: dict[str, ModelLimit], shares: dict[str, TenantLimits]) -> DeclaredLimits:
    """Every process knows from its first call on which models have a limit."""
    tenants = limits.tenants | {
        name: replace(limits.tenants.get(name, TenantLimits()), models=share.models) for name, share in shares.items()
    }
    return replace(limits, models=models, tenants=tenants)


def _faults(chance: random.Random) -> tuple[Fault, ...]:
    """Each model has a time of its own in which much goes wrong, and beyond it little does."""
    found: list[Fault] = []
    for model in MODELS:
        kinds, rate, first = chance.sample(MODEL_FAULTS, 3), chance.choice((0.1, 0.4)), chance.randrange(1, 15)
        kinds += ["asks_to_wait"] * chance.randrange(2)
        for call in range(1, 50):
            if chance.random() < (0.85 if first <= call < first + 8 and rate > 0.1 else rate):
                kind = chance.choice(kinds)
                ms = chance.randrange(500, 60_000) if kind == "asks_to_wait" else 0
                found.append(Fault(kind, call, f"model {model}", ms=ms))
    return tuple(found)
