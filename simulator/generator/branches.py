"""From a seed to what agents do side by side, and within a time. All of it is drawn apart from everything else."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from simulator.generator.calls import dice
from simulator.plan import LIMITED, Script, Step

SIDE_BY_SIDE: Final = 30
"""The group of steps that are taken side by side."""

LIMITS_MS: Final = (50, 500, 3_000, 20_000, 90_000)


def with_limits(scripts: tuple[Script, ...], seed: int, *, told: bool) -> tuple[Script, ...]:
    """Now and then agents do something under a time limit.

    Where people have something to say (`told`), nothing is done side by side in it: the checker knows who has heard a
    message by the branches of the whole run.
    """
    chance, way_out = dice("limits", seed), dice("way out", seed)
    if chance.random() >= 0.08:
        return scripts
    parts = [part for part in LIMITED if not (told and part == "beside")]
    flat = [part for part in parts if part != "within"]

    def limited(script: Script, number: int) -> Script:
        if chance.random() < 0.4:
            return script
        at = chance.randrange(len(script.steps) + 1)
        drawn = tuple(chance.choice(parts) for _ in range(chance.choice((1, 2, 2, 3))))
        last = tuple(way_out.choice(flat) for _ in range(way_out.choice((0, 1, 2))))
        step = Step("limit", f"l{number}", parts=drawn, way_out=last, ms=chance.choice(LIMITS_MS))
        return replace(script, steps=(*script.steps[:at], step, *script.steps[at:]))

    return tuple(limited(script, number) for number, script in enumerate(scripts))


def with_branches(scripts: tuple[Script, ...], seed: int) -> tuple[Script, ...]:
    """Now and then agents take some of their steps side by side, whatever these are."""
    chance = dice("branches", seed)
    if chance.random() >= 0.08:
        return scripts

    def branching(script: Script) -> Script:
        if any(step.group for step in script.steps):
            return script
        count = min(chance.randrange(2, 5), len(script.steps))
        at = chance.randrange(len(script.steps) - count + 1)
        beside = tuple(replace(step, group=SIDE_BY_SIDE) for step in script.steps[at : at + count])
        return replace(script, steps=(*script.steps[:at], *beside, *script.steps[at + count :]))

    return tuple(branching(script) for script in scripts)
