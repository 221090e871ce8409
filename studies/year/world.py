"""What is decided in the year: how many cases come, how often the agent is wrong, what its confidence knows of it."""

from __future__ import annotations

import math
from random import Random

import msgspec


class Year(msgspec.Struct, frozen=True):
    """Every number that the simulated year depends on. Money is in euros, a day is a working day of eight hours."""

    days: int = 240
    arrivals: float = 150.0  # cases a day
    errors: float = 0.03  # share of cases in which the agent is wrong, before the drift
    spread: float = 1.5  # how much cases differ in their chance of an error: standard deviation of its log-odds
    signal: float = 0.7  # correlation of stated confidence with those log-odds; 0: it knows nothing
    level: float = 1.8  # log-odds of the median stated confidence: 1.8 is 86 %
    drift_day: int = 120  # from this day the agent's odds of an error ...
    drift: float = 2.5  # ... are multiplied by this, while it states the same confidence
    amount: float = 60.0  # median amount of a case
    amount_spread: float = 1.2  # standard deviation of its logarithm

    reviewers: int = 2
    hours: float = 6.0  # hours a day that one of them gives to reviews
    reading: float = 3.0  # minutes that a careful review takes
    skim: float = 0.15  # the part of that time that a review takes without any attention
    catch: float = 0.95  # share of errors that full attention catches
    false_no: float = 0.01  # share of right cases that are refused
    patience: float = 2.0  # hours of reading in the queue, for each reviewer, that halve attention
    streak: float = 60.0  # approvals in a row that halve attention
    tiring: float = 0.3  # the part of attention that is gone after a full day of reviews
    floor: float = 0.1  # attention that nothing takes away
    told: bool = True  # whether the notice about a planted case ends a streak

    minute: float = 0.8  # a minute of review
    error: float = 40.0  # an error that went through ...
    error_part: float = 0.3  # ... and this part of its amount
    wrong_no: float = 8.0  # a right case that was refused
    wait: float = 0.4  # an hour of waiting
    expiry_days: float = 3.0  # a case that was not reviewed for so long is refused ...
    expired: float = 12.0  # ... which costs this
    undone: float = 0.5  # the part of an error's cost that is saved when it is found afterwards

    start: float = 0.8  # the threshold of confidence on the first day
    width: float = 0.08  # cases up to this much above it are borderline
    rate: float = 0.15  # share of the borderline cases that is asked about
    shadow: float = 0.02  # share of the other automatic cases that is reviewed afterwards
    planted: float = 0.04  # known-bad cases for each case that is asked about
    asked_from: float = 500.0  # amounts from here on are always asked about


class Case(msgspec.Struct, frozen=True, gc=False):
    """One decision of the agent, and the chances that belong to it under every strategy, so that they compare."""

    at: float  # working minutes since the first morning
    confidence: float
    amount: float
    wrong: bool
    luck_catch: float
    luck_false: float
    luck_sample: float
    luck_plant: float


def days(year: Year, seed: int) -> list[list[Case]]:
    """The cases of each day, in order of arrival."""
    rng = Random(f"year {seed}")  # noqa: S311 - a simulation, not a secret
    middle = _middle(year)
    return [[_case(year, rng, middle, (day, at)) for at in _arrivals(year, rng)] for day in range(year.days)]


DAY = 480.0
"""Working minutes of a day."""


def _arrivals(year: Year, rng: Random) -> list[float]:
    """Poisson arrivals within a day: the waits between them are exponential."""
    found: list[float] = []
    at = rng.expovariate(year.arrivals / DAY)
    while at < DAY:
        found.append(at)
        at += rng.expovariate(year.arrivals / DAY)
    return found


def _case(year: Year, rng: Random, middle: float, when: tuple[int, float]) -> Case:
    day, at = when
    hard, noise = rng.gauss(0, 1), rng.gauss(0, 1)
    odds = middle + year.spread * hard + (math.log(year.drift) if day >= year.drift_day else 0.0)
    seen = -year.signal * hard + math.sqrt(1 - year.signal**2) * noise
    return Case(
        day * DAY + at, _logistic(year.level + seen), year.amount * math.exp(year.amount_spread * rng.gauss(0, 1)),
        rng.random() < _logistic(odds), rng.random(), rng.random(), rng.random(), rng.random(),
    )  # fmt: skip


def _middle(year: Year) -> float:
    """The median log-odds of an error for which the mean chance of one is `errors`, found by halving."""
    low, high = -30.0, 30.0
    for _ in range(60):
        half = (low + high) / 2
        low, high = (half, high) if _mean_chance(half, year.spread) < year.errors else (low, half)
    return low


def _mean_chance(middle: float, spread: float) -> float:
    """The mean of a logistic-normal, summed over a grid of the normal."""
    grid = [step / 20 for step in range(-120, 121)]
    weights = [math.exp(-at * at / 2) for at in grid]
    chances = (weight * _logistic(middle + spread * at) for weight, at in zip(weights, grid, strict=True))
    return math.fsum(chances) / math.fsum(weights)


def _logistic(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))
