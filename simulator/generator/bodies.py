"""From a seed to a plan whose bodies do several things at once. These seeds are a range of their own."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from simulator.agents.families import FAMILY
from simulator.generator.branches import LIMITS_MS, SIDE_BY_SIDE
from simulator.generator.calls import dice, of_calls
from simulator.plan import BODY, ChildPlan, Fault, Plan, QueueOrder, Script, Step

BODIES: Final = 8_000_000
"""The first seed of a plan with tasks beside their body, and with transactions that time limits end."""
_APART: Final = frozenset({"backup", "restore", "disk_broken"})
_MINUTE: Final = 60_000
_BODY: Final = ("look", "pay", "note", "transfer", "think", "rest", "rest", "family", "trip", "trip", "limit", "limit")
_LIMIT: Final = ("look", "pay", "transfer", "rest", "family", "trip", "trip", "trip", "limit")
"""What is done inside a time limit."""
_TRIP: Final = ("look", "rest", "seat", "room", "berth", "ship", "shorter")
"""What is done inside a transaction, and in a limit in it. A `ship` is refused there, for nothing undoes it."""
_PARTS: Final = ("seat", "room", "gift", "both", "berth", "berth", "post", "pay")
_LOST: Final = ("reply_lost", "reply_lost", "late", "error_after", "lost", "busy", "rejected")
"""What leaves open whether a call happened, and a little of what does not."""
_LOSING: Final = ("seat", "room", "gift", "berth", "unseat", "leave", "unberth", "gift_back", "take", "post", "pay")
_STRIKES: Final = ("kill", "kill", "shutdown", "pause", "power", "slow", "journal_lost")


def with_bodies(plan: Plan, seed: int) -> Plan:
    """The plan with steps of all kinds at once, over a journal that may be slower than they are."""
    chance = dice("bodies", seed)
    scripts = tuple(Script(script.id, _body(chance, script.id)) for script in plan.scripts)
    faults = [fault for fault in plan.faults if fault.kind not in _APART and not fault.service]
    faults += [
        Fault(chance.choice(_STRIKES), chance.randrange(1, 300), ms=chance.randrange(500, _MINUTE))
        for _ in range(chance.choice((0, 1, 2, 4)))
    ]
    for service in _LOSING:
        faults += of_calls(chance, service, _LOST)
    settings = plan.settings | chance.choice(({}, {"hold_ms": 500}, {"hold_ms": 5_000}))
    return replace(
        plan, seed=seed, scripts=scripts, faults=tuple(faults), settings=settings, permits=(), tellings=(),
        policy=False, reviews=False, strangers=0, disk_ms=chance.choice((2, 20, 150, 600)),
        orders=tuple(order for script in scripts for order in _orders(chance, script.id)),
    )  # fmt: skip


def _body(chance: random.Random, name: str) -> tuple[Step, ...]:
    """A few groups of steps: side by side in branches, or in tasks beside the body."""
    groups = (_group(chance, f"{name}-{at}", BODY + at, _BODY) for at in range(chance.choice((1, 2, 2, 3))))
    return tuple(step for group in groups for step in group)


def _group(chance: random.Random, name: str, group: int, kinds: tuple[str, ...], depth: int = 0) -> tuple[Step, ...]:
    count = chance.choice((1, 2, 2, 3, 4)) if depth < 2 else 1
    group = SIDE_BY_SIDE if chance.random() < 0.3 else group
    kinds = kinds if depth < 3 else tuple(kind for kind in kinds if kind not in {"limit", "trip"})
    return tuple(_step(chance, chance.choice(kinds), f"{name}{'abcd'[at]}", group, depth) for at in range(count))


def _step(chance: random.Random, kind: str, thing: str, group: int, depth: int) -> Step:
    match kind:
        case "limit" | "shorter":
            inside = _group(chance, thing, BODY, _LIMIT if kind == "limit" else _TRIP, depth + 1)
            return Step("limit", thing, group, fails=chance.random() < 0.4, ms=chance.choice(LIMITS_MS), inside=inside)
        case "trip":
            parts = tuple(chance.choice(_PARTS) for _ in range(chance.choice((1, 2, 3))))
            inside = _group(chance, thing, BODY, _TRIP, depth + 1) if chance.random() < 0.4 else ()
            return Step(kind, thing, group, parts=parts, inside=inside, fails=chance.random() < 0.4)
        case "rest":
            return Step(kind, thing, group, ms=round(10 ** chance.uniform(0, 4.5)))
        case "family":
            child = Step(chance.choice(("pay", "note", "rest")), f"{thing}-in", ms=chance.randrange(1, 5_000))
            return Step(FAMILY, thing, group, children=(ChildPlan((child,), joined=chance.random() < 0.6),))
        case _:
            return Step(kind, thing, group)


def _orders(chance: random.Random, run: str) -> list[QueueOrder]:
    """Now and then a person cancels a run: then nothing of it is sent again by itself."""
    return [QueueOrder(run, "cancel", chance.randrange(2 * _MINUTE))] if chance.random() < 0.15 else []
