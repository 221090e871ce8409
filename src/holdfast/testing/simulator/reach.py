"""What simulations have reached: without it a run that never met a fault would count as a proof."""

from __future__ import annotations

from collections import Counter

import msgspec


class Reach(msgspec.Struct):
    """Counts over one simulation, or over many."""

    points: Counter[str] = msgspec.field(default_factory=Counter[str])
    faults: Counter[str] = msgspec.field(default_factory=Counter[str])
    records: Counter[str] = msgspec.field(default_factory=Counter[str])
    endings: Counter[str] = msgspec.field(default_factory=Counter[str])
    meetings: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Which fault met which kind of tool in which state of its operation."""

    def point(self, label: str) -> None:
        """A process came by a named point."""
        self.points[label] += 1

    def fault(self, kind: str, where: str) -> None:
        """A fault struck."""
        self.faults[f"{kind} @ {where}"] += 1

    def add(self, other: Reach) -> None:
        """Count another simulation in."""
        for name in self.__struct_fields__:
            getattr(self, name).update(getattr(other, name))
