"""From a seed to a plan in which agents call a host. These seeds are apart, so that they change no other one."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from simulator.agents.hosts import LATE, OURS
from simulator.generator.calls import COMMON, dice, of_calls
from simulator.plan import KINDS, HostCall, Plan, Script, Step

HOSTED: Final = 1_000_000
"""The first seed of a plan with hosts."""
_APART: Final = frozenset({"backup", "restore"})


def with_hosts(plan: Plan, seed: int) -> Plan:
    """The plan with a host in most of its agents, and nothing else that takes the place of a plain step."""
    chance = dice("hosts", seed)
    scripts = tuple(_script(one, chance) for one in plan.scripts)
    used = {call.tool for script in scripts for step in script.steps for turn in step.turns for call in turn}
    kept = {step.kind for script in scripts for step in script.steps} | {"people", "review"}
    faults = [
        one for one in plan.faults if one.kind not in _APART and (not one.service or one.service.split()[0] in kept)
    ]
    for service in sorted(used & LATE.keys()):
        faults += of_calls(chance, service, COMMON)
    return replace(
        plan, seed=seed, scripts=scripts, faults=tuple(faults), permits=(), tellings=(), policy=False,
        reviews=chance.random() < 0.4, strangers=0,
    )  # fmt: skip


def _script(script: Script, chance: random.Random) -> Script:
    plain = [step for step in script.steps if step.kind in KINDS]
    if chance.random() < 0.2:
        return Script(script.id, tuple(plain))
    at = chance.randrange(min(2, len(plain) + 1))
    return Script(script.id, (*plain[:at], _host(chance, f"{script.id}-host"), *plain[at:]))


def _host(chance: random.Random, thing: str) -> Step:
    turns = tuple(tuple(_call(chance) for _ in range(chance.randrange(1, 4))) for _ in range(chance.randrange(1, 4)))
    return Step("host", thing, turns=turns, fails=chance.random() < 0.3)


_ODD: Final = (
    HostCall(""), HostCall("", again="after"), HostCall("", again="beside"), HostCall("", again="cancelled"),
    HostCall("", dropped=True), HostCall("", forgotten=True),
)  # fmt: skip


def _call(chance: random.Random) -> HostCall:
    odd = chance.choices(_ODD, (60, 10, 10, 10, 7, 3))[0]
    return replace(odd, tool=chance.choice((*LATE, *LATE, *OURS)), ms=chance.choice((0, 0, 20, 200, 4_000)))
