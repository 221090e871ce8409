"""From a seed to processes that come to harm: see `processes.py`. All of it is drawn apart from everything else."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from simulator.draw_calls import dice
from simulator.draw_timing import MINUTE
from simulator.network import STOPS
from simulator.plan import Fault, Plan, Script, Step, WorkerPlan
from simulator.processes import POISON

HARMLESS: Final = frozenset({"pause", "slow", "clock_jump", "asleep"})
"""What may strike a process beside poison. All others may end it, and would be counted with its deaths."""


def with_processes(plan: Plan) -> Plan:
    """Some plans have a process that is stopped, or a run that kills its processes."""
    chance = dice("processes", plan.seed)
    drawn = chance.random()
    if drawn < 0.025 and not plan.reviews:  # who looks at an operation expects that no request stands still for hours
        return _stopped(plan, chance)
    return _poisoned(plan, chance) if 0.03 < drawn < 0.06 else plan


def _stopped(plan: Plan, chance: random.Random) -> Plan:
    """A process is stopped once, where others see whether it lives."""
    faults = (*plan.faults, Fault(chance.choice(sorted(STOPS)), 1, "haul", chance.randrange(30, 75) * MINUTE))
    return replace(_beginning_with(plan, chance, "haul"), faults=faults, workers=_in_sight(plan))


def _poisoned(plan: Plan, chance: random.Random) -> Plan:
    """One run kills each process that drives it, and nothing else ends a process. One worker asks for all runs."""
    faults = tuple(one for one in plan.faults if one.kind in HARMLESS or (one.service and one.kind != "blackout"))
    workers = _in_sight(plan)
    if chance.random() < 0.7:
        everything = tuple(range(len(plan.scripts)))
        workers = tuple(replace(one, scripts=() if number else everything) for number, one in enumerate(workers))
    return replace(_beginning_with(plan, chance, chance.choice(POISON)), faults=faults, workers=workers)


def _beginning_with(plan: Plan, chance: random.Random, kind: str) -> Plan:
    """One agent begins with that step."""
    at = chance.randrange(len(plan.scripts))
    return replace(plan, scripts=tuple(_first(one, kind, number == at) for number, one in enumerate(plan.scripts)))


def _first(script: Script, kind: str, here: bool) -> Script:
    step = Step(kind, f"{script.id}-harm")
    return replace(script, steps=(step, *script.steps)) if here else script


def _in_sight(plan: Plan) -> tuple[WorkerPlan, ...]:
    return tuple(replace(worker, contained=False) for worker in plan.workers)
