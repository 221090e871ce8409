"""Thresholds that follow what people find: a stated rule, its bounds, and why it moved.

A threshold parts what goes by itself from what is asked about. On its asking side every case is seen; on the other side
a sample is. Both sides near it say how often something is wrong *there*, and that is compared with the rate at which
asking and not asking cost the same: the cost of a look over the cost of an error. So the rule needs no model of
anything.

- **Tighten** by one step when a little more than the goal is proven to be wrong just beyond the threshold.
- **Loosen** by one step when clearly less than the goal is proven to be wrong just before it.
- **Stay** otherwise: in doubt, inside the slack around the goal, with too few cases, and at a bound.

Beginning to ask takes less proof than ceasing to. What tired people approved proves nothing: loosening needs planted
cases caught, where any are planted. After a move only newer cases count, so one finding never moves a threshold twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.model.intervals import Share, corrected, weighted
from holdfast.model.thresholds import Direction, Threshold

PROVEN: Final = 1.959964  # z of a two-sided 95 % interval: what loosening needs
LIKELY: Final = 1.281552  # z of a two-sided 80 % interval: what tightening needs
BLIND: Final = 0.5  # people who may catch less than this share of what is planted are no measure of anything


class Finding(msgspec.Struct, frozen=True, gc=False):
    """What was found about one case: its value on the threshold's scale, and whether it was wrong.

    `weight`: one over the chance with which it was looked at, had it gone by itself; 1 for what is always asked about.
    """

    value: float
    wrong: bool
    weight: float = 1.0


class Judgement(msgspec.Struct, frozen=True):
    """Where a threshold should stand, and why. `beyond` went by itself, `before` was asked about; both near it."""

    direction: Direction
    at: float
    to: float
    why: str
    beyond: Share
    before: Share

    @property
    def moves(self) -> bool:
        """Whether it should stand elsewhere than it does."""
        return self.to != self.at


def judged(threshold: Threshold, at: float, findings: Iterable[Finding], catch: Share | None = None) -> Judgement:
    """What `findings` since the last move say about a threshold that stands `at`.

    `catch` is how much of what was planted people caught meanwhile; None where nothing is planted.
    """
    near = [one for one in findings if threshold.beside(one.value, at)]
    beyond = [(one.wrong, one.weight) for one in near if not threshold.asks(one.value, at)]
    before = [(one.wrong, one.weight) for one in near if threshold.asks(one.value, at)]
    shown = corrected(weighted(beyond), catch), corrected(weighted(before), catch)
    ceiling, floor = threshold.goal * (1 + threshold.slack), threshold.goal * (1 - threshold.slack)
    direction, why = _direction(threshold, (beyond, before), (floor, ceiling), catch)
    to = threshold.moved(at, direction)
    if to == at and direction != "stay":
        why = f"{why}; it stands at its bound"
    return Judgement(direction, at, to, why, *shown)


_Cases = list[tuple[bool, float]]


def _direction(
    threshold: Threshold, sides: tuple[_Cases, _Cases], goal: tuple[float, float], catch: Share | None
) -> tuple[Direction, str]:
    beyond, before = sides
    floor, ceiling = goal
    if len(beyond) >= threshold.enough:
        least_wrong = corrected(weighted(beyond, LIKELY), catch).low
        if least_wrong > ceiling:
            return (
                "tighten",
                f"at least {least_wrong:.1%} of what went by itself was wrong, the goal is {threshold.goal:.1%}",
            )
    if len(before) >= threshold.enough:
        most_wrong = corrected(weighted(before, PROVEN), catch).high
        if most_wrong < floor:
            if catch is not None and catch.low < BLIND:
                return "stay", f"too few planted cases were caught to believe what was approved: {catch}"
            return (
                "loosen",
                f"at most {most_wrong:.1%} of what was asked about was wrong, the goal is {threshold.goal:.1%}",
            )
    if max(len(beyond), len(before)) < threshold.enough:
        return "stay", f"{len(beyond)} and {len(before)} cases, and a move takes {threshold.enough}"
    return "stay", "what was found does not prove that it stands wrong"
