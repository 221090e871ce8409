"""What may become of the calls of a service, as a seed draws it."""

from __future__ import annotations

import random
from typing import Final

from simulator.plan import Fault

COMMON: Final = ("refused", "lost", "reply_lost", "late", "error_before", "error_after", "rejected", "busy",
                  "garbage", "outage")  # fmt: skip
"""What may become of a call of any service."""


def dice(what: str, seed: int) -> random.Random:
    """Chance for one matter of a seed: what is drawn there changes nothing elsewhere."""
    return random.Random(f"{what}/{seed}")  # noqa: S311 - a simulation is no secret


def of_calls(chance: random.Random, service: str, kinds: tuple[str, ...]) -> list[Fault]:
    """A random set of kinds, at a random rate."""
    rate = 10 ** chance.uniform(-1.5, 0)
    chosen = [kind for kind in kinds if chance.random() < 0.5]
    calls = [call for call in range(1, 16) if chosen and chance.random() < rate]
    return [Fault(chance.choice(chosen), call, service, chance.randrange(100, 30_000)) for call in calls]
