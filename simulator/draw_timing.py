"""From a seed to what is about time: see `timing.py`. All of it is drawn apart from everything else."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from simulator.draw_calls import COMMON, dice, of_calls
from simulator.plan import TIMING, Fault, Script, Step

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
