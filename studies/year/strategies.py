"""The ways to decide what people are asked: always, never, below a threshold, with samples, with one that moves."""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from holdfast.model.thresholds import Threshold
from holdfast_console.reviews.calibration import Judgement, ThresholdFinding, judged
from holdfast_console.reviews.statistics import Share, share
from studies.year.world import DAY, Case, Year

Route = Literal["auto", "asked", "sampled", "shadow"]


class Strategy(msgspec.Struct, frozen=True):
    """One way. `asks`: everything, nothing, or what a threshold says; the rest adds to a threshold."""

    name: str
    asks: Literal["all", "none", "some"]
    samples: bool = False
    calibrates: bool = False
    plants: bool = False


STRATEGIES: Final = (
    Strategy("always", "all"),
    Strategy("always, planted", "all", plants=True),
    Strategy("never", "none"),
    Strategy("fixed threshold", "some"),
    Strategy("sampling", "some", samples=True),
    Strategy("sampling, calibrated", "some", samples=True, calibrates=True),
    Strategy("calibrated, planted", "some", samples=True, calibrates=True, plants=True),
)


class Desk:
    """A strategy at work: where its threshold stands, and what was found since it last moved."""

    def __init__(self, year: Year, strategy: Strategy) -> None:
        self.year: Final = year
        self.strategy: Final = strategy
        self.threshold: Final = threshold_of(year)
        self.at = self.threshold.start
        self.findings: list[tuple[float, ThresholdFinding]] = []
        self.planted: list[bool] = []
        self.moves: list[Judgement] = []

    def route(self, case: Case) -> Route:
        """What becomes of a case when it comes."""
        if self.strategy.asks == "none":
            return "auto"
        if self.strategy.asks == "all" or case.amount >= self.year.asked_from:
            return "asked"
        if self.threshold.asks(case.confidence, self.at):
            return "asked"
        if not self.strategy.samples:
            return "auto"
        if self.threshold.beside(case.confidence, self.at):
            return "sampled" if case.luck_sample < self.year.rate else "auto"
        return "shadow" if case.luck_sample < self.year.shadow else "auto"

    def learn(self, case: Case, route: Route, *, wrong: bool) -> None:
        """A person's word about a case that the threshold decided; large amounts say nothing about it."""
        if self.strategy.calibrates and route != "shadow" and case.amount < self.year.asked_from:
            weight = 1 / self.year.rate if route == "sampled" else 1.0
            self.findings.append((case.at, ThresholdFinding(case.confidence, wrong, weight)))

    def calibrate(self, now: float) -> None:
        """Once a week: move the threshold if what was found lately proves that it stands wrong."""
        if not self.strategy.calibrates:
            return
        self.findings = [one for one in self.findings if one[0] >= now - MEMORY * DAY]
        found = judged(self.threshold, self.at, (one for _, one in self.findings), self._catch())
        if found.moves:
            self.at, self.findings = found.to, []
            self.moves.append(found)

    def _catch(self) -> Share | None:
        if not self.strategy.plants:
            return None
        recent = self.planted[-RECENT:]
        return share(sum(recent), len(recent))


MEMORY: Final = 60
"""Working days after which a finding is forgotten: agents change."""

RECENT: Final = 100
"""Planted cases that say how well people look now: the newest ones."""


def threshold_of(year: Year) -> Threshold:
    """The threshold of confidence, its goal where a look costs what it saves."""
    return Threshold("sure", start=year.start, least=0.5, most=0.98, step=0.02, width=year.width, goal=break_even(year))


def break_even(year: Year) -> float:
    """The rate of errors at which a careful look costs as much as the errors that it catches."""
    mean_amount = year.amount * math.exp(year.amount_spread**2 / 2)
    return year.reading * year.minute / (year.catch * (year.error + year.error_part * mean_amount))
