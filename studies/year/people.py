"""Reviewers who tire: attention falls with what waits, with a row of approvals, and over the day.

The shapes are those of the literature; the numbers are chosen, and swept. Attention wanes while nothing happens (N. H.
Mackworth, "The breakdown of vigilance during prolonged visual search", Quarterly Journal of Experimental Psychology 1,
1948), what is rare is missed more often (J. M. Wolfe, T. S. Horowitz and N. M. Kenner, "Rare items often missed in
visual searches", Nature 435, 2005), and who supervises a machine that is mostly right relies on it (R. Parasuraman and
D. H. Manzey, "Complacency and bias in human use of automation", Human Factors 52, 2010).
"""

from __future__ import annotations

from typing import Final, Literal

from studies.year.world import Case, Year

Word = Literal["yes", "no"]


class Reviewer:
    """One person: since when free, how long at work today, and how many approvals in a row."""

    def __init__(self, year: Year) -> None:
        self.year: Final = year
        self.free = 0.0
        self.worked = 0.0
        self.streak = 0.0

    def morning(self, at: float) -> None:
        """A night's sleep: the day begins anew, and half of the habit is gone."""
        self.free, self.worked, self.streak = at, 0.0, self.streak / 2

    def attention(self, waiting: int) -> float:
        """From `floor` to 1, with so many cases waiting."""
        year = self.year
        pressure = waiting * year.reading / 60 / year.reviewers / year.patience
        habit = self.streak / year.streak
        tired = year.tiring * self.worked / (year.hours * 60)
        return year.floor + (1 - year.floor) * max(0.0, 1 - tired) / (1 + pressure) / (1 + habit)

    def look(self, case: Case, attention: float) -> tuple[Word, float]:
        """What this person says about a case, and how many minutes that takes."""
        year = self.year
        minutes = year.reading * (year.skim + (1 - year.skim) * attention)
        refused = case.luck_catch < year.catch * attention if case.wrong else case.luck_false < year.false_no
        self.free += minutes
        self.worked += minutes
        self.streak = 0.0 if refused else self.streak + 1
        return ("no" if refused else "yes"), minutes

    @property
    def spent(self) -> bool:
        """Whether this person's hours are over for today."""
        return self.worked >= self.year.hours * 60
