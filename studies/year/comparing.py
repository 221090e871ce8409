"""Strategies compared on the same years: the same cases, the same luck, only the questions differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from holdfast_console.reviews.statistics import Mean, mean
from studies.year.living import Lived, live
from studies.year.strategies import STRATEGIES, Strategy
from studies.year.world import Year, days

T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 1 to 29 degrees of freedom: years are few."""

NONE: Final = "never"
ALL: Final = "always"
FIXED: Final = "fixed threshold"
SAMPLING: Final = "sampling"
CALIBRATED: Final = "sampling, calibrated"


class Compared(msgspec.Struct, frozen=True):
    """What some years came to under each strategy, by the name of the strategy, in the order of the seeds."""

    year: Year
    lived: Mapping[str, Sequence[Lived]]

    def cost(self, name: str) -> Mean:
        """Euros for each case, over the years."""
        return over_years([one.cost for one in self.lived[name]])

    def dearer(self, name: str, than: str) -> Mean:
        """How much more one strategy cost for each case, year by year: the years are the same, so they are paired."""
        pairs = zip(self.lived[name], self.lived[than], strict=True)
        return over_years([one.cost - other.cost for one, other in pairs])

    @property
    def cheapest(self) -> str:
        """The strategy with the lowest mean cost."""
        return min(self.lived, key=lambda name: self.cost(name).mean or 0.0)

    def as_cheap(self, name: str) -> bool:
        """Whether these years cannot tell a strategy from the cheapest one."""
        best = self.cheapest
        return name == best or (self.dearer(name, best).low or 0.0) <= 0


def compare(year: Year, seeds: Iterable[int], strategies: Sequence[Strategy] = STRATEGIES) -> Compared:
    """Live one year for each seed under every strategy."""
    lived: dict[str, list[Lived]] = {one.name: [] for one in strategies}
    for seed in seeds:
        cases = days(year, seed)
        for one in strategies:
            lived[one.name].append(live(year, one, seed, cases))
    return Compared(year, lived)


def over_years(numbers: Sequence[float]) -> Mean:
    """The mean over a few years, with Student's interval."""
    freedom = len(numbers) - 1
    return mean(numbers, T[freedom - 1] if 1 <= freedom <= len(T) else 1.96)
