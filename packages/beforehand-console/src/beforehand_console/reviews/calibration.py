"""Thresholds that follow what people find: a stated rule, its bounds, and why it moved.

A threshold separates calls that go out by themselves from calls that people are asked about. On its asking side every
case is seen; on the other side a sample is. Both sides near it say how often something is wrong *there*, and that is
compared with the rate at which asking and not asking cost the same: the cost of a review over the cost of an error. So
the rule needs no model of anything.

- **Tighten** by one step when a little more than the goal is proven to be wrong just beyond the threshold.
- **Loosen** by one step when clearly less than the goal is proven to be wrong just before it.
- **Stay** otherwise: in doubt, inside the slack around the goal, with too few cases, and at a bound.

Beginning to ask takes less proof than ceasing to. What tired people approved proves nothing: loosening needs planted
cases caught, where any are planted. After a move only newer cases count, so one finding never moves a threshold twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Journal, Post
from beforehand.model.ids import stream
from beforehand.model.policy import Policy
from beforehand.model.thresholds import Move, Threshold
from beforehand.people.policy.judge import ThresholdPosition, threshold_positions, thresholds_in
from beforehand_console.reviews.alerts import DAY_MS
from beforehand_console.reviews.events import Review, last_reviews, weights
from beforehand_console.reviews.metrics import caught_of
from beforehand_console.reviews.reader import RecordedReviews, read_reviews
from beforehand_console.reviews.statistics import Share, corrected, weighted

Direction = Literal["tighten", "loosen", "stay"]
PROVEN: Final = 1.959964  # z of a two-sided 95 % interval: what loosening needs
LIKELY: Final = 1.281552  # z of a two-sided 80 % interval: what tightening needs
BLIND: Final = 0.5  # people who may catch less than this share of planted cases prove nothing


class ThresholdFinding(msgspec.Struct, frozen=True, gc=False):
    """The finding of one case: its value on the threshold's scale, and whether it was wrong.

    `weight`: one over the chance with which it was reviewed, had it gone by itself; 1 for what is always asked about.
    """

    value: float
    wrong: bool
    weight: float = 1.0


class Judgement(msgspec.Struct, frozen=True):
    """The value a threshold should have, and why. `beyond` went by itself, `before` was asked about; both near it."""

    direction: Direction
    at: float
    to: float
    why: str
    beyond: Share
    before: Share

    @property
    def moves(self) -> bool:
        """True if the threshold should change."""
        return self.to != self.at


def judged(
    threshold: Threshold, at: float, findings: Iterable[ThresholdFinding], catch: Share | None = None
) -> Judgement:
    """Judge a threshold whose value is `at` by the `findings` since its last move.

    `catch` is the share of planted cases that people caught meanwhile; None if none are planted.
    """
    near = [one for one in findings if is_near(threshold, one.value, at)]
    beyond = [(one.wrong, one.weight) for one in near if not asks(threshold, one.value, at)]
    before = [(one.wrong, one.weight) for one in near if asks(threshold, one.value, at)]
    shown = corrected(weighted(beyond), catch), corrected(weighted(before), catch)
    ceiling, floor = threshold.goal * (1 + threshold.slack), threshold.goal * (1 - threshold.slack)
    direction, why = _direction(threshold, (beyond, before), (floor, ceiling), catch)
    to = after_move(threshold, at, direction)
    if to == at and direction != "stay":
        why = f"{why}; it is at its bound"
    return Judgement(direction, at, to, why, *shown)


def asks(threshold: Threshold, value: float, at: float) -> bool:
    """True if a person is asked about a case with this `value` while the threshold is `at`."""
    return value < at if threshold.safe == "above" else value > at


def is_near(threshold: Threshold, value: float, at: float) -> bool:
    """True if a case is near enough to count for the threshold."""
    return abs(value - at) <= threshold.width


def after_move(threshold: Threshold, at: float, direction: Direction) -> float:
    """The threshold after a move: one step on, and within its bounds."""
    if direction == "stay":
        return at
    up = (direction == "tighten") == (threshold.safe == "above")
    return round(min(threshold.most, max(threshold.least, at + (threshold.step if up else -threshold.step))), 12)


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
    return "stay", "the findings do not prove that it is wrong"


# The values of thresholds, what people found near them, and the record of every move in the ledger `thresholds/NAME`.


MEMORY_DAYS: Final = 90.0
"""Days after which a finding is forgotten: agents change."""


class Proposal(msgspec.Struct, frozen=True):
    """A proposal for one threshold. `number` is how many moves are on record, `since_ms` when the last was."""

    name: str
    number: int
    since_ms: int
    judgement: Judgement


async def proposals(reader: JournalReader, policy: Policy, now_ms: int) -> list[Proposal]:
    """A proposal for each threshold, by what people found near it since it last moved."""
    positions = await threshold_positions(reader.journal)
    reviews = (
        await read_reviews(reader, now_ms - int(MEMORY_DAYS * DAY_MS)) if policy.thresholds else RecordedReviews([], [])
    )
    planted = [one for one in reviews.looks if one.kind == "planted"]
    found: list[Proposal] = []
    for name, threshold in policy.thresholds.items():
        one = positions.get(name) or ThresholdPosition(0, 0, threshold.start)
        since = max(one.since_ms, now_ms - int(MEMORY_DAYS * DAY_MS))
        at = min(threshold.most, max(threshold.least, one.at))
        judgement = judged(
            threshold, at, findings(threshold, policy, reviews, since), caught_of(planted) if planted else None
        )
        found.append(Proposal(name, one.number, since, judgement))
    return found


def findings(threshold: Threshold, policy: Policy, reviews: RecordedReviews, since_ms: int) -> list[ThresholdFinding]:
    """The findings from `since_ms` on about calls that this threshold decided, with their weights."""
    rules = _rules(threshold, policy)
    looks = [one for one in reviews.looks if one.answered_ms >= since_ms]
    stands_for = weights(looks, [one for one in reviews.passed if one.at_ms >= since_ms])
    return [
        ThresholdFinding(value, one.overridden, stands_for[one.item, one.kind])
        for one in last_reviews(looks)
        if one.judges and one.traits.rule in rules and (value := _value(threshold, one)) is not None
    ]


def _rules(threshold: Threshold, policy: Policy) -> set[str]:
    """The first rule that names it, and all after that: an earlier rule decides without it."""
    names = [one.name for one in policy.rules]
    first = next((n for n, one in enumerate(policy.rules) if threshold.name in thresholds_in(one.when)), len(names))
    return {*names[first:], "default"}


def _value(threshold: Threshold, look: Review) -> float | None:
    return look.traits.confidence if threshold.of == "confidence" else look.traits.amount


async def apply(journal: Journal, proposed: Sequence[Proposal], by: str) -> list[Move]:
    """Put the moves on record, each once: of two people who apply the same one, the first does. Returns what moved.

    An open app keeps the thresholds with which it began; the next app that opens finds them moved.
    """
    moved: list[Move] = []
    for one in proposed:
        if not one.judgement.moves:
            continue
        move = Move(one.name, one.judgement.at, one.judgement.to, by, one.judgement.why)
        body = written(move)
        entry = await journal.commit(Post(stream("thresholds", one.name), str(one.number + 1), body))
        if entry.fresh:
            moved.append(move)
        else:
            await journal.commit(Post(stream("thresholds", one.name), "", body))
    return moved
