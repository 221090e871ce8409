"""From a seed to what is asked of offices, and what goes wrong on the way to them, in them, and on the way back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from simulator.agents.deferred import ASYNCHRONOUS, TOOLS_OF
from simulator.generator.calls import COMMON, dice, of_calls
from simulator.plan import LATER, Fault, Script, Step
from simulator.services.service import CATALOGUE

OFFICE_FAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    service: (*COMMON, *(("duplicate",) if CATALOGUE[service].key else ())) for service in sorted(ASYNCHRONOUS)
}
"""What may become of a call of those who accept now and answer later."""

CASE_FAULTS: Final = ("declined", "at_once", "slowly", "number_again")
"""What may become of an accepted request: an office refuses it after all, decides it before its own response has
travelled, or long after the deadline; or it gives out a number twice, and then no run learns of the second case."""

HOOK_FAULTS: Final = ("never", "overdue", "twice", "shuffled", "restated", "stray", "other_words")
"""What may become of the webhook with the answer."""

RECALLS: Final = ("recalled", "recalled_at_once")
"""How a success may be taken back: a while after it was heard of, or with the acknowledgement."""

BESIDE: Final = 20
"""The group of requests that are made side by side."""


def with_answers(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents ask for something that is only accepted, one step before their last."""
    return tuple(
        Script(script.id, (*script.steps[:-2], _later(chance, number), script.steps[-1]))
        if chance.random() < 0.3
        else script
        for number, script in enumerate(scripts)
    )


def _later(chance: random.Random, number: int) -> Step:
    return Step(chance.choice(LATER), f"a{number}", by_model=chance.random() < 0.4)


def with_requests_beside(scripts: tuple[Script, ...], seed: int) -> tuple[Script, ...]:
    """Now and then an agent ends with several requests at once, whose answers come while others are being recorded."""
    chance = dice("requests beside", seed)
    alone = [number for number, script in enumerate(scripts) if not any(step.group for step in script.steps)]
    if chance.random() >= 0.06 or not alone:
        return scripts
    at = chance.choice(alone)
    asked = tuple(
        Step(chance.choice(sorted(ASYNCHRONOUS)), f"b{number}", BESIDE, by_model=chance.random() < 0.4)
        for number in range(chance.randrange(3, 7))
    )
    return tuple(
        replace(script, steps=(*script.steps, *asked)) if number == at else script
        for number, script in enumerate(scripts)
    )


def of_offices(chance: random.Random, scripts: tuple[Script, ...]) -> tuple[Fault, ...]:
    """What goes wrong on the way to an office, in it, and on the way back."""
    faults: list[Fault] = []
    for service in _used(scripts):
        faults.extend(of_calls(chance, service, OFFICE_FAULTS[service]))
        faults.extend(of_calls(chance, f"{service} case", CASE_FAULTS))
        faults.extend(of_calls(chance, f"{service} hook", HOOK_FAULTS))
    return tuple(faults)


def of_recalls(seed: int, scripts: tuple[Script, ...]) -> tuple[Fault, ...]:
    """Which successes of offices are taken back after they were heard of."""
    chance = dice("recalls", seed)
    return tuple(
        Fault("recalled", call, f"{service} recall", chance.choice((0, 500, 60_000, 10 * 60_000)))
        for service in _used(scripts)
        for call in (1, 2)
        if chance.random() < 0.3
    )


def of_requests_beside(seed: int, scripts: tuple[Script, ...]) -> tuple[Fault, ...]:
    """Most of them are decided at once, and taken back as soon as the success is acknowledged."""
    chance = dice("answers beside", seed)
    asked = sorted({step.kind for script in scripts for step in script.steps if step.group == BESIDE})
    drawn = [
        (Fault("at_once", call, f"{service} case"), Fault("recalled_at_once", call, f"{service} recall"))
        for service in asked
        for call in range(1, 8)
    ]
    return tuple(fault for pair in drawn for fault in pair if chance.random() < 0.8)


def _used(scripts: tuple[Script, ...]) -> list[str]:
    """The offices that some agent asks."""
    asked = {kind for script in scripts for step in script.steps for kind in (step.kind, *step.parts)}
    return sorted({TOOLS_OF[kind] for kind in asked if kind in TOOLS_OF})
