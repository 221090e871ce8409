"""The seeds that `make test` simulates and compares: 200 of them, of every kind of plan. `make deep` draws others."""

from simulator.generator.plans import RANGES


def two_hundred() -> list[int]:
    """Twelve seeds of each kind of plan that has a range of its own, and ordinary ones for the rest."""
    apart = [first + number for first in RANGES.values() for number in range(12) if first]
    return [*range(200 - len(apart)), *apart]
