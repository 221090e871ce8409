"""From a seed to what is about time and processes. All of it is drawn apart from everything else."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from simulator.generator.calls import COMMON, dice, of_calls
from simulator.plan import TIMING, Fault, Plan, Script, Step, WorkerPlan
from simulator.services.network import STOPS

LABEL_FAULTS: Final = ("late", "late", "lost", "reply_lost", "error_after")
BUILD_FAULTS: Final = ("late", "reply_lost", "error_before", "refused")
DISPATCH_FAULTS: Final = ("refused", "busy", *COMMON)
DARK: Final = ("blackout", "asleep")
"""The machine is off, or its processes stand still, for minutes: nothing is attempted meanwhile."""

MINUTE: Final = 60_000
MODEL_DOWN_MS: Final = 8 * MINUTE
"""No outage of a model lasts longer: all of them are shorter than a question is asked for."""


def with_timing(scripts: tuple[Script, ...], seed: int) -> tuple[Script, ...]:
    """Some agents begin with something that is about time."""
    chance = dice("timing", seed)
    return tuple(
        replace(script, steps=(Step(chance.choice(TIMING), f"{script.id}-time"), *script.steps))
        if chance.random() < 0.12
        else script
        for script in scripts
    )


def with_insisting(scripts: tuple[Script, ...], seed: int) -> tuple[Script, ...]:
    """Some agents begin by asking for something that is answered later, and ask again when the answer is due."""
    chance = dice("insisting", seed)
    return tuple(
        replace(
            script, steps=(Step("insist", f"{script.id}-again", ms=chance.randrange(1, 10) * MINUTE), *script.steps)
        )
        if chance.random() < 0.015
        else script
        for script in scripts
    )


def of_timing(scripts: tuple[Script, ...], seed: int) -> tuple[Fault, ...]:
    """What goes wrong there."""
    chance = dice("timing faults", seed)
    used = {step.kind for script in scripts for step in script.steps}
    faults: list[Fault] = []
    if "relabel" in used:
        faults.extend(of_calls(chance, "label", LABEL_FAULTS))
        faults.extend(_late_at_first(chance, "label", 30_000))
    if "build" in used:
        faults.extend(of_calls(chance, "build", BUILD_FAULTS))
        faults.extend(_late_at_first(chance, "build", 3 * MINUTE))
    if "dispatch" in used:
        calls = chance.randrange(1, 5)
        faults.extend(
            Fault(chance.choice(DISPATCH_FAULTS), call, "dispatch", chance.randrange(100, 30_000))
            for call in range(1, calls + 1)
        )
        faults.extend(_dark(chance, chance.randrange(1, calls + 1), "dispatch"))
    if "consult" in used:
        faults.append(Fault("outage", 1, "model", chance.randrange(1_000, MODEL_DOWN_MS)))
        faults.extend(_dark(chance, chance.randrange(4, 9), "model"))
    return tuple(faults)


def _late_at_first(chance: random.Random, service: str, longest: int) -> list[Fault]:
    """The first call lands when its caller has given it up: that is the one that others follow."""
    return [Fault("late", 1, service, chance.randrange(11_000, longest))] if chance.random() < 0.7 else []


def _dark(chance: random.Random, call: int, service: str) -> list[Fault]:
    """At one call everything stands still for minutes."""
    if chance.random() < 0.3:
        return []
    return [Fault(chance.choice(DARK), call, service, chance.randrange(3, 20) * MINUTE)]


# --- processes that are stopped or die --------------------------------------------------------------------------------


HARMLESS: Final = frozenset({"pause", "slow", "clock_jump", "asleep"})
"""What may strike a process beside poison. All others may end it, and would be counted with its deaths."""


def with_processes(plan: Plan) -> Plan:
    """Some plans have a process that is stopped, or a run that kills its processes."""
    chance = dice("processes", plan.seed)
    drawn = chance.random()
    if drawn < 0.025 and not plan.reviews:  # who looks at an operation expects that no request stands still for hours
        return _stopped(plan, chance)
    if 0.03 < drawn < 0.06:
        return _poisoned(plan, chance, ("risk", "crash"))
    return _poisoned(plan, chance, ("creep",)) if 0.06 < drawn < 0.08 else plan


def _stopped(plan: Plan, chance: random.Random) -> Plan:
    """A process is stopped once, where others see whether it lives."""
    faults = (*plan.faults, Fault(chance.choice(sorted(STOPS)), 1, "haul", chance.randrange(30, 75) * MINUTE))
    return replace(_beginning_with(plan, chance, "haul"), faults=faults, workers=_in_sight(plan))


def _poisoned(plan: Plan, chance: random.Random, kinds: tuple[str, ...]) -> Plan:
    """One run kills each process that drives it, and nothing else ends a process. One worker asks for all runs."""
    faults = tuple(one for one in plan.faults if one.kind in HARMLESS or (one.service and one.kind != "blackout"))
    workers = _in_sight(plan)
    if chance.random() < 0.7:
        everything = tuple(range(len(plan.scripts)))
        workers = tuple(replace(one, scripts=() if number else everything) for number, one in enumerate(workers))
    return replace(_beginning_with(plan, chance, chance.choice(kinds)), faults=faults, workers=workers)


def _beginning_with(plan: Plan, chance: random.Random, kind: str) -> Plan:
    """One agent begins with that step."""
    at = chance.randrange(len(plan.scripts))
    return replace(plan, scripts=tuple(_first(one, kind, number == at) for number, one in enumerate(plan.scripts)))


def _first(script: Script, kind: str, here: bool) -> Script:
    step = Step(kind, f"{script.id}-harm")
    return replace(script, steps=(step, *script.steps)) if here else script


def _in_sight(plan: Plan) -> tuple[WorkerPlan, ...]:
    return tuple(replace(worker, contained=False) for worker in plan.workers)
