"""Thresholds of a policy: a number that separates calls sent unattended from calls asked about, and its moves.

Policies declare them and apps judge by them. Which move the answers of reviewers prove is for the console to say.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

THRESHOLDS: Final = "thresholds/"
"""The ledger streams of moves: the name of the threshold follows."""

Safe = Literal["above", "below"]
Measure = Literal["confidence", "amount"]


class Threshold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number that separates calls sent unattended from calls asked about, and how it may move.

    `safe` is the side without a question: above it for a confidence, below it for an amount. `goal` is the rate
    of errors at which asking costs what not asking does. It moves by `step`, never out of `least` to `most`, by what
    was found within `width` of it on either side, on `enough` cases of that side; `slack` is the part of the goal by
    which a finding has to miss it before anything moves.
    """

    name: str
    start: float
    least: float
    most: float
    step: float
    width: float
    goal: float = 0.03
    slack: float = 0.1
    enough: int = 30
    safe: Safe = "above"
    of: Measure = "confidence"

    def __post_init__(self) -> None:
        if not self.least <= self.start <= self.most:
            raise ValueError(f"{self.name}: it starts at {self.start}, outside {self.least} to {self.most}")
        if self.step <= 0 or self.width <= 0 or self.enough < 1:
            raise ValueError(f"{self.name}: step and width are above 0, and enough is at least 1")
        if not 0 < self.goal < 1 or not 0 <= self.slack < 1:
            raise ValueError(f"{self.name}: goal is a rate between 0 and 1, slack the part of it that is let pass")


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """A move of a threshold: its new place, who moved it, and why."""

    name: str
    before: float
    after: float
    by: str
    why: str = ""
