"""Whether a stated confidence can be believed: what was said beside how it turned out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast.model.intervals import Mean, Share, mean, weighted

BANDS: Final = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Where bands of confidence begin: narrow where confidences crowd, near 1."""


class Said(msgspec.Struct, frozen=True, gc=False):
    """One decision: the confidence that was stated, and whether it turned out right.

    `weight` is one over the chance with which anybody looked (see `intervals.weighted`).
    """

    confidence: float
    right: bool
    weight: float = 1.0


class Band(msgspec.Struct, frozen=True):
    """What was said between `start` and `end`: the mean confidence, and how often it was right."""

    start: float
    end: float
    stated: float
    right: Share

    @property
    def verdict(self) -> str:
        """Whether the interval of what was right has the stated confidence in it."""
        if self.right.high < self.stated:
            return "too sure"
        return "too modest" if self.right.low > self.stated else "fits"


class Reliability(msgspec.Struct, frozen=True):
    """How stated confidence and outcomes go together.

    `brier` is the mean squared distance of confidence and outcome, 0 at best, 0.25 for saying always one half (G. W.
    Brier, Monthly Weather Review 78 (1950), 1-3). `gap` is the expected calibration error over the bands: the mean
    distance of what was said and what was right. `by_chance` is the gap that perfect confidences would show with as few
    cases, because chance alone makes one: a gap that is not well above it shows nothing.
    """

    bands: tuple[Band, ...]
    brier: Mean
    gap: float | None
    by_chance: float | None


def reliability(said: Iterable[Said], bands: Sequence[float] = BANDS) -> Reliability:
    """The table of what was said and what was right, and its two summaries."""
    cases = list(said)
    found = [one for start, end in _spans(bands) if (one := _band(cases, start, end)) is not None]
    total = math.fsum(one.weight for one in cases)
    if not total:
        return Reliability((), mean(()), None, None)
    # The weights are scaled to a mean of 1, so that the mean of what they multiply is the weighted mean.
    scale = len(cases) / total
    squares = [scale * one.weight * (one.confidence - one.right) ** 2 for one in cases]
    parts = [(one, _weight(cases, one.start, one.end) / total) for one in found]
    gap = math.fsum(part * abs(one.stated - (one.right.rate or 0)) for one, part in parts)
    by_chance = math.fsum(part * _noise(one) for one, part in parts)
    return Reliability(tuple(found), mean(squares), gap, by_chance)


def band_of(confidence: float | None, bands: Sequence[float] = BANDS) -> str:
    """The name of the band that a confidence falls into; `not stated` where there is none."""
    if confidence is None:
        return "not stated"
    for start, end in reversed(_spans(bands)):
        if confidence >= start:
            return f"{start:g} to {end:g}"
    return f"below {bands[0]:g}"


def _spans(bands: Sequence[float]) -> list[tuple[float, float]]:
    return list(zip(bands, (*bands[1:], 1.0), strict=True))


def _inside(confidence: float, start: float, end: float) -> bool:
    return start <= confidence < end or (end >= 1 and confidence >= 1)


def _band(cases: list[Said], start: float, end: float) -> Band | None:
    inside = [one for one in cases if _inside(one.confidence, start, end)]
    if not inside:
        return None
    weight = math.fsum(one.weight for one in inside)
    stated = math.fsum(one.weight * one.confidence for one in inside) / weight
    return Band(start, end, stated, weighted((one.right, one.weight) for one in inside))


def _weight(cases: list[Said], start: float, end: float) -> float:
    return math.fsum(one.weight for one in cases if _inside(one.confidence, start, end))


def _noise(band: Band) -> float:
    """The mean distance of a share from its true rate by chance alone: that of a normal with the same spread."""
    return math.sqrt(2 / math.pi * band.stated * (1 - band.stated) / band.right.of)
