"""Shares and means with honest intervals: what a handful of cases can show, and what it cannot.

Every interval here is for 95 % unless `z` says otherwise. An interval assumes that the cases were drawn without looking
at how they ended; where they were drawn with different chances, weigh each by one over its chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

Z: Final = 1.959964  # two-sided 95 %


class Share(msgspec.Struct, frozen=True):
    """A part of some cases, with its interval. `rate` is None where there are no cases: then anything may be true.

    `of` counts cases; a weighted share counts what they are worth, see `weighted`.
    """

    hits: float
    of: float
    rate: float | None
    low: float
    high: float

    def __str__(self) -> str:
        if self.rate is None:
            return "no cases"
        return f"{self.rate:.1%} ({self.low:.1%} to {self.high:.1%}, n={self.of:.0f})"


class Mean(msgspec.Struct, frozen=True):
    """A mean of `of` numbers, with the interval that their own spread gives. Two or fewer have none."""

    of: int
    mean: float | None
    low: float | None = None
    high: float | None = None


def share(hits: float, of: float, z: float = Z) -> Share:
    """`hits` of `of` with the Wilson score interval.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22 (1927), 209-212. Chosen because it stays within 0 and 1 and covers about what it
    says for few cases and rates near 0, which are the rule here: L. D. Brown, T. T. Cai and A. DasGupta, "Interval
    estimation for a binomial proportion", Statistical Science 16 (2001), 101-133.
    """
    assert 0 <= hits <= of + 1e-9, (hits, of)
    if of <= 0:
        return Share(0, 0, None, 0.0, 1.0)
    rate, spread = min(1.0, hits / of), z * z / of
    middle = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    # At the ends the formula gives exactly 0 or 1; rounding must not leave the rate outside its own interval.
    return Share(hits, of, rate, max(0.0, min(rate, middle - half)), min(1.0, max(rate, middle + half)))


def weighted(cases: Iterable[tuple[bool, float]], z: float = Z) -> Share:
    """The share of hits among (hit, weight), where each case stands for `weight` cases like it.

    The weight of a case is one over the chance with which it was reviewed: D. G. Horvitz and D. J. Thompson, Journal
    of the American Statistical Association 47 (1952), 663-685. Unequal weights tell less than so many equal ones; the
    interval is that of L. Kish's effective number of cases ("Survey Sampling", 1965), which `of` gives.
    """
    hits = total = squares = 0.0
    for hit, weight in cases:
        hits, total, squares = hits + weight * hit, total + weight, squares + weight * weight
    if not squares:
        return share(0, 0)
    effective = total * total / squares
    return share(effective * hits / total, effective, z)


def mean(numbers: Sequence[float], z: float = Z) -> Mean:
    """The mean with a normal interval, which is fair from some thirty numbers on."""
    count = len(numbers)
    if not count:
        return Mean(0, None)
    middle = math.fsum(numbers) / count
    if count < 3:
        return Mean(count, middle)
    variance = math.fsum((one - middle) ** 2 for one in numbers) / (count - 1)
    half = z * math.sqrt(variance / count)
    return Mean(count, middle, middle - half, middle + half)


def median(numbers: Sequence[float]) -> float | None:
    """The middle of the numbers, or None where there are none."""
    if not numbers:
        return None
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def corrected(found: Share, catch: Share | None) -> Share:
    """How often something is wrong, from how often people `found` it wrong and how much of what is wrong they `catch`.

    People who miss half of the errors report half of the rate. The estimate divides by the share that they catch, which
    planted cases measure: W. J. Rogan and B. Gladen, "Estimating prevalence from the results of a screening test",
    American Journal of Epidemiology 107 (1978), 71-76, with no false alarms assumed. The interval of the ratio is R. G.
    Newcombe's MOVER-R ("MOVER-R confidence intervals for ratios and products of two independently estimated
    quantities", Statistical Methods in Medical Research 25 (2016), 1774-1787), which takes the intervals of both as
    they are. None: nothing was planted, and people are taken to catch everything. Without a planted case that was
    answered nothing is known about the catch; then only the lower end is.
    """
    if catch is None:
        return found
    if found.rate is None or not catch.rate:
        return Share(found.hits, found.of, None, found.low / catch.high, 1.0)
    product = found.rate * catch.rate
    low = _ratio(product, (found.rate, found.low), (catch.rate, catch.high), -1)
    high = _ratio(product, (found.rate, found.high), (catch.rate, catch.low), +1)
    rate = min(1.0, found.rate / catch.rate)
    return Share(found.hits, found.of, rate, min(rate, max(0.0, low)), max(rate, min(1.0, high)))


def _ratio(product: float, above: tuple[float, float], below: tuple[float, float], sign: int) -> float:
    """One end of the interval of a ratio, from one end of each part: (estimate, end) above and below the line."""
    (numerator, upper), (denominator, lower) = above, below
    divisor = lower * (2 * denominator - lower)
    if divisor <= 0:
        return 1.0 if sign > 0 else 0.0
    root = product * product - upper * lower * (2 * numerator - upper) * (2 * denominator - lower)
    return (product + sign * math.sqrt(max(0.0, root))) / divisor


# Reliability of a stated confidence: what was stated beside how it turned out.


BANDS: Final = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Where bands of confidence begin: narrow where confidences crowd, near 1."""


class StatedConfidence(msgspec.Struct, frozen=True, gc=False):
    """One decision: the confidence that was stated, and whether it turned out right.

    `weight` is one over the chance of a review (see `weighted`).
    """

    confidence: float
    right: bool
    weight: float = 1.0


class Band(msgspec.Struct, frozen=True):
    """The decisions stated between `start` and `end`: the mean confidence, and how often they were right."""

    start: float
    end: float
    stated: float
    right: Share

    @property
    def verdict(self) -> str:
        """Compare the stated confidence with the interval of what was right."""
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


def reliability(stated: Iterable[StatedConfidence], bands: Sequence[float] = BANDS) -> Reliability:
    """The table of what was stated and what was right, and its two summaries."""
    cases = list(stated)
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


def _band(cases: list[StatedConfidence], start: float, end: float) -> Band | None:
    inside = [one for one in cases if _inside(one.confidence, start, end)]
    if not inside:
        return None
    weight = math.fsum(one.weight for one in inside)
    stated = math.fsum(one.weight * one.confidence for one in inside) / weight
    return Band(start, end, stated, weighted((one.right, one.weight) for one in inside))


def _weight(cases: list[StatedConfidence], start: float, end: float) -> float:
    return math.fsum(one.weight for one in cases if _inside(one.confidence, start, end))


def _noise(band: Band) -> float:
    """The mean distance of a share from its true rate by chance alone: that of a normal with the same spread."""
    return math.sqrt(2 / math.pi * band.stated * (1 - band.stated) / band.right.of)
