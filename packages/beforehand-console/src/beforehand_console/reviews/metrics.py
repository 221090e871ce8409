"""Figures about people and the agent they judge: override rates by group, and the worth of stated confidence.

An override rate is a share of reviews, not of errors: it counts what people found, and people miss things. If cases
are planted, `caught` says how much, and `wrong` adds what was missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from beforehand_console.reviews.events import (
    Kind,
    Review,
    UnreviewedCall,
    groups_of,
    is_drawn,
    known_wrong,
    last_reviews,
    weights,
)
from beforehand_console.reviews.statistics import (
    Reliability,
    Share,
    StatedConfidence,
    corrected,
    median,
    reliability,
    share,
    weighted,
)


class MetricsGroup(msgspec.Struct, frozen=True):
    """The reviews of one tool, band or reviewer. `median_ms` is from the question to the answer."""

    name: str
    overrides: Share
    median_ms: float | None


class ReviewMetrics(msgspec.Struct, frozen=True):
    """Figures of reviews. `since_ms`: those from that wall clock on; `passed`: operations sent without a person.

    `overrides` is of what people reviewed. `wrong` is of what was decided, with what was sent unseen: samples and
    shadow reviews represent it, and what people miss is added where planted cases say how much that is. `unseen` of the
    operations that were sent are not represented: `wrong` says nothing about these.
    """

    since_ms: int
    looks: int
    passed: int
    unseen: int
    undone: int
    expired: int
    overrides: Share
    wrong: Share
    caught: Share
    by_tool: tuple[MetricsGroup, ...]
    by_confidence: tuple[MetricsGroup, ...]
    by_amount: tuple[MetricsGroup, ...]
    by_reviewer: tuple[MetricsGroup, ...]
    confidence: Reliability


def review_metrics(looks: Sequence[Review], passed: Sequence[UnreviewedCall], since_ms: int = 0) -> ReviewMetrics:
    """Compute all figures from the reviews since `since_ms`. Pure."""
    looks = [one for one in looks if one.answered_ms >= since_ms]
    passed = [one for one in passed if one.at_ms >= since_ms]
    judged = [one for one in looks if one.judges]
    decided = [one for one in last_reviews(looks) if one.judges]
    stands_for = weights(looks, passed)
    everything = [(one.overridden, stands_for[one.item, one.kind]) for one in decided]
    undone = known_wrong(looks, passed)
    caught = caught_of(looks)
    return ReviewMetrics(
        since_ms=since_ms,
        looks=len(judged),
        passed=len(passed),
        unseen=unseen_of(decided, passed),
        undone=sum(one.undone for one in passed),
        expired=sum(one.said == "expired" for one in looks),
        overrides=share(sum(one.overridden for one in decided), len(decided)),
        wrong=corrected(weighted([*everything, *((True, 1.0) for _ in undone)]), caught if caught.of else None),
        caught=caught,
        by_tool=_grouped(decided, "tool"),
        by_confidence=_grouped(decided, "confidence"),
        by_amount=_grouped(decided, "amount"),
        by_reviewer=_grouped(judged, "reviewer"),
        confidence=reliability(_stated(decided, undone, stands_for)),
    )


def unseen_of(decided: Iterable[Review], passed: Iterable[UnreviewedCall]) -> int:
    """How many sent operations are not represented: none was drawn from their stratum, and they were not undone."""
    drawn = {one.traits.stratum for one in decided if is_drawn(one)}
    return sum(not one.undone and one.traits.stratum not in drawn for one in passed)


def caught_of(looks: Iterable[Review]) -> Share:
    """The share of planted cases that people caught."""
    planted = [one for one in looks if one.kind == "planted"]
    return share(sum(one.overridden for one in planted), len(planted))


def _grouped(looks: Sequence[Review], way: str) -> tuple[MetricsGroup, ...]:
    """The groups, those with most reviews first."""
    groups: dict[str, list[Review]] = {}
    for one in looks:
        groups.setdefault(groups_of(one)[way], []).append(one)
    return tuple(
        _group(name, found) for name, found in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    )


def _group(name: str, looks: Sequence[Review]) -> MetricsGroup:
    took = [one.answered_ms - one.asked_ms for one in looks]
    return MetricsGroup(name, share(sum(one.overridden for one in looks), len(looks)), median(took))


def _stated(
    decided: Sequence[Review], undone: Sequence[UnreviewedCall], stands_for: Mapping[tuple[str, Kind], float]
) -> Iterable[StatedConfidence]:
    """Stated confidence beside how it turned out, by people's answers and by what was undone."""
    for one in decided:
        if one.traits.confidence is not None:
            yield StatedConfidence(one.traits.confidence, not one.overridden, stands_for[one.item, one.kind])
    for left in undone:
        if left.traits.confidence is not None:
            yield StatedConfidence(left.traits.confidence, right=False)
